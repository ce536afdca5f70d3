# SPDX-License-Identifier: Apache-2.0
"""Answers piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Union

from ._call import Call, Held
from ._engine import FORKED, Owner
from .errors import ClosedError, ForkedError
from .results import Result

if TYPE_CHECKING:
    import asyncio

#: Makes the call, given what gets each piece and what is called at the end.
Make = Callable[[Callable[[str], None], Callable[[], None]], Call]
_Items = Union[str, None]


class Stream(Iterator[str]):
    """Iterates over the pieces of an answer as they come: whole characters, together `result.text`. Made by `Runtime.stream`.

    >>> with runtime.stream("Tell a story.", max_tokens=200) as story:      # doctest: +SKIP
    ...     for piece in story:
    ...         print(piece, end="", flush=True)
    ...     print(story.result.stop_reason)

    Leaving it early, by `close()`, by the end of `with` or because nothing refers to it any more, cancels the request within one token. One thread at a
    time may iterate; any may close. Errors: those of `Runtime.generate`, from the iteration.
    """

    def __init__(self, owner: Owner, make: Make) -> None:
        self._owner = owner
        self._result: Result | None = None
        self._closed = False
        self._items: SimpleQueue[_Items] = SimpleQueue()
        items = self._items
        self._held = Held(make(items.put, lambda: items.put(None)))

    def __next__(self) -> str:
        if self._result is not None:
            raise StopIteration
        if not self._held.call.mine:
            raise ForkedError(FORKED)
        try:
            piece = self._items.get()
            if self._closed:
                raise ClosedError("the stream was closed before its end")
            if piece is not None:
                return piece
            self._items.put(None)  # whoever asks once more shall not wait
            self._result = self._held.call.result()
        except BaseException:
            self._held.call.abandon()
            raise
        raise StopIteration

    @property
    def result(self) -> Result:
        """The whole answer, when the iteration has ended. What is left of it is waited for, without its pieces."""
        for _piece in self:
            pass
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Cancels what has not ended. May be called again."""
        self._closed = True
        self._held.call.abandon()
        self._items.put(None)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncStream(AsyncIterator[str]):
    """The same for asyncio. Made by `Runtime.astream`.

    >>> async for piece in runtime.astream("Tell a story."):                # doctest: +SKIP
    ...     print(piece, end="", flush=True)

    `result` is there when the iteration has ended. Cancelling the task that iterates cancels the request, and so does `aclose()`.
    """

    def __init__(self, owner: Owner, make: Make) -> None:
        import asyncio

        self._owner = owner
        self._result: Result | None = None
        self._closed = False
        self._items: asyncio.Queue[_Items] = asyncio.Queue()
        items, loop = self._items, asyncio.get_running_loop()

        def post(item: _Items) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        self._held = Held(make(post, lambda: post(None)))

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> str:
        if self._result is not None:
            raise StopAsyncIteration
        if not self._held.call.mine:
            raise ForkedError(FORKED)
        try:
            piece = await self._items.get()
            if self._closed:
                raise ClosedError("the stream was closed before its end")
            if piece is not None:
                return piece
            self._items.put_nowait(None)
            self._result = self._held.call.result()
        except BaseException:
            self._held.call.abandon()
            raise
        raise StopAsyncIteration

    @property
    def result(self) -> Result:
        """The whole answer. Raises ClosedError before the end of the iteration."""
        if self._result is None:
            raise ClosedError("the stream has not ended, or was closed before its end")
        return self._result

    async def aclose(self) -> None:
        """Cancels what has not ended. May be called again."""
        self._closed = True
        self._held.call.abandon()
        self._items.put_nowait(None)
