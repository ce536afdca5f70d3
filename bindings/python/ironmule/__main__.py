# SPDX-License-Identifier: Apache-2.0
"""`python -m ironmule ...` and the command `ironmule` that pip installs: the program in this package."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    from ._library import program_path

    program = program_path()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
