# SPDX-License-Identifier: Apache-2.0
"""Finds libironmule and the program, and makes the library's answers exceptions.

The library is $IRONMULE_LIBRARY, else the one in this package, else that of the checkout's build/release; the program is
$IRONMULE_PROGRAM, else the one in this package, else beside the library, else that of the checkout, else the one on PATH. Looked for at first use.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from . import _abi
from .errors import BY_STATUS, ArgumentError, InternalError, LibraryError, UnsupportedError

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_NAMES = ("libironmule.so", "libironmule.so.0", "libironmule.dylib")
_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def _first(candidates: list[str]) -> str | None:
    return next((path for path in candidates if os.path.isfile(path)), None)


def library_path() -> str:
    named = os.environ.get("IRONMULE_LIBRARY")
    if named:
        return os.path.abspath(named)
    folders = (_HERE, os.path.join(_CHECKOUT, "build", "release", "src"), os.path.join(_CHECKOUT, "build", "release"))
    found = _first([os.path.join(folder, name) for folder in folders for name in _NAMES])
    if found is None:
        raise LibraryError(
            f"libironmule is neither in {_HERE} nor in build/release of the checkout: install the package with 'pip install .', or set IRONMULE_LIBRARY"
        )
    return found


def program_path() -> str:
    named = os.environ.get("IRONMULE_PROGRAM")
    if named:
        return os.path.abspath(named)
    import shutil

    beside = os.path.dirname(library_path())
    found = _first(
        [
            os.path.join(_HERE, "bin", "ironmule"),
            os.path.join(beside, "ironmule"),
            os.path.join(os.path.dirname(beside), "ironmule"),
            os.path.join(_CHECKOUT, "build", "release", "ironmule"),
        ]
    ) or shutil.which("ironmule")
    if found is None:
        raise LibraryError("the program 'ironmule' was not found: install the package with 'pip install .', or set IRONMULE_PROGRAM")
    return found


def _interpreter_is_main() -> bool:
    """ctypes calls Python back in the main interpreter only."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    api.PyInterpreterState_GetID.argtypes = [ctypes.c_void_p]
    api.PyInterpreterState_GetID.restype = ctypes.c_int64
    return bool(api.PyInterpreterState_GetID(api.PyInterpreterState_Get()) == 0)


def _load() -> ctypes.CDLL:
    path = library_path()
    if not _interpreter_is_main():
        raise UnsupportedError("ironmule works in the main interpreter only: the library's threads cannot call back into a subinterpreter")
    try:
        found = ctypes.CDLL(path)
    except OSError as problem:
        raise LibraryError(f"{path}: {problem}") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise LibraryError(f"{path}: has no {name}: it is older than this package") from None
        function.restype, function.argtypes = result, arguments
    version = found.im_version().decode()
    if tuple(int(n) for n in version.split(".")[:2]) != _abi.VERSION:
        raise LibraryError(f"{path}: is version {version}; this package needs {_abi.VERSION[0]}.{_abi.VERSION[1]}")
    return found


def lib() -> Any:
    """The library, loaded at the first call. Its calls release the interpreter's lock."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check(status: int, error: _abi.Error) -> None:
    """Raises what a status other than IM_OK stands for."""
    if status != 0:
        raise BY_STATUS.get(status, InternalError)(error.message.decode("utf-8", "replace"))


def utf8(text: str, what: str) -> bytes:
    """The bytes of a text; a lone surrogate, which no UTF-8 can hold, is refused by its position."""
    if not isinstance(text, str):
        raise ArgumentError(f"{what}: a str is needed, not {type(text).__name__}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise ArgumentError(f"{what}: a lone surrogate at position {problem.start} is no character") from None


def c_string(text: str, what: str) -> bytes:
    """The same for what ends at a zero in C."""
    data = utf8(text, what)
    if b"\0" in data:
        raise ArgumentError(f"{what}: U+0000 cannot be part of it")
    return data


def take_text(pointer: ctypes.c_void_p, length: int) -> str:
    """A text that the library handed out, which is freed."""
    try:
        return ctypes.string_at(pointer, length).decode("utf-8", "replace") if pointer else ""
    finally:
        lib().im_free(pointer)


def take_ids(pointer: Any, count: int) -> list[int]:
    try:
        return list(pointer[:count]) if pointer else []
    finally:
        lib().im_free(ctypes.cast(pointer, ctypes.c_void_p))
