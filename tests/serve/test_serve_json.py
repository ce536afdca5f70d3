# SPDX-License-Identifier: Apache-2.0
"""Bodies that are no JSON, or not the JSON they seem: each is refused with an error body that is valid UTF-8, and the next request works."""
import json

from server import CHAT, Server, check, expect_error, verdict


def chat(content):
    return b'{"max_tokens":1,"messages":[{"role":"user","content":' + content + b'}]}'


BAD = {
    'empty': b'',
    'cut': b'{',
    'a list': b'[]',
    'a text': b'"x"',
    'more behind it': chat(b'"a"') + b'x',
    'a second document': chat(b'"a"') + b'{}',
    'byte order mark': b'\xef\xbb\xbf' + chat(b'"a"'),
    'a lone byte': chat(b'"\xe6"'),
    'GBK': chat(b'"\xc4\xe3"'),
    'overlong': chat(b'"\xc0\xaf"'),
    'a surrogate in UTF-8': chat(b'"\xed\xa0\xbd"'),
    'half a pair': chat(b'"\\ud83d"'),
    'the other half': chat(b'"x \\ude00 y"'),
    'a pair the wrong way': chat(b'"\\ude00\\ud83d"'),
    'too large a number': b'{"max_tokens":1e999,"messages":[{"role":"user","content":"a"}]}',
    'a zero in front': b'{"max_tokens":01,"messages":[{"role":"user","content":"a"}]}',
    'a key twice': b'{"model":"","model":"","messages":[{"role":"user","content":"a"}]}',
    'a key twice inside': b'{"messages":[{"role":"user","role":"user","content":"a"}]}',
    'a raw newline': chat(b'"a\nb"'),
    'a comment': b'/* */' + chat(b'"a"'),
    'NaN': b'{"temperature":NaN,"messages":[{"role":"user","content":"a"}]}',
    'nested too deep': b'{"messages":' + b'[' * 100000,
    'quotes of another kind': b"{'messages':[]}",
}


def main():
    with Server() as s:
        for what, body in BAD.items():
            for stream in (False, True):
                data = body.replace(b'"max_tokens"', b'"stream":true,"max_tokens"', 1) if stream else body
                a = s.post(CHAT, data)
                expect_error(a, 400, what)
                a.body.decode('utf-8')
                check(s.chat(max_tokens=1).status == 200, f'after {what}: the next request works')
        expect_error(s.post(CHAT, BAD['too large a number']), 400, 'too large a number', param='max_tokens')

        good = s.post(CHAT, chat(b'"\\ud83d\\ude00"'))
        check(good.status == 200, f'a whole pair: {good}')
        ids = {}
        for name, text in (('escaped', b'"\\ud83d\\ude00"'), ('plain', '"\U0001f600"'.encode())):
            ids[name] = s.post('/tokenize', b'{"text":' + text + b'}').json()['tokens']
        check(ids['escaped'] == ids['plain'], f'a pair is one character: {ids}')
        check(s.post(CHAT, chat(b'"a\\u0000b"')).status == 200, 'U+0000 is a character like others')

        body = chat(b'"a"')
        for value, status in ((None, 400), ('text/plain', 400), ('application/x-www-form-urlencoded', 400), ('application/json', 200),
                              ('Application/JSON; charset=UTF-8', 200), ('application/json;charset="utf-8"', 200),
                              ('application/json; charset=latin1', 400), ('application/jsonx', 400)):
            a = s.post(CHAT, body, headers={'Content-Type': value})
            check(a.status == status, f'Content-Type {value}: {status}, got {a}')
        secret = s.post(CHAT, b'{"messages":[{"role":"user","content":"my secret prompt" x')
        check('secret' not in json.dumps(secret.error) and 'secret' not in s.text(), 'neither error nor log quotes a prompt')
    return verdict()


raise SystemExit(main())
