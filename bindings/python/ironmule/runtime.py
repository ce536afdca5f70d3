# SPDX-License-Identifier: Apache-2.0
"""A model that is ready to answer."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _abi, _text
from ._call import Call, Held, id_array, stay_attached
from ._engine import Engine, Owner, exception, interruptible
from ._library import c_string, check, lib
from .errors import ArgumentError, IronMuleError, UnsupportedError
from .plans import InteractiveMode, Message, Mode, Options, Plan, Request, ReusableSessionPlan, StrictOneShotPlan, ThroughputMode
from .results import Result, RuntimeInfo, Score, Stats
from .stream import AsyncStream, Stream

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

if TYPE_CHECKING:
    import numpy

_CACHE_BYTES = 512 << 20


def _cache_bytes(model: Any, options: _abi.EngineOptions, wanted: int | None) -> int:
    """As `ironmule serve`: half a gigabyte, but never more than a quarter of what the plan leaves free."""
    if wanted is not None:
        return wanted
    plan, error = _abi.MemoryPlan(), _abi.Error()
    check(lib().im_engine_plan(model, options, plan, error), error)
    spare = plan.available - plan.weights - plan.kv - plan.workspace
    return _CACHE_BYTES if plan.available == 0 else max(0, min(_CACHE_BYTES, spare // 4))


def _width(mode: Mode) -> int:
    if isinstance(mode, InteractiveMode):
        return 1
    if not isinstance(mode, ThroughputMode):
        raise ArgumentError(f"mode: InteractiveMode() or ThroughputMode() is needed, not {mode!r}")
    if not 1 <= mode.max_width <= 4096:
        raise ArgumentError(f"max_width: {mode.max_width!r} is not 1 .. 4096")
    return mode.max_width


def _resolve(model_id: str | None, path: str | os.PathLike[str] | None, revision: str | None) -> bytes:
    if (model_id is None) == (path is None):
        raise ArgumentError("either model_id or path is needed")
    if path is not None:
        if revision is not None:
            raise ArgumentError("revision: a path has none; give model_id")
        file = os.fsencode(path)
        if b"\0" in file:
            raise ArgumentError("path: U+0000 cannot be part of it")
        return file
    from . import models

    name, colon, tag = str(model_id).partition(":")
    found = models.show(str(model_id) if revision is None else f"{name}@{revision}{colon}{tag}")
    return os.fsencode(str(found["path"]))


class Runtime:
    """A loaded model. `Runtime.load` makes it; use it as a context manager, or call `close()`, or let it go: the last reference closes it.

    >>> import ironmule
    >>> with ironmule.Runtime.load(path="model.gguf") as runtime:           # doctest: +SKIP
    ...     print(runtime.generate("Why is the sky blue?").text)

    All methods may be called by any number of threads at once; each request's answer is the one that it would get alone, bit for bit. The interpreter's lock
    is free while the library computes. Ctrl-C ends what the main thread waits for, cancels its request, and leaves the Runtime usable. A child made by fork
    cannot use it (ForkedError) and leaves the parent's untouched.
    """

    _owner: Owner

    def __init__(self) -> None:
        raise TypeError("use Runtime.load(...)")

    @classmethod
    def load(
        cls,
        model_id: str | None = None,
        path: str | os.PathLike[str] | None = None,
        mode: Mode = InteractiveMode(),
        revision: str | None = None,
        compute_dtype: str | None = None,
        use_tuned_profile: bool = True,
        device: str = "auto",
        context: int | None = None,
        *,
        threads: int | None = None,
    ) -> Runtime:
        """Opens a model and waits until it can answer.

        model_id: a registered name, or an id of the Hugging Face Hub whose files are in the local cache ("ORG/NAME:Q4_K_M"). Nothing is downloaded here:
            `ironmule.models.add(id, download=True)` does that.
        path: in its place, a GGUF file, any shard of a split one, or a folder with one.
        mode: InteractiveMode() or ThroughputMode(max_width=8).
        revision: of model_id: a branch, tag or commit.
        compute_dtype: must be None; the arithmetic is fixed by docs/numerics.md.
        use_tuned_profile: without effect while there are no tuned profiles.
        device: "auto", "cpu", "cuda", "cuda:1". Bits do not depend on it.
        context: positions that prompt and answer may have together; None: the model's own, at most 4096.
        threads: None: one for each physical core. Bits do not depend on it.

        Errors: ProgramError (no such model here; the message says how to get it), FileError, FormatError, UnsupportedError, OutOfMemoryError, DeviceError,
        ArgumentError, LibraryError.

        >>> runtime = ironmule.Runtime.load("Qwen/Qwen3-4B-GGUF:Q4_K_M", context=8192)      # doctest: +SKIP
        """
        if compute_dtype is not None:
            raise UnsupportedError(f"compute_dtype={compute_dtype!r}: this version computes in its own fixed arithmetic only (docs/numerics.md); leave it out")
        if context is not None and not 2 <= context < 2**32:
            raise ArgumentError(f"context: {context!r} is not 2 or more")
        if threads is not None and not 1 <= threads <= 1024:
            raise ArgumentError(f"threads: {threads!r} is not 1 .. 1024")
        width, device_name = _width(mode), c_string(device, "device")
        file = _resolve(model_id, path, revision)

        def prepare(model: Any, o: _abi.EngineOptions) -> None:
            o.device, o.context, o.threads, o.max_sequences = device_name, context or 0, threads or 0, width
            o.cache_ram = _cache_bytes(model, o, mode.cache_bytes)

        self = cls.__new__(cls)
        self._owner = interruptible(lambda: Owner(Engine(file, prepare)))
        return self

    # ---- lifetime ----

    def close(self) -> None:
        """Cancels what runs, then frees the memory. Calls that wait in other threads raise ClosedError, and so do later ones. May be called again, and by
        any thread. In a child made by fork it does nothing."""
        self._owner.engine.close()

    @property
    def closed(self) -> bool:
        """Has close() been called?"""
        return self._owner.engine.closed

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<ironmule.Runtime, closed>" if self.closed else "<ironmule.Runtime>"

    # ---- answers ----

    def _call(self, r: Request, **callbacks: Any) -> Call:
        engine, session = self._owner.engine, isinstance(r.plan, ReusableSessionPlan)
        if r.plan is not None and not session and not isinstance(r.plan, StrictOneShotPlan):
            raise ArgumentError(f"plan: StrictOneShotPlan() or the result of session_plan() is needed, not {r.plan!r}")
        if isinstance(r.plan, ReusableSessionPlan) and r.plan._owner is not self._owner:
            raise ArgumentError("plan: it belongs to another Runtime, whose session_plan() made it")
        with engine.use():
            ids = _text.prompt_ids(engine, r)
        return Call(engine, r, ids, "reusable-session" if session else "strict-one-shot", cached=session, **callbacks)

    def generate(self, prompt: str | None = None, **options: Unpack[Options]) -> Result:
        """One answer, waited for.

        prompt: a text; it goes through the model's chat template when the model has one, unless raw=True. In its place: messages=[{"role": ..., "content":
            ...}, ...], or prompt_ids=[...].
        options: the fields of `Request`: max_tokens=64, plan, stop, temperature=0, seed, top_k, top_p, min_p, penalties, logit_bias, logprobs, top_logprobs,
            raw, tools, timeout ...

        Errors: ArgumentError, ContextError (the prompt is too long), TemplateError, UnsupportedError (messages, but the model has no template),
        OutOfMemoryError, NumericError, DeadlineError, DeviceError, ClosedError, ForkedError.

        >>> runtime.generate("Hello", max_tokens=5, stop=["."]).text        # doctest: +SKIP
        'Hello! How can I'
        """
        return Held(self._call(Request(prompt, **options))).wait()

    def stream(self, prompt: str | None = None, **options: Unpack[Options]) -> Stream:
        """The same, piece by piece: a `Stream` to iterate over, whose `result` is there at the end. The request begins at once.

        >>> for piece in runtime.stream("Hello", max_tokens=5):             # doctest: +SKIP
        ...     print(piece, end="", flush=True)
        """
        request = Request(prompt, **options)
        return Stream(self._owner, lambda on_text, on_end: self._call(request, on_text=on_text, on_end=on_end))

    async def agenerate(self, prompt: str | None = None, **options: Unpack[Options]) -> Result:
        """`generate` for asyncio: the event loop is free meanwhile. Cancelling the task cancels the request.

        >>> answers = await asyncio.gather(*[runtime.agenerate(q) for q in questions])      # doctest: +SKIP
        """
        import asyncio

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        held = Held(self._call(Request(prompt, **options), on_end=lambda: loop.call_soon_threadsafe(ended.set)))
        try:
            await ended.wait()
            return held.call.result()
        except BaseException:
            held.call.abandon()
            raise

    def astream(self, prompt: str | None = None, **options: Unpack[Options]) -> AsyncStream:
        """`stream` for asyncio. To be called where an event loop runs.

        >>> async for piece in runtime.astream("Hello"):                    # doctest: +SKIP
        ...     print(piece, end="", flush=True)
        """
        request = Request(prompt, **options)
        return AsyncStream(self._owner, lambda on_text, on_end: self._call(request, on_text=on_text, on_end=on_end))

    def serve(self, requests: Sequence[Request], *, return_exceptions: bool = False) -> list[Result]:
        """A group of requests, answered under the Runtime's mode: in turn, or up to max_width at a time. Waits for all; results in the order of `requests`.

        return_exceptions: an exception takes the place of its result; else the first one cancels the rest and is raised.

        >>> runtime.serve([ironmule.Request(q, max_tokens=32) for q in questions])          # doctest: +SKIP
        """
        calls: list[Held | IronMuleError] = []
        results: list[Any] = []
        try:
            for request in requests:
                calls.append(self._attempt(lambda request=request: Held(self._call(request)), return_exceptions))  # type: ignore[misc]
            for call in calls:
                results.append(self._attempt(call.wait, return_exceptions) if isinstance(call, Held) else call)
        except BaseException:
            for call in calls:
                if isinstance(call, Held):
                    call.call.abandon()
            raise
        return results

    @staticmethod
    def _attempt(work: Callable[[], Any], keep: bool) -> Any:
        try:
            return work()
        except IronMuleError as problem:
            if keep:
                return problem
            raise

    # ---- sessions ----

    def session_plan(self, shared_prefix: str | Sequence[Message] | Sequence[int], *, raw: bool = False) -> ReusableSessionPlan:
        """A plan whose beginning is computed now, once, and reused by every request that is given it, with the same bits.

        shared_prefix: a text: the system message in front of each prompt when the model has a chat template, and with raw=True, or without one, the text that
            each prompt continues. A list of messages: in front of each prompt or messages. A list of token ids: in front of each prompt_ids.

        Errors: UnsupportedError when the Runtime keeps nothing (cache_bytes=0, or too little memory); else those of `generate`.

        >>> session = runtime.session_plan([{"role": "system", "content": handbook}])       # doctest: +SKIP
        >>> runtime.generate("What is chapter 2 about?", plan=session, max_tokens=40)       # doctest: +SKIP
        """
        engine = self._owner.engine
        with engine.use():
            if self._cache() == 0:
                raise UnsupportedError(
                    "this Runtime keeps nothing for sessions: load it with a mode whose cache_bytes is not 0, on a machine with memory to spare"
                )
            session = self._session(shared_prefix, raw)
            request = Request(prompt_ids=self._common_ids(session), max_tokens=1)
        # The request that computes it; what it generates is of no use.
        call = Call(engine, request, list(request.prompt_ids or ()), "reusable-session", cached=True)
        session.prefix_tokens = Held(call).wait().metrics.prompt_tokens
        return session

    def _cache(self) -> int:
        stats = _abi.EngineStats()
        lib().im_engine_get_stats(self._owner.engine.handle, stats)
        info = self._engine_info()
        # Pages beyond those that the running requests may need.
        return int(stats.kv_pages * 64 > info.max_sequences * info.context + 63)

    def _session(self, prefix: Any, raw: bool) -> ReusableSessionPlan:
        if isinstance(prefix, str):
            if raw or not _text.model_info(self._owner.engine).has_chat_template:
                return ReusableSessionPlan(self._owner, None, prefix, None, 0)
            return ReusableSessionPlan(self._owner, [{"role": "system", "content": prefix}], None, None, 0)
        items = list(prefix)
        if items and all(isinstance(m, Mapping) for m in items):
            if raw:
                raise ArgumentError("raw leaves the chat template out, but messages need it")
            return ReusableSessionPlan(self._owner, items, None, None, 0)
        id_array(items, "shared_prefix")
        return ReusableSessionPlan(self._owner, None, None, items, 0)

    def _common_ids(self, session: ReusableSessionPlan) -> list[int]:
        """Ids that requests of the session begin with: what two different prompts have in common."""
        engine = self._owner.engine
        if session._ids is not None:
            return session._ids
        if session._text is not None:
            return _text.encode(engine, session._text, _abi.ENCODE_DEFAULT)
        one, other = (_text.prompt_ids(engine, Request(text, plan=session)) for text in ("a", "1"))
        same = next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), min(len(one), len(other)))
        return one[:same]

    # ---- text ----

    def encode(self, text: str, *, bos: bool = True, special: bool = True) -> list[int]:
        """Token ids of a text. bos: with the token that begins a text, if the model wants one. special: control tokens written in the text are parsed.

        >>> runtime.encode("Hello")                                         # doctest: +SKIP
        [1, 9906]
        """
        flags = (0 if bos else _abi.ENCODE_NO_BOS) | (0 if special else _abi.ENCODE_PLAIN)
        with self._owner.engine.use() as engine:
            return _text.encode(engine, text, flags)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, control tokens left out; incomplete characters become U+FFFD.

        >>> runtime.decode(runtime.encode("Hello"))                         # doctest: +SKIP
        'Hello'
        """
        with self._owner.engine.use() as engine:
            return _text.decode(engine, ids)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """A conversation as the model's chat template writes it. variables: further ones for the template.

        Errors: TemplateError with the template's own sentence; UnsupportedError when the model has none.

        >>> runtime.render([{"role": "user", "content": "Hi"}])             # doctest: +SKIP
        '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        with self._owner.engine.use() as engine:
            return _text.chat(engine, messages, want_text=True, tools=tools, variables=variables, generation_prompt=add_generation_prompt)[0]

    # ---- numbers ----

    def logits(self, prompt: str | None = None, **options: Unpack[Options]) -> numpy.ndarray[Any, numpy.dtype[numpy.float32]]:
        """The logits that chose each generated token: float32 [tokens, vocabulary], the model's own, before temperature and penalties. Needs NumPy.

        options: as for `generate`, but max_tokens is 1 unless given: the logits behind the prompt.

        >>> runtime.logits(prompt_ids=[1, 2, 3]).shape                      # doctest: +SKIP
        (1, 49152)
        """
        try:
            import numpy
        except ImportError:
            raise ImportError("Runtime.logits needs NumPy: pip install numpy") from None
        options.setdefault("max_tokens", 1)
        rows: list[Any] = []

        def take(pointer: Any, n: int) -> None:
            rows.append(numpy.ctypeslib.as_array(pointer, (n,)).copy())

        Held(self._call(Request(prompt, **options), on_logits=take)).wait()
        return numpy.stack(rows)

    def perplexity(self, text: str | Sequence[int]) -> Score:
        """How well the model predicts a text, or token ids (at least 2, at most the context). Waits; Ctrl-C ends it.

        >>> runtime.perplexity("The quick brown fox jumps over the lazy dog.").perplexity    # doctest: +SKIP
        18.3
        """
        engine = self._owner.engine
        ids = id_array(self.encode(text) if isinstance(text, str) else text, "ids")
        n = max(len(ids) - 1, 1)
        logprobs, best, error, left = (ctypes.c_float * n)(), (ctypes.c_int32 * n)(), _abi.Error(), [False]

        def progress(_user: Any, _done: int, _total: int) -> bool:
            stay_attached()
            return not (left[0] or engine.closed)

        go_on = _abi.OnScore(progress)

        def work() -> int:
            with engine.use():
                return int(lib().im_engine_score(engine.handle, ids, len(ids), logprobs, best, None, go_on, None, error))

        try:
            status = interruptible(work)
        except BaseException:
            left[0] = True
            raise
        if status != 0:
            raise exception(engine, status, error.message.decode("utf-8", "replace"))
        return Score(math.exp(-sum(logprobs) / n), tuple(logprobs), tuple(best))

    def verify(self, *, full: bool = False) -> dict[str, Any]:
        """Lets the program prove this model on this machine: the same bits of all logits for every kernel level, GPU, thread count, chunk, company and cache. It
        loads the model anew in a process of its own. The document of `ironmule verify --json`, whose "same" says how it ended.

        full: every combination: minutes, for large models hours.

        Errors: UnsupportedError when the program in use has no `verify`; ProgramError.

        >>> runtime.verify()["same"]                                        # doctest: +SKIP
        True
        """
        from ._program import run_json

        found: dict[str, Any] = run_json("verify", *(["--full"] if full else []), operands=(self.info.path,))
        return found

    # ---- about ----

    def _engine_info(self) -> _abi.EngineInfo:
        info = _abi.EngineInfo()
        lib().im_engine_get_info(self._owner.engine.handle, info)
        return info

    @property
    def info(self) -> RuntimeInfo:
        """What was loaded, and on what it computes."""
        with self._owner.engine.use() as engine:
            m, e = _text.model_info(engine), self._engine_info()
            return RuntimeInfo(
                name=_string(m.name),
                path=os.fsdecode(m.path),
                architecture=_string(m.architecture),
                quantisation=_string(m.quantisation),
                licence=_string(m.licence),
                vocabulary=m.vocabulary,
                has_chat_template=m.has_chat_template,
                device=_string(e.device),
                device_note=_string(e.note),
                cpu_level=_string(e.cpu_level),
                threads=e.threads,
                context=e.context,
                max_sequences=e.max_sequences,
                weight_bytes=e.memory.weights,
                kv_bytes=e.memory.kv,
                load_ms=e.load_ms,
                fingerprint=_string(e.fingerprint),
                numerics_version=lib().im_numerics_version(),
            )

    @property
    def stats(self) -> Stats:
        """Counts since the Runtime was loaded. Never waits for a computation."""
        s = _abi.EngineStats()
        with self._owner.engine.use() as engine:
            lib().im_engine_get_stats(engine.handle, s)
        return Stats(**{name: getattr(s, name) for name in Stats.__dataclass_fields__})


def _string(data: bytes | None) -> str:
    return data.decode("utf-8", "replace") if data else ""
