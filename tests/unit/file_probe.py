# SPDX-License-Identifier: Apache-2.0
"""What the tests of broken files share: a program behind a pipe that opens one path after the other, and how a refusal has to look."""
import os
import shlex
import subprocess
import sys

failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print('FAILED', what)


class Probe:
    """A program that answers each path with "ok RESULT MILLISECONDS KILOBYTES" or "error STATUS MILLISECONDS KILOBYTES MESSAGE"."""

    def __init__(self, program):
        self.process = subprocess.Popen(shlex.split(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def open(self, path):
        """('ok', result) or ('error', status, message)"""
        self.process.stdin.write(path.encode() + b'\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f'FAILED {path}: the program died with {self.process.wait()}')
        line = line.decode('utf-8').rstrip('\n')  # a message that is not UTF-8 fails here
        kind, result, spent, grown, *message = line.split(' ', 4)
        check(float(spent) < 1000, f'{path}: took {spent} ms')
        check(int(grown) < 65536, f'{path}: {grown} KiB more memory')
        return (kind, result) if kind == 'ok' else (kind, int(result), message[0])

    def close(self):
        self.process.stdin.close()
        check(self.process.wait() == 0, 'the program did not end well')


def write(folder, files):
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(data)


def refused(answer, path, *words):
    """An error in one line that names the file (or a sibling of it) and holds these words."""
    check(answer[0] == 'error', f'{path}: was not refused')
    if answer[0] == 'error':
        check(os.path.dirname(path) in answer[2], f'{path}: the message does not name the file: {answer[2]}')
        check('\\n' not in answer[2], f'{path}: more than one line: {answer[2]}')
        for word in words:
            check(word in answer[2], f'{path}: "{word}" is not in: {answer[2]}')
