# SPDX-License-Identifier: Apache-2.0
"""No memory at any point of a request: it is answered as always, refused with 503, or its connection is closed. Nothing else notices."""
import json
import mmap
import os
import re
import struct
import sys
import tempfile
import time

from server import CHAT, COMPLETIONS, Server, check, failures, statuses, until, verdict

if 'IM_STARVED' not in os.environ:
    print('IM_STARVED is not set')
    sys.exit(77)
os.environ['IM_PROGRAM'] = os.environ['IM_STARVED']
HOST = b'Host: localhost\r\nOrigin: http://page.test\r\n'
HI = [{'role': 'user', 'content': 'Hi'}]
MOST = int(sys.argv[1]) if len(sys.argv) > 1 else 800  # failures tried of each request


def get(path):
    return b'GET ' + path.encode() + b' HTTP/1.1\r\n' + HOST + b'Connection: close\r\n\r\n'


def post(path, body, extra=b'Connection: close\r\n'):
    data = json.dumps(body).encode()
    return b'POST ' + path.encode() + b' HTTP/1.1\r\n' + HOST + b'Content-Type: application/json\r\nContent-Length: %d\r\n' % len(data) + extra + b'\r\n' + data


CHOICE = {'max_tokens': 3, 'ignore_eos': True, 'seed': 7}
OURS = {'logits_hash': True, 'token_ids': True}
REQUESTS = {
    'chat': post(CHAT, {'messages': HI, 'ironmule': OURS, **CHOICE}),
    'chat, streamed': post(CHAT, {'messages': HI, 'stream': True, 'stream_options': {'include_usage': True}, 'ironmule': OURS, **CHOICE}),
    'log-probabilities': post(CHAT, {'messages': HI, 'logprobs': True, 'top_logprobs': 3, 'ironmule': OURS, **CHOICE}),
    'log-probabilities, streamed': post(CHAT, {'messages': HI, 'logprobs': True, 'top_logprobs': 3, 'stream': True, **CHOICE}),
    'two prompts': post(COMPLETIONS, {'prompt': ['a', 'b'], 'logprobs': 2, 'stop': ['xyz'], 'logit_bias': {'5': 1}, 'odd': 1, **CHOICE}),
    'ids': post(COMPLETIONS, {'prompt': [1, 2, 3], 'ironmule': OURS, **CHOICE}),
    'tokenize': post('/tokenize', {'text': 'Hello', 'pieces': True}),
    'detokenize': post('/detokenize', {'tokens': [5, 6, 7]}),
    'template': post('/apply-template', {'messages': HI, 'tools': [{'a': 1}], 'chat_template_kwargs': {'x': 1}}),
    'refused': post(CHAT, {'messages': HI, 'max_tokens': 0}),
    'no JSON': post(CHAT, 'text'),
    'no path': post('/nope', {}),
    'models': get('/v1/models'),
    'metrics': get('/metrics'),
    'page': get('/'),
    'preflight': b'OPTIONS ' + CHAT.encode() + b' HTTP/1.1\r\n' + HOST + b'Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n',
    'pipelined': get('/health').replace(b'Connection: close\r\n', b'') * 3 + get('/health'),
    'chunked': post('/detokenize', {}).replace(b'Content-Length: 2\r\n', b'Transfer-Encoding: chunked\r\n')[:-2] + b'd\r\n{"tokens":[5]\r\n1\r\n}\r\n0\r\n\r\n',
    'expecting': post('/detokenize', {'tokens': [5]}, b'Connection: close\r\nExpect: 100-continue\r\n'),
}


def plain(raw):
    """An answer without what differs from one to the next."""
    raw = re.sub(rb'(req-|chatcmpl-|cmpl-)[0-9a-f]{24}', b'ID', raw)
    raw = re.sub(rb'Date: [^\r]*\r\n', b'', raw)
    return re.sub(rb'"(created|seed|cached_tokens)":\d+', b'', raw)


def numbers(raw):
    """The names of what the metrics count: the values differ."""
    return re.sub(rb' [-+.e0-9]+\n', b'\n', raw)


def is_refusal(raw):
    head, _, body = raw.partition(b'\r\n\r\n')
    if b'HTTP/1.1 100 Continue' in head:
        head, _, body = body.partition(b'\r\n\r\n')
    if not re.match(rb'HTTP/1\.1 503 ', head) or b'Retry-After: ' not in head or b'Content-Length: %d' % len(body) not in head:
        return False
    return set(json.loads(body)['error']) == {'message', 'type', 'param', 'code'}


def is_cut(raw, whole):
    """What came is the beginning of the right answer: its length, or the end of its last chunk, is missing."""
    return whole.startswith(raw)


def judge(kind, raw, whole):
    raw = plain(raw)
    if kind == 'metrics':
        same = re.sub(rb'(Content-Length): \d+', rb'\1', numbers(raw)).split(b'ironmule_http_answers')[0]
        return is_refusal(raw) or raw == b'' or same == re.sub(rb'(Content-Length): \d+', rb'\1', numbers(whole)).split(b'ironmule_http_answers')[0]
    if raw == whole or is_cut(raw, whole) or is_refusal(raw):
        return True
    if kind == 'pipelined':
        return all(x in (200, 503) for x in statuses(raw)) and len(statuses(raw)) <= 4
    if 'streamed' in kind and raw.startswith(b'HTTP/1.1 200'):  # what fails in the engine is an event with an error
        return b'"error"' in raw and b'[DONE]' not in raw
    return False


class Orders:
    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix='ironmule-')
        self.file.write(struct.pack('<qq', -1, 0))
        self.file.flush()
        self.map = mmap.mmap(self.file.fileno(), 16)

    def give(self, left):
        self.map[0:16] = struct.pack('<qq', left, 0)

    def failed(self):
        return struct.unpack('<q', self.map[8:16])[0]


def starve(s, orders, kind, request):
    """Fails the first allocation of a request, then the second, ... until one has no more of them."""
    whole = plain(s.exchange(request, timeout=20))
    whole = plain(s.exchange(request, timeout=20))
    check(statuses(whole) != [], f'{kind}: {whole[:100]!r}')
    tried = 0
    for n in range(MOST):
        orders.give(n)
        raw = s.exchange(request, timeout=20)
        hit = orders.failed()
        orders.give(-1)
        if s.process.poll() is not None:
            return check(False, f'{kind}: the server ends with {s.process.poll()} when allocation {n} fails: {s.text()[-3000:]}')
        if not check(judge(kind, raw, whole), f'{kind}: allocation {n} fails: {raw[-400:]!r}'):
            return False
        tried += hit
        if not hit and n > 20:
            break
    print(f'{kind}: {tried} failures', flush=True)
    again = plain(s.exchange(request, timeout=20))
    if kind == 'metrics':
        return judge(kind, again, whole)
    return check(again == whole, f'{kind}: as before afterwards: {again[-200:]!r}')


orders = Orders()
with Server('--parallel', '4', '--cache-ram', '0', '--allow-origin', 'http://page.test', '--log-format', 'json',
            env={'IM_STARVE': orders.file.name}) as s:
    for kind, request in REQUESTS.items():
        starve(s, orders, kind, request)
        if len(failures) > 6 or s.process.poll() is not None:
            break
    if s.process.poll() is None:
        check(until(lambda: s.metric('ironmule_connections') == 1), 'no connection stays behind')
        check(until(lambda: s.metric('ironmule_requests_running') == 0), 'no request stays behind')
        check(s.usage()[1] < 40, f'descriptors: {s.usage()[1]}')
sys.exit(verdict())
