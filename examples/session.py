#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A beginning of about a thousand tokens that several questions share: computed for each, and computed once.

python3 examples/session.py MODEL.gguf
"""

from __future__ import annotations

import statistics
import sys

import ironmule

QUESTIONS = ("What is rule 7?", "How many rules are there?", "Which rule speaks of mules?", "Say hello.")


def main() -> None:
    with ironmule.Runtime.load(path=sys.argv[1], context=2048) as runtime:
        handbook = "You know this handbook. "
        while len(runtime.encode(handbook)) < 1000:
            handbook += f"Rule {handbook.count('Rule') + 1}: a mule that has carried its load is given water, hay and a quiet place. "
        cold, warm, same = [], [], True
        for question in QUESTIONS:  # before the session, so that nothing is shared
            messages = [{"role": "system", "content": handbook}, {"role": "user", "content": question}]
            cold.append(runtime.generate(messages=messages, max_tokens=24))
        session = runtime.session_plan(handbook)
        for question, strict in zip(QUESTIONS, cold):
            warm.append(runtime.generate(question, plan=session, max_tokens=24))
            same = same and warm[-1] == strict
        one, other = (statistics.median(r.metrics.first_token_ms for r in results) for results in (cold, warm))
        print(f"prefix {session.prefix_tokens} tokens; first token: {one:.0f} ms computed anew, {other:.0f} ms in the session: {100 * other / one:.1f} %")
        print(f"same answers and bits: {same}; found: {[r.metrics.cached_tokens for r in warm]}")


if __name__ == "__main__":
    main()
