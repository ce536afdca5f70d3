# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium driven over the DevTools protocol, with the standard library only.

    with Browser() as page:
        page.open('http://127.0.0.1:8080/')
        page.evaluate('document.title')
"""
import base64
import collections
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
FLAGS = ('--headless=new', '--remote-debugging-port=0', '--no-first-run', '--no-default-browser-check', '--disable-gpu', '--disable-extensions',
         '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage', '--mute-audio',
         '--hide-scrollbars', '--force-color-profile=srgb', '--lang=en')
KEYS = {'Enter': (13, '\r'), 'Escape': (27, ''), 'Tab': (9, '')}
SHIFT = 8


def find_browser():
    """The command of a browser, or None. IM_BROWSER names one by hand."""
    return os.environ.get('IM_BROWSER') or next(filter(None, map(shutil.which, NAMES)), None)


class WebSocket:
    """A client's side of RFC 6455, text messages only."""

    def __init__(self, url, timeout):
        host, path = url.removeprefix('ws://').split('/', 1)
        name, port = host.rsplit(':', 1)
        self.socket = socket.create_connection((name, int(port)), timeout)
        self.stream = self.socket.makefile('rb')
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f'GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                            f'Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n'.encode())
        status = self.stream.readline()
        if b' 101 ' not in status:
            raise OSError(f'no web socket: {status!r}')
        while self.stream.readline() not in (b'\r\n', b''):
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        if len(data) < 126:
            head = struct.pack('!BB', 0x81, 0x80 | len(data))
        elif len(data) < 65536:
            head = struct.pack('!BBH', 0x81, 0xfe, len(data))
        else:
            head = struct.pack('!BBQ', 0x81, 0xff, len(data))
        repeated = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, 'big') ^ int.from_bytes(repeated, 'big')).to_bytes(len(data), 'big')
        self.socket.sendall(head + mask + masked)

    def receive(self):
        whole = b''
        while True:
            first, second = self.stream.read(2)
            size = second & 0x7f
            if size == 126:
                size, = struct.unpack('!H', self.stream.read(2))
            elif size == 127:
                size, = struct.unpack('!Q', self.stream.read(8))
            data = self.stream.read(size)
            if first & 0x0f == 8:
                raise OSError('the browser closed the web socket')
            if first & 0x0f in (0, 1):
                whole += data
                if first & 0x80:
                    return whole.decode()

    def close(self):
        self.stream.close()
        self.socket.close()


class Browser:
    """One browser with one page. Everything it keeps goes with it."""

    def __init__(self, timeout=30):
        self.timeout = timeout
        self.number = 0
        self.said = collections.deque(maxlen=200)  # what the page wrote to its console, and complaints of the browser

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix='ironmule-browser-')
        command = [find_browser(), *FLAGS, f'--user-data-dir={self.folder}', 'about:blank']
        if os.geteuid() == 0:
            command.insert(1, '--no-sandbox')
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        try:
            self.socket = WebSocket(self.page_url(), self.timeout)
            for domain in ('Page', 'Runtime', 'Log', 'Network'):
                self.call(f'{domain}.enable')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, 'socket'):
            self.socket.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def page_url(self):
        """Address of the page's own socket, as soon as the browser listens."""
        until = time.monotonic() + self.timeout
        while time.monotonic() < until:
            try:
                with open(os.path.join(self.folder, 'DevToolsActivePort'), encoding='ascii') as file:
                    port = int(file.readline())
                with urllib.request.urlopen(f'http://127.0.0.1:{port}/json/list', timeout=5) as answer:
                    pages = [target for target in json.load(answer) if target['type'] == 'page']
                if pages:
                    return pages[0]['webSocketDebuggerUrl']
            except (OSError, ValueError):
                if self.process.poll() is not None:
                    raise OSError(f'the browser ended with status {self.process.returncode}') from None
            time.sleep(0.05)
        raise OSError('the browser did not come up')

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({'id': self.number, 'method': method, 'params': params}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get('id') == self.number:
                if 'error' in message:
                    raise OSError(f'{method}: {message["error"]}')
                return message['result']
            self.note(message)

    def note(self, message):
        params = message.get('params', {})
        if message.get('method') == 'Runtime.exceptionThrown':
            self.said.append(f'exception: {json.dumps(params["exceptionDetails"])[:500]}')
        elif message.get('method') == 'Log.entryAdded':
            self.said.append(f'{params["entry"]["source"]}: {params["entry"]["text"]}')
        elif message.get('method') == 'Runtime.consoleAPICalled':
            self.said.append(f'console: {[argument.get("value") for argument in params["args"]]}')

    def open(self, url):
        self.call('Page.navigate', url=url)
        self.wait('document.readyState === "complete" && location.href !== "about:blank"')

    def evaluate(self, expression):
        """Value of a JavaScript expression; a promise is waited for. Works under any policy of the page."""
        done = self.call('Runtime.evaluate', expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if 'exceptionDetails' in done:
            raise ValueError(f'{expression[:200]}: {json.dumps(done["exceptionDetails"])[:600]}')
        return done['result'].get('value')

    def wait(self, expression, timeout=None):
        """Waits until an expression is true; False when it does not become so."""
        until = time.monotonic() + (timeout or self.timeout)
        while time.monotonic() < until:
            try:
                if self.evaluate(f'Boolean({expression})'):
                    return True
            except (ValueError, OSError):
                pass  # the page is between two documents
            time.sleep(0.02)
        return False

    def type(self, text):
        self.call('Input.insertText', text=text)

    def press(self, key, modifiers=0):
        code, text = KEYS[key]
        common = {'key': key, 'code': key, 'windowsVirtualKeyCode': code, 'modifiers': modifiers}
        self.call('Input.dispatchKeyEvent', type='keyDown', text=text, **common)
        self.call('Input.dispatchKeyEvent', type='keyUp', **common)

    def click(self, selector, number=0):
        """A real click in the middle of an element."""
        x, y = self.evaluate(f'''(() => {{
            const node = document.querySelectorAll({json.dumps(selector)})[{number}];
            node.scrollIntoView({{block: 'nearest'}});
            const box = node.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()''')
        for kind in ('mouseMoved', 'mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='none' if kind == 'mouseMoved' else 'left', clickCount=1)

    def size(self, width, height, phone=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)

    def scheme(self, name):
        """The system's choice of colours: 'light' or 'dark'."""
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': name}])

    def screenshot(self, path):
        data = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))
