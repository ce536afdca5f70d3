# SPDX-License-Identifier: Apache-2.0
"""Groups under a mode, sessions and their cache: what is shared changes no answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import TINY

import ironmule

TEXT = "".join(f"Line {i} of a text that many share. " for i in range(6))


@pytest.fixture(scope="module")
def wide() -> Iterator[ironmule.Runtime]:
    with ironmule.Runtime.load(path=TINY, device="cpu", mode=ironmule.ThroughputMode(max_width=8)) as runtime:
        yield runtime


def test_serve(tiny: ironmule.Runtime, wide: ironmule.Runtime) -> None:
    requests = [ironmule.Request(f"prompt {i}", max_tokens=20 + i, ignore_eos=True) for i in range(12)]
    in_turn, at_once = tiny.serve(requests), wide.serve(requests)
    assert in_turn == at_once == [tiny.generate(r.prompt, max_tokens=r.max_tokens, ignore_eos=True) for r in requests]
    assert (tiny.info.max_sequences, wide.info.max_sequences) == (1, 8)
    assert wide.stats.steps < wide.stats.generated_tokens / 2  # they did share steps
    assert tiny.serve([]) == []


def test_serve_with_errors(wide: ironmule.Runtime) -> None:
    requests = [ironmule.Request("a", max_tokens=4), ironmule.Request(prompt_ids=[1] * 600), ironmule.Request("b", max_tokens=4, timeout=1e-6)]
    with pytest.raises(ironmule.ContextError):
        wide.serve(requests)
    found = wide.serve(requests, return_exceptions=True)
    assert isinstance(found[0], ironmule.Result)
    assert [type(f) for f in found[1:]] == [ironmule.ContextError, ironmule.DeadlineError]
    assert wide.serve(requests[:1]) == [found[0]]


@pytest.mark.parametrize("kind", ["system", "messages", "raw", "ids"])
def test_session(tiny: ironmule.Runtime, kind: str) -> None:
    """Two questions behind one beginning: almost all of it is found, and the answers are those without a cache."""
    user = [{"role": "user", "content": "And now?"}]
    system = [{"role": "system", "content": kind + TEXT}]
    if kind == "system":
        session = tiny.session_plan(kind + TEXT)
        how, whole = {"prompt": "And now?"}, {"messages": system + user}
    elif kind == "messages":
        session = tiny.session_plan(system)
        how, whole = {"messages": user}, {"messages": system + user}
    elif kind == "raw":
        session = tiny.session_plan(kind + TEXT, raw=True)
        how, whole = {"prompt": "And now?"}, {"prompt": kind + TEXT + "And now?", "raw": True}
    else:
        ids = tiny.encode(kind + TEXT)
        session = tiny.session_plan(ids)
        how, whole = {"prompt_ids": [9, 8, 7]}, {"prompt_ids": [*ids, 9, 8, 7]}
    assert session.prefix_tokens > 100 and str(session.prefix_tokens) in repr(session)
    warm = tiny.generate(plan=session, max_tokens=20, **how)  # type: ignore[arg-type]
    cold = tiny.generate(max_tokens=20, **whole)  # type: ignore[arg-type]
    assert warm == cold
    assert (cold.metrics.cached_tokens, cold.metrics.plan) == (0, "strict-one-shot")
    assert warm.metrics.plan == "reusable-session" and warm.metrics.cached_tokens >= session.prefix_tokens - 8
    again = tiny.stream(plan=session, max_tokens=20, **how)  # type: ignore[arg-type]
    assert again.result == cold and again.result.metrics.cached_tokens >= warm.metrics.cached_tokens


def test_strict_plan_takes_and_leaves_nothing(tiny: ironmule.Runtime) -> None:
    prompt = "strict " + TEXT
    tiny.generate(prompt, raw=True, max_tokens=2)
    session = tiny.session_plan("", raw=True)
    assert tiny.generate(prompt, plan=session, max_tokens=2).metrics.cached_tokens < 64
    assert tiny.generate(prompt, plan=session, max_tokens=2).metrics.cached_tokens > 64
    assert tiny.generate(prompt, raw=True, max_tokens=2, plan=ironmule.StrictOneShotPlan()).metrics.cached_tokens == 0


def test_wrong_sessions(tiny: ironmule.Runtime, wide: ironmule.Runtime) -> None:
    foreign = wide.session_plan(TEXT)
    with pytest.raises(ironmule.ArgumentError, match="another Runtime"):
        tiny.generate("a", plan=foreign)
    raw, ids = tiny.session_plan(TEXT, raw=True), tiny.session_plan([1, 2, 3])
    for plan, how in (
        (raw, {"prompt_ids": [1]}),
        (ids, {"prompt": "a"}),
        (tiny.session_plan(TEXT), {"prompt_ids": [1]}),
        (tiny.session_plan(TEXT), {"prompt": "a", "raw": True}),
    ):
        with pytest.raises(ironmule.ArgumentError, match="plan's prefix is"):
            tiny.generate(plan=plan, **how)  # type: ignore[arg-type]
    for prefix in ("a\ud800", [{"role": "system", "content": 1j}], [1, "a"]):
        with pytest.raises(ironmule.ArgumentError):
            tiny.session_plan(prefix)  # type: ignore[arg-type]
    with pytest.raises(ironmule.ContextError):
        tiny.session_plan([5] * 600)
    with ironmule.Runtime.load(path=TINY, device="cpu", mode=ironmule.InteractiveMode(cache_bytes=0)) as none:
        with pytest.raises(ironmule.UnsupportedError, match="cache_bytes"):
            none.session_plan(TEXT)


def test_sessions_make_room() -> None:
    """More sessions than the memory for them holds: the oldest is computed anew, with the same answer."""
    with ironmule.Runtime.load(path=TINY, device="cpu", mode=ironmule.InteractiveMode(cache_bytes=600_000)) as runtime:
        sessions = [runtime.session_plan(f"{i} {TEXT * 2}", raw=True) for i in range(8)]
        for i, session in enumerate(sessions):
            warm = runtime.generate("x", plan=session, max_tokens=6)
            assert warm == runtime.generate(f"{i} {TEXT * 2}x", raw=True, max_tokens=6)
