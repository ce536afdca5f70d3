# SPDX-License-Identifier: Apache-2.0
"""What the tests share. They need a built library: IRONMULE_LIBRARY names it, else build/release of the checkout; the program likewise by IRONMULE_PROGRAM."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import ironmule

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "bindings" / "python"
TINY = ROOT / "tests" / "data" / "zoo" / "arch-tiny.gguf"
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
#: Deadlines of tests grow where everything is slower.
SLOWER = 5 if SANITIZED else 1
#: Positions far beyond what the tiny model was made for: an answer that takes many seconds.
LONG = 200_000


@pytest.fixture(scope="session")
def tiny_path() -> str:
    return str(TINY)


@pytest.fixture(scope="module")
def tiny() -> Iterator[ironmule.Runtime]:
    with ironmule.Runtime.load(path=TINY, device="cpu") as runtime:
        yield runtime


@pytest.fixture
def long() -> Iterator[ironmule.Runtime]:
    with ironmule.Runtime.load(path=TINY, device="cpu", context=LONG) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def smollm2() -> str:
    folder = os.environ.get("IM_TEST_MODELS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ironmule", "models")
    path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        pytest.skip("SmolLM2-135M-Instruct.Q4_1.gguf is not in IM_TEST_MODELS")
    if SANITIZED:
        pytest.skip("a real model is too slow under a sanitizer")
    return path


def python(code: str, *args: str, timeout: float = 60, env: dict[str, str] | None = None, devmode: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own, as sys.argv[1:] the arguments; TINY is its name for the model."""
    head = f"import sys, os, time, threading\nimport ironmule\nTINY = {str(TINY)!r}\nLONG = {LONG}\n"
    return subprocess.run(
        [sys.executable, *(["-X", "dev"] if devmode else []), "-c", head + textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        timeout=timeout * SLOWER,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), **(env or {})},
    )
