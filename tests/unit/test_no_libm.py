# SPDX-License-Identifier: Apache-2.0
"""The rooms that compute call no function of the platform's libm: their bits differ between platforms.

    test_no_libm.py OBJECTS...        object files (several in one word, with semicolons), whose undefined symbols are looked through
"""
import re
import shutil
import subprocess
import sys

NAMES = ('acos asin atan atan2 cbrt ceil cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ldexp '
         'lgamma llrint llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter pow remainder rint round scalbn sin '
         'sincos sinh sqrt tan tanh tgamma trunc').split()
LIBM = {name + suffix for name in NAMES for suffix in ('', 'f', 'l')}


def undefined(objects):
    out = subprocess.run(['nm', '--undefined-only'] + objects, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.strip().startswith('U ')}


def main():
    if not shutil.which('nm'):
        print('nm is missing')
        return 77
    objects = [path for word in sys.argv[1:] for path in word.split(';')]
    names = undefined(objects)
    if len(objects) < 10 or 'memset' not in names:
        print(f'{len(objects)} objects, symbols {sorted(names)[:5]}: this test sees nothing')
        return 1
    found = sorted(names & LIBM)
    print(f'{len(objects)} objects, {len(names)} undefined symbols, of libm: {found}')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
