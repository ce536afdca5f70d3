# SPDX-License-Identifier: Apache-2.0
"""What the binding costs. On a model so small that a token takes it some 25 us: the time of a token through Python less that which the engine's own clock
measures without any callback. One thread computes, so that the one that reads has a processor; the best of many rounds, since others use the machine too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from conftest import SANITIZED, TINY

import ironmule

TOKENS = 400


@pytest.fixture(scope="module")
def tiny() -> Iterator[ironmule.Runtime]:
    with ironmule.Runtime.load(path=TINY, device="cpu", threads=1) as runtime:
        yield runtime


@pytest.mark.skipif(SANITIZED, reason="measures time")
def test_overhead_of_a_token(tiny: ironmule.Runtime) -> None:
    ids = [5] * 8

    def whole() -> None:
        tiny.generate(prompt_ids=ids, max_tokens=TOKENS, ignore_eos=True)

    def pieces() -> None:
        for _piece in tiny.stream(prompt_ids=ids, max_tokens=TOKENS, ignore_eos=True):
            pass

    def engine() -> float:
        metrics = tiny.generate(prompt_ids=ids, max_tokens=TOKENS, ignore_eos=True).metrics
        return (metrics.first_token_ms + metrics.generate_ms) * 1e3 / TOKENS

    def clocked(work: Callable[[], None]) -> float:
        begun = time.perf_counter()
        work()
        return (time.perf_counter() - begun) * 1e6 / TOKENS

    rounds = [(engine(), clocked(whole), clocked(pieces)) for _i in range(60)]
    alone, generate, stream = (min(r[i] for r in rounds) for i in range(3))
    print(f"a token: {alone:.1f} us in the engine; the binding adds {generate - alone:.1f} us in generate, {stream - alone:.1f} us in stream")
    assert generate - alone < 20 and stream - alone < 20


@pytest.mark.skipif(SANITIZED, reason="measures time")
def test_overhead_of_a_request(tiny: ironmule.Runtime) -> None:
    times = []
    for _i in range(100):
        begun = time.perf_counter()
        result = tiny.generate(prompt_ids=[5] * 8, max_tokens=1)
        times.append((time.perf_counter() - begun) * 1e6 - result.metrics.first_token_ms * 1e3)
    print(f"a request: the binding adds {min(times):.0f} us")
    assert min(times) < 1000
