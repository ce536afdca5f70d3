# SPDX-License-Identifier: Apache-2.0
"""A program in a terminal of its own: what it shows, what is typed."""
import os
import pty
import re
import select
import signal
import termios
import time

from program import command

CONTROL_C, CONTROL_D, UP = b'\x03', b'\x04', b'\x1b[A'


class Terminal:
    """`shown` is everything so far, escape sequences included."""

    def __init__(self, *args, env=None):
        self.shown, self.at, words = b'', 0, command(*args)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, 'TERM': 'xterm', 'COLUMNS': '200', **(env or {})}
            if not (env or {}).get('NO_COLOR'):
                environment.pop('NO_COLOR', None)
            os.execvpe(words[0], words, environment)

    def _read(self, seconds):
        if not select.select([self.fd], [], [], max(0, seconds))[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            data = b''
        self.shown += data
        return data != b''

    def expect(self, pattern, seconds=60):
        """Waits for a pattern behind the last one; the match, or None after so many seconds or at the end."""
        until = time.monotonic() + seconds
        while True:
            match = re.compile(pattern, re.S).search(self.shown, self.at)
            if match:
                self.at = match.end()
                return match
            if time.monotonic() > until or not self._read(until - time.monotonic()):
                return None

    def prompt(self, seconds=60):
        """Waits for "> " and until keys go to the program one by one: before, the terminal itself would act on Ctrl-D."""
        if not self.expect(rb'> ', seconds):
            return False
        until = time.monotonic() + seconds
        while termios.tcgetattr(self.fd)[3] & termios.ICANON and time.monotonic() < until:
            time.sleep(0.005)
        return time.monotonic() < until

    def send(self, data):
        os.write(self.fd, data if isinstance(data, bytes) else data.encode())

    def line(self, text):
        self.send(text.encode() + b'\r')

    def close(self, seconds=20):
        """The exit code, once it has ended by itself; None when it had to be killed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            self._read(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        return None
