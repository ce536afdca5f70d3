#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md that are made from bench/results: peers-*.json, profile-*.json, surroundings.json.

    performance.py write    renders them into the document
    performance.py check    fails when the document holds anything else
"""
import glob
import json
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = os.path.join(HERE, '..', 'docs', 'performance.md')
BEGIN, END = '<!-- {}: written by bench/performance.py -->\n', '<!-- end of {} -->\n'
PEERS = ('llama.cpp', 'ik_llama.cpp')


def limit_of(block, row, engine, rate):
    """What share of the machine's limit a speed is: bytes read for an answer, integer operations for a prompt."""
    limits = block['limits'][engine.split()[1]]
    share = rate * block['weights_bytes'] / limits['read_bytes_per_s'] if row.startswith('tg') else \
        rate * 2 * block['products'] / limits['int8_ops_per_s']
    return f'{100 * share:.0f} %'


def lines_of(block):
    for row, samples in block['samples'].items():
        peers = [p for p in PEERS if samples.get(p)]
        speed = {name: statistics.median(s) for name, s in samples.items()}
        cells = [short(block['model']), str(block['threads']), row, str(block['rounds'])]
        cells += [f'{speed[p]:.1f}' if p in peers else '' for p in PEERS]
        for engine in ('ironmule avx2', 'ironmule best'):
            if engine not in speed:
                cells += ['', '']
                continue
            rounds = [o / max(samples[p][i] for p in peers) for i, o in enumerate(samples[engine])]
            ratio = speed[engine] / max(speed[p] for p in peers)
            cells += [f'{speed[engine]:.1f} ({limit_of(block, row, engine, speed[engine])})', f'**{ratio:.2f}** [{min(rounds):.2f}; {max(rounds):.2f}]']
        yield '| ' + ' | '.join(cells) + ' |'


def results(pattern):
    for path in sorted(glob.glob(os.path.join(HERE, 'results', pattern))):
        with open(path) as f:
            yield os.path.basename(path), json.load(f)


def figures():
    out = []
    for name, doc in results('peers-*.json'):
        peers = ', '.join(f'{name} ({version})' for name, version in doc['peers'].items())
        loads = [b['load_before'] for b in doc['blocks']]
        priorities = ', '.join(sorted({b['priority'] for b in doc['blocks']}))
        best = ', '.join(sorted({b['limits']['best']['cpu_level'] for b in doc['blocks'] if 'best' in b['limits']}))
        out += [f'{doc["cpu"]}, {doc["cores"]} cores, {doc["date"]}; load of other work {min(loads)} to {max(loads)}, priority {priorities}. '
                f'Peers: {peers}. best: {best}. `{name}`, made by', '']
        out += [f'    {command}' for command in doc['commands']]
        out += ['', '| model | threads | row | rounds | llama.cpp | ik_llama.cpp | ours, avx2 (of limit) | to the best peer | ours, best (of limit) | '
                'to the best peer |', '|---|--:|---|--:|--:|--:|--:|--:|--:|--:|']
        for block in doc['blocks']:
            out += lines_of(block)
        out.append('')
    return '\n'.join(out)


def short(model):
    return model.removesuffix('.gguf')


def profile():
    out = []
    for name, doc in results('profile-*.json'):
        columns = doc['columns']
        out += [f'{doc["cpu"]}, {doc["level"]}, {doc["date"]}, `{name}`:', '',
                '| operation | ' + ' | '.join(f'{short(c["model"])} {c["row"]}' for c in columns) + ' |', '|---|' + '--:|' * len(columns)]
        for operation in columns[0]['percent']:
            cells = [f'{c["percent"][operation]:.1f}' if c['percent'][operation] >= 0.05 else '' for c in columns]
            out.append(f'| {operation} | ' + ' | '.join(cells) + ' |')
        out.append('')
    return '\n'.join(out)


def spread(samples, digits):
    return f'{statistics.median(samples):.{digits}f} [{min(samples):.{digits}f}; {max(samples):.{digits}f}]'


def surroundings():
    out = []
    for name, doc in results('surroundings.json'):
        out += [f'{doc["cpu"]}, {doc["cores"]} cores, {doc["level"]} level, {doc["date"]}, `{name}`:', '',
                '| model | first token, s: one thread | two | memory above weights and KV, MB | tokens/s, two threads, idle | beside a busy neighbour | | '
                'one thread beside it |', '|---|--:|--:|--:|--:|--:|--:|--:|']
        for r in doc['results']:
            rate = r['tokens_per_s']
            share = statistics.median(rate['two beside']) / statistics.median(rate['idle'])
            cells = [short(r['model']), spread(r['start_s']['1'], 2), spread(r['start_s']['2'], 2), f'{r["memory"]["above_weights_and_kv"] / 1e6:.0f}',
                     spread(rate['idle'], 1), spread(rate['two beside'], 1), f'{100 * share:.0f} %', spread(rate['one beside'], 1)]
            out.append('| ' + ' | '.join(cells) + ' |')
        out.append('')
    return '\n'.join(out)


def main():
    with open(DOCUMENT) as f:
        text = f.read()
    wanted = text
    for render in (figures, profile, surroundings):
        begin, end = wanted.index(BEGIN.format(render.__name__)) + len(BEGIN.format(render.__name__)), wanted.index(END.format(render.__name__))
        wanted = wanted[:begin] + render() + wanted[end:]
    if sys.argv[1:] == ['write']:
        with open(DOCUMENT, 'w') as f:
            f.write(wanted)
    elif sys.argv[1:] != ['check']:
        sys.exit(__doc__)
    elif wanted != text:
        sys.exit('docs/performance.md differs from bench/results; render it with: python3 bench/performance.py write')


main()
