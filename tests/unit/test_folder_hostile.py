# SPDX-License-Identifier: Apache-2.0
"""Broken folders of safetensors against the whole engine: test_folder_hostile.py PROBE. What is no sound model is refused at load in one line that names
the file; a number that cannot be is an error before it is a token; the rest writes the same logits as the good folder."""
import os
import shutil
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden')]
import folder_mutants  # noqa: E402
import reference  # noqa: E402
from file_probe import Probe, check, failures, refused, write  # noqa: E402

STATUS_NUMERIC = 8
WORDS = {'index-absent': ['2 safetensors files', folder_mutants.FIRST, folder_mutants.INDEX], 'weights-absent': ['config.json', 'model.safetensors'],
         'shards-absent': [folder_mutants.FIRST, folder_mutants.SECOND], 'index-points-up': ['../' + folder_mutants.FIRST], 'codes-turned': [folder_mutants.UP],
         'quantisation-bits-7': ['7 bits'], 'model_type-\'mamba\'': ['mamba'], 'config-cut': ['config.json'], 'hidden_act-\'relu\'': ['relu']}


def main():
    good = os.path.join(reference.unpack('mlx'), 'mlx-llama-4bit-g64-2shards')
    probe, seen = Probe(sys.argv[1]), set()
    expected = probe.open(good)
    check(expected[0] == 'ok', f'the good folder: {expected}')
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, verdict, files) in enumerate(folder_mutants.mutants(good)):
            seen.add(name)
            path = os.path.join(folder, str(i))
            write(path, files)
            answer = probe.open(path)
            print(name, answer)
            if verdict == 'refuse':
                refused(answer, path, *WORDS.get(name, []))
                check(answer[0] == 'ok' or answer[1] != STATUS_NUMERIC, f'{name}: loaded')
            elif verdict == 'numeric':
                check(answer[:2] == ('error', STATUS_NUMERIC), f'{name}: {answer}')
            else:
                check(answer == expected, f'{name}: {answer}, expected {expected}')
            shutil.rmtree(path)
    check(set(WORDS) <= seen and len(seen) > 200, f'{len(seen)} mutants, not seen {set(WORDS) - seen}')
    for part in (folder_mutants.FIRST, folder_mutants.INDEX):
        refused(probe.open(os.path.join(good, part)), os.path.join(good, part), 'give the folder')
    check(probe.open(good) == expected, 'the good folder afterwards')
    probe.close()
    print(f'{len(failures)} failures')
    return 1 if failures else 0


sys.exit(main())
