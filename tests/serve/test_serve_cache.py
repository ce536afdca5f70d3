# SPDX-License-Identifier: Apache-2.0
"""Why a prompt was computed again: each reason in the metrics and in the debug log, without any text; and limits of the cache that hold."""
import os
import re
import tempfile

from server import Server, check, until, verdict

PAGE = 64


def prompt(seed, n=200):
    return [5 + (7 * i + 13 * seed + i * i * seed) % 300 for i in range(n)]


def misses(s):
    return {m[1]: int(m[2]) for m in re.finditer(r'^ironmule_cache_misses_total\{reason="(\w+)"\} (\d+)$', s.get('/metrics').body.decode(), re.M)}


def ask(s, ids, **more):
    a = s.complete(ids, max_tokens=2, **more)
    check(a.status == 200, f'answered: {a}')
    return a.json()['usage']['prompt_tokens_details']['cached_tokens']


def reasons():
    with Server('--log-level', 'debug', '--context', 512, '--cache-ram', '1M') as s:
        whole = prompt(1)
        for what, ids, reason, least, more in (
                ('a short one', prompt(4, PAGE // 2), 'short', 0, {}), ('a new one', whole, 'new', 0, {}), ('the same again', whole, None, 3 * PAGE, {}),
                ('the same beginning', whole[:2 * PAGE] + prompt(2, 72), 'diverged', 2 * PAGE, {}),
                ('one that does not want it', whole, 'off', 0, {'ironmule': {'no_cache': True}})):
            before, hits = misses(s), s.metric('ironmule_cache_hits_total')
            cached = ask(s, ids, **more)
            now = misses(s)
            grown = {k: now[k] - before[k] for k in now if now[k] != before[k]}
            check(grown == ({reason: 1} if reason else {}), f'{what}: counted as {reason}: {grown}')
            check(cached >= least and (cached == 0) == (least == 0), f'{what}: {cached} of {len(ids)} tokens were found')
            check((s.metric('ironmule_cache_hits_total') > hits) == (least > 0), f'{what}: a hit or none')
            said = f'prefix cache: {cached} of {len(ids)} prompt tokens found; {reason}'
            check(reason is None or until(lambda: [x for x in s.log if said in x and ' debug ' in x]), f'{what}: the debug log has its reason: {s.text()[-400:]}')
        for seed in range(10, 90):
            ask(s, prompt(seed, 400))
        before = misses(s)
        ask(s, whole)
        check(misses(s)['evicted'] == before['evicted'] + 1, f'one that had to make room: {before} {misses(s)}')
        check(set(misses(s)) == {'off', 'short', 'new', 'diverged', 'evicted', 'window'}, f'all reasons are there: {misses(s)}')


def levels():
    for level, request, debug in (('debug', True, True), ('info', True, False), ('warning', False, False)):
        with Server('--log-level', level) as s:
            ask(s, prompt(3))
            until(lambda: 'status=200' in s.text(), 0.5)
            check(('status=200' in s.text()) == request and (' debug ' in s.text()) == debug, f'--log-level {level}: {s.text()}')


def small_folder():
    """The folder stays within its limit, whatever is asked."""
    with tempfile.TemporaryDirectory() as folder:
        limit = 200 << 10
        with Server('--cache-dir', folder, '--cache-disk', '200K', '--cache-ram', '4M') as s:
            for seed in range(100, 120):
                ask(s, prompt(seed, 300))
            check(until(lambda: s.metric('ironmule_disk_cache_writes_total') >= 20), 'pages are written')
        sizes = [os.path.getsize(os.path.join(folder, x)) for x in os.listdir(folder)]
        check(0 < sum(sizes) <= limit + 4096, f'{len(sizes)} files of {sum(sizes)} bytes, at most {limit}')
        check(all(os.stat(os.path.join(folder, x)).st_mode & 0o077 == 0 for x in os.listdir(folder)), 'for their owner alone')


def main():
    reasons()
    levels()
    small_folder()
    return verdict()


raise SystemExit(main())
