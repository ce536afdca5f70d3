# SPDX-License-Identifier: Apache-2.0
"""The example of three calls, built against the public header alone: test_three_lines.py PROGRAM tiny|smollm2. It says what the program says."""
import shlex
import subprocess
import sys

sys.path.insert(0, sys.path[0] + '/../cli')
from program import SMOLLM2, TINY, check, need_model, run, verdict  # noqa: E402

QUESTION = 'Why is the "sky" blue?'


def example(*args):
    return subprocess.run(shlex.split(sys.argv[1]) + list(args), capture_output=True, timeout=300)


def main():
    path = TINY if sys.argv[2] == 'tiny' else need_model(SMOLLM2)
    ours, theirs = example(path, QUESTION), run('generate', path, '--max-tokens', 64, '--', QUESTION)
    print(ours.stdout.decode('utf-8'))
    check(ours.returncode == 0 and ours.stderr == b'', f'exit {ours.returncode}: {ours.stderr}')
    check(len(ours.stdout) > 10 and ours.stdout == theirs.stdout + b'\n', f'{ours.stdout}, but generate says {theirs.stdout}')
    check(example().returncode == 2, 'usage')
    bad = example(path + '.none', QUESTION)
    check(bad.returncode == 1 and bad.stdout == b'' and path.encode() + b'.none' in bad.stderr, f'a missing file: {bad}')
    return verdict()


sys.exit(main())
