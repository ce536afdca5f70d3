#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/performance.md from bench/results/peers-*.json.

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
BEGIN, END = '<!-- figures: written by bench/performance.py -->\n', '<!-- end of figures -->\n'


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
        cells = [block['model'].removesuffix('.gguf'), str(block['threads']), row, str(block['rounds'])]
        cells += [f'{speed[p]:.1f}' if p in peers else '' for p in PEERS]
        for engine in ('ironmule avx2', 'ironmule best'):
            if engine not in speed:
                cells += ['', '']
                continue
            rounds = [o / max(samples[p][i] for p in peers) for i, o in enumerate(samples[engine])]
            ratio = speed[engine] / max(speed[p] for p in peers)
            cells += [f'{speed[engine]:.1f} ({limit_of(block, row, engine, speed[engine])})', f'**{ratio:.2f}** [{min(rounds):.2f}; {max(rounds):.2f}]']
        yield '| ' + ' | '.join(cells) + ' |'


def render():
    out = []
    for path in sorted(glob.glob(os.path.join(HERE, 'results', 'peers-*.json'))):
        with open(path) as f:
            doc = json.load(f)
        peers = ', '.join(f'{name} ({version})' for name, version in doc['peers'].items())
        loads = [b['load_before'] for b in doc['blocks']]
        priorities = ', '.join(sorted({b['priority'] for b in doc['blocks']}))
        best = ', '.join(sorted({b['limits']['best']['cpu_level'] for b in doc['blocks'] if 'best' in b['limits']}))
        out += [f'{doc["cpu"]}, {doc["cores"]} cores, {doc["date"]}; load of other work {min(loads)} to {max(loads)}, priority {priorities}. '
                f'Peers: {peers}. best: {best}. `{os.path.basename(path)}`, made by', '']
        out += [f'    {command}' for command in doc['commands']]
        out += ['', '| model | threads | row | rounds | llama.cpp | ik_llama.cpp | ours, avx2 (of limit) | to the best peer | ours, best (of limit) | '
                'to the best peer |', '|---|--:|---|--:|--:|--:|--:|--:|--:|--:|']
        for block in doc['blocks']:
            out += lines_of(block)
        out.append('')
    return '\n'.join(out)


def main():
    with open(DOCUMENT) as f:
        text = f.read()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    wanted = text[:begin] + render() + text[end:]
    if sys.argv[1:] == ['write']:
        with open(DOCUMENT, 'w') as f:
            f.write(wanted)
    elif sys.argv[1:] != ['check']:
        sys.exit(__doc__)
    elif wanted != text:
        sys.exit('docs/performance.md differs from bench/results; render it with: python3 bench/performance.py write')


main()
