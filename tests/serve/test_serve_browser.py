# SPDX-License-Identifier: Apache-2.0
"""What browsers and probes do: preflights, HEAD, wrong methods, pages of other origins, names that were pointed here, keys."""
import re
import subprocess
import tempfile

from server import CHAT, Server, TINY, check, command, drain, expect_error, statuses, verdict

ASK = {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 2}
PAGE = 'http://app.test'
KEY, OTHER = 'sk-first-key-0001', 'sk-second-key-02'


def preflight(s, origin=PAGE, path=CHAT, method='POST', headers='authorization,content-type,x-stainless-os'):
    return s.ask('OPTIONS', path, headers={'Origin': origin, 'Access-Control-Request-Method': method, 'Access-Control-Request-Headers': headers,
                                           'Authorization': None})


def allowed(a):
    return a.headers.get('access-control-allow-origin')


def with_key():
    with tempfile.NamedTemporaryFile('w', suffix='.keys') as keys:
        keys.write(f'# two of them\n{KEY}\n\n  {OTHER}  \r\n')
        keys.flush()
        with Server('--api-key-file', keys.name, '--allow-origin', PAGE, '--allow-origin', 'https://other.test') as s:
            a = preflight(s)
            names = {x.strip().lower() for x in a.headers.get('access-control-allow-headers', '').split(',')}
            check(a.status in (200, 204) and allowed(a) == PAGE and {'authorization', 'content-type', 'x-stainless-os'} <= names, f'preflight: {a.headers}')
            check('POST' in a.headers.get('access-control-allow-methods', '') and a.body == b'', f'preflight: {a.headers}')
            check(allowed(preflight(s, 'https://other.test')) == 'https://other.test', 'the second origin')
            for origin in ('http://evil.test', 'http://app.test.evil', 'null', 'https://app.test', 'http://app.test:81'):
                check(allowed(preflight(s, origin)) is None, f'{origin} is not allowed')
                a = s.post(CHAT, ASK, headers={'Origin': origin, 'Authorization': f'Bearer {KEY}'})
                expect_error(a, 403, f'a page of {origin}', None, 'foreign_origin')

            origin = {'Origin': PAGE}
            for what, headers in (('no key', {}), ('a wrong key', {'Authorization': 'Bearer wrong'}), ('no scheme', {'Authorization': KEY}),
                                  ('another scheme', {'Authorization': f'Basic {KEY}'}), ('half a key', {'Authorization': f'Bearer {KEY[:-1]}'}),
                                  ('a longer key', {'Authorization': f'Bearer {KEY}x'}), ('both', {'Authorization': f'Bearer {KEY} {OTHER}'}),
                                  ('the comment', {'Authorization': 'Bearer # two of them'}), ('nothing', {'Authorization': 'Bearer '})):
                for path in (CHAT, '/tokenize'):
                    a = s.post(path, ASK, headers={**origin, **headers})
                    expect_error(a, 401, f'{what}: {path}', None, 'invalid_api_key')
                    check(allowed(a) == PAGE and 'www-authenticate' in a.headers, f'{what}: an error is readable for the page')
                    word = {'no key': 'no API key was sent', 'no scheme': 'form', 'another scheme': 'form', 'nothing': 'form'}.get(what, 'not one of')
                    check(word in a.error['message'] and KEY not in a.error['message'], f'{what}: it says what is wrong: {a}')
                expect_error(s.get('/v1/models', headers=headers), 401, f'{what}: models')
                expect_error(s.get('/metrics', headers=headers), 401, f'{what}: metrics')
            for path in ('/health', '/ready', '/'):
                check(s.get(path).status == 200, f'{path} needs no key')
            for key in (KEY, OTHER):
                for scheme in ('Bearer', 'bearer'):
                    a = s.post(CHAT, ASK, headers={**origin, 'Authorization': f'{scheme} {key}'})
                    check(a.status == 200 and allowed(a) == PAGE and 'origin' in a.headers.get('vary', '').lower(), f'{scheme} {key}: {a}')
            with s.connect() as c:
                body = b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"stream":true}'
                c.sendall(b'POST %s HTTP/1.1\r\nHost: x\r\nOrigin: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n'
                          b'Connection: close\r\n\r\n' % (CHAT.encode(), PAGE.encode(), KEY.encode(), len(body)) + body)
                raw = drain(c)
            check(statuses(raw) == [200] and f'Access-Control-Allow-Origin: {PAGE}\r\n'.encode() in raw, 'a stream is readable for the page')
            expect_error(s.post(CHAT, b'{', headers={**origin, 'Authorization': f'Bearer {KEY}'}), 400, 'an error with a key')
            check(KEY not in s.text() and OTHER not in s.text(), 'no key in the log')
            check(s.get('/health', headers={'Host': 'any.test'}).status == 200, 'a Host of any name, as there is a key')


def everyone():
    with Server('--allow-origin', '*') as s:
        a = s.post(CHAT, ASK, headers={'Origin': 'https://x.test'})
        check(a.status == 200 and allowed(a) in ('*', 'https://x.test'), 'any origin, when that is asked for')


def methods(s):
    for path in ('/health', '/ready', '/v1/models', '/', '/metrics'):
        get, head = s.get(path), s.ask('HEAD', path)
        check(head.status == get.status == 200 and head.body == b'', f'HEAD {path}: {head.status}')
        same = {k: v for k, v in get.headers.items() if k not in ('x-request-id', 'date', 'content-length')}
        check({k: v for k, v in head.headers.items() if k in same} == same and 'content-length' in head.headers, f'HEAD {path}: the headers of GET')
        raw = s.exchange(f'HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'.encode())
        check(statuses(raw) == [200, 200] and raw.split(b'\r\n\r\n')[1].startswith(b'HTTP/1.1 200'), f'HEAD {path} and another request: no body between')
    for method, path, allow in (('PUT', CHAT, {'POST', 'OPTIONS'}), ('GET', CHAT, {'POST', 'OPTIONS'}), ('HEAD', CHAT, {'POST', 'OPTIONS'}),
                                ('DELETE', '/v1/models', {'GET', 'HEAD', 'OPTIONS'}), ('POST', '/health', {'GET', 'HEAD', 'OPTIONS'}),
                                ('BREW', '/health', {'GET', 'HEAD', 'OPTIONS'})):
        a = s.ask(method, path)
        check(a.status == 405 and {x.strip() for x in a.headers.get('allow', '').split(',')} == allow, f'{method} {path}: {a.status} {a.headers.get("allow")}')
        if method != 'HEAD':
            expect_error(a, 405, f'{method} {path}')
    for path in ('/nope', '/v1', '/v1/chat', '/V1/MODELS', '/health/x', '//health', '/../health', '/%68ealth'):
        expect_error(s.get(path), 404, path, None, 'not_found')
    for path in ('/health/', '/health?x=1&y', '/health/?', '/v1/models/?a'):
        check(s.get(path).status == 200, f'{path} is what it seems')
    a = s.post(CHAT + '/?x=y', ASK)
    check(a.status == 200, f'a slash and a query behind the chat path: {a}')
    check(s.ask('OPTIONS', CHAT).status == 204 and s.ask('OPTIONS', '*').status == 204, 'OPTIONS')


def hosts(s):
    port = s.port
    for host in ('localhost', f'localhost:{port}', '127.0.0.1', f'127.0.0.1:{port}', '[::1]', f'[::1]:{port}', 'LOCALHOST', '127.9.9.9', 'localhost:1'):
        check(s.get('/health', headers={'Host': host}).status == 200, f'Host {host}')
    for host in ('evil.test', f'evil.test:{port}', '127.0.0.1.evil.test', 'localhost.evil.test', '192.168.0.1', '[::2]', '127.0.0.1x', '', '0.0.0.0'):
        for path in ('/health', CHAT):
            a = s.get(path, headers={'Host': host})
            expect_error(a, 403, f'Host {host!r} {path}', None, 'foreign_host')
    raw = s.exchange(b'GET http://evil.test/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
    check(statuses(raw) == [403], f'the host of an absolute target counts: {raw[:60]!r}')
    for origin in ('http://evil.test', 'null', 'http://localhost:1', f'https://evil.test:{port}'):
        a = s.post(CHAT, ASK, headers={'Origin': origin})
        expect_error(a, 403, f'a page of {origin}', None, 'foreign_origin')
        check(allowed(a) is None, f'{origin}: not readable')
    for name in ('localhost', '127.0.0.1'):
        a = s.post(CHAT, ASK, headers={'Host': f'{name}:{port}', 'Origin': f'http://{name}:{port}'})
        check(a.status == 200, f'the own page at {name}: {a}')


def page(s):
    a = s.get('/')
    policy = a.headers.get('content-security-policy', '')
    check("default-src 'none'" in policy and 'unsafe' not in policy and '*' not in policy, f'the policy of the page: {policy}')
    check(a.headers['content-type'].startswith('text/html') and a.headers.get('x-content-type-options') == 'nosniff', 'type of the page')
    text = a.body.decode('utf-8')
    check(not re.search(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', text), 'the page takes nothing from elsewhere')


def refused_start(*args, what, says):
    done = subprocess.run(command('serve', TINY, *args), capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    text = done.stderr.decode()
    check(done.returncode in (1, 2) and says in text, f'{what}: refused at the start: {done.returncode} {text[-300:]}')


def starts():
    refused_start('--host', '0.0.0.0', '--port', '0', what='an address that others reach, without a key', says='--api-key')
    refused_start('--host', '::', '--port', '0', what='the same with IPv6', says='--api-key')
    refused_start('--api-key-env', 'NO_SUCH_VARIABLE', '--port', '0', what='a variable that is not set', says='NO_SUCH_VARIABLE')
    refused_start('--api-key-file', '/no/such/file', '--port', '0', what='a file of keys that is not there', says='/no/such/file')
    refused_start('--host', '127.0.0.1', '--tls-cert', 'x', what='half of TLS', says='--tls-key')
    refused_start('--mode', 'toaster', what='a mode that is not there', says='--mode')
    refused_start('--cache-ram', 'lots', what='a size that is none', says='--cache-ram')
    with tempfile.NamedTemporaryFile('w', suffix='.keys') as f:
        refused_start('--api-key-file', f.name, '--port', '0', what='a file without a key', says='no key')
        f.write('short\n')
        f.flush()
        refused_start('--api-key-file', f.name, '--port', '0', what='a key that is too short', says='at least 8')
    with Server('--host', '0.0.0.0', '--api-key-env', 'MY_KEYS', env={'MY_KEYS': f'{KEY}\n{OTHER}\n'}) as s:
        s.key = OTHER
        check(s.post(CHAT, ASK).status == 200, 'keys of the environment')
        environ = open(f'/proc/{s.pid}/cmdline').read()
        check(OTHER not in environ, 'a key is no argument')


def main():
    with_key()
    everyone()
    with Server() as s:
        methods(s)
        hosts(s)
        page(s)
    with Server('--allow-host', 'my.test') as s:
        check(s.get('/health', headers={'Host': 'my.test:80'}).status == 200 and s.get('/health', headers={'Host': 'evil.test'}).status == 403, '--allow-host')
    with Server('--allow-host', '*') as s:
        check(s.get('/health', headers={'Host': 'evil.test'}).status == 200, '--allow-host "*"')
    starts()
    return verdict()


raise SystemExit(main())
