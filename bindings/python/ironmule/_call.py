# SPDX-License-Identifier: Apache-2.0
"""One request on its way: its options in C, its callbacks, its end."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable
from typing import Any

from . import _abi
from ._engine import Engine, exception, hand_over
from ._library import c_string, check, lib
from .errors import ArgumentError, ClosedError, IronMuleError
from .plans import Request
from .results import Metrics, Result, TokenLogprob

_LARGEST = 2**32 - 1
_thread = threading.local()


def stay_attached() -> None:
    """For every callback: keeps Python's state of the engine's thread until the next one. Python would make and drop one each time, stack and all, which takes
    longer than the callback, under a lock that a fork at that moment copies as taken (before 3.12: the child then hangs). What is kept goes with the interpreter,
    a few pages for each engine. (The thread's own data is part of that state.)"""
    if not hasattr(_thread, "attached"):
        _thread.attached = True
        ctypes.pythonapi.PyGILState_Ensure()


_NO_TOKEN = _abi.OnToken()


def id_array(values: Any, what: str) -> Any:
    """int32_t[len(values)] for C."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError("it is a text")
        ids = array("i", values)
    except (TypeError, ValueError, OverflowError) as problem:
        raise ArgumentError(f"{what}: a list of token ids is needed: {problem}") from None
    return (ctypes.c_int32 * len(ids)).from_buffer(ids) if ids else (ctypes.c_int32 * 0)()


def _stop_strings(stop: Any) -> list[bytes]:
    return [c_string(text, "stop") for text in ([stop] if isinstance(stop, str) else stop or [])]


class Call:
    """`on_text` gets each piece of text, on the engine's thread; `on_end` is called there last. Neither may wait or raise.

    Begins by `submit()`, ends by `result()`, which frees, or by `abandon()`. Both may be called from any thread and more than once.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        ids: list[int],
        plan: str,
        *,
        cached: bool,
        on_text: Callable[[str], None] | None = None,
        on_logits: Callable[[Any, int], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._engine, self._plan = engine, plan
        self._on_text, self._on_logits, self._on_end = on_text, on_logits, on_end
        self._logprobs: list[TokenLogprob] | None = [] if request.logprobs or request.top_logprobs else None
        self._problem: BaseException | None = None
        self._handle = ctypes.c_void_p()
        self._lock = threading.RLock()  # a finaliser may come in between
        # The handle while it is to be freed, behind an end mark; see _free.
        self._box: list[Any] = [None, self._handle]
        self._over = False
        self._running = threading.Lock()  # held until the end; threading.Event breaks when Ctrl-C comes at the wrong moment
        self._running.acquire()
        # The library calls these until the request is freed; `calls` of the engine keeps them until then.
        self._end_thunk: Any = _abi.OnEnd(self._ended)
        sees_tokens = on_text is not None or on_logits is not None or self._logprobs is not None
        self._token_thunk: Any = _abi.OnToken(self._token) if sees_tokens else _NO_TOKEN
        self._options: Any
        self._options, self._keep = self._make_options(request, ids, cached)

    def submit(self) -> None:
        error = _abi.Error()
        try:
            with self._engine.use() as engine:
                engine.calls.add(self)
                check(lib().im_request_submit(engine.handle, self._options, self._handle, error), error)
        except BaseException:
            self.abandon()
            raise
        self._keep.clear()  # the library has its own copies

    def _make_options(self, r: Request, ids: list[int], cached: bool) -> tuple[_abi.RequestOptions, list[Any]]:
        """The options, and what they point to."""
        o = _abi.RequestOptions()
        lib().im_request_options_init(o, ctypes.sizeof(o))
        if not isinstance(r.max_tokens, int) or not 1 <= r.max_tokens <= _LARGEST:
            raise ArgumentError(f"max_tokens: {r.max_tokens!r} is not 1 or more")
        if r.timeout is not None and not r.timeout > 0:
            raise ArgumentError(f"timeout: {r.timeout!r} seconds leave no time")
        if r.seed is not None and not 0 <= r.seed < 2**64:
            raise ArgumentError(f"seed: {r.seed!r} is not 0 .. 2^64 - 1")
        prompt, stop = id_array(ids, "prompt_ids"), _stop_strings(r.stop)
        keep: list[Any] = [prompt, stop]
        o.prompt, o.prompt_len, o.max_tokens = ctypes.cast(prompt, _abi.Ids), len(ids), r.max_tokens
        if stop:
            strings = (ctypes.c_char_p * (len(stop) + 1))(*stop, None)
            keep.append(strings)
            o.stop = ctypes.cast(strings, ctypes.POINTER(ctypes.c_char_p))
        if r.forced is not None:
            forced = id_array(r.forced, "forced")
            keep.append(forced)
            o.forced, o.forced_len = ctypes.cast(forced, _abi.Ids), len(r.forced)
        keep.append(self._sample(o.sampling, r))
        o.ignore_eos, o.no_cache = r.ignore_eos, not cached
        o.want_logits = self._on_logits is not None
        o.want_logprobs, o.top_logprobs = self._logprobs is not None, r.top_logprobs
        o.deadline_ms = r.timeout * 1e3 if r.timeout is not None else 0
        o.client = r.client
        o.on_token, o.on_end = self._token_thunk, self._end_thunk
        return o, keep

    @staticmethod
    def _sample(s: Any, r: Request) -> Any:
        try:
            s.temperature, s.top_k, s.top_p, s.min_p = r.temperature, r.top_k, r.top_p, r.min_p
            s.repetition_penalty, s.frequency_penalty, s.presence_penalty = r.repetition_penalty, r.frequency_penalty, r.presence_penalty
            s.seed = r.seed or 0
            pairs = [_abi.LogitBias(id, bias) for id, bias in (r.logit_bias or {}).items()]
            bias = (_abi.LogitBias * len(pairs))(*pairs)
        except (TypeError, ValueError) as problem:
            raise ArgumentError(f"sampling: {problem}") from None
        if r.logit_bias:
            s.bias, s.bias_count = ctypes.cast(bias, ctypes.POINTER(_abi.LogitBias)), len(bias)
        return bias

    # ---- on the engine's thread ----

    def _token(self, _user: Any, pointer: Any) -> bool:
        try:
            stay_attached()
            event = pointer[0]
            if self._on_text is not None and event.text_len:
                self._on_text(ctypes.string_at(event.text, event.text_len).decode("utf-8", "replace"))
            if self._logprobs is not None:
                top = tuple((t.id, t.logprob) for t in event.top[: event.top_count]) if event.top_count else ()
                self._logprobs.append(TokenLogprob(event.id, event.logprob, top))
            if self._on_logits is not None:
                self._on_logits(event.logits, event.vocabulary)
            return True
        except BaseException as problem:
            self._problem = problem
            return False

    def _ended(self, _user: Any) -> None:
        stay_attached()
        self._running.release()
        if self._on_end is not None:
            try:
                self._on_end()
            except RuntimeError:
                pass  # the event loop that waited is closed

    # ---- on the callers' ----

    def cancel(self) -> None:
        """Never waits."""
        with self._lock:
            if self._box and self._handle:
                lib().im_request_cancel(self._handle)

    def _free(self) -> None:
        """Once, whoever calls it, and again when Ctrl-C came in between. Taking the handle out and freeing it is one step of the interpreter: between two,
        Ctrl-C would lose it or leave it to be freed twice."""
        with self._lock:
            if self._box:
                any(map(lib().im_request_free, iter(self._box.pop, None)))
        self._engine.calls.discard(self)
        self._options = self._end_thunk = self._token_thunk = self._on_text = self._on_logits = self._on_end = None
        self._over = True

    def abandon(self) -> None:
        """Cancels and lets go; the request's place is free within one step. Never waits, so a finaliser may do it."""
        if self._over or not self._engine.mine:
            return
        self.cancel()
        if self._handle:
            hand_over(self._free)
        else:
            self._free()

    @property
    def mine(self) -> bool:
        """Does it belong to this process?"""
        return self._engine.mine

    def wait(self) -> Result:
        """Waits and returns the result. Ctrl-C cancels the request."""
        try:
            self._running.acquire()
            return self.result()
        except BaseException:
            self.abandon()
            raise

    def result(self) -> Result:
        """After the end: what came of it, or the exception."""
        c_result, error = _abi.Result(), _abi.Error()
        try:
            with self._lock:
                if not self._box:
                    raise ClosedError("the request was closed")
                status = lib().im_request_wait(self._handle, c_result, error)
                result = self._convert(c_result)
        finally:
            self._free()
        if status != 0:
            raise self._exception(status, error.message.decode("utf-8", "replace"), result)
        return result

    def _exception(self, status: int, message: str, partial: Result) -> BaseException:
        if self._problem is not None:
            return self._problem
        problem = exception(self._engine, status, message)
        if isinstance(problem, IronMuleError):
            problem.partial = partial
        return problem

    def _convert(self, r: _abi.Result) -> Result:
        n = r.count
        metrics = Metrics(
            queue_ms=r.queue_ms,
            prompt_ms=r.prompt_ms,
            first_token_ms=r.first_token_ms,
            per_token_ms=r.generate_ms / (n - 1) if n > 1 else 0.0,
            generate_ms=r.generate_ms,
            prompt_tokens=r.prompt_tokens,
            cached_tokens=r.cached_tokens,
            plan=self._plan,
        )
        return Result(
            text=ctypes.string_at(r.text, r.text_len).decode("utf-8", "replace") if r.text else "",
            tokens=tuple(r.ids[:n]) if n else (),
            stop_reason=_abi.STOP_REASONS[r.stop_reason],
            logits_hash=f"{r.logits_hash:016x}",
            metrics=metrics,
            logprobs=tuple(self._logprobs) if self._logprobs is not None else None,
        )


class Held:
    """A submitted call in the hands of a user: when it is dropped, wherever Ctrl-C came, the call is abandoned."""

    def __init__(self, call: Call) -> None:
        self.call = call
        call.submit()

    def wait(self) -> Result:
        return self.call.wait()

    def __del__(self) -> None:
        self.call.abandon()
