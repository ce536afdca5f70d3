# SPDX-License-Identifier: Apache-2.0
"""What the tests of `ironmule serve` share: starting it, talking to it politely or byte by byte, and counting what failed."""
import atexit
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get('IM_SOURCE', ''), 'tests', 'cli'))
from program import GEMMA3, SMOLLM2, TINY, check, command, emulated, failures, need_model, skip, verdict  # noqa: E402,F401

CHAT, COMPLETIONS = '/v1/chat/completions', '/v1/completions'
# Sanitizers and emulation make everything slower; deadlines of tests grow with it.
SLOWER = 10 if os.environ.get('TSAN_OPTIONS') or emulated() else 1
SANITIZED = 'TSAN_OPTIONS' in os.environ or 'ASAN_OPTIONS' in os.environ  # they keep what was freed for a while
PATIENCE = 60 * SLOWER
ZOO = os.path.join(os.environ.get('IM_TEST_DATA', ''), 'zoo')


def zoo_model(archive, name):
    """A model out of an archive of the zoo, unpacked for this process."""
    folder = tempfile.TemporaryDirectory(prefix='ironmule-')
    atexit.register(folder.cleanup)
    with tarfile.open(os.path.join(ZOO, archive)) as tar:
        for member in tar:
            if os.path.basename(member.name) == name:
                member.name = name
                tar.extract(member, folder.name)
                return os.path.join(folder.name, name)
    raise SystemExit(f'FAILED {name} is not in {archive}')


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error object, or {} when this is no error body."""
        try:
            return json.loads(self.body.decode('utf-8')).get('error') or {}
        except (ValueError, AttributeError):
            return {}

    def __repr__(self):
        return f'{self.status} {self.body[:300]!r}'


class Server:
    """`ironmule serve MODEL --port 0 ...`, ready to answer. Use as a context manager; leaving it expects a clean end."""

    def __init__(self, *args, model=TINY, ready=True, env=None, wrapper=(), **how):
        self.log, self.port, self.unix = [], None, None
        self.args = [str(a) for a in args]
        if '--unix' in self.args:
            self.unix = self.args[self.args.index('--unix') + 1]
        own = [] if self.unix or '--port' in self.args else ['--port', '0']
        self.tls = '--tls-cert' in self.args
        self.key = None
        self.process = subprocess.Popen([*wrapper, *command('serve', model, *own, *self.args)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, **how)
        self.listening, self.is_ready = threading.Event(), threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        atexit.register(self.kill)
        if not self.listening.wait(PATIENCE):
            self.kill()
            raise SystemExit(f'FAILED the server does not listen: {self.text()}')
        if ready and not self.is_ready.wait(PATIENCE):
            self.kill()
            raise SystemExit(f'FAILED the server does not get ready: {self.text()}')

    def _read(self):
        for raw in self.process.stderr:
            line = raw.decode('utf-8', 'replace').rstrip('\n')
            self.log.append(line)
            found = re.search(r'listening on (?:https?://[^\s"]*:(\d+)|unix:|socket)', line)
            if found:
                self.port = int(found[1]) if found[1] else self.port
                self.listening.set()
            if re.search(r'\bready: ', line):
                self.is_ready.set()
        self.listening.set()
        self.is_ready.set()

    def text(self):
        return '\n'.join(self.log)

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, timeout=None):
        code = self.process.wait(timeout or PATIENCE)
        self.reader.join(10)
        return code

    def stop(self):
        """A polite end; returns the exit code."""
        if self.process.poll() is None:
            self.signal()
        return self.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.text()[-4000:])
            self.kill()
        elif not check(self.process.poll() is None, 'the server is still running at the end'):
            print(self.text()[-4000:])
        else:
            check(self.stop() == 0, 'the server ends with exit code 0')
            if failures:
                print(self.text()[-3000:])

    # ---- polite ----

    def connect(self, timeout=None):
        timeout = timeout or PATIENCE
        if self.unix:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.unix)
            return s
        s = socket.create_connection(('127.0.0.1', self.port), timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def connection(self, timeout=None):
        c = http.client.HTTPConnection('localhost', self.port or 80, timeout=timeout or PATIENCE)
        c.sock = self.connect(timeout)
        return c

    def head(self, headers, body):
        h = {} if body is None else {'Content-Type': 'application/json'}
        if self.key:
            h['Authorization'] = f'Bearer {self.key}'
        h.update(headers or {})
        return {k: v for k, v in h.items() if v is not None}

    def ask(self, method, path, body=None, headers=None, timeout=None):
        """One request on a connection of its own. `body`: bytes, or anything that becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(self.connection(timeout)) as c:
            c.request(method, path, data, self.head(headers, data))
            r = c.getresponse()
            return Answer(r.status, {k.lower(): v for k, v in r.getheaders()}, r.read())

    def get(self, path, **how):
        return self.ask('GET', path, **how)

    def post(self, path, body, **how):
        return self.ask('POST', path, body, **how)

    def chat(self, text='Hello', **fields):
        return self.post(CHAT, {'messages': [{'role': 'user', 'content': text}], **fields})

    def complete(self, prompt='Hello', **fields):
        return self.post(COMPLETIONS, {'prompt': prompt, **fields})

    def events(self, path, body, headers=None, timeout=None):
        """The events of a stream: a list of decoded chunks, the last of them '[DONE]'. A refusal comes as an Answer."""
        data = json.dumps({**body, 'stream': True}).encode()
        with contextlib.closing(self.connection(timeout)) as c:
            c.request('POST', path, data, self.head(headers, data))
            r = c.getresponse()
            head, text = {k.lower(): v for k, v in r.getheaders()}, r.read()
        if r.status != 200:
            return Answer(r.status, head, text)
        check(head['content-type'].startswith('text/event-stream'), f'{path}: a stream has its type, not {head["content-type"]}')
        return parse_events(text)

    # ---- byte by byte ----

    def exchange(self, *pieces, timeout=None, pause=0.0, read=True):
        """Sends the pieces one by one and returns what came back until the server closed or was silent for `timeout` seconds."""
        with contextlib.closing(self.connect(timeout or 2 * SLOWER)) as s:
            try:
                for i, piece in enumerate(pieces):
                    if i > 0 and pause:
                        time.sleep(pause)
                    s.sendall(piece)
            except OSError:
                pass
            return drain(s) if read else b''

    # ---- what it uses ----

    def usage(self):
        """Anonymous resident memory with swap in bytes, open descriptors, threads."""
        status = open(f'/proc/{self.pid}/status').read()
        kib = sum(int(m) for m in re.findall(r'^(?:RssAnon|VmSwap):\s+(\d+) kB', status, re.M))
        return kib * 1024, len(os.listdir(f'/proc/{self.pid}/fd')), len(os.listdir(f'/proc/{self.pid}/task'))

    def metric(self, name):
        for line in self.get('/metrics').body.decode().splitlines():
            if line.startswith(name + ' '):
                return float(line.rsplit(' ', 1)[1])
        return None


def drain(s):
    got = b''
    with contextlib.suppress(OSError):
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            got += piece
    return got


def parse_events(text):
    """Checks the frame of a stream and decodes it."""
    events = []
    check(text.endswith(b'\n\n'), 'the last event of a stream is complete')
    for block in text.decode('utf-8').split('\n\n')[:-1]:
        lines = [line for line in block.split('\n') if not line.startswith(':')]
        if not lines:
            continue
        if not check(len(lines) == 1 and lines[0].startswith('data: '), f'an event is one line of data: {block[:80]!r}'):
            continue
        events.append('[DONE]' if lines[0] == 'data: [DONE]' else json.loads(lines[0][6:]))
    return events


def statuses(raw):
    """Status numbers of the answers in what a connection sent."""
    return [int(m) for m in re.findall(rb'HTTP/1\.1 (\d\d\d) ', raw)]


def expect_error(answer, status, what, param=..., code=...):
    """An error body of this status; `param` and `code` when they are given."""
    good = answer.status == status and set(answer.error) == {'message', 'type', 'param', 'code'}
    good = good and answer.headers.get('content-type') == 'application/json' and isinstance(answer.error['message'], str)
    if good and param is not ...:
        good = answer.error['param'] == param
    if good and code is not ...:
        good = answer.error['code'] == code
    return check(good, f'{what}: {status}{"" if param is ... else f" param {param}"}{"" if code is ... else f" code {code}"}, got {answer}')


def joined(events, index=0):
    """Text and finish reason of one choice of a stream."""
    text, reason = '', None
    for e in events:
        if e == '[DONE]':
            continue
        for c in e['choices']:
            if c['index'] == index:
                text += c.get('text', '') if 'text' in c else c['delta'].get('content') or ''
                reason = c['finish_reason'] or reason
    return text, reason


def with_template(name, model=TINY):
    """The tiny model with a published chat template in place of its own."""
    sys.path.insert(0, os.path.join(os.environ['IM_SOURCE'], 'tests', 'unit'))
    from gguf_mutants import STRING, File
    published = json.load(open(os.path.join(os.environ['IM_TEST_DATA'], 'templates', 'golden.json'), encoding='utf-8'))
    text, = [t['template'] for t in published['templates'] if t['name'] == name]
    folder = tempfile.TemporaryDirectory(prefix='ironmule-')
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, f'tiny-{name}.gguf')
    with open(model, 'rb') as source, open(path, 'wb') as target:
        target.write(File.parse(source.read()).put('tokenizer.chat_template', STRING, text).pack())
    return path


def slow_model():
    """(path, options): a model that takes about a millisecond or more for a token, so that something can happen meanwhile."""
    return zoo_model('llama-plain.tar.xz', 'llama-f32.gguf'), ('--cpu', 'c', '--threads', '1')


class Stream:
    """A streamed chat that is read in a thread of its own."""

    def __init__(self, server, body, path=CHAT):
        self.server, self.body, self.path = server, body, path
        self.status, self.raw, self.first, self.begun, self.error = None, b'', threading.Event(), time.monotonic(), None
        self.times = []
        self.connection = server.connection()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        data = json.dumps({**self.body, 'stream': True}).encode()
        try:
            self.connection.request('POST', self.path, data, self.server.head(None, data))
            r = self.connection.getresponse()
            self.status = r.status
            while True:
                piece = r.read1(65536)
                if not piece:
                    break
                self.times.append(time.monotonic())
                self.raw += piece
                if b'"content":"' in self.raw or b'"text":"' in self.raw:
                    self.first.set()
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            self.error = e
        self.first.set()

    def leave(self):
        """As a client that goes away in the middle."""
        with contextlib.suppress(OSError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def wait(self, timeout=None):
        self.thread.join(timeout or PATIENCE)
        return not self.thread.is_alive()

    def events(self):
        return parse_events(self.raw)


def until(condition, timeout=10):
    """Waits for a condition; says whether it came."""
    end = time.monotonic() + timeout * SLOWER
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
