# SPDX-License-Identifier: Apache-2.0
"""A request gets the same bits alone and in a crowd: text, finish reason and logits_hash, whatever else runs, was run before, lies in the cache, or survived a restart.

    test_serve_crowd.py tiny | smollm2 | gemma3
"""
import sys
import tempfile
import threading

from server import COMPLETIONS, GEMMA3, SMOLLM2, SLOWER, TINY, Server, check, joined, need_model, verdict

MODEL = {'tiny': lambda: TINY, 'smollm2': lambda: need_model(SMOLLM2), 'gemma3': lambda: need_model(GEMMA3)}[sys.argv[1]]()
IS_TINY = sys.argv[1] == 'tiny'
TOKENS = 64 if IS_TINY else 24
LENGTHS = (1, 2, 3, 17, 63, 64, 65, 100, 128, 200, 256, 300) if SLOWER == 1 else (1, 3, 64, 65)
CONTEXT = ('--context', 512)


def prompt(n, salt=0):
    """Ids that begin alike in groups of three, so that the cache has something to share."""
    return [10 + (k * 31 + (n % 3) * 7 * (k > 70) + salt) % 280 for k in range(n)]


def body(n, seed=None, **more):
    sampling = {} if seed is None else {'temperature': 0.8, 'seed': seed, 'top_p': 0.95}
    return {'prompt': prompt(n), 'max_tokens': TOKENS, 'ignore_eos': True, 'ironmule': {'logits_hash': True, 'token_ids': True}, **sampling, **more}


def essence(a):
    if a.status != 200:
        return a.status, a.body
    j = a.json()
    c = j['choices'][0]
    return c['text'], c['finish_reason'], j['ironmule']['logits_hash'], j['ironmule']['token_ids'], j['usage']['prompt_tokens'], j['usage']['completion_tokens']


def streamed(s, b):
    events = s.events(COMPLETIONS, b)
    ours = events[-2]['ironmule']
    return joined(events) + (ours['logits_hash'], ours['token_ids'])


BODIES = {f'{n} tokens{"" if seed is None else f", seed {seed}"}': body(n, seed) for seed in (None, 11) for n in LENGTHS}


def at_once(s, jobs, what, want):
    """All jobs at the same time, each as (name, body); every answer must be its own."""
    got = [None] * len(jobs)

    def one(i):
        got[i] = essence(s.post(COMPLETIONS, jobs[i][1]))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wrong = [name for (name, _), g in zip(jobs, got) if name in want and g != want[name]]
    check(not wrong, f'{what}: {len(wrong)} of {len(jobs)} differ, for example {wrong[:2]}')


def in_turn(s, what, want):
    wrong = [name for name, b in BODIES.items() if essence(s.post(COMPLETIONS, b)) != want[name]]
    check(not wrong, f'{what}: {wrong[:3]}')


def main():
    want = {}
    with Server(*CONTEXT, '--cache-ram', 0, '--parallel', 1, model=MODEL) as s:
        for name, b in BODIES.items():
            want[name] = essence(s.post(COMPLETIONS, b))
    check(all(len(w) == 6 for w in want.values()) and len({w[2] for w in want.values()}) > len(LENGTHS), 'the answers are answers, and differ')
    for name in list(BODIES)[::5] if IS_TINY else list(BODIES)[:2]:  # alone on a process of its own
        with Server(*CONTEXT, model=MODEL) as s:
            check(essence(s.post(COMPLETIONS, BODIES[name])) == want[name], f'{name}: a fresh process')

    with tempfile.TemporaryDirectory() as folder:
        disk = ('--cache-dir', folder, '--cache-ram', '4M' if IS_TINY else '64M')
        with Server(*CONTEXT, '--parallel', 8, '--queue', 500, *disk, model=MODEL) as s:
            jobs = list(BODIES.items())
            at_once(s, jobs, 'all at once', want)
            at_once(s, jobs * 4 if IS_TINY else jobs[::2] * 2, 'several of each at once', want)
            in_turn(s, 'warm', want)
            check(s.metric('ironmule_cached_tokens_total') > 0, 'the cache has had its part')
            others = [('', body(5 + i % 90, i if i % 2 else None, prompt=prompt(20 + i, i), max_tokens=8)) for i in range(100 if IS_TINY else 20)]
            at_once(s, others[:50], 'others', {})
            at_once(s, others[50:], 'others', {})
            in_turn(s, 'after others', want)
            hot = [('', body(40, None, prompt=prompt(40, i), temperature=1.2, max_tokens=TOKENS)) for i in range(4)]  # unseeded neighbours
            at_once(s, jobs + hot, 'beside unseeded ones', want)
            for name, b in list(BODIES.items())[:: 3 if IS_TINY else 6]:
                w = want[name]
                check(streamed(s, b) == (w[0], w[1], w[2], w[3]), f'{name}: streamed')
                check(essence(s.post(COMPLETIONS, {**b, 'logprobs': 5})) == w, f'{name}: with logprobs')
                plain = s.post(COMPLETIONS, {**b, 'ironmule': {'logits_hash': True, 'token_ids': True, 'no_cache': True}})
                check(essence(plain) == w, f'{name}: without the cache')
        with Server(*CONTEXT, '--parallel', 3, *disk, model=MODEL) as s:
            in_turn(s, 'after a restart with the cache folder', want)
            if max(LENGTHS) > 130:
                check(s.metric('ironmule_disk_cache_hits_total') > 0, 'the folder has had its part')
    for options in (('--threads', 1), ('--threads', 2, '--chunk', 1), ('--chunk', 16), ('--chunk', 512), ('--cpu', 'c')) if IS_TINY else (('--threads', 1), ('--chunk', 16)):
        with Server(*CONTEXT, *options, model=MODEL) as s:
            at_once(s, list(BODIES.items())[:: 1 if IS_TINY else 5], ' '.join(map(str, options)), want)
    return verdict()


raise SystemExit(main())
