# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions: one class for each status of the library, all under `IronMuleError`.

try:
    runtime.generate("Hi", max_tokens=8)
except ironmule.ContextError as error:
    print(error)            # the library's own sentence, with both numbers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Result


class IronMuleError(Exception):
    """Anything that the library or the program refused. `str(error)` is its sentence as it was given.

    `partial`: the Result of what a request had generated when it failed, was cancelled or ran out of time; None when there is none.
    """

    partial: Result | None = None


class ArgumentError(IronMuleError, ValueError):
    """The caller passed something that can never work."""


class FileError(IronMuleError, OSError):
    """A file could not be opened, read or mapped."""


class FormatError(IronMuleError, ValueError):
    """A file is damaged, cut, or lies about itself."""


class UnsupportedError(IronMuleError):
    """Well-formed, but of a kind that this build does not know."""


class OutOfMemoryError(IronMuleError, MemoryError):
    """The plan does not fit into memory, or an allocation failed."""


class ContextError(IronMuleError, ValueError):
    """The prompt is longer than the context; the message has both numbers."""


class TemplateError(IronMuleError, ValueError):
    """The chat template refused the conversation, or cannot be run."""


class NumericError(IronMuleError, ArithmeticError):
    """A logit is not a number."""


class CancelledError(IronMuleError):
    """The request was cancelled."""


class InternalError(IronMuleError):
    """A promise of the library's own was broken; please report it."""


class DeadlineError(IronMuleError, TimeoutError):
    """The request's `timeout` passed; `partial` has what was there by then."""


class BusyError(IronMuleError):
    """The queue is full: the same request may work later."""


class DeviceError(IronMuleError):
    """A GPU, or its driver, failed."""


class ClosedError(IronMuleError):
    """The Runtime was closed before or during the call."""


class ForkedError(IronMuleError):
    """The Runtime was loaded before a fork and is used in the child. Load it in the child, or use multiprocessing's "spawn"."""


class ProgramError(IronMuleError):
    """The program `ironmule`, which resolves names and lists models, said no; its sentence tells what to do."""


class LibraryError(IronMuleError, ImportError):
    """libironmule, or the program, was not found or is of another version than this package."""


# By im_status.
BY_STATUS: dict[int, type[IronMuleError]] = {
    1: ArgumentError,
    2: FileError,
    3: FormatError,
    4: UnsupportedError,
    5: OutOfMemoryError,
    6: ContextError,
    7: TemplateError,
    8: NumericError,
    9: CancelledError,
    10: InternalError,
    11: DeadlineError,
    12: BusyError,
    13: DeviceError,
}
