# SPDX-License-Identifier: Apache-2.0
"""Threads and lifetimes in one process: many callers, closing while others are at work, collecting in any order."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from conftest import LONG, SLOWER, TINY

import ironmule
from ironmule import _engine
from ironmule._call import Held

ENDLESS = {"max_tokens": LONG - 100, "ignore_eos": True}


def load(**how: object) -> ironmule.Runtime:
    return ironmule.Runtime.load(path=TINY, device="cpu", **how)  # type: ignore[arg-type]


def soon(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds * SLOWER
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def in_threads(n: int, work: Callable[[int], None]) -> None:
    """Runs work(0 .. n - 1) at once; what one of them raises is raised."""
    problems: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * SLOWER)
        assert not thread.is_alive()
    if problems:
        raise problems[0]


@pytest.mark.parametrize("mode", [ironmule.InteractiveMode(), ironmule.ThroughputMode(4)])
def test_many_threads(mode: ironmule.Mode) -> None:
    """8 threads x 20 calls, some streamed: each answer is the one of its prompt."""
    with load(mode=mode) as runtime:
        right = [runtime.generate(f"prompt {i}", max_tokens=8) for i in range(8)]

        def work(i: int) -> None:
            for k in range(20):
                if k % 3 == 0:
                    stream = runtime.stream(f"prompt {i}", max_tokens=8)
                    assert "".join(stream) == right[i].text and stream.result == right[i]
                else:
                    assert runtime.generate(f"prompt {i}", max_tokens=8) == right[i]

        in_threads(8, work)
        assert runtime.stats.finished == 8 + 160


def test_dropped_stream_frees_its_place(long: ironmule.Runtime) -> None:
    stream = long.stream("a", **ENDLESS)
    next(stream), next(stream)
    assert long.stats.running == 1
    del stream
    assert soon(lambda: long.stats.running == 0)
    assert long.stats.cancelled == 1
    assert not long._owner.engine.calls or soon(lambda: not long._owner.engine.calls)
    assert long.generate("a", max_tokens=2).tokens


def test_never_started_and_closed_streams(long: ironmule.Runtime) -> None:
    long.stream("a", **ENDLESS)
    with long.stream("a", **ENDLESS) as stream:
        for _piece in stream:
            break
    with pytest.raises(ironmule.ClosedError):
        next(stream)
    with pytest.raises(ironmule.ClosedError):
        stream.result
    stream.close()
    assert soon(lambda: long.stats.running == 0 and long.stats.queued == 0)


def test_stream_closed_by_another_thread(long: ironmule.Runtime) -> None:
    stream = long.stream("a", **ENDLESS)
    threading.Timer(0.2, stream.close).start()
    with pytest.raises(ironmule.ClosedError):
        for _piece in stream:
            pass


def test_close_then_use(tiny_path: str) -> None:
    runtime = load()
    session = runtime.session_plan("abc " * 30)
    runtime.close()
    runtime.close()
    assert runtime.closed and repr(runtime) == "<ironmule.Runtime, closed>"
    uses: list[Callable[[], object]] = [
        lambda: runtime.generate("a"),
        lambda: runtime.generate("a", plan=session),
        lambda: runtime.stream("a"),
        lambda: runtime.serve([ironmule.Request("a")]),
        lambda: runtime.encode("a"),
        lambda: runtime.perplexity([1, 2, 3]),
        lambda: runtime.info,
        lambda: runtime.stats,
        lambda: runtime.session_plan("a"),
    ]
    for use in uses:
        with pytest.raises(ironmule.ClosedError):
            use()


def test_close_during_everything(long: ironmule.Runtime) -> None:
    """A stream, waiting calls, queued calls and a score: all end with ClosedError, and close() returns."""
    ended: list[str] = []

    def expect(name: str, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
                ended.append(f"{name} went on")
            except ironmule.ClosedError:
                ended.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    stream = long.stream("a", **ENDLESS)
    next(stream)
    threads = [
        expect("stream", lambda: list(stream)),
        expect("generate", lambda: long.generate("b", **ENDLESS)),
        expect("queued", lambda: long.generate("c", **ENDLESS)),
        expect("score", lambda: long.perplexity([5] * 50_000)),
    ]
    assert soon(lambda: long.stats.queued >= 3)
    begun = time.monotonic()
    long.close()
    for thread in threads:
        thread.join(10 * SLOWER)
    assert sorted(ended) == ["generate", "queued", "score", "stream"]
    assert time.monotonic() - begun < 5 * SLOWER


def test_close_by_many_threads(long: ironmule.Runtime) -> None:
    stream = long.stream("a", **ENDLESS)
    next(stream)
    in_threads(6, lambda _i: long.close())
    with pytest.raises(ironmule.ClosedError):
        list(stream)


def test_close_while_others_submit() -> None:
    for _round in range(10):
        runtime = load(mode=ironmule.ThroughputMode(2))

        def work(i: int, runtime: ironmule.Runtime = runtime) -> None:
            try:
                while True:
                    runtime.generate("a", max_tokens=3)
                    if i == 0:
                        runtime.close()
            except ironmule.ClosedError:
                pass

        in_threads(4, work)


def test_collected_in_any_order() -> None:
    """The Runtime goes first, the stream goes first, both go at once in a cycle: the engine is closed once, in the end."""
    for order in range(3):
        runtime: ironmule.Runtime | None = load(context=LONG)
        assert runtime is not None
        stream: ironmule.Stream | None = runtime.stream("a", **ENDLESS)
        assert stream is not None
        engine = runtime._owner.engine
        next(stream)
        if order == 0:
            del runtime
            assert next(stream) is not None  # goes on: the stream keeps what it needs
            assert not engine.closed
            stream = None
        elif order == 1:
            stream = None
            runtime = None
        else:
            cycle: list[object] = [runtime, stream]
            cycle.append(cycle)
            runtime = stream = None
            del cycle
            gc.collect()
        assert soon(lambda: engine._closed), order
        assert engine not in _engine._open and soon(lambda: not engine.calls)


def test_nothing_is_left_behind() -> None:
    """Calls, their callbacks and results are collected without the garbage collector's help, once they are over."""
    with load() as runtime:
        runtime.generate("a", max_tokens=3)
        gc.collect()
        gc.disable()
        try:
            calls = []
            for how in (runtime.generate, runtime.stream):
                for _i in range(3):
                    before = set(runtime._owner.engine.calls)
                    result = how("a", max_tokens=3)
                    calls += [weakref.ref(call) for call in set(runtime._owner.engine.calls) - before]
                    if isinstance(result, ironmule.Stream):
                        list(result)
                    before.clear()
                    del result
            assert calls and all(ref() is None for ref in calls)
        finally:
            gc.enable()


def test_collector_runs_inside_callbacks(long: ironmule.Runtime) -> None:
    """With the collector at every chance, also on the engine's thread, finalisers of streams in cycles meet no lock that they wait for."""
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _i in range(20):
            cycle: list[object] = [long.stream("a", **ENDLESS)]
            cycle.append(cycle)
            del cycle
            pieces = long.stream("b", max_tokens=30, ignore_eos=True, top_logprobs=5)
            assert len(list(pieces)) > 3
    finally:
        gc.set_threshold(*threshold)
    assert soon(lambda: long.stats.running == 0)


def test_interpreter_is_free_meanwhile(long: ironmule.Runtime) -> None:
    """A counter in another thread keeps moving while the library computes: about as far as beside a sleep."""

    def count(work: Callable[[], object]) -> float:
        n, stop = 0, threading.Event()

        def run() -> None:
            nonlocal n
            while not stop.is_set():
                n += 1

        thread = threading.Thread(target=run)
        thread.start()
        begun = time.monotonic()
        work()
        took = time.monotonic() - begun
        stop.set()
        thread.join()
        return n / took

    def busy() -> None:
        with pytest.raises(ironmule.DeadlineError):
            long.generate(prompt_ids=[5] * 100_000, max_tokens=4, timeout=1)

    alone = count(lambda: time.sleep(0.3))
    assert count(busy) > alone / 10


def test_errors_inside_a_callback(tiny: ironmule.Runtime) -> None:
    """What a callback of ours raises comes out of the call."""

    def take(_pointer: object, _n: int) -> None:
        raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        Held(tiny._call(ironmule.Request("a"), on_logits=take)).wait()
    assert tiny.generate("a", max_tokens=2).tokens
