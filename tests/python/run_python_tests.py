# SPDX-License-Identifier: Apache-2.0
"""Runs one file of bindings/python/tests with pytest, from an environment that is made once: in Python's development mode, and under the address sanitizer
when the library was built with it.

run_python_tests.py PART
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path[:0] = [os.path.join(os.environ['IM_SOURCE'], 'tests', part) for part in ('cli', 'serve')]
from program import command, skip  # noqa: E402
from venvs import venv_python  # noqa: E402

PACKAGES = ('pytest>=8', 'mypy>=1.11', 'numpy', 'black>=26,<27')


def program_without_preload(folder):
    """The program, started without the sanitizer's library of its caller: it has its own."""
    path = os.path.join(folder, 'ironmule')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(f'#!/bin/sh\nunset LD_PRELOAD\nexec {shlex.join(command())} "$@"\n')
    os.chmod(path, 0o755)
    return path


def main():
    part, runtime = sys.argv[1], os.environ.get('IM_SANITIZER_RUNTIME', '')
    if runtime and not os.path.isabs(runtime):
        skip(f'the compiler has no {runtime} to be loaded before Python')
    python = venv_python('python', *PACKAGES)
    with tempfile.TemporaryDirectory(prefix='ironmule-') as folder:
        env = {**os.environ, 'IRONMULE_PROGRAM': program_without_preload(folder), 'PYTHONDONTWRITEBYTECODE': '1'}
        if runtime:
            env.update(LD_PRELOAD=runtime, ASAN_OPTIONS='detect_leaks=0:allocator_may_return_null=1')
        else:
            env['PYTHONDEVMODE'] = '1'
        source = os.environ['IM_SOURCE']
        test = os.path.join(source, 'bindings', 'python', 'tests', f'test_py_{part}.py')
        done = subprocess.run([python, '-B', '-m', 'pytest', '-q', '-rsP' if part == 'speed' else '-rs', '--tb=short', '--rootdir', source,
                               '--basetemp', os.path.join(folder, 'tmp'), test], cwd=source, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    if done.returncode == 0 and not re.search(r'\d+ passed', done.stdout):
        return 77
    return 1 if done.returncode else 0


if __name__ == '__main__':
    sys.exit(main())
