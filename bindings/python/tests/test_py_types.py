# SPDX-License-Identifier: Apache-2.0
"""What tools say of the source: types, docstrings, nothing but the standard library."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT

import ironmule

SOURCES = sorted((PACKAGE / "ironmule").glob("*.py"))


def test_types(tmp_path: object) -> None:
    pytest.importorskip("mypy")
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{tmp_path}", "-p", "ironmule"]
    done = subprocess.run(check, cwd=ROOT, env={**os.environ, "MYPYPATH": str(PACKAGE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_of_a_user(tmp_path: object) -> None:
    """py.typed counts: what a user writes is checked, and a wrong option is found."""
    pytest.importorskip("mypy")
    path = f"{tmp_path}/user.py"
    with open(path, "w", encoding="utf-8") as f:
        f.write(
            "import ironmule\n"
            "r = ironmule.Runtime.load(path='x', mode=ironmule.ThroughputMode(4))\n"
            "text: str = r.generate('a', max_tokens=3).text\n"
            "hash: int = r.generate('a').logits_hash\n"
            "r.generate('a', max_token=3)\n"
            "r.generate('a', max_tokens='3')\n"
        )
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", f"{tmp_path}/cache", path]
    done = subprocess.run(check, cwd=f"{tmp_path}", env={**os.environ, "MYPYPATH": str(PACKAGE)}, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "error" in line and line.startswith("user.py") or f"{path}" in line]
    assert [n for n in (4, 5, 6) if any(f":{n}: error" in line for line in lines)] == [4, 5, 6] and len(lines) == 3, done.stdout


def test_formatted() -> None:
    pytest.importorskip("black")
    done = subprocess.run([sys.executable, "-m", "black", "--check", "-q", str(PACKAGE)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_is_documented() -> None:
    """Every public class and function has a docstring; what users call, with an example."""
    missing = []
    for name in ironmule.__all__:
        thing = getattr(ironmule, name)
        if inspect.isclass(thing):
            members = [(f"{name}.{m}", v) for m, v in vars(thing).items() if not m.startswith("_") and (callable(v) or isinstance(v, (property, classmethod)))]
            missing += [what for what, value in [(name, thing), *members] if not inspect.getdoc(value)]
    for method in ("load", "generate", "stream", "agenerate", "astream", "serve", "session_plan", "encode", "decode", "render", "logits", "perplexity"):
        if ">>>" not in (inspect.getdoc(getattr(ironmule.Runtime, method)) or ""):
            missing.append(f"an example of {method}")
    assert missing == []


def test_options_are_the_fields_of_request() -> None:
    from ironmule.plans import Options

    fields = {name: field.type for name, field in ironmule.Request.__dataclass_fields__.items() if name != "prompt"}
    assert {name: getattr(hint, "__forward_arg__", hint) for name, hint in Options.__annotations__.items()} == fields


def test_standard_library_alone() -> None:
    """NumPy and typing_extensions only where they are guarded."""
    allowed = set(sys.stdlib_module_names) | {"ironmule"}
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        for node in tree.body:
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            assert {n.split(".")[0] for n in names} <= allowed, source
