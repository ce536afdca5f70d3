# SPDX-License-Identifier: Apache-2.0
"""Quality of the real models against the float32 oracle, on the golden texts.

    quality.py test            measure (IM_PROGRAM, IM_TEST_MODELS), judge by the limits, compare with the committed figures
    quality.py write           measure, then write the committed figures and the tables of docs/quality.md
    quality.py document        are the tables of docs/quality.md those of the committed figures?

The ratio is our perplexity over the oracle's on the same tokens. Its interval comes from a paired bootstrap of moving blocks of 32 tokens, so that the
dependence between neighbours counts. The bound on the divergence is KL(oracle || ours) over {true token, the oracle's best, the rest}: the whole
distribution diverges at least that much. The logits have the same bits on every machine, so the committed figures must come out on any of them."""
import itertools
import json
import math
import os
import random
import sys
import tempfile

import reference
from program import GEMMA3, SMOLLM2, answer, check, levels, model, skip, verdict

SOURCE = os.environ.get('IM_SOURCE') or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIGURES = os.path.join(SOURCE, 'bench', 'results', 'quality-cpu.json')
DOCUMENT = os.path.join(SOURCE, 'docs', 'quality.md')
NAMES = {'smollm2-135m': ('SmolLM2-135M-Instruct, Q4_1', SMOLLM2), 'gemma3-270m': ('Gemma 3 270M, Q4_K_M', GEMMA3)}
# llama.cpp b11434 on the same files and tokens; the limits are its figures.
PEER = {'smollm2-135m': {'ratio': 1.0032, 'interval': [1.0009, 1.0057], 'top1': 0.966},
        'gemma3-270m': {'ratio': 1.0000, 'interval': [0.9970, 1.0037], 'top1': 0.958}}
MOST_TOGETHER = 1.005
BLOCK, RESAMPLES = 32, 4000


# ---- measuring

def interval(differences):
    """The 95 % interval of exp(mean) over lists of paired differences, by resampling blocks."""
    blocks = []
    for d in differences:
        sums = [0.0, *itertools.accumulate(d)]
        blocks += [sums[i + BLOCK] - sums[i] for i in range(len(d) - BLOCK + 1)]
    draw, count = random.Random(1), max(1, sum(map(len, differences)) // BLOCK)
    means = sorted(sum(draw.choices(blocks, k=count)) / (count * BLOCK) for _ in range(RESAMPLES))
    return [math.exp(means[int(0.025 * RESAMPLES)]), math.exp(means[int(0.975 * RESAMPLES) - 1])]


def divergence(golden, ours, i):
    """The bound at one position."""
    p, q = [math.exp(golden['logprob'][i])], [math.exp(ours['per_token'][i])]
    if golden['top1'][i] != golden['ids'][i + 1] and ours['top1'][i] == golden['top1'][i]:
        p.append(math.exp(golden['top1_logprob'][i]))
        q.append(math.exp(ours['top1_logprob'][i]))
    p.append(1 - sum(p))
    q.append(1 - sum(q))
    return max(0.0, sum(a * math.log(a / max(b, 1e-12)) for a, b in zip(p, q) if a > 1e-12))


def score(path, ids):
    with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
        json.dump(ids, f)
        f.flush()
        return answer('perplexity', path, '--ids-file', f.name, '--per-token')


def summary(golden, ours):
    """Figures over some segments: lists of equal length."""
    differences = [[g - o for g, o in zip(a['logprob'], b['per_token'])] for a, b in zip(golden, ours)]
    n = sum(map(len, differences))
    same = sum(g == o for a, b in zip(golden, ours) for g, o in zip(a['top1'], b['top1']))
    kl = sum(divergence(a, b, i) for a, b in zip(golden, ours) for i in range(len(a['logprob'])))
    of_oracle = math.exp(-sum(sum(a['logprob']) for a in golden) / n)
    return {'tokens': n, 'perplexity_oracle': of_oracle, 'ratio': math.exp(sum(map(sum, differences)) / n), 'interval': interval(differences),
            'top1': same / n, 'divergence_at_least': kl / n}


def measure(name, path):
    golden = reference.load(name + '.score')
    ours = [score(path, s['ids']) for s in golden['segments']]
    for g, o in zip(golden['segments'], ours):
        if not len(g['logprob']) == len(o['per_token']) == o['tokens'] == len(o['top1']):
            raise SystemExit(f'FAILED {name} {g["kind"]}: {o["tokens"]} scores, expected {len(g["logprob"])}')
        check(abs(o['nll'] + sum(o['per_token']) / o['tokens']) < 1e-6, f'{name} {g["kind"]}: nll is not the mean of the scores')
        check(abs(math.log(o['perplexity']) - o['nll']) < 1e-6, f'{name} {g["kind"]}: perplexity is not the exponential of nll')
    figures = summary(golden['segments'], ours)
    figures['texts'] = {g['kind']: summary([g], [o]) for g, o in zip(golden['segments'], ours)}
    figures['model_sha256'] = golden['model_sha256']
    return figures, golden['segments'], ours


def measure_all():
    """Figures of the models that are here, and of all together where all are."""
    models, golden, ours, absent = {}, [], [], []
    for name, (_, file) in NAMES.items():
        path = model(file)
        if path is None:
            absent.append(file)
            continue
        models[name], g, o = measure(name, path)
        golden, ours = golden + g, ours + o
        print(describe(name, models[name]), flush=True)
    document = {'models': models}
    if not absent:
        document['together'] = summary(golden, ours)
        print(describe('together', document['together']))
    return document, absent


def describe(name, f):
    return (f'{name}: perplexity ratio {f["ratio"]:.5f} [{f["interval"][0]:.5f}; {f["interval"][1]:.5f}], same best token {100 * f["top1"]:.2f} %, '
            f'divergence at least {f["divergence_at_least"]:.6f} nats, {f["tokens"]} tokens')


# ---- judging

def judge(document):
    for name, f in document['models'].items():
        peer = PEER[name]
        check(f['ratio'] <= peer['ratio'], f'{name}: ratio {f["ratio"]:.5f} is above llama.cpp\'s {peer["ratio"]}')
        check(f['top1'] >= peer['top1'], f'{name}: same best token in {100 * f["top1"]:.2f} %, llama.cpp in {100 * peer["top1"]} %')
    if 'together' in document:
        check(document['together']['interval'][1] <= MOST_TOGETHER, f'together: the interval reaches {document["together"]["interval"][1]:.5f}')


def compare(document):
    with open(FIGURES) as f:
        kept = json.load(f)
    for name, f in document['models'].items():
        for key in ('ratio', 'top1', 'divergence_at_least', 'perplexity_oracle'):
            check(abs(f[key] - kept['models'][name][key]) < 1e-6,
                  f'{name}: {key} is {f[key]:.7f}, bench/results has {kept["models"][name][key]:.7f}; after a change of the contract: quality.py write')


# ---- writing

def processor():
    with open('/proc/cpuinfo') as f:
        return next((line.split(':', 1)[1].strip() for line in f if line.startswith('model name')), 'unknown')


def row(label, f, peer):
    def one(ratio, ends):
        return f'{ratio:.4f} [{ends[0]:.4f}; {ends[1]:.4f}]'
    theirs = [one(peer['ratio'], peer['interval']), f'{100 * peer["top1"]:.1f} %'] if peer else ['', '']
    return f'| {label} | {one(f["ratio"], f["interval"])} | {theirs[0]} | {100 * f["top1"]:.2f} % | {theirs[1]} | {f["divergence_at_least"]:.5f} |'


def tables(kept):
    lines = ['| model | perplexity ratio [95 %] | llama.cpp\'s | same best token | llama.cpp\'s | divergence at least, nats a token |', '|---|--:|--:|--:|--:|--:|']
    lines += [row(label, kept['models'][name], PEER[name]) for name, (label, _) in NAMES.items()]
    lines += [row('both together', kept['together'], None), '', '| model | text | tokens | oracle\'s perplexity | ratio [95 %] | same best token |', '|---|---|--:|--:|--:|--:|']
    for name, (label, _) in NAMES.items():
        for text, f in kept['models'][name]['texts'].items():
            lines.append(f'| {label} | {text} | {f["tokens"]} | {f["perplexity_oracle"]:.3f} | {f["ratio"]:.4f} [{f["interval"][0]:.4f}; {f["interval"][1]:.4f}] | {100 * f["top1"]:.2f} % |')
    made = kept['made_with']
    lines += ['', f'Measured with ironmule {made["version"]} (numerics {made["numerics"]}), {made["level"]} kernels, {made["processor"]}, by `{made["command"]}`.']
    return '\n'.join(lines) + '\n'


BEGIN, END = '<!-- figures: written by tests/golden/quality.py -->\n', '<!-- end of figures -->\n'


def parts():
    with open(DOCUMENT, encoding='utf-8') as f:
        before, rest = f.read().split(BEGIN)
    middle, after = rest.split(END)
    return before, middle, after


def write(document):
    info = answer('info')
    document['made_with'] = {'version': info['version'], 'numerics': info['numerics'], 'level': levels()[-1], 'processor': processor(),
                             'command': 'python3 tests/golden/quality.py write'}
    document['llama.cpp b11434'] = PEER
    os.makedirs(os.path.dirname(FIGURES), exist_ok=True)
    with open(FIGURES, 'w') as f:
        json.dump(document, f, indent=1)
        f.write('\n')
    before, _, after = parts()
    with open(DOCUMENT, 'w', encoding='utf-8') as f:
        f.write(before + BEGIN + tables(document) + END + after)


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ''
    if what == 'document':
        with open(FIGURES) as f:
            check(parts()[1] == tables(json.load(f)), 'docs/quality.md does not show the figures of bench/results; run quality.py write')
        return verdict()
    if what not in ('test', 'write'):
        print(__doc__)
        return 2
    document, absent = measure_all()
    judge(document)
    if what == 'write' and not absent:
        write(document)
    elif what == 'test':
        compare(document)
    code = verdict()
    if code == 0 and absent:
        skip(f'not judged, not in IM_TEST_MODELS: {", ".join(absent)}')
    return code


if __name__ == '__main__':
    sys.exit(main())
