# SPDX-License-Identifier: Apache-2.0
"""What a user waits for and what memory it takes, with real models: test_limits.py NAME
The first token of SmolLM2 within half a second of the start (file in the page cache); resident memory above weights and KV cache below 100 MB; nothing
computed while it waits."""
import os
import resource
import subprocess
import sys
import tempfile
import time

from program import GEMMA3, SMOLLM2, answer, check, command, need_model, verdict

FIRST_TOKEN, MEMORY, TRIES = 0.5, 100e6, 5
SECONDS = 3  # in the first the end of the answer may still be at work: threads that have just stopped computing spin a little before they sleep


def first_token(path):
    """Seconds from starting the program to the first byte of its answer, and seconds of processor time of the whole run."""
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command('generate', path, '--max-tokens', 16, '--', 'Why is the sky blue?'), stdout=subprocess.PIPE)
    process.stdout.read1(1)
    took = time.monotonic() - begun
    process.stdout.read()
    check(process.wait() == 0, 'generate failed')
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def judge_first_token(path):
    """On a machine that others keep busy the clock measures them; there the processor time of the run, which two threads share, is judged."""
    tries = [first_token(path) for _ in range(TRIES)]
    wall, processor = min(t[0] for t in tries), min(t[1] for t in tries)
    print(f'first token after {wall * 1e3:.0f} ms, best of {TRIES}; processor time of a run {processor * 1e3:.0f} ms')
    if wall >= FIRST_TOKEN and os.getloadavg()[0] > (os.cpu_count() or 1) + 1:
        print('busy machine: judged by processor time')
        check(processor < 2 * FIRST_TOKEN, f'a run took {processor:.3f} s of processor time')
    else:
        check(wall < FIRST_TOKEN, f'the first token took {wall:.3f} s')


def resident(pid):
    """Bytes that a process holds: anonymous ones, and pages of the model's file that it has mapped."""
    with open(f'/proc/{pid}/status') as f:
        fields = dict(line.split(':', 1) for line in f)
    return {k: int(fields[k].split()[0]) * 1024 for k in ('VmRSS', 'VmHWM', 'RssAnon', 'RssFile')}


def processor_time(pid):
    with open(f'/proc/{pid}/stat') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return int(fields[11]) + int(fields[12])


def used_in_a_second(pid):
    used = processor_time(pid)
    time.sleep(1)
    return processor_time(pid) - used


def memory(path):
    """What a conversation holds that has answered once and waits for the next line, and what was planned."""
    plan = answer('info', path, '--context', 512)['memory']
    with tempfile.NamedTemporaryFile('w', suffix='.txt') as template:
        template.write('{{ bos_token }}{{ messages[-1].content }}')
        template.flush()
        process = subprocess.Popen(command('chat', path, '--context', 512, '--max-tokens', 200, '--chat-template', template.name), stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        process.stdin.write(b'Once upon a time there was a mule that carried a load. ' * 12 + b'\n/stats\n')
        process.stdin.flush()
        while (line := process.stderr.readline()) and b'last answer' not in line:
            pass
        check(line, 'no answer')
        held = resident(process.pid)
        check(min(used_in_a_second(process.pid) for _ in range(SECONDS)) <= 1, 'a conversation that waits uses the processor')
        process.stdin.close()
        process.stderr.read()
        check(process.wait() == 0, 'chat failed')
    return held, plan


def main():
    name = sys.argv[1]
    path = need_model({'smollm2': SMOLLM2, 'gemma3': GEMMA3}[name])
    with open(path, 'rb') as f:
        while f.read(1 << 24):
            pass
    if name == 'smollm2':
        judge_first_token(path)
    held, plan = memory(path)
    above = held['VmRSS'] - plan['weights'] - plan['kv']
    peak = held['VmHWM'] - plan['weights'] - plan['kv']
    print(f'resident {held["VmRSS"] / 1e6:.1f} MB (most {held["VmHWM"] / 1e6:.1f}; of the file {held["RssFile"] / 1e6:.1f}), weights {plan["weights"] / 1e6:.1f}, '
          f'KV {plan["kv"] / 1e6:.1f}, workspace {plan["workspace"] / 1e6:.1f}: {above / 1e6:.1f} MB above weights and KV (most {peak / 1e6:.1f})')
    check(above < MEMORY, f'{above / 1e6:.1f} MB above weights and KV cache')
    check(peak < MEMORY, f'at the most {peak / 1e6:.1f} MB above weights and KV cache')
    return verdict()


sys.exit(main())
