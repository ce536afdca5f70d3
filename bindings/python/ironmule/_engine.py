# SPDX-License-Identifier: Apache-2.0
"""Who may use the engine's handle, and until when. Users of the package meet none of this.

Rules:
  - A call into C holds the engine by `use()`; `close()` refuses new uses, cancels the requests, waits until no call is inside, and only then frees.
  - What waits for a computation waits in Python (threading.Event), never in C: so Ctrl-C comes at once, and `close()` need not wait for it.
  - A finaliser never frees by itself: the garbage collector may run it on a thread of the engine's own, which must not wait for itself. It cancels, which
    never waits, and hands over to a fresh thread.
  - Engines are in `_open` until they are closed, so nothing that C may still call is collected. At exit of the interpreter all are closed.
  - After a fork the child touches no handle of the parent's: each has the id of the process that it belongs to.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from . import _abi
from ._library import check, lib
from .errors import BY_STATUS, CancelledError, ClosedError, ForkedError, InternalError

if TYPE_CHECKING:
    from ._call import Call

T = TypeVar("T")

_open: set[Engine] = set()
_exiting = False


def hand_over(work: Callable[[], None]) -> None:
    """Does the work on a fresh thread; nothing when the interpreter ends, which closes everything itself."""
    if not _exiting:
        try:
            _thread.start_new_thread(work, ())
        except RuntimeError:
            pass  # the interpreter ends, or there are no more threads: the work is left to exit


def interruptible(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Runs a C call that waits. On the main thread it is done by another one, so that Ctrl-C comes at once; what arrives afterwards is undone."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    lock, done = threading.Lock(), threading.Event()
    box: list[T] = []
    failed: list[BaseException] = []
    left = False

    def run() -> None:
        try:
            box.append(work())
        except BaseException as problem:
            failed.append(problem)
        with lock:
            done.set()
            unwanted = left
        if unwanted and box:
            undo(box[0])

    threading.Thread(target=run, daemon=True, name="ironmule-wait").start()
    try:
        done.wait()
    except BaseException:
        with lock:
            left, came = True, done.is_set()
        if came and box:
            undo(box[0])
        raise
    if failed:
        raise failed[0]
    return box[0]


class Engine:
    """The handles of a model and its engine, counted."""

    def __init__(self, path: bytes, prepare: Callable[[Any, _abi.EngineOptions], None]) -> None:
        """`prepare(model, options)` fills the options in; may raise. Waits until the engine is ready."""
        self.pid = os.getpid()
        self._cond = threading.Condition(threading.RLock())
        self._uses = 0
        self._closing = self._taken = self._closed = False
        self.calls: set[Call] = set()
        self.model, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        error, options = _abi.Error(), _abi.EngineOptions()
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
            raise ForkedError(
                "this Runtime belongs to the process that loaded it, and this is a child made by fork: "
                'load a Runtime in the child, or let multiprocessing "spawn" its processes'
            )
        with self._cond:
            if _exiting and threading.current_thread() is not threading.main_thread():
                raise SystemExit  # ends a daemon thread without a word: the interpreter is going
            if self._closing or _exiting:
                raise ClosedError("the Runtime is closed")
            self._uses += 1
        try:
            yield self
        finally:
            with self._cond:
                self._uses -= 1
                if self._uses == 0:
                    self._cond.notify_all()

    def close(self) -> None:
        """Cancels what runs, waits for calls that are inside, frees. Again, or by several threads: waits until it is done. In a child: nothing."""
        if not self.mine:
            return
        with self._cond:
            self._closing = True
            for call in list(self.calls):
                call.cancel()
            self._cond.wait_for(lambda: self._uses == 0)
            if self._taken:
                self._cond.wait_for(lambda: self._closed)
                return
            self._taken = True
        try:
            lib().im_engine_close(self.handle)
            lib().im_model_close(self.model)
        finally:
            with self._cond:
                self._closed = True
                self._cond.notify_all()
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


atexit.register(_close_all)
