# SPDX-License-Identifier: Apache-2.0
"""IronMule: runs language models on the machine it is on; one answer, bit for bit.

    import ironmule
    runtime = ironmule.Runtime.load(model_id="mlx-community/gemma-3-1b-it-4bit")
    print(runtime.generate("Explain unified memory in two short sentences.", max_tokens=96).text)

The library is loaded when it is first needed. docs/python.md tells the rest.
"""

from typing import TYPE_CHECKING

from .errors import (
    ArgumentError,
    BusyError,
    CancelledError,
    ClosedError,
    ContextError,
    DeadlineError,
    DeviceError,
    FileError,
    ForkedError,
    FormatError,
    InternalError,
    IronMuleError,
    LibraryError,
    NumericError,
    OutOfMemoryError,
    ProgramError,
    TemplateError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from . import models
    from .plans import InteractiveMode, Message, Mode, Plan, Request, ReusableSessionPlan, StrictOneShotPlan, ThroughputMode
    from .results import Metrics, Result, RuntimeInfo, Score, Stats, TokenLogprob
    from .runtime import Runtime
    from .stream import AsyncStream, Stream

__all__ = [
    "ArgumentError",
    "AsyncStream",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "ContextError",
    "DeadlineError",
    "DeviceError",
    "FileError",
    "ForkedError",
    "FormatError",
    "InteractiveMode",
    "InternalError",
    "IronMuleError",
    "LibraryError",
    "Message",
    "Metrics",
    "Mode",
    "NumericError",
    "OutOfMemoryError",
    "Plan",
    "ProgramError",
    "Request",
    "Result",
    "ReusableSessionPlan",
    "Runtime",
    "RuntimeInfo",
    "Score",
    "Stats",
    "Stream",
    "StrictOneShotPlan",
    "TemplateError",
    "ThroughputMode",
    "TokenLogprob",
    "UnsupportedError",
    "models",
    "version",
]


# Imported when they are first asked for, so that `import ironmule` costs a script that may not need it little.
_LATER = {
    "plans": "InteractiveMode Message Mode Plan Request ReusableSessionPlan StrictOneShotPlan ThroughputMode",
    "results": "Metrics Result RuntimeInfo Score Stats TokenLogprob",
    "runtime": "Runtime",
    "stream": "AsyncStream Stream",
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "models":
        return import_module(".models", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return __all__


def version() -> str:
    """Version of the library that is in use, "0.1.0".

    >>> ironmule.version()      # doctest: +SKIP
    '0.1.0'
    """
    from ._library import lib

    found: bytes = lib().im_version()
    return found.decode()
