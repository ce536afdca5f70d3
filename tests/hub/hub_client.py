# SPDX-License-Identifier: Apache-2.0
"""What the tests of downloads share: a home of their own for each, with nothing of the user's in it, and the program run in it."""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get('IM_SOURCE', ''), 'tests', 'cli'))
from program import SMOLLM2, TINY, check, command, emulated, failures, left_out, model, skip, verdict  # noqa: E402,F401

from hub_server import Fault, Hub  # noqa: E402,F401

RANDOM = random.Random(7)
SLOWER = 10 if os.environ.get('ASAN_OPTIONS') or os.environ.get('TSAN_OPTIONS') or emulated() else 1


def together(*parts):
    """Runs parts that wait more than they work side by side: each has a home and a hub of its own. What one raises is raised here."""
    if SLOWER > 1:
        for part in parts:
            part()
        return
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        for future in [pool.submit(part) for part in parts]:
            future.result()


def noise(n):
    return RANDOM.randbytes(n)


class Home:
    """A user with an empty home and a hub of their own."""

    def __init__(self, **env):
        self.folder = tempfile.TemporaryDirectory(prefix='ironmule-')
        self.path = self.folder.name
        self.hub = Hub()
        self.cache = os.path.join(self.path, '.cache', 'huggingface', 'hub')
        keep = {k: v for k, v in os.environ.items() if not k.startswith(('HF_', 'HUGGING', 'TRANSFORMERS', 'IRONMULE', 'XDG_', 'DISPLAY', 'WAYLAND'))
                and not k.lower().endswith('_proxy')}
        self.env = {**keep, 'HOME': self.path, 'HF_HUB_DOWNLOAD_TIMEOUT': '5', **self.hub.env, **env}

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.hub.close()
        self.folder.cleanup()

    def start(self, *args, **more):
        more.setdefault('stdin', subprocess.DEVNULL)
        return subprocess.Popen(command(*args), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.path, **more)

    def run(self, *args, stdin=b'', timeout=120, env=None):
        return subprocess.run(command(*args), input=stdin, env={**self.env, **(env or {})}, capture_output=True, timeout=timeout, cwd=self.path)

    def add(self, *args, **how):
        return self.run('models', 'add', *args, '--download', **how)

    def good(self, *args, **how):
        """The JSON of a command that must succeed; None after a counted failure."""
        done = self.run(*args, '--json', **how)
        if check(done.returncode == 0 and done.stdout.count(b'\n') == 1, f'{args}: {done}'):
            return json.loads(done.stdout)
        return None

    def refused(self, says, *args, code=1, lines=1, **how):
        """A command that must fail with one sentence that says this."""
        done = self.run(*args, **how)
        text = done.stderr.decode()
        return check(done.returncode == code and says in text and (lines is None or text.count('\n') == lines) and not done.stdout,
                     f'{args}: wanted {says!r}: {done}')

    def repo(self, name):
        return os.path.join(self.cache, 'models--' + name.replace('/', '--'))

    def holds(self, name, commit, files):
        """The snapshot has exactly these files, and nothing was left behind."""
        snapshot = os.path.join(self.repo(name), 'snapshots', commit)
        there = {os.path.relpath(os.path.join(at, f), snapshot) for at, _, names in os.walk(snapshot) for f in names}
        good = check(there == set(files), f'{name}: holds {sorted(there)}')
        for path, data in files.items():
            whole = os.path.join(snapshot, path)
            good &= check(os.path.exists(whole) and open(whole, 'rb').read() == data, f'{name}: {path} is not what the hub has')
            good &= check(os.path.islink(whole) and not os.path.isabs(os.readlink(whole)), f'{name}: {path} is no relative link')
        left = [f for f in os.listdir(os.path.join(self.repo(name), 'blobs')) if f.endswith(('.incomplete', '.new'))]
        return check(not left, f'{name}: left behind {left}') and good

    def everything_written(self):
        """Bytes of all files below the home, to look for what must not be there."""
        for at, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(at, name)
                if not os.path.islink(path):
                    yield path, open(path, 'rb').read()
