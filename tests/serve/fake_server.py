# SPDX-License-Identifier: Apache-2.0
"""A server that answers as it is told: the chat page is tested against it, since no model writes what an attacker would make it write.

The last message decides, its last paragraph unless it begins with "say":
    say TEXT     streams TEXT in small pieces              slow        streams numbers until the client leaves
    echo         streams the request's body                busy        503 with Retry-After
    fail         an error event after two pieces           cut         closes the connection after two pieces
    silent       ends without text                         limit       ends at the limit; what is continued then ends
    drop         breaks off in the middle of a piece of the body

Every event comes in two halves, cut wherever the middle is.
"""
import base64
import hashlib
import http.server
import json
import os
import re
import sys
import threading
import time

PARTS = ('index.html', 'page.css', 'markdown.js', 'page.js')


def joined_page(folder):
    """The page as page.cmake joins it."""
    html, style, markdown, script = (open(os.path.join(folder, name), encoding='utf-8').read() for name in PARTS)
    return html.replace('@style@', style).replace('@script@', f'{markdown}\n{script}')


def policy_of(page):
    """A policy that admits the page's own script and style sheet and nothing else."""
    def digest(tag):
        inside, = re.findall(f'<{tag}>(.*?)</{tag}>', page, re.DOTALL)
        return base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    return (f"default-src 'none'; script-src 'sha256-{digest('script')}'; style-src 'sha256-{digest('style')}'; img-src data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind='application/json', **headers):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {'Content-Type': kind, 'Content-Length': len(data), **headers}.items():
            self.send_header(name.replace('_', '-'), str(value))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, **headers):
        self.answer(status, {'error': {'message': message, 'type': 'invalid_request_error', 'param': None, 'code': None}}, **headers)

    def allowed(self):
        key = self.server.key
        if key is None or self.headers.get('Authorization') == f'Bearer {key}':
            return True
        self.refuse(401, 'Incorrect API key provided.')
        return False

    def do_GET(self):
        if self.path == '/':
            self.answer(200, self.server.page, 'text/html; charset=utf-8', Content_Security_Policy=self.server.policy)
        elif self.path == '/v1/models' and self.allowed():
            self.answer(200, {'object': 'list', 'data': [{'id': self.server.model, 'object': 'model', 'created': 0, 'owned_by': 'test'}]})
        elif self.path != '/v1/models':
            self.refuse(404, f'No such path: {self.path}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.requests.append(body)
        if not self.allowed():
            return
        if body['model'] != self.server.model:
            self.refuse(404, f'The model {body["model"]} is not served here.')
            return
        text = body['messages'][-1]['content']
        if not text.startswith('say '):
            text = text.split('\n\n')[-1]
        if text == 'busy':
            self.refuse(503, 'The queue is full.', Retry_After=3)
            return
        self.close_connection = True
        self.send_response(200)
        if text == 'drop':
            self.send_header('Content-Length', '100000')
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        try:
            self.stream(text.split(' ', 1)[0], text, body)
        except OSError:
            self.server.left.append(text)

    def stream(self, word, text, body):
        piece = {'say': 3, 'echo': 40}.get(word)
        if word == 'slow':
            pieces = (f'{n} ' for n in range(5000))
        elif piece:
            whole = text[4:] if word == 'say' else json.dumps(body)
            pieces = (whole[at:at + piece] for at in range(0, len(whole), piece))
        else:
            pieces = () if word == 'silent' else ('one ', 'two ')
        self.wfile.write(b': a comment\n\n')
        count = 0
        for count, part in enumerate(pieces, 1):
            self.event({'choices': [{'index': 0, 'delta': {'content': part}, 'finish_reason': None}], 'usage': None})
            time.sleep(0.02 if word == 'slow' else 0.001)
        if word == 'fail':
            self.event({'error': {'message': 'The numbers went wrong.', 'type': 'server_error', 'param': None, 'code': None}})
        elif word not in ('cut', 'drop'):
            self.end('length' if word == 'limit' else 'stop', count)

    def end(self, reason, count):
        self.event({'choices': [{'index': 0, 'delta': {}, 'finish_reason': reason}], 'usage': None})
        usage = {'prompt_tokens': 201, 'completion_tokens': count, 'total_tokens': 201 + count, 'prompt_tokens_details': {'cached_tokens': 182}}
        self.event({'choices': [], 'usage': usage})
        self.wfile.write(b'data: [DONE]\n\n')

    def event(self, data):
        common = {'id': 'chatcmpl-1', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'fake-model'}
        whole = f'data: {json.dumps({**common, **data}, ensure_ascii=False)}\n\n'.encode()
        for half in (whole[:len(whole) // 2], whole[len(whole) // 2:]):
            self.wfile.write(half)
            self.wfile.flush()


class FakeServer(http.server.ThreadingHTTPServer):
    """`key`: the API key it wants. `model`: what it serves. `requests`: bodies it got; `left`: last messages whose reader went away."""
    daemon_threads = True

    def __init__(self, page):
        super().__init__(('127.0.0.1', 0), Handler)
        self.page, self.policy = page, policy_of(page)
        self.key, self.model, self.requests, self.left = None, 'fake-model', [], []
        self.url = f'http://127.0.0.1:{self.server_address[1]}/'

    def handle_error(self, request, client_address):
        """A reader that left in the middle of an answer is nothing to tell of."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
