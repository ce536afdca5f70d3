# SPDX-License-Identifier: Apache-2.0
"""Registered names and ids, resolved by the program; the package's own command; the three lines of the README."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT, TINY, python

import ironmule

NAME = "mlx-community/gemma-3-1b-it-4bit"
THREE_LINES = """import ironmule
runtime = ironmule.Runtime.load(model_id="mlx-community/gemma-3-1b-it-4bit")
print(runtime.generate("Explain unified memory in two short sentences.", max_tokens=96).text)
"""


@pytest.fixture
def home(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """No settings and no cache of the user's."""
    monkeypatch.setenv("IRONMULE_HOME", f"{tmp_path}/home")
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    monkeypatch.setenv("HF_HUB_CACHE", f"{tmp_path}/hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return str(tmp_path)


def test_models(home: str, tiny_path: str) -> None:
    assert ironmule.models.list() == []
    assert ironmule.models.add(tiny_path, name="tiny")["path"] == tiny_path
    assert [m["name"] for m in ironmule.models.list(context=128)] == ["tiny"]
    shown = ironmule.models.show("tiny")
    assert shown["runs"] is True and shown["path"] == tiny_path and shown["family"] == "llama"
    ironmule.models.remove("tiny")
    assert ironmule.models.list() == []
    with pytest.raises(ironmule.ProgramError, match="no model is registered as tiny"):
        ironmule.models.remove("tiny")
    with pytest.raises(ironmule.ProgramError):
        ironmule.models.add("--json")
    with pytest.raises(ironmule.ArgumentError):
        ironmule.models.show("a\0b")


def test_missing_model_says_how_to_get_it(home: str) -> None:
    with pytest.raises(ironmule.ProgramError, match=r"^acme/none is not in the cache .*'ironmule models add acme/none --download' fetches it$"):
        ironmule.Runtime.load(model_id="acme/none")
    with pytest.raises(ironmule.ProgramError, match="acme/none"):
        ironmule.Runtime.load(model_id="acme/none", revision="v2")


def test_three_lines(home: str, tiny_path: str) -> None:
    assert all(line in (ROOT / "README.md").read_text() for line in THREE_LINES.splitlines())
    ironmule.models.add(tiny_path, name=NAME)
    done = subprocess.run([sys.executable, "-c", THREE_LINES], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    with ironmule.Runtime.load(path=tiny_path) as runtime:
        right = runtime.generate("Explain unified memory in two short sentences.", max_tokens=96)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", right.text + "\n")


def test_revision_of_a_cached_model(home: str) -> None:
    """The id of a snapshot in the Hub's cache."""
    commit = "a" * 40
    folder = f"{home}/hub/models--acme--tiny"
    os.makedirs(f"{folder}/snapshots/{commit}")
    os.makedirs(f"{folder}/refs")
    os.symlink(TINY, f"{folder}/snapshots/{commit}/tiny.gguf")
    with open(f"{folder}/refs/v1", "w", encoding="utf-8") as f:
        f.write(commit)
    with ironmule.Runtime.load(model_id="acme/tiny", revision="v1") as runtime:
        assert commit in runtime.info.path
    with pytest.raises(ironmule.ProgramError):
        ironmule.Runtime.load(model_id="acme/tiny")


def test_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ironmule", "--help"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert done.returncode == 0 and "generate" in done.stdout


def test_missing_program_is_told() -> None:
    done = python("try:\n    ironmule.models.list()\nexcept ironmule.LibraryError as error:\n    print(error)", env={"IRONMULE_PROGRAM": "/nowhere/ironmule"})
    assert done.returncode == 0 and done.stdout.startswith("/nowhere/ironmule: ")


def test_verify(tiny: ironmule.Runtime) -> None:
    """The program's document."""
    found = tiny.verify()
    assert found["same"] is True and found["different"] == 0 and found["runs"] > 3 and found["model"]["name"] == "arch-tiny"


def test_verify_of_an_older_program(tiny: ironmule.Runtime, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/ironmule"
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho 'ironmule: unknown command \"verify\"' >&2\nexit 2\n")
    os.chmod(path, 0o755)
    monkeypatch.setenv("IRONMULE_PROGRAM", path)
    with pytest.raises(ironmule.UnsupportedError, match="has no command 'verify'"):
        tiny.verify()
