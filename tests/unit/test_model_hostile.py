# SPDX-License-Identifier: Apache-2.0
"""Broken and odd GGUF files against the whole engine: test_model_hostile.py PROBE. What is no sound model is refused at load in one line that
names the file; what is a number that cannot be (NaN) is an error before it is a token; the rest writes the same logits as the good file,
or at least writes."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_mutants  # noqa: E402
from file_probe import Probe, check, failures, refused, write  # noqa: E402

STATUS_NUMERIC = 8
NOT_A_NUMBER = {'weight-nan', 'weight-infinite', 'norm-nan'}
# Documented choices where the file alone does not decide.
REFUSED = {'tensor-unknown', 'block_count-1', 'key-twice-same-value', 'context_length-0', 'without-llama.attention.head_count_kv'}
SAME = {'offset-hole', 'data-order-reversed', 'dims-trailing-1', 'block-count-u64', 'alignment-u64', 'attention.head_count-(4,[2,2])',
        'context_length-4294967295', 'token-not-utf8', 'token-zero-byte', 'template-bad-syntax', 'template-endless', 'template-not-utf8'}


def main():
    data = os.path.join(os.environ['IM_TEST_DATA'], 'zoo', 'arch-tiny.gguf')
    with open(data, 'rb') as f:
        raw = f.read()
    probe, seen = Probe(sys.argv[1]), set()
    good = probe.open(data)
    check(good[0] == 'ok', f'the good file: {good}')
    with tempfile.TemporaryDirectory() as folder:
        for name, verdict, files in gguf_mutants.mutants(raw):
            seen.add(name)
            place = os.path.join(folder, name[:60])
            write(place, files)
            path = os.path.join(place, sorted(files)[-1])
            answer = probe.open(path)
            if verdict in ('refuse', 'later') or name in REFUSED:
                refused(answer, path)
            elif verdict == 'load' or name in SAME:
                check(answer == good, f'{path}: {answer}, expected {good}')
            elif name == 'no-output':  # the embedding serves; the golden tests judge its logits
                check(answer[0] == 'ok' and answer != good, f'{path}: {answer}')
            elif name in NOT_A_NUMBER:
                check(answer[0] == 'error' and answer[1] == STATUS_NUMERIC, f'{path}: {answer}')
            elif answer[0] == 'error' and answer[1] != STATUS_NUMERIC:
                refused(answer, path)
    check(NOT_A_NUMBER | REFUSED | SAME <= seen, f'no such mutants: {(NOT_A_NUMBER | REFUSED | SAME) - seen}')
    check(probe.open(data) == good, 'the good file afterwards')
    probe.close()
    print(f'{len(failures)} failures')
    return 1 if failures else 0


sys.exit(main())
