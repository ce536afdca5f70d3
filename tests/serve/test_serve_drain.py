# SPDX-License-Identifier: Apache-2.0
"""How a server ends: what runs is finished, what waits is finished or refused, idle connections hold nothing up, a second signal leaves at once, and the port is free."""
import contextlib
import os
import signal
import socket
import tempfile
import time

from server import CHAT, SLOWER, Server, Stream, check, drain, skip, slow_model, statuses, until, verdict

MODEL, OPTIONS = slow_model()
LONG = {'messages': [{'role': 'user', 'content': 'Hello'}], 'max_tokens': 50, 'ignore_eos': True}


def complete(stream, what):
    events = stream.events()
    chunks = [e for e in events if e != '[DONE]']
    check(stream.status == 200 and events[-1] == '[DONE]' and chunks[-1]['choices'][0]['finish_reason'] == 'length', f'{what}: its normal end: {events[-1]}')


def running(s, streams=4, queued=2):
    """So many streams that run, and requests that wait."""
    s1 = [Stream(s, LONG) for _ in range(streams)]
    check(all(x.first.wait(30 * SLOWER) for x in s1), 'the streams have begun')
    s2 = [Stream(s, {**LONG, 'max_tokens': 20}) for _ in range(queued)]
    check(until(lambda: s.metric('ironmule_requests_queued') == queued), 'others wait')
    return s1, s2


def gentle(number):
    what = signal.Signals(number).name
    s = Server(*OPTIONS, '--parallel', 4, '--drain', 60 * SLOWER, model=MODEL)
    idle = [s.connect() for _ in range(50)]
    for c in idle[:25]:  # half of them have been used before
        c.sendall(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
        c.recv(4096)
    kept = s.connection()
    kept.request('GET', '/ready')
    kept.getresponse().read()
    streams, queued = running(s)
    s.signal(number)
    check(until(lambda: 'no new connections' in s.text(), 5), f'{what}: said')
    with contextlib.suppress(OSError):
        s.connect(1).close()
        check(False, f'{what}: no new connections')
    for c in (idle[0], idle[-1]):
        c.settimeout(1 * SLOWER)
        try:
            check(c.recv(100) == b'', f'{what}: an idle connection is closed')
        except TimeoutError:
            check(False, f'{what}: an idle connection is closed at once')
    check(all(x.wait(60 * SLOWER) for x in streams + queued), f'{what}: all are answered')
    for x in streams:
        complete(x, what)
    for x in queued:
        if x.status == 503:
            check(b'"error"' in x.raw, f'{what}: a refusal has its body')
        else:
            complete(x, f'{what}, queued')
    begun = time.monotonic()
    code = s.wait()
    check(code == 0, f'{what}: exit code {code}, {s.text()[-2000:]}')
    check(time.monotonic() - begun < 2 * SLOWER, f'{what}: idle connections hold nothing up')
    for c in idle:
        c.close()
    again = Server('--port', s.port)
    check(again.get('/health').status == 200, f'{what}: the port can be bound again at once')
    check(again.stop() == 0, f'{what}: and left again')


def at_once():
    """Requests, goodbyes and the signal lie there together when the server next looks: it ends as always, and nothing is left behind."""
    for turn in range(6):
        s = Server()
        many = [s.connection() for _ in range(40)]
        for c in many:
            c.request('GET', '/health')
            c.getresponse().read()
        os.kill(s.pid, signal.SIGSTOP)
        for i, c in enumerate(many):
            if i == 20:
                s.signal(signal.SIGTERM if turn % 2 else signal.SIGINT)
            if i % 2:
                c.sock.sendall(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
            else:
                c.close()
        os.kill(s.pid, signal.SIGCONT)
        code = s.wait()
        check(code == 0, f'all at once: exit code {code}, {s.text()[-2000:]}')
        for c in many:
            c.close()


def second_signal():
    s = Server(*OPTIONS, '--parallel', 4, model=MODEL)
    running(s)
    s.signal()
    check(until(lambda: 'no new connections' in s.text(), 5), 'the first signal')
    begun = time.monotonic()
    s.signal()
    code = s.wait(10)
    check(code == 128 + signal.SIGTERM and time.monotonic() - begun < 0.5 * SLOWER, f'the second signal leaves at once: {code}')


def deadline():
    s = Server(*OPTIONS, '--parallel', 2, '--drain', 0.2, model=MODEL)
    streams, queued = running(s, 2, 1)
    s.signal()
    begun = time.monotonic()
    code = s.wait(30)
    check(code == 0 and time.monotonic() - begun < 3 * SLOWER, f'the deadline ends it: {code}')
    check(all(x.wait(5) for x in streams + queued), 'everyone is told')
    for x in streams:
        check(b'"code": "stopping"' in x.raw or b'[DONE]' in x.raw, f'a stream is told why it ends: {x.raw[-200:]!r}')
    check(all(x.status == 503 or b'[DONE]' in x.raw for x in queued), f'what waited is refused: {[x.status for x in queued]}')


def while_draining():
    s = Server(*OPTIONS, '--parallel', 1, '--drain', 60 * SLOWER, model=MODEL)
    body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
    post = b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % (CHAT.encode(), len(body)) + body
    with s.connect() as half:
        half.sendall(post[:20])  # a request that is on its way
        stream = Stream(s, {**LONG, 'max_tokens': 60})
        stream.first.wait(30 * SLOWER)
        s.signal()
        until(lambda: 'no new connections' in s.text(), 5)
        half.sendall(post[20:])
        raw = drain(half)
        check(statuses(raw) == [503] and b'Connection: close' in raw and b'Retry-After' in raw, f'a latecomer gets 503: {raw[:200]!r}')
    check(stream.wait(60 * SLOWER), 'what runs goes on')
    complete(stream, 'the stream beside it')
    check(s.wait() == 0, 'and then it ends')


def idle_and_loading():
    s = Server()
    with s.connect() as c:
        c.sendall(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n')
        c.recv(4096)
        begun = time.monotonic()
        check(s.stop() == 0 and time.monotonic() - begun < 2 * SLOWER, 'idle: it ends at once')
    for delay in (0, 0.005, 0.02):
        s = Server(model=MODEL, ready=False)
        time.sleep(delay)
        check(s.stop() == 0, f'a signal {delay} s into loading')


def supervisor():
    """Sockets and readiness in the way of systemd."""
    with tempfile.TemporaryDirectory() as folder:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(folder, 'notify'))
        notify.settimeout(20 * SLOWER)
        listening = socket.create_server(('127.0.0.1', 0))

        def prepare():
            os.dup2(listening.fileno(), 3)
        env = {'NOTIFY_SOCKET': os.path.join(folder, 'notify'), 'LISTEN_FDS': '1', 'WATCHDOG_USEC': '400000'}
        s = Server(ready=False, env=env, wrapper=['sh', '-c', 'LISTEN_PID=$$ exec "$@"', 'sh'], preexec_fn=prepare, close_fds=False)
        check(notify.recv(100) == b'READY=1', 'readiness is told')
        s.port = listening.getsockname()[1]
        listening.close()
        check(s.get('/health').status == 200, 'an inherited socket is served')
        check(notify.recv(100) == b'WATCHDOG=1', 'the watchdog is fed')
        s.signal()
        seen = notify.recv(100)
        while seen == b'WATCHDOG=1':
            seen = notify.recv(100)
        check(seen == b'STOPPING=1' and s.wait() == 0, f'stopping is told: {seen!r}')
        notify.close()
        listening = socket.create_server(('0.0.0.0', 0))
        s = Server(ready=False, env={'LISTEN_FDS': '1'}, wrapper=['sh', '-c', 'LISTEN_PID=$$ exec "$@"', 'sh'], preexec_fn=prepare, close_fds=False)
        check(s.wait() == 1 and '--api-key' in s.text(), f'an inherited socket that others reach needs a key: {s.text()}')
        listening.close()


def unix_socket():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'im.sock')
        with Server('--unix', path) as s:
            check(s.get('/health', headers={'Host': 'whatever'}).status == 200, 'a Unix socket is served, under any Host')
            check(s.chat(max_tokens=2).status == 200, 'and answers')
            check(os.stat(path).st_mode & 0o777 == 0o600, 'for its owner alone')
            second = Server('--unix', path, ready=False)
            check(second.wait() == 1 and 'another server' in second.text(), f'a second server is refused: {second.text()}')
            check(s.get('/health').status == 200, 'and the first one lives')
        check(not os.path.exists(path), 'the file goes with the server')
        s = Server('--unix', path)
        s.kill()
        check(os.path.exists(path), 'a killed server leaves it')
        with Server('--unix', path) as s:
            check(s.get('/health').status == 200, 'and it is replaced')
        open(path, 'w').close()
        refused = Server('--unix', path, ready=False)
        check(refused.wait() == 1 and os.path.exists(path), 'a plain file is left alone')


def taken_port():
    with Server() as s:
        second = Server('--port', s.port, ready=False)
        check(second.wait() == 1 and 'in use' in second.text(), f'a port that is taken: {second.text()}')


def main():
    if os.name != 'posix':
        skip('signals are those of POSIX')
    gentle(signal.SIGTERM)
    gentle(signal.SIGINT)
    at_once()
    second_signal()
    deadline()
    while_draining()
    idle_and_loading()
    supervisor()
    unix_socket()
    taken_port()
    return verdict()


raise SystemExit(main())
