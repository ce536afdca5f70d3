#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products with MLX's codes beside those with the GGUF types of the same width, one thread.

    kernels.py CHECKERN [ROUNDS]      writes bench/results/kernels-mlx.json

Families take turns and the best of all rounds counts, since other work can only slow a round down. Billion operations (multiplications and additions) a
second: of 4096 x 2048 weights and one row, whose weights come from memory, and of 576 x 1536 weights and 32 rows, which stay in the cache.
"""
import json
import os
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAMILIES = ['q4_0', 'q4_1', 'affine4', 'affine4_f', 'q8_0', 'affine8', 'affine8_f']


def main():
    rounds, best, levels = int(sys.argv[2]) if len(sys.argv) > 2 else 10, {}, []
    for _ in range(rounds):
        for family in FAMILIES:
            done = subprocess.run([sys.argv[1], '--bench', '--json', '--test', 'matmul_' + family], capture_output=True, check=True)
            for kernel in json.loads(done.stdout)['kernels']:
                for rows, t in zip((1, 32), kernel.get('timings', [])):
                    key = (family, kernel['level'], rows)
                    best[key] = max(best.get(key, 0), t['gop_per_s'])
                    levels += [kernel['level']] if kernel['level'] not in levels else []
    table = {family: {level: {f'rows {rows}': round(best[family, level, rows], 1) for rows in (1, 32)} for level in levels} for family in FAMILIES}
    with open('/proc/cpuinfo') as f:
        processor = next((line.split(':', 1)[1].strip() for line in f if line.startswith('model name')), 'unknown')
    with open(os.path.join(SOURCE, 'bench', 'results', 'kernels-mlx.json'), 'w') as f:
        json.dump({'processor': processor, 'rounds': rounds, 'load': os.getloadavg()[0], 'gop_per_s': table}, f, indent=1)
        f.write('\n')
    for family in FAMILIES:
        print(f'{family:10}', *(f'{level} {table[family][level]}' for level in levels))


main()
