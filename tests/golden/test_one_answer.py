# SPDX-License-Identifier: Apache-2.0
"""One answer: the logits of the real models have the same bits however they are computed.

    test_one_answer.py MODEL short     a few ids with every kernel level; fit for emulators and sanitizers
    test_one_answer.py MODEL threads   a few ids with three threads beside neighbours, for the thread sanitizer
    test_one_answer.py MODEL usual     prompts of 1, 100 and 1,500 ids: a selection that has every kernel level with every number of threads, chunk and neighbours
    test_one_answer.py MODEL deep      every combination for 100 ids, plain C for 1,500
    test_one_answer.py MODEL write     plain C again, into one_answer.json

one_answer.json holds hashes of the logits that plain C gave on x86-64: every machine is compared with these constants, so that they stand for the bits
across architectures. They change with the contract only."""
import itertools
import json
import os
import sys
import tempfile

import reference
from program import GEMMA3, SMOLLM2, answer, check, emulated, levels, need_model, verdict

CONSTANTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'one_answer.json')
MODELS = {'smollm2-135m': SMOLLM2, 'gemma3-270m': GEMMA3}
LENGTHS = (1, 12, 100, 1500)
THREADS, CHUNKS, NEIGHBOURS, TOKENS = (1, 2, 3, 8), (1, 7, 64, 512), (0, 7), 4


class Runs:
    def __init__(self, name, folder):
        self.path, self.files, self.count = need_model(MODELS[name]), {}, 0
        ids = next(p['ids'] for p in reference.load(name + '.vectors')['prompts'] if p['kind'] == 'long_1500')
        for n in LENGTHS:
            self.files[n] = os.path.join(folder, f'{n}.json')
            with open(self.files[n], 'w') as f:
                json.dump(ids[:n], f)

    def hash(self, length, level, threads, chunk, neighbours):
        got = answer('generate', self.path, '--ids-file', self.files[length], '--max-tokens', TOKENS, '--ignore-eos', '--cpu', level, '--threads', threads,
                     '--chunk', chunk, '--neighbours', neighbours, timeout=1800)
        self.count += 1
        check(got['cpu_level'] == level and got['threads'] == threads, f'asked for {level} and {threads} threads, got {got["cpu_level"]} and {got["threads"]}')
        check(len(got['ids']) == TOKENS and len(got['prompt_ids']) == length, f'{len(got["ids"])} tokens after {len(got["prompt_ids"])} ids')
        return got['logits_hash']


def short(here):
    """Plain C under an emulator is slow: one id is enough for it."""
    for level, count in zip(here, itertools.cycle((2, 1, 3))):
        yield 1, level, count, 512, 0
        if level != 'c':
            yield 12, level, count, 7, 0
            yield 12, level, 3, 512, 0 if emulated() else 2


def threads(here):
    yield 12, here[-1], 3, 7, 2


def usual(here):
    for level in here:
        yield 1, level, 2, 512, 0
    yield 100, 'c', 2, 64, 0
    for shift, level in enumerate(here[1:]):
        yield 1, level, 3, 64, 7
        for i, count in enumerate(THREADS):  # each value once with each level, in other pairs with the next one
            yield 100, level, count, CHUNKS[(i + shift) % 4], NEIGHBOURS[(i + shift) % 2]
        yield 1500, level, 2, 512, 7
    for count, chunk in ((1, 64), (3, 512), (8, 7)) if len(here) > 1 else ():
        yield 1500, here[-1], count, chunk, 0


def deep(here):
    yield from usual(here)
    yield 1500, 'c', 2, 512, 0
    for count, chunk, neighbours in ((1, 7, 7), (3, 512, 7), (8, 1, 0)):
        yield 100, 'c', count, chunk, neighbours
    for level in here[1:]:
        for combination in itertools.product(THREADS, CHUNKS, NEIGHBOURS):
            yield 100, level, *combination
        for count, chunk in zip(THREADS, CHUNKS):
            yield 1500, level, count, chunk, 7 if chunk == 7 else 0


def write(runs, name, constants):
    constants[name] = {str(n): runs.hash(n, 'c', 2, 512, 0) for n in LENGTHS}
    with open(CONSTANTS, 'w') as f:
        json.dump(constants, f, indent=1, sort_keys=True)
        f.write('\n')


def main():
    name, what = sys.argv[1:3]
    with open(CONSTANTS) as f:
        constants = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(name, folder)
        if what == 'write':
            return write(runs, name, constants)
        for length, *how in {'short': short, 'threads': threads, 'usual': usual, 'deep': deep}[what](levels()):
            got, want = runs.hash(length, *how), constants[name][str(length)]
            check(got == want, f'{name}, {length} ids, level {how[0]}, {how[1]} threads, chunk {how[2]}, {how[3]} neighbours: {got}, expected {want}')
    print(f'{name}: {runs.count} runs')
    return verdict()


sys.exit(main())
