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


def lines_of(block):
    for row, samples in block['samples'].items():
        ours = samples['ironmule']
        peers = {name: statistics.median(s) for name, s in samples.items() if name != 'ironmule'}
        best = max(peers, key=peers.get)
        rounds = [o / max(samples[p][i] for p in peers) for i, o in enumerate(ours)]
        speeds = ' | '.join(f'{peers[p]:.1f}' if p in peers else '' for p in ('llama.cpp', 'ik_llama.cpp'))
        yield (f'| {block["model"].removesuffix(".gguf")} | {block["threads"]} | {row} | {statistics.median(ours):.1f} | {speeds} | '
               f'**{statistics.median(ours) / peers[best]:.2f}** [{min(rounds):.2f}; {max(rounds):.2f}] |')


def render():
    out = []
    for path in sorted(glob.glob(os.path.join(HERE, 'results', 'peers-*.json'))):
        with open(path) as f:
            doc = json.load(f)
        levels = ', '.join(sorted({b['cpu_level'] for b in doc['blocks']}))
        peers = ', '.join(f'{name} ({version})' for name, version in doc['peers'].items())
        out += [f'**{levels} kernels.** {doc["cpu"]}, {doc["cores"]} cores, {doc["date"]}, {doc["rounds"]} rounds, load {doc["load_before"]} of other '
                f'work before. Peers: {peers}. `{os.path.basename(path)}`:', '', f'    {doc["command"]}', '',
                '| model | threads | row | ironmule | llama.cpp | ik_llama.cpp | to the best peer [rounds] |', '|---|--:|---|--:|--:|--:|--:|']
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
