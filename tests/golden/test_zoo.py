# SPDX-License-Identifier: Apache-2.0
"""Small random models of every weight type and architecture against their golden logits: test_zoo.py ZOO_CHECK best|levels|tiny
best: all models with the best kernels; levels: some models with every kernel level; tiny: the smallest models with every level."""
import os
import shlex
import subprocess
import sys

import reference
from program import check, levels, verdict

# Between them: every hot type, sliding windows, biases, soft caps, head sizes that no vector divides.
SOME = ['arch-tiny', 'arch-gemma2', 'arch-qwen2', 'arch-qwen3', 'arch-llama-headdim', 'arch-gemma3-ropescale', 'llama-q4_k_m', 'gemma3-q4_k_m',
        'llama-q4_0', 'gemma3-q5_0', 'llama-q4_1', 'gemma3-q3_k']


def judge(zoo_check, folder, name, level):
    done = subprocess.run(zoo_check + [reference.zoo_model(folder, name), os.path.join(folder, name + '.json'), level],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    text = done.stdout.decode('utf-8', 'replace')
    good = check(done.returncode == 0, f'{name}, {level}')
    print('\n'.join([f'{name}, {level}:'] + text.splitlines()) if not good else f'{name}, {level}: ok', flush=True)


def main():
    zoo_check, which = shlex.split(sys.argv[1]), sys.argv[2]
    folder, here = reference.unpack(), levels()
    everything = sorted(f[:-5] for f in os.listdir(folder) if f.endswith('.json') and f != 'tokenizers.json')
    check(len(everything) == 46, f'{len(everything)} models, expected 46')
    names = {'best': everything, 'levels': SOME, 'tiny': ['arch-tiny', 'arch-tiny-dropped']}[which]
    for level in here[-1:] if which == 'best' else here:
        for name in names:
            judge(zoo_check, folder, name, level)
    return verdict()


sys.exit(main())
