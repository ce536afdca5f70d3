# SPDX-License-Identifier: Apache-2.0
"""A disk that takes nothing more: the prefix cache on it pauses, says so once, and goes on when there is room. No answer differs, and nobody is refused."""
import http.client
import os
import resource
import socket
import subprocess
import tempfile

from server import COMPLETIONS, SLOWER, TINY, Server, Stream, check, command, until, verdict

LITTLE = 1000  # bytes that a file may have: fewer than a page


def limit_files():
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LITTLE, most))


def ask(s, number):
    a = s.complete([5 + (7 * i + number) % 300 for i in range(200)], max_tokens=5, ironmule={'logits_hash': True})
    return check(a.status == 200, f'answered: {a}') and a.json()['ironmule']['logits_hash']


def log_that_may_not_grow():
    """Standard error in a file that has all the bytes that it may have."""
    with socket.create_server(('127.0.0.1', 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        p = subprocess.Popen(command('serve', TINY, '--port', port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limit_files)
        c = http.client.HTTPConnection('127.0.0.1', port, timeout=10 * SLOWER)

        def asked():
            try:
                c.request('GET', '/health')
                return c.getresponse().read()
            except OSError:
                c.close()
        check(until(asked), 'it listens')
        check(all(asked() for _ in range(30)) and p.poll() is None, 'and goes on when nothing can be logged any more')
        c.close()
        p.terminate()
        check(p.wait(30 * SLOWER) == 0 and os.fstat(log.fileno()).st_size <= LITTLE, f'and ends as always: {p.returncode}')


def main():
    log_that_may_not_grow()
    with Server() as s:
        want = [ask(s, number) for number in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, 'cache')
        with Server('--cache-dir', cache, '--cache-ram', '4M', preexec_fn=limit_files) as s:
            check([ask(s, number) for number in range(3)] == want, 'the same answers on a full disk')
            check(until(lambda: 'pages are not kept' in s.text()), f'the log says so: {s.text()}')
            check([ask(s, number) for number in range(3)] == want and s.get('/ready').status == 200, 'and the server goes on')
            check(s.text().count('pages are not kept') == 1 and 'File too large' in s.text(), f'once, with the reason: {s.text()}')
            check(s.metric('ironmule_disk_cache_writes_total') == 0 and not [x for x in os.listdir(cache) if x != 'lock'], f'nothing half is left: {os.listdir(cache)}')
            _, most = resource.prlimit(s.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (most, most))  # somebody has made room
            check([ask(s, number) for number in (0, 1, 2)] == want, 'the same answers when there is room')
            stream = Stream(s, {'prompt': [9] * 150, 'max_tokens': 3}, COMPLETIONS)
            check(stream.wait() and until(lambda: s.metric('ironmule_disk_cache_writes_total')), 'and pages are kept again')
        with Server('--cache-dir', cache, '--cache-ram', '4M') as s:
            check([ask(s, number) for number in range(3)] == want, 'after a restart')
            check(s.metric('ironmule_disk_cache_dropped_total') == 0, 'every file that is there is whole')
    return verdict()


raise SystemExit(main())
