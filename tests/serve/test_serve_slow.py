# SPDX-License-Identifier: Apache-2.0
"""Clients that drip, hang, or never read: each is dropped by a deadline that none of its bytes postpones, and no normal request is lost or slow meanwhile.

    test_serve_slow.py          with short deadlines, a few seconds
    test_serve_slow.py deep     with the usual ones, a minute
"""
import json
import random
import socket
import sys
import threading
import time

from server import CHAT, SANITIZED, SLOWER, Server, check, slow_model, statuses, until, verdict

DEEP = sys.argv[1:] == ['deep']
SECONDS, PERIOD = (60, 5) if DEEP else (8 * min(SLOWER, 2), 0.4)
LIMITS = () if DEEP else ('--timeout-head', 2, '--timeout-body', 3, '--timeout-idle', 3, '--timeout-write', 2)
MANY = 200
BODY = json.dumps({'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 4}).encode()
HEAD = b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % (CHAT.encode(), len(BODY))


class Dripper:
    """One slow connection; comes back when it is dropped, as attackers do."""

    def __init__(self, server, kind):
        self.server, self.kind, self.ends, self.answers = server, kind, [], []
        self.socket = None
        self.open()

    def open(self):
        self.begun, self.sent = time.monotonic(), 0
        self.socket = self.server.connect()
        self.socket.setblocking(False)
        if self.kind == 'body':
            self.socket.send(HEAD)

    def turn(self):
        data = {'head': HEAD, 'body': BODY, 'nothing': b''}[self.kind]
        try:
            if self.sent < len(data):
                self.socket.send(data[self.sent:self.sent + 1])
                self.sent += 1
            got = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            got = b''
        if got:
            self.answers += statuses(got)
            return
        self.ends.append(time.monotonic() - self.begun)
        self.socket.close()
        self.open()


def drip(server, stop, drippers):
    while not stop.is_set():
        turn = time.monotonic()
        for d in drippers:
            d.turn()
        stop.wait(max(0.05, PERIOD - (time.monotonic() - turn)))


def crowd():
    with Server(*LIMITS) as s:
        s.chat(max_tokens=4)
        usual = []
        for _ in range(5):
            begun = time.monotonic()
            s.chat(max_tokens=4)
            usual.append(time.monotonic() - begun)
        before = s.usage()
        drippers = [Dripper(s, ('head', 'body', 'nothing')[i % 3]) for i in range(MANY)]
        stop = threading.Event()
        thread = threading.Thread(target=drip, args=(s, stop, drippers))
        thread.start()
        times, lost, end = [], 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            begun = time.monotonic()
            a = s.chat(max_tokens=4)
            times.append(time.monotonic() - begun)
            lost += a.status != 200
            time.sleep(max(0, (1 if DEEP else 0.3) - times[-1]))
        stop.set()
        thread.join()
        check(lost == 0, f'{lost} of {len(times)} normal requests were lost')
        median = sorted(times)[len(times) // 2]
        check(median < max(usual) + 0.05 * SLOWER and max(times) < max(usual) + 0.5 * SLOWER, f'normal requests take {median:.3f} s, at most {max(times):.3f}')
        longest = {'head': 10 if DEEP else 2, 'body': 30 if DEEP else 3, 'nothing': 10 if DEEP else 2}
        for kind, limit in longest.items():
            ends = [x for d in drippers if d.kind == kind for x in d.ends]
            answers = {x for d in drippers if d.kind == kind for x in d.answers}
            want = set() if kind == 'nothing' else {408}
            check(ends and max(ends) < limit + 3 * PERIOD + 2 * SLOWER and min(ends) > limit - 1, f'{kind}: dropped after {limit} s, in fact {min(ends or [0]):.1f} to {max(ends or [0]):.1f}')
            check(answers == want, f'{kind}: answered {answers}')
        for d in drippers:
            d.socket.close()
        check(until(lambda: s.usage()[1] <= before[1], 15), f'descriptors return: {before[1]} {s.usage()[1]}')
        after = s.usage()
        check(after[0] - before[0] < 8 << 20 or SANITIZED, f'memory returns: {before[0] >> 10} KiB, {after[0] >> 10} KiB')
        check(after[2] == before[2], f'threads: {before[2]} {after[2]}')


def too_many():
    """When all places are taken, those who say nothing give way to those who ask."""
    with Server('--connections', 20, '--timeout-head', 30, '--timeout-idle', 30) as s:
        idle = [s.connect() for _ in range(20)]
        a = s.chat(max_tokens=2)
        check(a.status == 200, f'silent connections make room: {a}')
        busy = []
        for _ in range(30):
            c = s.connect()
            c.sendall(HEAD + BODY[:10])  # these are in the middle of a request, and keep their places
            busy.append(c)
        time.sleep(0.3)
        with s.connect(3 * SLOWER) as c:
            raw = b''
            try:
                c.sendall(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
                raw = c.recv(4096)
            except OSError:
                pass
        check(statuses(raw) in ([503], []), f'no place is left: {raw[:80]!r}')
        check(raw == b'' or b'"code": "connections"' in raw, f'and a body says so: {raw!r}')
        for c in idle + busy:
            c.close()
        check(until(lambda: s.chat(max_tokens=1).status == 200, 5), 'and afterwards there is')


def few_descriptors():
    """A system that gives few descriptors: fewer connections, and no spinning."""
    with Server('--timeout-head', 30, wrapper=['sh', '-c', 'ulimit -n 100; exec "$@"', 'sh']) as s:
        idle = []
        for _ in range(150):
            idle.append(s.connect())
        check(s.chat(max_tokens=2).status == 200, 'more connections than descriptors: who asks is answered')
        for c in idle:
            c.close()


def stuck_reader():
    """A reader that takes nothing is dropped, its memory bounded and its place freed."""
    model, options = slow_model()
    with Server(*options, *LIMITS, '--parallel', 1, model=model) as s:
        body = json.dumps({'prompt': 'Hello', 'max_tokens': 400, 'stream': True, 'ignore_eos': True, 'logprobs': 20}).encode()
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(('127.0.0.1', s.port))
        c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        check(until(lambda: s.metric('ironmule_requests_running') == 1, 10), 'it runs')
        check(until(lambda: s.metric('ironmule_requests_running') == 0, 40), 'its place is freed')
        c.close()
        # One that leaves in the middle of its answer, and one in the middle of its prompt.
        begun = time.monotonic()
        with s.connect() as c:
            c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            c.recv(1000)
        check(until(lambda: s.metric('ironmule_requests_running') == 0, 2), f'one that leaves frees its place: {time.monotonic() - begun:.2f} s')
        long = json.dumps({'prompt': [5 + i % 300 for i in range(500)], 'max_tokens': 4}).encode()
        with s.connect() as c:
            c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(long) + long)
            until(lambda: s.metric('ironmule_requests_running') == 1, 5)
        begun = time.monotonic()
        check(until(lambda: s.metric('ironmule_requests_running') == 0, 2), f'also in its prompt: {time.monotonic() - begun:.2f} s')
        check(until(lambda: 'reason=client_left' in s.text(), 3), 'the log says so')


def greedy_clients():
    """Who asks without reading, or sends large bodies from everywhere, does not take the server's memory."""
    with Server(*LIMITS, '--timeout-body', 20) as s:
        before = s.usage()
        c = s.connect()
        c.setblocking(False)
        asked, end = b'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' * 1000, time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                c.send(asked)
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        grown = s.usage()[0] - before[0]
        check(grown < 4 << 20 or SANITIZED, f'answers that nobody reads take {grown >> 10} KiB')
        c.close()
        half = b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n' % CHAT.encode() + b' ' * 900000
        many, seen = [], []
        for _ in range(120):
            k = s.connect(5)
            many.append(k)
            try:
                k.sendall(half)
            except OSError:
                pass
        check(s.chat(max_tokens=2).status == 200, 'a small request goes through')
        check(until(lambda: s.metric('ironmule_refusals_total{reason="memory"}') or 0, 10), 'some are refused')
        for k in many:
            k.settimeout(0.2)
            try:
                seen += statuses(k.recv(65536))
            except OSError:
                pass
            k.close()
        check(seen.count(503) > 20 and set(seen) == {503}, f'large bodies share a budget: {len(seen)} answers, {set(seen)}')
        check(until(lambda: s.get('/health').status == 200 and s.metric('ironmule_connections') <= 2, 10), 'and all of it is given back')
        large = s.post('/tokenize', {'text': 'a ' * 300000})
        check(large.status == 200, f'a large body alone is read: {large.status}')


def broken_clients():
    """A little of everything, at random but always the same."""
    rng = random.Random(7)
    with Server(*LIMITS) as s:
        before = s.usage()
        whole = HEAD + BODY
        for i in range(300):
            c = s.connect()
            kind = rng.randrange(5)
            try:
                if kind == 0:
                    c.sendall(whole[:rng.randrange(len(whole))])
                elif kind == 1:
                    c.sendall(whole)
                elif kind == 2:
                    c.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(400))))
                elif kind == 3:
                    c.sendall(whole * 3)
                    c.shutdown(socket.SHUT_WR)
                else:
                    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')  # closing resets
                    c.sendall(whole[:-1] + b',"stream":true}')
            except OSError:
                pass
            c.close()
        check(until(lambda: s.chat(max_tokens=2).status == 200, 5), 'the server lives')  # at first its queue may be full
        check(until(lambda: s.usage()[1] <= before[1], 15), f'descriptors return: {before[1]} {s.usage()[1]}')
        check(until(lambda: s.metric('ironmule_requests_running') == 0, 5), 'nothing goes on for nobody')


def main():
    crowd()
    too_many()
    few_descriptors()
    stuck_reader()
    greedy_clients()
    broken_clients()
    return verdict()


raise SystemExit(main())
