#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight requests in turn, and eight at once: the same answers, more tokens a second.

python3 examples/throughput.py MODEL.gguf [TOKENS]
"""

from __future__ import annotations

import sys
import time

import ironmule

QUESTIONS = ("the sea", "a mountain", "the wind", "an old clock", "a train", "the moon", "a garden", "a letter")


def measure(path: str, mode: ironmule.Mode, requests: list[ironmule.Request]) -> tuple[float, list[ironmule.Result]]:
    with ironmule.Runtime.load(path=path, mode=mode, context=512) as runtime:
        runtime.generate("Hi", max_tokens=2)
        begun = time.perf_counter()
        results = runtime.serve(requests)
        return sum(len(r.tokens) for r in results) / (time.perf_counter() - begun), results


def main() -> None:
    path, tokens = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 64
    requests = [ironmule.Request(f"Write about {q}.", max_tokens=tokens, ignore_eos=True) for q in QUESTIONS]
    slow, in_turn = measure(path, ironmule.InteractiveMode(), requests)
    fast, at_once = measure(path, ironmule.ThroughputMode(max_width=8), requests)
    print(f"in turn {slow:.1f} tokens/s, eight at once {fast:.1f} tokens/s: {fast / slow:.2f} times as many")
    print(f"same answers: {in_turn == at_once}")


if __name__ == "__main__":
    main()
