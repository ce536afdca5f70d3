# SPDX-License-Identifier: Apache-2.0
"""What concerns the whole process: Ctrl-C, fork, the interpreter's end, subinterpreters, the time that an import takes. Each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from conftest import PACKAGE, SANITIZED, python

LOAD = "runtime = ironmule.Runtime.load(path=TINY, device='cpu', context=LONG)\nENDLESS = dict(max_tokens=LONG - 100, ignore_eos=True)\n"


def quiet(done: subprocess.CompletedProcess[str], out: str = "") -> None:
    assert (done.returncode, done.stderr, done.stdout) == (0, "", out)


CTRL_C = {
    "a long prompt": "runtime.generate(prompt_ids=[5] * (LONG - 10), max_tokens=4)",
    "a long answer": "runtime.generate('a', **ENDLESS)",
    "a stream": "[piece for piece in runtime.stream('a', **ENDLESS)]",
    "a result of a stream": "runtime.stream('a', **ENDLESS).result",
    "a group": "runtime.serve([ironmule.Request('a', **ENDLESS)] * 3)",
    "a score": "runtime.perplexity([5] * (LONG - 10))",
    "logits": "runtime.logits('a', **ENDLESS)",
    "a sampled answer": "runtime.generate('a', temperature=1, logprobs=True, **ENDLESS)",
}


@pytest.mark.parametrize("what", CTRL_C)
def test_ctrl_c(what: str) -> None:
    """Comes within a second, cancels the request, and the engine stays usable."""
    done = python(LOAD + f"""
import signal
before = runtime.generate('x', max_tokens=5)
threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    {CTRL_C[what]}
    print('it ended by itself', runtime.stats)
except KeyboardInterrupt:
    took = time.monotonic() - begun
    print('interrupted' if took < {8 if SANITIZED else 1.4} else f'only after {{took}} s')
assert runtime.generate('x', max_tokens=5) == before
assert runtime.stats.running == 0
runtime.close()
""")
    quiet(done, "interrupted\n")


def test_ctrl_c_while_loading() -> None:
    """What arrives after Ctrl-C is closed again. The load is made slow by what prepares its options."""
    done = python("""
import signal
from ironmule import _engine
closed = []
shut = _engine.Engine._shut
_engine.Engine._shut = lambda engine: (shut(engine), closed.append(engine))
def slowly():
    time.sleep(1)
    return _engine.Owner(_engine.Engine(TINY.encode(), lambda model, options: None))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    _engine.interruptible(slowly)
except KeyboardInterrupt:
    print('interrupted', time.monotonic() - begun < 0.9)
while time.monotonic() - begun < 20 and not closed:
    time.sleep(0.01)
print(len(closed), len(_engine._open))
""")
    quiet(done, "interrupted True\n1 0\n")


def test_ctrl_c_anywhere() -> None:
    """200 interrupts at moments of their own choice, in the middle of short calls: nothing is left running, nothing hangs, the answers stay right."""
    done = python("""
import faulthandler, random, signal
faulthandler.dump_traceback_later(40, exit=True)
armed = False
def interrupt(signal, frame):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
def swallowed(_):
    global armed  # Python drops what comes during a finaliser: once more
    armed = True
sys.unraisablehook = swallowed
signal.signal(signal.SIGALRM, interrupt)
runtime = ironmule.Runtime.load(path=TINY, device='cpu')
right = runtime.generate('x', max_tokens=5)
random.seed(int(os.environ.get('IM_TEST_SEED', '1')))
came = 0
for i in range(200):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-3), 0.02)
        while True:
            assert runtime.generate('x', max_tokens=5) == right
            if i % 2:
                assert runtime.stream('x', max_tokens=5).result == right
    except KeyboardInterrupt:
        came += 1
signal.setitimer(signal.ITIMER_REAL, 0)
end = time.monotonic() + 5
while (runtime.stats.running or runtime._owner.engine.calls) and time.monotonic() < end:
    time.sleep(0.01)
print(came, runtime.stats.running, len(runtime._owner.engine.calls), len(runtime._owner.engine._users), runtime.generate('x', max_tokens=5) == right)
runtime.close()
""")
    quiet(done, "200 0 0 0 True\n")


def test_ctrl_c_ends_a_script() -> None:
    """Not caught, it ends the interpreter as it does elsewhere: by the signal, with KeyboardInterrupt's traceback."""
    done = python(LOAD + "import signal\nthreading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()\nruntime.generate('a', **ENDLESS)\n")
    assert done.returncode == -signal.SIGINT and done.stderr.rstrip().endswith("KeyboardInterrupt")


EXITS = {
    "a live stream": "s = runtime.stream('a', **ENDLESS); next(s)",
    "a dropped stream": "s = runtime.stream('a', **ENDLESS); next(s); del s",
    "nothing running": "runtime.generate('a', max_tokens=3)",
    "a stream in a cycle": "s = [runtime.stream('a', **ENDLESS)]; s.append(s)",
    "a daemon thread that generates": "threading.Thread(target=runtime.generate, args=('a',), kwargs=ENDLESS, daemon=True).start(); time.sleep(0.2)",
    "a daemon thread that streams": "threading.Thread(target=lambda: list(runtime.stream('a', **ENDLESS)), daemon=True).start(); time.sleep(0.2)",
    "a daemon thread that scores": "threading.Thread(target=runtime.perplexity, args=([5] * 100000,), daemon=True).start(); time.sleep(0.2)",
    "daemon threads that begin anew": """
def again():
    while True:
        runtime.generate('a', max_tokens=2)
for _ in range(4):
    threading.Thread(target=again, daemon=True).start()
time.sleep(0.2)""",
    "daemon threads that load": """
def again():
    while True:
        ironmule.Runtime.load(path=TINY, device='cpu').generate('a', max_tokens=2)
for _ in range(2):
    threading.Thread(target=again, daemon=True).start()
time.sleep(0.2)""",
    "a thread that ends later": "threading.Thread(target=lambda: (time.sleep(0.3), runtime.generate('a', max_tokens=3))).start()",
    "several engines": "more = [ironmule.Runtime.load(path=TINY, device='cpu') for _ in range(3)]; s = [r.stream('a', max_tokens=400) for r in more]",
    "an atexit handler of the user's": "import atexit; atexit.register(lambda: runtime.generate('a', max_tokens=3)); s = runtime.stream('b', max_tokens=4)",
    "references in a module": "sys.modules['keeper'] = runtime; s = runtime.stream('a', **ENDLESS); sys.modules['other'] = s",
    "a coroutine that was never finished": """
import asyncio
async def main():
    task = asyncio.create_task(runtime.agenerate('a', **ENDLESS))
    await asyncio.sleep(0.1)
asyncio.run(main())""",
}


@pytest.mark.parametrize("devmode", [True, False])
@pytest.mark.parametrize("what", EXITS)
def test_exit(what: str, devmode: bool) -> None:
    """The interpreter ends at once and in silence."""
    quiet(python(LOAD + EXITS[what], timeout=15, devmode=devmode))


def test_exit_closes_every_engine() -> None:
    """Seen by a handler that was registered before the package's own, and so comes after it."""
    look = "import atexit\natexit.register(lambda: print(len(sys.modules['ironmule._engine']._open)))\n"
    quiet(python(look + LOAD + EXITS["a live stream"]), "0\n")


def test_exit_by_exception() -> None:
    done = python(LOAD + "s = runtime.stream('a', **ENDLESS)\nnext(s)\nraise SystemExit(3)\n")
    assert (done.returncode, done.stderr) == (3, "")


FORK = """
s = runtime.stream('a', **ENDLESS)
next(s)
pid = os.fork()
if pid == 0:
    for use in (lambda: runtime.generate('a'), lambda: runtime.stats, lambda: runtime.session_plan('a'), lambda: next(runtime.stream('a')), lambda: next(s), lambda: s.result):
        try:
            use()
            os._exit(1)
        except ironmule.ForkedError as error:
            assert 'fork' in str(error) and 'spawn' in str(error)
    runtime.close()                      # closes nothing of the parent's
    s.close()
    del s
    with ironmule.Runtime.load(path=TINY, device='cpu') as own:
        assert own.generate('x', max_tokens=5) == before
    @END@
_, status = os.waitpid(pid, 0)
assert status == 0, status
assert next(s) is not None               # the parent's stream goes on
assert runtime.stats.running == 1
s.close()
assert runtime.generate('x', max_tokens=5) == before
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_fork(end: str) -> None:
    """In silence but for Python's own warning (3.12 and later) that a process with threads was forked."""
    code = LOAD + "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\nbefore = runtime.generate('x', max_tokens=5)\n"
    quiet(python(code + FORK.replace("@END@", end)))


def test_fork_while_another_thread_generates() -> None:
    done = python(LOAD + """
import warnings
warnings.simplefilter('ignore', DeprecationWarning)
stop = False
def again():
    while not stop:
        runtime.generate('a', max_tokens=2)
threads = [threading.Thread(target=again) for _ in range(3)]
[t.start() for t in threads]
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        try:
            runtime.generate('a')
        except ironmule.ForkedError:
            runtime.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
[t.join() for t in threads]
""")
    quiet(done)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: object) -> None:
    script = f"{tmp_path}/script.py"
    with open(script, "w", encoding="utf-8") as f:
        f.write(f"""
import multiprocessing, sys, warnings
warnings.simplefilter('ignore', DeprecationWarning)
import ironmule

def answer(path):
    with ironmule.Runtime.load(path=path, device='cpu') as runtime:
        return runtime.generate('x', max_tokens=5).logits_hash

if __name__ == '__main__':
    mine = ironmule.Runtime.load(path=sys.argv[1], device='cpu')
    stream = mine.stream('a', max_tokens=300)
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        found = pool.map(answer, [sys.argv[1]] * 3)
        pool.close()
        pool.join()
    assert set(found) == {{mine.generate('x', max_tokens=5).logits_hash}}
    assert stream.result.tokens
""")
    from conftest import TINY

    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    quiet(subprocess.run([sys.executable, script, str(TINY)], capture_output=True, text=True, timeout=120, env=env))


def test_subinterpreter_is_refused() -> None:
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    done = python(
        f"""
import {module} as interpreters
i = interpreters.create()
code = 'import sys; sys.path[:] = ' + repr(sys.path) + '''
import ironmule
try:
    ironmule.version()
    raise SystemExit("not refused")
except ironmule.UnsupportedError as error:
    assert "subinterpreter" in str(error)
except ImportError:
    pass  # ctypes itself refuses
'''
failed = interpreters.run_string(i, code)
assert not failed, failed
""",
        devmode=False,
    )
    quiet(done)


def test_import_is_quick_and_light() -> None:
    """Under 50 ms of processor time, the best of ten; neither NumPy nor asyncio is loaded, and the library only when it is needed."""
    code = "import time; t = time.process_time(); import ironmule; print((time.process_time() - t) * 1e3)"
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout) for _ in range(10)]
    print("import:", sorted(round(t, 1) for t in times), "ms")
    if not SANITIZED:
        assert min(times) < 50
    quiet(python("print(all(hasattr(ironmule, name) for name in dir(ironmule)), hasattr(ironmule, 'nothing'))"), "True False\n")
    quiet(python("print([m for m in ('numpy', 'asyncio', 'subprocess') if m in sys.modules])", devmode=False), "[]\n")
    quiet(python("print(ironmule.StrictOneShotPlan())", env={"IRONMULE_LIBRARY": "/nowhere"}), "StrictOneShotPlan()\n")


def test_missing_library_is_told() -> None:
    done = python("try:\n    ironmule.version()\nexcept ironmule.LibraryError as error:\n    print(error)", env={"IRONMULE_LIBRARY": "/nowhere/libironmule.so"})
    assert done.returncode == 0 and done.stdout.startswith("/nowhere/libironmule.so: ")
