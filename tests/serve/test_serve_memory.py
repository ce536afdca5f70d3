# SPDX-License-Identifier: Apache-2.0
"""Thousands of requests of every kind: memory beyond the cache's limit, descriptors and threads stay as they are.

    test_serve_memory.py          some hundreds of each kind
    test_serve_memory.py deep     two thousand of each
"""
import contextlib
import json
import sys
import time

from server import CHAT, COMPLETIONS, SANITIZED, SLOWER, Server, Stream, check, slow_model, until, verdict

DEEP = sys.argv[1:] == ['deep']
COUNT, EVERY = (2000, 100) if DEEP else (400 if SLOWER == 1 else 60, 40 if SLOWER == 1 else 10)
CACHE = 4 << 20
TOKENS = 32


def ids(i):
    """A prompt unlike the others."""
    return [10 + (i * 7919 + k * (1 + i % 13)) % 300 for k in range(20 + i % 90)]


def distinct(s, c, i):
    return ask(c, {'prompt': ids(i), 'max_tokens': TOKENS, 'ignore_eos': True})


def identical(s, c, i):
    return ask(c, {'prompt': 'Hello there', 'max_tokens': TOKENS, 'ignore_eos': True})


def refused(s, c, i):
    return ask(c, [{'prompt': 7}, {'prompt': 'x' * 5000}, {}, {'prompt': 'a', 'stop': ''}, {'prompt': 'a', 'max_tokens': 0}][i % 5], 400)


def with_logprobs(s, c, i):
    return ask(c, {'prompt': ids(i), 'max_tokens': TOKENS, 'ignore_eos': True, 'logprobs': 20, 'stream': i % 2 == 0, 'n': 1 + i % 3})


def templated(s, c, i):
    return ask(c, {'messages': [{'role': 'user', 'content': f'Question {i}'}], 'max_tokens': 2, 'stream': i % 2 == 0}, path=CHAT)


def cut(s, c, i):
    """Left by the client in the middle of the stream."""
    body = json.dumps({'prompt': ids(i), 'max_tokens': 300, 'ignore_eos': True, 'stream': True}).encode()
    with s.connect() as k:
        k.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        got = b''
        while got.count(b'data: ') < 3:
            piece = k.recv(4096)
            if not piece:
                return False
            got += piece
    return True


def ask(c, body, status=200, path=COMPLETIONS):
    c.request('POST', path, json.dumps(body), {'Content-Type': 'application/json'})
    r = c.getresponse()
    r.read()
    return r.status == status


def slope(values):
    """Growth from the first half's smallest to the second half's smallest: what comes and goes does not count."""
    half = len(values) // 2
    return min(values[half:]) - min(values[:half])


def waiting():
    """Requests that wait have let go of their bodies: what is ignored in one of them may be a hundred times larger as a document."""
    model, options = slow_model()
    body = b'{"prompt":"a","max_tokens":1,"odd":[' + b'{},' * 340000 + b'{}]}'
    with Server(*options, '--parallel', '1', model=model) as s:
        first = Stream(s, {'prompt': 'Hello', 'max_tokens': 400, 'ignore_eos': True}, COMPLETIONS)
        first.first.wait()
        before, all_of_them = s.usage()[0], [s.connection() for _ in range(6)]
        for c in all_of_them:
            c.request('POST', COMPLETIONS, body, {'Content-Type': 'application/json'})
        check(until(lambda: s.metric('ironmule_requests_queued') == 6, 60), 'six requests wait')
        grown = s.usage()[0] - before
        print(f'six bodies of a megabyte that wait: {grown >> 20} MiB')
        check(not first.thread.is_alive() or grown < 200 << 20 or SANITIZED, f'six bodies of a megabyte that wait take {grown >> 20} MiB')
        check(first.thread.is_alive(), 'they wait all the while')
        first.leave()
        for c in all_of_them:
            c.close()


def main():
    waiting()
    with Server('--cache-ram', CACHE) as s:
        with contextlib.closing(s.connection()) as c:
            for i in range(50):
                for kind in (distinct, identical, refused, with_logprobs, templated):
                    kind(s, c, i + 100000)
                cut(s, c, i)
            for kind in (distinct, identical, cut, refused, with_logprobs, templated):
                memory, good, begun = [], 0, time.monotonic()
                until(lambda: s.metric('ironmule_requests_running') == 0, 5)
                s.get('/health')
                before = s.usage()
                for i in range(COUNT):
                    good += kind(s, c, i)
                    if i % EVERY == EVERY - 1:
                        memory.append(s.usage()[0])
                until(lambda: s.metric('ironmule_requests_running') == 0, 5)
                until(lambda: s.usage()[1] <= before[1], 5)
                after = s.usage()
                growth = slope(memory)
                print(f'{kind.__name__}: {COUNT} requests in {time.monotonic() - begun:.1f} s, memory {memory[0] >> 10} to {memory[-1] >> 10} KiB, slope {growth >> 10} KiB')
                check(good == COUNT, f'{kind.__name__}: {COUNT - good} of {COUNT} went wrong')
                limit = CACHE + (1 << 20) if kind in (distinct, with_logprobs) else 512 << 10
                check(growth < limit or SANITIZED, f'{kind.__name__}: memory grows by {growth >> 10} KiB over half of {COUNT} requests')
                check(after[1] <= before[1] and after[2] == before[2], f'{kind.__name__}: descriptors and threads {before[1:]}, then {after[1:]}')
    return verdict()


raise SystemExit(main())
