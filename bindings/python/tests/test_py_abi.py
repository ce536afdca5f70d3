# SPDX-License-Identifier: Apache-2.0
"""The header and the declarations in _abi.py: every struct, field, constant and function."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

from ironmule import _abi
from ironmule.errors import BY_STATUS

HEADERS = [ROOT / "include" / "ironmule" / name for name in ("status.h", "ironmule.h")]
TEXT = re.sub(r"/\*.*?\*/", "", "".join(h.read_text() for h in HEADERS), flags=re.S)
STRUCTS = {name: body for body, name in re.findall(r"typedef struct im_\w+ \{(.*?)\} (im_\w+);", TEXT, re.S)}
ENUMS = {name: re.findall(r"(IM_\w+)", body) for body, name in re.findall(r"typedef enum im_\w+ \{(.*?)\} (im_\w+);", TEXT, re.S)}
CONSTANTS = {
    "IM_ERROR_MESSAGE_MAX": _abi.ERROR_MESSAGE_MAX,
    "IM_VERSION_MAJOR": _abi.VERSION[0],
    "IM_VERSION_MINOR": _abi.VERSION[1],
    "IM_MISS_KINDS": _abi.MISS_KINDS,
    "IM_ENCODE_DEFAULT": _abi.ENCODE_DEFAULT,
    "IM_ENCODE_NO_BOS": _abi.ENCODE_NO_BOS,
    "IM_ENCODE_PLAIN": _abi.ENCODE_PLAIN,
}


def names(structure: type[ctypes.Structure]) -> list[str]:
    return [field[0] for field in structure._fields_]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler says of the header: sizes, offsets, sizes of fields, constants."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here")
    wanted = {f"sizeof({name})": f"sizeof({name})" for name in [*STRUCTS, *ENUMS]}
    for name, structure in _abi.STRUCTS.items():
        for field in names(structure):
            wanted[f"{name}.{field}"] = f"offsetof({name}, {field})"
            wanted[f"size {name}.{field}"] = f"sizeof((({name} *)0)->{field})"
    wanted.update({constant: constant for values in ENUMS.values() for constant in values})
    wanted.update({constant: constant for constant in CONSTANTS})
    folder = tmp_path_factory.mktemp("abi")
    lines = "".join(f'printf("\\"{key}\\": %lld,\\n", (long long)({value}));\n' for key, value in wanted.items())
    (folder / "layout.c").write_text(
        f'#include <ironmule/ironmule.h>\n#include <stdio.h>\nint main(void)\n{{\nputs("{{");\n{lines}puts("\\"end\\": 0}}");\nreturn 0;\n}}\n'
    )
    subprocess.run([compiler, "-std=c11", f"-I{ROOT / 'include'}", str(folder / "layout.c"), "-o", str(folder / "layout")], check=True)
    found: dict[str, int] = json.loads(subprocess.run([str(folder / "layout")], check=True, capture_output=True).stdout)
    return found


def test_every_struct_is_declared() -> None:
    assert len(STRUCTS) >= 17
    assert set(STRUCTS) == set(_abi.STRUCTS)


@pytest.mark.parametrize("name", sorted(_abi.STRUCTS))
def test_struct(name: str, compiled: dict[str, int]) -> None:
    structure = _abi.STRUCTS[name]
    assert ctypes.sizeof(structure) == compiled[f"sizeof({name})"]
    for field in names(structure):
        declared = getattr(structure, field)
        assert (field, declared.offset, declared.size) == (field, compiled[f"{name}.{field}"], compiled[f"size {name}.{field}"])


@pytest.mark.parametrize("name", sorted(_abi.STRUCTS))
def test_all_fields_are_there(name: str) -> None:
    """Also one that would fit into a hole between others."""
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", STRUCTS[name])
    fields = [re.sub(r"\[.*?\]", "", part).split()[-1].lstrip("*") for line in body.split(";") if line.strip() for part in line.split(",")]
    assert fields == names(_abi.STRUCTS[name])


def test_enums(compiled: dict[str, int]) -> None:
    assert len(ENUMS) >= 5
    for name in ENUMS:
        assert compiled[f"sizeof({name})"] == ctypes.sizeof(ctypes.c_int)
    for constant, value in CONSTANTS.items():
        assert (constant, compiled[constant]) == (constant, value)
    statuses = {compiled[c]: c for c in ENUMS["im_status"] if c != "IM_OK"}
    assert set(statuses) == set(BY_STATUS)
    stops = {compiled[c]: c for c in ENUMS["im_stop_reason"]}
    assert {k: v.removeprefix("IM_STOP_").lower() for k, v in stops.items()} == {**_abi.STOP_REASONS, 0: "none", 3: "string"}


def test_functions() -> None:
    """Each has as many arguments as in the header, and pointers where that has pointers."""
    declared = {name: (result, arguments) for result, name, arguments in re.findall(r"IM_API ([\w\s*]+?)(im_\w+)\((.*?)\);", TEXT, re.S)}
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        c_result, text = declared[name]
        text = re.sub(r"bool \(\*progress\)\([^)]*\)", "void *progress", text)
        c_arguments = [] if text.strip() == "void" else text.split(",")
        assert (name, len(arguments)) == (name, len(c_arguments))
        for mine, theirs in zip(arguments, c_arguments):
            pointer = issubclass(mine, (ctypes._Pointer, ctypes.c_void_p, ctypes.c_char_p, ctypes._CFuncPtr))
            assert (name, theirs.strip(), pointer) == (name, theirs.strip(), "*" in theirs)
        assert (name, result is None) == (name, c_result.strip() == "void")
