# SPDX-License-Identifier: Apache-2.0
"""Greedy text of the real models against the oracle: test_greedy.py GOLDEN_RUN

With the oracle's continuation fed, our own choice must be the oracle's up to the first step whose margin (the oracle's best logit minus its second) is
below SOFT; one prompt in twenty may leave earlier, where the margin is below HARD. The oracle works in float32, we with 8-bit activations: the limits on
logits are what such rounding does to models of this size, and a wrong operation exceeds them many times over."""
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

import reference
from program import GEMMA3, SMOLLM2, answer, check, model, skip, verdict

SOFT, HARD, ONE_IN = 0.35, 1.0, 20
MEAN_LOGIT, MAX_LOGIT, MAX_LOGSUMEXP = 0.2, 2.5, 0.5


def logits(golden_run, path, golden):
    with tempfile.TemporaryDirectory() as folder:
        vectors = os.path.join(folder, 'vectors.json')
        with open(vectors, 'w') as f:
            json.dump(golden, f)
        done = subprocess.run(golden_run + [path, vectors], stdout=subprocess.PIPE, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f'FAILED golden_run {path}: exit {done.returncode}')
    return json.loads(done.stdout)['prompts']


def leaves(golden, ours):
    """The step where our choice is no longer the oracle's, or None."""
    return next((i for i, step in enumerate(ours['steps']) if step[0][0] != golden['greedy_ids'][i]), None)


def differences(golden, ours):
    pairs = list(zip([step['top'] for step in golden['steps']], ours['steps']))
    pairs.append((golden['last_prompt_position']['fixed'], ours['fixed']))
    return [abs(dict(map(tuple, theirs))[i] - x) for theirs, step in pairs for i, x in step if i in dict(map(tuple, theirs))]


def judge(golden_run, name, path):
    """Number of prompts, and those that left too early."""
    golden, early, all_differences = reference.load(name + '.vectors'), [], []
    runs = logits(golden_run, path, golden)
    check(len(runs) == len(golden['prompts']), f'{name}: {len(runs)} prompts')
    for g, ours in zip(golden['prompts'], runs):
        label, at, seen = f'{name} {g["kind"]}', leaves(g, ours), differences(g, ours)
        margin = None if at is None else g['steps'][at]['margin']
        check(len(ours['steps']) == len(g['greedy_ids']) and len(ours['fixed']) == 32, f'{label}: steps or logits are missing')
        off = abs(ours['logsumexp'] - g['last_prompt_position']['logsumexp'])
        print(f'{label}: {len(g["ids"])} ids, ' + ('to the end' if at is None else f'leaves at {at}, margin {margin:.3f}') +
              f'; logits off by {statistics.mean(seen):.3f} (most {max(seen):.3f}), logsumexp by {off:.3f}')
        check(max(seen) <= MAX_LOGIT and off <= MAX_LOGSUMEXP, f'{label}: logits are too far off')
        check(margin is None or margin < HARD, f'{label}: leaves at margin {margin}')
        early += [label] if margin is not None and margin >= SOFT else []
        all_differences += seen
    mean = statistics.mean(all_differences)
    print(f'{name}: {len(all_differences)} logits, off by {mean:.4f} in the mean')
    check(mean <= MEAN_LOGIT, f'{name}: logits are off by {mean:.4f} in the mean')
    return len(runs), early


def through_the_program(name, path):
    """The conversations once more as a user would have them: template, tokenizer, decoding and text."""
    for g in reference.load(name + '.vectors')['prompts']:
        messages = g.get('messages', [])
        if [m['role'] for m in messages] not in (['user'], ['system', 'user']):
            continue
        system = ['--system', messages[0]['content']] if len(messages) == 2 else []
        got = answer('generate', path, *system, '--max-tokens', len(g['greedy_ids']), '--', messages[-1]['content'])
        n = next((i for i, (a, b) in enumerate(zip(got['ids'], g['greedy_ids'])) if a != b), len(g['greedy_ids']))
        check(got['prompt_ids'] == g['ids'], f'{name} {g["kind"]}: the prompt has other ids')
        check(n == len(g['greedy_ids']) or g['steps'][n]['margin'] < HARD, f'{name} {g["kind"]}: leaves at {n}')
        if n == len(g['greedy_ids']):
            want = g['greedy_text'].removesuffix('<|im_end|>')  # the oracle spells the end token out
            check(got['text'] == want, f'{name} {g["kind"]}: {got["text"]!r}, expected {want!r}')
            check((got['stop_reason'] == 'eos') == (g['stopped_by'] == 'stop id'), f'{name} {g["kind"]}: {got["stop_reason"]}')


def main():
    golden_run, prompts, early, absent = shlex.split(sys.argv[1]), 0, [], []
    for name, file in (('smollm2-135m', SMOLLM2), ('gemma3-270m', GEMMA3)):
        path = model(file)
        if path is None:
            absent.append(file)
            continue
        count, left = judge(golden_run, name, path)
        prompts, early = prompts + count, early + left
        through_the_program(name, path)
    print(f'{prompts} prompts, {len(early)} left early: {", ".join(early)}')
    check(len(early) <= max(1, prompts // ONE_IN), 'too many prompts leave early')
    code = verdict()
    if code == 0 and absent:
        skip(f'not judged, not in IM_TEST_MODELS: {", ".join(absent)}')
    return code


sys.exit(main())
