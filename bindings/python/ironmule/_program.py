# SPDX-License-Identifier: Apache-2.0
"""Runs the program `ironmule`, which knows names, the Hub and the settings, and reads its JSON."""

from __future__ import annotations

from typing import Any

from ._library import program_path
from .errors import ArgumentError, LibraryError, ProgramError, UnsupportedError


def run_json(*arguments: str, operands: tuple[str, ...] = ()) -> Any:
    """The document that `ironmule ARGUMENTS --json -- OPERANDS` writes. Errors: UnsupportedError when this program has no such command, ProgramError with its sentence."""
    import json
    import subprocess

    program = program_path()
    if any("\0" in a for a in arguments + operands):
        raise ArgumentError("U+0000 cannot be part of an argument")
    try:
        done = subprocess.run([program, *arguments, "--json", *(["--", *operands] if operands else [])], stdin=subprocess.DEVNULL, capture_output=True)
    except OSError as problem:
        raise LibraryError(f"{program}: {problem.strerror}") from None
    words = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == 2 and "unknown command" in words:
        raise UnsupportedError(f"{program}: has no command {arguments[0]!r} yet: a newer version is needed")
    if done.returncode != 0 and not done.stdout.strip():
        # "ironmule models show: sentence": the command's name tells the user of Python nothing.
        sentence = words.splitlines()[0] if words else f"{' '.join(arguments)}: ended with {done.returncode}"
        name, colon, rest = sentence.partition(": ")
        raise ProgramError(rest if colon and name.startswith("ironmule ") else sentence)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise ProgramError(f"{program}: {' '.join(arguments)} wrote no JSON") from None
