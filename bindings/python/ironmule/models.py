# SPDX-License-Identifier: Apache-2.0
"""Models on this machine, by the program's own lists. Each entry is a dict as `ironmule models ... --json` writes it: "name", "path", "family",
"quantisation", "bytes", "runs" and so on (docs/models.md).

>>> import ironmule
>>> ironmule.models.add("tiny.gguf", name="tiny")["name"]      # doctest: +SKIP
'tiny'
>>> ironmule.models.show("tiny")["runs"]                       # doctest: +SKIP
True
"""

from __future__ import annotations

import builtins
from typing import Any

from ._program import run_json

__all__ = ["add", "list", "remove", "show"]

Entry = dict[str, Any]


def list(context: int | None = None) -> builtins.list[Entry]:
    """All models: registered ones, those of the Hugging Face cache, those in the folders of the settings.

    context: positions that the needed memory is counted for; None: up to 4096. No weight is read, no network asked.
    """
    found: builtins.list[Entry] = run_json("models", "list", *_context(context))
    return found


def show(name: str, context: int | None = None) -> Entry:
    """One model, by a registered name, an id whose files are in the local cache ("ORG/NAME", "ORG/NAME@REVISION:TAG"), or a path.

    Errors: ProgramError, which says how to get it, when it is not here.
    """
    found: Entry = run_json("models", "show", *_context(context), operands=(name,))
    return found


def add(model: str, *, name: str | None = None, download: bool = False, revision: str | None = None) -> Entry:
    """Registers a path or an id. The network is asked only with download=True: what is missing is fetched then, and waited for.

    Errors: ProgramError: not here and not to be downloaded, no such model, a digest that is wrong ...
    """
    options = [*(["--name", name] if name is not None else []), *(["--revision", revision] if revision is not None else [])]
    found: Entry = run_json("models", "add", *options, *(["--download"] if download else []), operands=(model,))
    return found


def remove(name: str, *, delete: bool = False) -> Entry:
    """Forgets a model. delete=True removes its files as well, without a question.

    Errors: ProgramError when no model is registered under this name.
    """
    found: Entry = run_json("models", "remove", *(["--delete", "--yes"] if delete else []), operands=(name,))
    return found


def _context(context: int | None) -> builtins.list[str]:
    return ["--context", str(context)] if context is not None else []
