# SPDX-License-Identifier: Apache-2.0
"""A hub of models on this machine: its API as far as downloads need it, a second server that stands for the store of large files behind signed addresses,
and every way in which either can go wrong. Standard library only.

    hub = Hub()                         started, on two ports
    hub.add('acme/tiny', {'config.json': b'{}', 'model.safetensors': big})
    hub.env                             what a client needs: HF_ENDPOINT
    hub.faults.append(Fault(...))       what goes wrong next
    hub.log                             one entry for each request
"""
import dataclasses
import hashlib
import http.server
import json
import secrets
import socket
import threading
import time
import urllib.parse

LFS_FROM = 2000  # bytes: larger files are LFS files, as weights always are


def git_sha1(data):
    return hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()


@dataclasses.dataclass
class Fault:
    """Where it applies (both may be None: anywhere), how often, and what happens."""
    path: str = None            # a part of the path
    where: str = None           # 'hub' or 'store'
    times: int = 1
    status: int = None          # answer with this status ...
    headers: dict = None        # ... and these headers
    cut: int = None             # send so many bytes of the body, then break off
    body: bytes = None          # send this in place of the file
    pace: float = None          # seconds between pieces of 16 KiB
    ignore_range: bool = False  # 200 and all of the file
    shift: int = 0              # the range begins so many bytes later than asked
    location: str = None        # redirect there
    endless: bool = False       # a body without an end behind `status`; where there are headers, those have no end


@dataclasses.dataclass
class Entry:
    where: str
    path: str
    method: str
    range: str
    token: str
    sent: int = 0
    status: int = 0


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        """A client that breaks off is no error here."""


class Hub:
    def __init__(self):
        self.repos, self.faults, self.log, self.signatures = {}, [], [], set()
        self.token = None       # when set, models need it
        self.gated = set()
        self.guard = threading.Lock()
        self.servers = {}
        for where in ('hub', 'store'):
            server = Server(('127.0.0.1', 0), type('Handler', (Handler,), {'hub': self, 'where': where}))
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers[where] = server
        self.url = f'http://127.0.0.1:{self.servers["hub"].server_port}'
        # Another host than the hub's, by name.
        self.store = f'http://localhost:{self.servers["store"].server_port}'
        self.env = {'HF_ENDPOINT': self.url}

    def add(self, name, files, revision='main', licence='apache-2.0', changes=None):
        """A commit with these files; `changes` is laid over the metadata of single files."""
        commit = hashlib.sha1(repr((name, sorted((k, git_sha1(v)) for k, v in files.items()))).encode()).hexdigest()
        repo = self.repos.setdefault(name, {'refs': {}, 'commits': {}, 'licence': licence, 'changes': {}})
        repo['refs'][revision] = commit
        repo['commits'][commit] = dict(files)
        repo['changes'][commit] = changes or {}
        return commit

    def metadata_digest(self, name, commit, path):
        """Name of the file's blob."""
        data = self.repos[name]['commits'][commit][path]
        return hashlib.sha256(data).hexdigest() if len(data) >= LFS_FROM else git_sha1(data)

    def sent(self, part):
        """Bytes of bodies of files whose path holds `part`."""
        return sum(e.sent for e in self.log if part in e.path and (e.where == 'store' or '/resolve/' in e.path))

    def fault(self, where, path):
        with self.guard:
            for f in self.faults:
                if f.times > 0 and (f.where in (None, where)) and (f.path is None or f.path in path):
                    f.times -= 1
                    return f
        return None

    def close(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    hub = where = entry = None

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urllib.parse.unquote(self.path.split('?')[0])
        self.entry = Entry(self.where, path, self.command, self.headers.get('Range'), self.headers.get('Authorization'))
        self.hub.log.append(self.entry)
        fault = self.hub.fault(self.where, path)
        try:
            if fault and fault.endless:
                return self.without_end(fault)
            if fault and fault.location:
                return self.reply(302, b'', {'Location': fault.location})
            if fault and fault.status:
                return self.reply(fault.status, b'{"error":"as told"}', fault.headers or {})
            if self.where == 'store':
                return self.from_store(path, fault or Fault())
            if path.startswith('/api/models/'):
                return self.api(path[len('/api/models/'):], fault)
            return self.resolve(path, fault or Fault())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # ---- answers ----

    def reply(self, status, body, headers=()):
        self.entry.status = status
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if not any(name.lower() == 'content-length' for name in dict(headers)):
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def without_end(self, fault, most=80 << 20):
        """Bytes until the client has had enough, or we have."""
        self.close_connection = True
        self.wfile.write(b'HTTP/1.1 %d As told\r\n' % fault.status)
        self.wfile.write(b'Retry-After: 0\r\n' if fault.headers else b'Connection: close\r\n\r\n')
        piece = b'X-More: ' + b'x' * 4000 + b'\r\n' if fault.headers else b'x' * 16384
        while self.entry.sent < most:
            self.wfile.write(piece)
            self.entry.sent += len(piece)

    def refuse(self, status, code):
        self.reply(status, b'{"error":"no"}', {'X-Error-Code': code, 'X-Error-Message': 'no'} if code else {})

    def body(self, data, fault, headers=None):
        """A file, or the part of it that was asked for."""
        if fault.body is not None:
            data = fault.body
        begin, status, headers = 0, 200, {'Accept-Ranges': 'bytes', **(headers or {}), **(fault.headers or {})}
        wanted = self.headers.get('Range')
        if wanted and not fault.ignore_range:
            begin = int(wanted.split('=')[1].split('-')[0])
            if begin >= len(data):
                return self.reply(416, b'', {'Content-Range': f'bytes */{len(data)}'})
            begin += fault.shift
            status = 206
            headers['Content-Range'] = f'bytes {begin}-{len(data) - 1}/{len(data)}'
        part = data[begin:]
        self.entry.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(part)))
        self.end_headers()
        if self.command == 'HEAD':
            return
        end = len(part) if fault.cut is None else min(fault.cut, len(part))
        for at in range(0, end, 16384):
            piece = part[at:min(at + 16384, end)]
            if fault.pace:
                time.sleep(fault.pace)
            self.wfile.write(piece)
            self.entry.sent += len(piece)
        if end < len(part):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.close_connection = True

    # ---- the hub ----

    def find(self, name, revision):
        """(repo, commit), or None after a refusal."""
        repo = self.hub.repos.get(name)
        given = self.headers.get('Authorization')
        if self.hub.token and given not in (None, f'Bearer {self.hub.token}'):
            return self.refuse(401, None)
        if repo is None:
            return self.refuse(401 if given is None else 404, 'RepoNotFound')
        if name in self.hub.gated:
            return self.refuse(401 if given is None else 403, 'GatedRepo')
        if self.hub.token and given is None:
            return self.refuse(401, 'RepoNotFound')
        commit = repo['refs'].get(revision, revision)
        if commit not in repo['commits']:
            return self.refuse(404, 'RevisionNotFound')
        return repo, commit

    def metadata(self, repo, commit, path):
        data = repo['commits'][commit][path]
        entry = {'rfilename': path, 'size': len(data), 'blobId': git_sha1(data)}
        if len(data) >= LFS_FROM:
            entry['lfs'] = {'sha256': hashlib.sha256(data).hexdigest(), 'size': len(data), 'pointerSize': 134}
        entry.update(repo['changes'][commit].get(path, {}))
        return entry

    def api(self, rest, fault):
        words = rest.split('/')
        name, what, revision = '/'.join(words[:2]), words[2] if len(words) > 2 else 'revision', '/'.join(words[3:]) or 'main'
        found = self.find(name, revision)
        if found is None:
            return None
        repo, commit = found
        files = [self.metadata(repo, commit, path) for path in repo['commits'][commit]]
        if what == 'tree':
            document = [{'type': 'file', 'path': f['rfilename'], 'size': f['size'], 'oid': f['blobId'],
                         **({'lfs': {'oid': f['lfs']['sha256'], 'size': f['size'], 'pointerSize': 134}} if 'lfs' in f else {})} for f in files]
        else:
            document = {'id': name, 'modelId': name, 'sha': commit, 'siblings': files, 'private': False, 'gated': False, 'tags': [],
                        'downloads': 1, 'likes': 0, 'cardData': {'license': repo['licence']}}
        body = json.dumps(document).encode()
        if fault and (fault.cut is not None or fault.body is not None):
            return self.body(body, fault)
        return self.reply(200, body, {'Content-Type': 'application/json'})

    def resolve(self, path, fault):
        """/ORG/NAME/resolve/REVISION/FILE"""
        words = path[1:].split('/')
        if len(words) < 5 or words[2] != 'resolve':
            return self.refuse(404, None)
        name, revision, file = '/'.join(words[:2]), words[3], '/'.join(words[4:])
        found = self.find(name, revision)
        if found is None:
            return None
        repo, commit = found
        if file not in repo['commits'][commit]:
            return self.refuse(404, 'EntryNotFound')
        data, entry = repo['commits'][commit][file], self.metadata(repo, commit, file)
        headers = {'X-Repo-Commit': commit}
        if 'lfs' not in entry:
            return self.body(data, fault, {**headers, 'ETag': f'"{entry["blobId"]}"'})
        signature = secrets.token_hex(16)
        self.hub.signatures.add(signature)
        address = f'{self.hub.store}/{name}/{commit}/{urllib.parse.quote(file)}?X-Signature={signature}'
        return self.reply(302, b'Found', {**headers, 'Location': address, 'X-Linked-ETag': f'"{entry["lfs"]["sha256"]}"',
                                          'X-Linked-Size': str(len(data)), 'ETag': '"pointer"'})

    # ---- the store of large files ----

    def from_store(self, path, fault):
        """/ORG/NAME/COMMIT/FILE?X-Signature=..., once for each signature, without a token."""
        signature = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get('X-Signature', [''])[0]
        words = path[1:].split('/')
        if self.headers.get('Authorization') is not None or signature not in self.hub.signatures:
            return self.refuse(403, None)
        return self.body(self.hub.repos['/'.join(words[:2])]['commits'][words[2]]['/'.join(words[3:])], fault, {'ETag': '"x"'})
