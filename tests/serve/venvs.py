# SPDX-License-Identifier: Apache-2.0
"""Python environments with packages from PyPI, made once and kept in the user's cache folder."""
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

from program import skip


def venv_python(name, *packages):
    """The interpreter of an environment with exactly these packages. Skips the test when they cannot be had."""
    cache = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'ironmule')
    digest = hashlib.sha256(repr((packages, sys.version_info[:2])).encode()).hexdigest()[:12]
    folder = os.path.join(cache, f'venv-{name}-{digest}')
    python = os.path.join(folder, 'bin', 'python')
    os.makedirs(cache, exist_ok=True)
    with open(folder + '.lock', 'w') as lock:  # tests beside each other want the same one: the first makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, 'complete')):
            make(folder, python, packages)
    return python


def make(folder, python, packages):
    shutil.rmtree(folder, ignore_errors=True)
    try:
        subprocess.run([sys.executable, '-m', 'venv', folder], check=True, capture_output=True)
        subprocess.run([python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--retries', '1', *packages], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        words = (getattr(problem, 'stderr', b'') or b'').decode('utf-8', 'replace').strip().splitlines() or [str(problem)]
        skip(f'{" ".join(packages)} cannot be had: {words[-1]}')
    open(os.path.join(folder, 'complete'), 'w').close()
