# SPDX-License-Identifier: Apache-2.0
"""What the scripts that run the program share: starting it, the real models, kernel levels, and counting what failed."""
import json
import os
import platform
import shlex
import subprocess
import sys

SMOLLM2, GEMMA3 = 'SmolLM2-135M-Instruct.Q4_1.gguf', 'gemma-3-270m.Q4_K_M.gguf'
# Kernel levels that there are for each architecture, weakest first.
LEVELS = {'x86_64': ('c', 'avx2', 'avxvnni', 'avx512', 'amx'), 'aarch64': ('c', 'neon', 'i8mm')}
TINY = os.path.join(os.environ.get('IM_TEST_DATA', ''), 'zoo', 'arch-tiny.gguf')

failures = []


def check(good, what):
    """Counts a failure and goes on."""
    if not good:
        failures.append(what)
        print('FAILED', what, flush=True)
    return good


def verdict():
    print(f'{len(failures)} failures')
    return 1 if failures else 0


def skip(why):
    print(why)
    sys.exit(77)


def left_out(what):
    """A part of a test that cannot run here; the summary of ./test names it."""
    print('[  SKIPPED ]', what, flush=True)


def command(*args):
    if 'IM_PROGRAM' not in os.environ:
        skip('IM_PROGRAM is not set: this build has no program')
    return shlex.split(os.environ['IM_PROGRAM']) + [str(a) for a in args]


def emulated():
    return len(command()) > 1


def run(*args, stdin=b'', env=None, timeout=300, **more):
    """A finished process; stdout and stderr are bytes. `env` is added to the environment."""
    more.setdefault('stdout', subprocess.PIPE)
    more.setdefault('stderr', subprocess.PIPE)
    return subprocess.run(command(*args), input=stdin, env={**os.environ, **(env or {})}, timeout=timeout, **more)


def answer(*args, **how):
    """The JSON document of a command that must succeed and must write nothing else to stdout."""
    done = run(args[0], '--json', *args[1:], **how)
    if done.returncode != 0:
        raise SystemExit(f'FAILED {" ".join(map(str, args))}: exit {done.returncode}: {done.stderr.decode("utf-8", "replace")}')
    text = done.stdout.decode('utf-8')
    if text.count('\n') != 1 or not text.endswith('\n'):
        raise SystemExit(f'FAILED {" ".join(map(str, args))}: stdout holds more than one document: {text[:200]!r}')
    return json.loads(text)


def model(name):
    """The path of a real model, or None."""
    path = os.path.join(os.environ.get('IM_TEST_MODELS', ''), name)
    return path if os.environ.get('IM_TEST_MODELS') and os.path.exists(path) else None


def need_model(name):
    path = model(name)
    if path is None:
        skip(f'{name} is not in IM_TEST_MODELS')
    return path


def levels():
    """Kernel levels of this machine, best last; prints which ones it lacks."""
    here = answer('info')['cpu_levels']
    machine = 'aarch64' if {'neon', 'i8mm'} & set(here) else platform.machine()
    lacking = [x for x in LEVELS.get(machine, ()) if x not in here]
    if lacking:
        print('not on this machine:', ', '.join(lacking))
    return here
