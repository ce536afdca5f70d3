#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An endlessly busy process on one of two cores: generation with two threads keeps at least 45 % of its speed on the idle machine and is
not slower than generation with one thread beside the same neighbour.

Each round measures idle, two threads beside the neighbour, one thread beside it; medians of the rounds are judged. Skipped (77) on a
machine that is busy itself, since its other processes would be further neighbours."""
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

ROUNDS, TOKENS, SECONDS = 5, 64, 60
MOST_BUSY = 0.15  # of a core, used by others


def skip(why):
    print('skipped: ' + why)
    sys.exit(77)


def cpu_seconds():
    """Seconds that all processors have been used since the start, and those that this process and its finished children have."""
    with open('/proc/stat') as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    t = os.times()
    return (user + nice + system + irq + soft + steal) / os.sysconf('SC_CLK_TCK'), t.user + t.system + t.children_user + t.children_system


def rate(program, model, cores, threads, neighbour):
    """Tokens a second; with a neighbour on the first core when asked. It ends by itself should this process be killed."""
    os.sched_setaffinity(0, cores)
    other = None
    if neighbour:
        other = subprocess.Popen(['taskset', '-c', str(cores[0]), 'timeout', str(SECONDS), sys.executable, '-c', 'while True: pass'])
        time.sleep(0.2)
    try:
        argv = [*program, 'benchmark', model, '--json', '--no-limits', '-n', '1', '--rows', f'tg{TOKENS}', '--threads', str(threads)]
        return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout)['rows'][0]['median']
    finally:
        if other is not None:
            other.terminate()
            other.wait()


def main():
    cores = sorted(os.sched_getaffinity(0))[:2]
    model = os.path.join(os.environ.get('IM_TEST_MODELS', ''), 'gemma-3-270m.Q4_K_M.gguf')
    if len(cores) < 2:
        skip('one core only')
    if not os.path.isfile(model):
        skip('no Gemma 3 270M in IM_TEST_MODELS')
    program = shlex.split(os.environ['IM_PROGRAM'])
    samples = {'idle': [], 'two': [], 'one': []}
    begin = time.monotonic()
    all_begin, own_begin = cpu_seconds()
    for _ in range(ROUNDS):
        samples['idle'].append(rate(program, model, cores, 2, False))
        samples['two'].append(rate(program, model, cores, 2, True))
        samples['one'].append(rate(program, model, cores, 1, True))
    everybody, own = cpu_seconds()
    others = (everybody - all_begin - (own - own_begin)) / (time.monotonic() - begin)
    m = {k: statistics.median(v) for k, v in samples.items()}
    print(f'tg{TOKENS}: two threads {m["idle"]:.1f}/s idle, {m["two"]:.1f}/s beside a neighbour ({m["two"] / m["idle"]:.0%}); '
          f'one thread {m["one"]:.1f}/s beside it; others used {others:.2f} of a core')
    if others > MOST_BUSY and not os.environ.get('IM_BUSY_ANYWAY'):
        skip(f'other processes used {others:.2f} of a core')
    good = m['two'] >= 0.45 * m['idle'] and m['two'] >= m['one']
    sys.exit(0 if good else 1)


main()
