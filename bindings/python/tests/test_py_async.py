# SPDX-License-Identifier: Apache-2.0
"""asyncio: answers beside each other, streams, cancelling."""

from __future__ import annotations

import asyncio
import time

import pytest
from conftest import LONG, TINY

import ironmule

ENDLESS = {"max_tokens": LONG - 100, "ignore_eos": True}


async def settled(runtime: ironmule.Runtime) -> bool:
    for _i in range(2000):
        if runtime.stats.running == runtime.stats.queued == 0 and not runtime._owner.engine.calls:
            return True
        await asyncio.sleep(0.005)
    return False


def test_same_answers() -> None:
    async def main() -> None:
        with ironmule.Runtime.load(path=TINY, device="cpu", mode=ironmule.ThroughputMode(4)) as runtime:
            right = [runtime.generate(f"prompt {i}", max_tokens=12) for i in range(8)]
            assert await asyncio.gather(*[runtime.agenerate(f"prompt {i}", max_tokens=12) for i in range(8)]) == right
            stream = runtime.astream("prompt 3", max_tokens=12)
            with pytest.raises(ironmule.ClosedError):
                stream.result
            assert "".join([piece async for piece in stream]) == right[3].text
            assert stream.result == right[3] and [piece async for piece in stream] == []

    asyncio.run(main(), debug=True)


def test_loop_is_free_and_errors_come(long: ironmule.Runtime) -> None:
    async def main() -> None:
        task = asyncio.create_task(long.agenerate("a", **ENDLESS))  # type: ignore[arg-type]
        begun = time.monotonic()
        for _i in range(20):
            await asyncio.sleep(0.005)
        assert time.monotonic() - begun < 5 and not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await settled(long)
        with pytest.raises(ironmule.DeadlineError):
            await long.agenerate("a", timeout=0.2, **ENDLESS)  # type: ignore[arg-type]
        with pytest.raises(ironmule.ArgumentError):
            await long.agenerate("a", max_tokens=0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(long.agenerate("a", **ENDLESS), 0.2)  # type: ignore[arg-type]
        assert await settled(long)

    asyncio.run(main())


def test_streams_left_early(long: ironmule.Runtime) -> None:
    async def main() -> None:
        stream = long.astream("a", **ENDLESS)  # type: ignore[arg-type]
        async for _piece in stream:
            break
        await stream.aclose()
        assert await settled(long)
        with pytest.raises(ironmule.ClosedError):
            await stream.__anext__()
        dropped = long.astream("a", **ENDLESS)  # type: ignore[arg-type]
        await dropped.__anext__()
        del dropped
        assert await settled(long)

        async def read() -> None:
            async for _piece in long.astream("a", **ENDLESS):  # type: ignore[arg-type]
                pass

        task = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await settled(long)

    asyncio.run(main())


def test_close_and_lost_loops(long: ironmule.Runtime) -> None:
    """The Runtime is closed under a waiting coroutine; a loop is closed under a running request."""

    async def lose() -> None:
        asyncio.ensure_future(long.agenerate("a", **ENDLESS))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(lose())
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    assert long.generate("a", max_tokens=2).tokens

    async def main() -> None:
        task = asyncio.create_task(long.agenerate("a", **ENDLESS))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(long.close)
        with pytest.raises(ironmule.ClosedError):
            await task

    asyncio.run(main())
