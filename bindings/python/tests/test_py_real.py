# SPDX-License-Identifier: Apache-2.0
"""A real model: sessions pay, groups pay, and the bits are the program's."""

from __future__ import annotations

import json
import subprocess
import time

import ironmule
from ironmule._library import program_path

QUESTION = "Why is the sky blue?"


def test_same_as_the_program(smollm2: str) -> None:
    theirs = json.loads(subprocess.run([program_path(), "generate", smollm2, QUESTION, "--json", "--max-tokens", "24"], capture_output=True, check=True).stdout)
    with ironmule.Runtime.load(path=smollm2) as runtime:
        mine = runtime.generate(QUESTION, max_tokens=24)
        assert (mine.text, mine.logits_hash) == (theirs["text"], theirs["logits_hash"])
        assert "".join(runtime.stream(QUESTION, max_tokens=24)) == mine.text
        messages = [{"role": "user", "content": QUESTION}]
        assert runtime.render(messages).startswith(runtime.render(messages, add_generation_prompt=False))
        assert runtime.render(messages) != runtime.render(messages, add_generation_prompt=False)


def test_session_of_a_thousand_tokens(smollm2: str) -> None:
    """The first token behind a warm prefix comes in less than 15 % of the time, with the same bits."""
    with ironmule.Runtime.load(path=smollm2, context=2048) as runtime:
        handbook = "You know this handbook. "
        while len(runtime.encode(handbook)) < 1000:
            handbook += f"Rule {handbook.count('Rule') + 1}: a mule that has carried its load is given water, hay and a quiet place. "
        questions = ("What is rule 7?", "Say hello.")
        cold = [runtime.generate(messages=[{"role": "system", "content": handbook}, {"role": "user", "content": q}], max_tokens=8) for q in questions]
        session = runtime.session_plan(handbook)
        warm = [runtime.generate(q, plan=session, max_tokens=8) for q in questions]
        assert session.prefix_tokens >= 1000 and warm == cold
        assert all(r.metrics.cached_tokens >= 1000 for r in warm) and all(r.metrics.cached_tokens == 0 for r in cold)
        one, other = (min(r.metrics.first_token_ms for r in results) for results in (cold, warm))
        print(f"first token: {one:.0f} ms anew, {other:.0f} ms in the session")
        assert other < 0.15 * one


def test_group_is_faster_and_the_same(smollm2: str) -> None:
    requests = [ironmule.Request(f"Write about number {i}.", max_tokens=32, ignore_eos=True) for i in range(8)]
    took, results = [], []
    for mode in (ironmule.InteractiveMode(), ironmule.ThroughputMode(8)):
        with ironmule.Runtime.load(path=smollm2, mode=mode, context=512) as runtime:
            runtime.generate("Hi", max_tokens=2)
            begun = time.perf_counter()
            results.append(runtime.serve(requests))
            took.append(time.perf_counter() - begun)
    print(f"eight answers: {took[0]:.2f} s in turn, {took[1]:.2f} s at once")
    assert results[0] == results[1] and took[1] < 0.8 * took[0]
