# SPDX-License-Identifier: Apache-2.0
"""Who may use the engine's handle, and until when. Users of the package meet none of this.

Rules:
  - A call into C holds the engine by `use()`; `close()` refuses new uses, cancels the requests, waits until no call is inside, and only then frees.
  - What waits for a computation waits in Python (a lock), never in C: so Ctrl-C comes at once, and `close()` need not wait for it.
  - A finaliser never frees by itself: the garbage collector may run it on a thread of the engine's own, which must not wait for itself. It cancels, which
    never waits, and hands over to a thread that does nothing else.
  - Engines are in `_open` until they are closed, so nothing that C may still call is collected. At exit of the interpreter all are closed.
  - After a fork the child touches no handle of the parent's: each has the id of the process that it belongs to.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from . import _abi
from ._library import check, lib
from .errors import BY_STATUS, CancelledError, ClosedError, ForkedError, InternalError

if TYPE_CHECKING:
    from ._call import Call

T = TypeVar("T")

FORKED = (
    "this Runtime belongs to the process that loaded it, and this is a child made by fork: "
    'load a Runtime in the child, or let multiprocessing "spawn" its processes'
)

_open: set[Engine] = set()
_exiting = False


# ---- threads of our own ----

_work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
_reaper: threading.Thread | None = None
_reaper_lock = threading.Lock()
_workers: set[threading.Thread] = set()


def hand_over(work: Callable[[], object]) -> None:
    """Has another thread do it; a finaliser may call this. Nothing when the interpreter ends, which closes everything itself."""
    if not _exiting:
        _work.put(work)


def _reap(queue: SimpleQueue[Callable[[], object] | None]) -> None:
    while (work := queue.get()) is not None:
        with suppress(Exception):
            work()
        del work


def _start_reaper() -> None:
    global _reaper
    with _reaper_lock:
        if _reaper is None:
            reaper = threading.Thread(target=_reap, args=(_work,), daemon=True, name="ironmule-reaper")
            reaper.start()
            _reaper = reaper


def interruptible(work: Callable[[], T]) -> T:
    """Runs a C call that waits. On the main thread another one does it, so that Ctrl-C comes at once; what it gives back afterwards is dropped."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    running = threading.Lock()  # held until the end
    running.acquire()
    box: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            box.append(work())
        except BaseException as problem:
            failed.append(problem)
        running.release()

    worker = threading.Thread(target=run, daemon=True, name="ironmule-wait")
    _workers.difference_update([w for w in _workers if not w.is_alive()])
    _workers.add(worker)
    worker.start()
    running.acquire()
    worker.join()  # or its last steps would meet the interpreter's end
    if failed:
        raise failed.pop()
    return box.pop()


def _after_fork() -> None:
    """The child has none of these threads, and what they held stays as it is."""
    global _work, _reaper, _reaper_lock
    _work, _reaper, _reaper_lock = SimpleQueue(), None, threading.Lock()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Engine:
    """The handles of a model and its engine, counted."""

    def __init__(self, path: bytes, prepare: Callable[[Any, _abi.EngineOptions], None]) -> None:
        """`prepare(model, options)` fills the options in; may raise. Waits until the engine is ready."""
        self.pid = os.getpid()
        self._lock = threading.RLock()  # a finaliser may come in between
        self._users: set[object] = set()
        self._closing = self._closed = False
        self._shutting = threading.Lock()
        self.calls: set[Call] = set()
        self.model, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        error, options = _abi.Error(), _abi.EngineOptions()
        try:
            _start_reaper()
        except RuntimeError:  # the interpreter ends, and a daemon thread loads one more
            raise SystemExit from None
        check(lib().im_model_open(self.model, path, None, error), error)
        try:
            lib().im_engine_options_init(options, ctypes.sizeof(options))
            prepare(self.model, options)
            check(lib().im_engine_open_model(self.handle, self.model, options, error), error)
        except BaseException:
            lib().im_model_close(self.model)
            raise
        _open.add(self)

    @property
    def mine(self) -> bool:
        """Does it belong to this process?"""
        return self.pid == os.getpid()

    @property
    def closed(self) -> bool:
        return self._closing

    @contextmanager
    def use(self) -> Iterator[Engine]:
        """Keeps the handles valid. Raises ForkedError, ClosedError."""
        if not self.mine:
            raise ForkedError(FORKED)
        user = object()
        try:
            with self._lock:
                if _exiting and threading.current_thread() is not threading.main_thread():
                    raise SystemExit  # ends a daemon thread without a word: the interpreter is going
                if self._closing or _exiting:
                    raise ClosedError("the Runtime is closed")
                self._users.add(user)
            yield self
        finally:
            # First of all and in one step, wherever Ctrl-C comes: close() waits for it.
            self._users.discard(user)

    def close(self) -> None:
        """Cancels what runs, waits for calls that are inside, frees. Again, or by several threads: waits until it is done. In a child: nothing."""
        if not self.mine:
            return
        with self._lock:
            self._closing = True
            for call in list(self.calls):
                call.cancel()
        # Looked at again and again, as threading.Condition breaks when Ctrl-C comes at the wrong moment. Calls are short.
        while self._users:
            time.sleep(0.001)
        if _exiting:
            self._shut()  # no threads any more
        else:
            interruptible(self._shut)

    def _shut(self) -> None:
        with self._shutting:
            if not self._closed:
                lib().im_engine_close(self.handle)
                lib().im_model_close(self.model)
                self._closed = True
                _open.discard(self)


def exception(engine: Engine, status: int, message: str) -> BaseException:
    """What a waiting call that ended with this status raises."""
    kind = BY_STATUS.get(status, InternalError)
    if kind is CancelledError and engine.closed:
        if _exiting and threading.current_thread() is not threading.main_thread():
            return SystemExit()  # as in use()
        return ClosedError("the Runtime was closed while the request ran")
    return kind(message)


class Owner:
    """What users hold, directly or not: when the last of them is gone, the engine goes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __del__(self) -> None:
        engine = getattr(self, "engine", None)
        if engine is not None and not engine.closed and engine.mine:
            hand_over(engine.close)


def _close_all() -> None:
    global _exiting
    _exiting = True
    for engine in list(_open):
        engine.close()
    # Threads that end while the interpreter does can bring it down. One that still loads a model is not waited for.
    if _reaper is not None:
        _work.put(None)
        _reaper.join()
    for worker in list(_workers):
        worker.join(0.5)


atexit.register(_close_all)
