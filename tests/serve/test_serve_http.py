# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 as RFC 9110 and 9112 have it: Expect, keep-alive, pipelining, odd spellings, and everything that two readers might understand differently."""
import json
import os
import socket
import time
from contextlib import closing

from server import CHAT, Server, SLOWER, TINY, check, drain, statuses, verdict
from program import run

BODY = json.dumps({'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 2}).encode()
HOST = b'Host: localhost\r\n'
JSON = b'Content-Type: application/json\r\n'


def post(path=CHAT, body=BODY, extra=b'', length=None):
    n = len(body) if length is None else length
    return b'POST ' + path.encode() + b' HTTP/1.1\r\n' + HOST + JSON + b'Content-Length: %d\r\n' % n + extra + b'\r\n' + body


def get(path='/health', extra=b'', host=HOST):
    return b'GET ' + path.encode() + b' HTTP/1.1\r\n' + host + extra + b'\r\n'


CLOSE = b'Connection: close\r\n'


def expectations(s):
    with closing(s.connect(5 * SLOWER)) as c:
        begun = time.monotonic()
        body = BODY + b' ' * (2000 - len(BODY))
        c.sendall(post(body=b'', length=2000, extra=b'Expect: 100-continue\r\n'))
        got = c.recv(100)
        took = time.monotonic() - begun
        check(got == b'HTTP/1.1 100 Continue\r\n\r\n' and took < 0.1 * SLOWER, f'100 Continue comes at once: {got!r} after {took:.3f} s')
        c.sendall(body)
        check(statuses(c.recv(4096)) == [200], 'and then the answer')
    raw = s.exchange(post('/nope', b'', b'Expect: 100-continue\r\n', 2000))
    check(statuses(raw) == [404] and b'Connection: close' in raw, f'an unknown path is refused before its body: {raw[:80]!r}')
    check(statuses(s.exchange(post(extra=b'Expect: something-else\r\n'))) == [417], 'another expectation is 417')
    raw = s.exchange(post(body=b'', length=1 << 30))
    check(statuses(raw) == [413] and b'Connection: close' in raw and b'body_too_long' in raw, 'a body that is announced as too long is 413 at once')


def sequences(s):
    raw = s.exchange(post('/nope', b'12345') + get('/v1/models', CLOSE))
    check(statuses(raw) == [404, 200], f'an unread body is no request: {statuses(raw)}')
    raw = s.exchange(get('/health') + get('/v1/models', CLOSE))
    check(statuses(raw) == [200, 200] and raw.index(b'"status"') < raw.index(b'"object":"list"'), 'two requests in one packet, in order')
    raw = s.exchange(post() + get('/health') + post(extra=CLOSE), timeout=20 * SLOWER)
    check(statuses(raw) == [200, 200, 200], f'generation and others in one packet: {statuses(raw)}')
    raw = s.exchange(b''.join(get() for _ in range(500)) + get(extra=CLOSE), timeout=20 * SLOWER)
    check(statuses(raw) == [200] * 501, f'501 requests in one packet: {len(statuses(raw))}')
    whole = post(extra=CLOSE)
    raw = s.exchange(*[whole[i:i + 1] for i in range(len(whole))], timeout=20 * SLOWER)
    check(statuses(raw) == [200], 'one byte a write')
    for cut in range(1, len(whole), 7):
        raw = s.exchange(whole[:cut], whole[cut:], pause=0.002, timeout=20 * SLOWER)
        if not check(statuses(raw) == [200], f'cut after {cut} bytes: {raw[:80]!r}'):
            break
    # A client that closes its side after asking still gets what does not have to be computed.
    with closing(s.connect(2 * SLOWER)) as c:
        c.sendall(get() + get('/v1/models'))
        c.shutdown(socket.SHUT_WR)
        check(statuses(drain(c)) == [200, 200], 'asked, then half closed')
    with closing(s.connect(10 * SLOWER)) as c:
        c.sendall(get('/metrics') * 400)  # more than the buffers between hold
        c.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        check(statuses(drain(c)) == [200] * 400, 'asked for much, then half closed')


def closing_down(s):
    def ended(data, what, expected=True):
        with closing(s.connect(1.5 * SLOWER)) as c:
            c.sendall(data)
            begun, got = time.monotonic(), drain(c)
            check((time.monotonic() - begun < 1 * SLOWER) == expected and statuses(got)[:1] == [200], f'{what}: {"closed" if expected else "kept"}')
    ended(get(extra=CLOSE), 'Connection: close')
    ended(get(extra=b'Connection: keep-alive, CLOSE\r\n'), 'close in a list, in capitals')
    ended(get(), 'nothing said in HTTP/1.1', False)
    ended(b'GET /health HTTP/1.0\r\n\r\n', 'HTTP/1.0')
    ended(b'GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n', 'HTTP/1.0 with keep-alive', False)
    raw = s.exchange(b'POST ' + CHAT.encode() + b' HTTP/1.0\r\n' + JSON + b'Content-Length: %d\r\n\r\n' % len(BODY[:-1] + b',"stream":true}') +
                     BODY[:-1] + b',"stream":true}', timeout=20 * SLOWER)
    check(b'chunked' not in raw and raw.endswith(b'data: [DONE]\n\n'), 'a stream of HTTP/1.0 ends with the connection')


def spellings(s):
    good = [
        b'GET /health HTTP/1.1\r\nhOST:localhost\r\nconnection:close\r\n\r\n',
        b'GET /health HTTP/1.1\r\nHost:   \tlocalhost \t \r\nX-Empty:\r\nConnection:  close  \r\n\r\n',
        b'\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
        b'GET http://localhost/health?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
        b'GET /health/ HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n',
        post(extra=CLOSE + b'content-length: %d\r\n' % len(BODY)),
        b'POST ' + CHAT.encode() + b' HTTP/1.1\r\n' + HOST + JSON + CLOSE + b'Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\n' + BODY[:5] + b'\r\n' +
        b'%X\r\n' % (len(BODY) - 5) + BODY[5:] + b'\r\n0\r\nTrailer: x\r\n\r\n',
    ]
    for raw in good:
        got = s.exchange(raw, timeout=20 * SLOWER)
        check(statuses(got) == [200], f'{raw[:90]!r}: 200, got {got[:60]!r}')


def refusals(s):
    chunked = b'POST ' + CHAT.encode() + b' HTTP/1.1\r\n' + HOST + JSON + b'Transfer-Encoding: chunked\r\n\r\n'
    bad = {
        'a blank before the colon': (400, b'GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n'),
        'a blank before the colon of a length': (400, b'POST /health HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello'),
        'two lengths': (400, post(extra=b'Content-Length: 3\r\n')),
        'lengths in a list': (400, post(body=b'', length=0).replace(b'Content-Length: 0', b'Content-Length: 5, 6')),
        'a negative length': (400, post().replace(b'Content-Length: ', b'Content-Length: -')),
        'a signed length': (400, post().replace(b'Content-Length: ', b'Content-Length: +')),
        'a length in hex': (400, post().replace(b'Content-Length: ', b'Content-Length: 0x')),
        'length and chunks': (400, chunked.replace(b'Transfer', b'Content-Length: 5\r\nTransfer')),
        'another coding': (501, chunked.replace(b'chunked', b'gzip, chunked')),
        'two codings': (400, chunked.replace(b'Transfer-Encoding: chunked', b'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked')),
        'chunks in HTTP/1.0': (400, chunked.replace(b'HTTP/1.1', b'HTTP/1.0')),
        'a chunk of no size': (400, chunked + b'\r\n'),
        'a chunk with a sign': (400, chunked + b'-5\r\n'),
        'a chunk that is longer than it says': (400, chunked + b'1\r\nab\r\n'),
        'a huge chunk': (413, chunked + b'ffffffffffffff\r\n'),
        'a folded header': (400, b'GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n c\r\n\r\n'),
        'a bare line feed': (400, b'GET /health HTTP/1.1\nHost: localhost\n\n'),
        'a bare carriage return': (400, b'GET /health HTTP/1.1\r\nHost: local\rhost\r\n\r\n'),
        'a zero byte': (400, b'GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n'),
        'no Host': (400, b'GET /health HTTP/1.1\r\n\r\n'),
        'two Hosts': (400, get(extra=b'Host: localhost\r\n')),
        'a header without a name': (400, get(extra=b': x\r\n')),
        'a header without a colon': (400, get(extra=b'hello\r\n')),
        'no version': (400, b'GET /health\r\n\r\n'),
        'two blanks': (400, b'GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n'),
        'HTTP/2': (505, b'PRI * HTTP/2.0\r\n\r\n'),
        'HTTP/9.9': (505, b'GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n'),
        'a long target': (414, get('/' + 'a' * 5000)),
        'long headers': (431, get(extra=b'X: ' + b'a' * 20000 + b'\r\n')),
        'many headers': (431, get(extra=b'X: a\r\n' * 101)),
        'a target with a fragment': (400, get('/health#x')),
        'TLS on a plain port': (400, bytes.fromhex('160301 0200 0100 01fc 0303'.replace(' ', '')) + b'\r\n' * 4),
        'a body that grows beyond the limit': (413, chunked + b'10000\r\n' + b'a' * 65536 + b'\r\n' + (b'10000\r\n' + b'a' * 65536 + b'\r\n') * 16),
    }
    for what, (status, raw) in bad.items():
        got = s.exchange(raw, timeout=5 * SLOWER)
        check(statuses(got)[:1] == [status] and b'Connection: close' in got and b'{"error"' in got, f'{what}: {status} and close, got {got[:120]!r}')
        check(len(statuses(got)) == 1, f'{what}: what follows is no request')
    check(s.get('/health').status == 200, 'the server lives')


def numbers(s):
    """What is too much is told with how much it is and how much may be; a wrong path with the right ones."""
    def told(raw):
        return s.exchange(raw, timeout=5 * SLOWER).decode('latin-1')
    for what, raw, words in (('a long body', post(length=1048577), ('1048577', '1048576', '--max-body')),
                             ('a longer one', post(length=10**30), ('1048576',)),
                             ('chunks', b'POST /tokenize HTTP/1.1\r\n' + HOST + JSON + b'Transfer-Encoding: chunked\r\n\r\n200000\r\n', ('1048576',)),
                             ('a target', get('/' + 'a' * 5000), ('5001', '4096')), ('a head', get(extra=b'X: ' + b'a' * 20000 + b'\r\n'), ('16384',)),
                             ('headers', get(extra=b'X: a\r\n' * 101), ('100',)),
                             ('no /v1', get('/chat/completions', extra=CLOSE), ('POST /v1/chat/completions',)), ('twice', get('/v1/v1/models', extra=CLOSE), ('GET /v1/models',)),
                             ('another prefix', get('/api/tokenize', extra=CLOSE), ('POST /tokenize',)),
                             ('no path', get('/nope', extra=CLOSE), ('GET / /health /ready /metrics /v1/models; POST /v1/chat/completions /v1/completions', '/apply-template'))):
        got = told(raw)
        check(all(word in got for word in words), f'{what}: {words} {got[-300:]!r}')


def names():
    with Server('--alias', 'org/first model', '--alias', 'zweit-\u00fc', '--alias', 'a"b\\\\c') as s:
        for name, status in {'org%2Ffirst%20model': 200, 'org/first%20model': 200, 'zweit-%C3%bc': 200, 'zweit-%C3%BC': 200, 'a%22b%5c%5Cc': 200, 'org': 404,
                             'org%2Ffirst%20model%00': 404, 'org%2Ffirst%20mode%6': 404, 'arch-tiny': 404, 'zweit-': 404, '%': 404}.items():
            a = s.get('/v1/models/' + name)
            check(a.status == status and (status != 200 or a.json()['id'] == 'org/first model'), f'the model {name}: {a}')
        check('model="org/first model"' in s.get('/metrics').body.decode(), 'the first name stands in the metrics')
    for bad in ('', 'a\nb', os.fsdecode(b'\xff'), 'x' * 201):
        done = run('serve', TINY, '--dry-run', '--alias', bad)
        check(done.returncode == 2 and b'--alias' in done.stderr, f'no name: {bad[:10]!r} {done.stderr}')


def main():
    names()
    with Server() as s:
        expectations(s)
        sequences(s)
        closing_down(s)
        spellings(s)
        refusals(s)
        numbers(s)
    return verdict()


raise SystemExit(main())
