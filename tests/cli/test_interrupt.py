# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C with a real model: a long prompt, a score and an answer end within a second, and what was written is whole."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from program import SMOLLM2, check, command, need_model, verdict
from terminal import CONTROL_C, CONTROL_D, Terminal

WITHIN = 1.0
LONG = 'The mule carried the load up the hill, and the hill was long. ' * 500


def interrupted(args, after):
    """Starts a command, interrupts it after so many seconds of its own computing; (exit code, stdout, stderr, seconds it took to end)."""
    process = subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ticks = os.sysconf('SC_CLK_TCK')
    while process.poll() is None:
        with open(f'/proc/{process.pid}/stat') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        if (int(fields[11]) + int(fields[12])) / ticks >= after:
            break
        time.sleep(0.01)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err, time.monotonic() - begun


def prompts(path, folder):
    text = os.path.join(folder, 'long.txt')
    with open(text, 'w') as f:
        f.write(LONG)
    for json_wanted in (False, True):
        code, out, err, took = interrupted(['generate', path, '--raw', '--prompt-file', text] + (['--json'] if json_wanted else []), 1.5)
        check(code == 130, f'generate: exit {code}, {err}')
        check(took < WITHIN, f'generate: took {took:.2f} s to end')
        print(f'generate ended after {took:.3f} s')
        if not json_wanted:
            check(out == b'', f'generate: {out}')
            continue
        got = json.loads(out)
        check(got['ids'] == [] and got['text'] == '' and got['stop_reason'] == 'cancelled' and len(got['prompt_ids']) > 5000, f'generate --json: {out[-300:]}')
    code, out, err, took = interrupted(['perplexity', path, '--file', text, '--json'], 1.5)
    check(code == 130 and took < WITHIN and out == b'', f'perplexity: exit {code} after {took:.2f} s, {out[:100]} {err}')
    code, out, err, took = interrupted(['benchmark', path, '--rows', 'pp4096', '--json'], 1.5)
    check(code in (1, 130) and took < WITHIN and out == b'', f'benchmark: exit {code} after {took:.2f} s, {out[:100]} {err}')


def answers(path):
    """What was written up to there is the beginning of the answer."""
    whole = subprocess.run(command('generate', path, '--max-tokens', 60, '--', 'Tell a long story.'), stdout=subprocess.PIPE).stdout
    process = subprocess.Popen(command('generate', path, '--ignore-eos', '--max-tokens', 4000, '--', 'Tell a long story.'), stdout=subprocess.PIPE)
    begin = process.stdout.read1(1)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    begin += process.communicate(timeout=60)[0]
    check(process.returncode == 130 and time.monotonic() - begun < WITHIN, f'an answer: exit {process.returncode}')
    check(begin and (whole.startswith(begin) or begin.startswith(whole)), f'an answer: {begin}')


def conversation(path):
    t = Terminal('chat', path, '--max-tokens', 1000)
    check(t.prompt(), 'no prompt')
    t.line('Write a very long story about a mule.')
    check(t.expect(rb'\x1b\[36m.{20}'), f'no answer: {t.shown}')
    begun = time.monotonic()
    t.send(CONTROL_C)
    check(t.expect(rb'\[stopped\]', 20) and time.monotonic() - begun < WITHIN and t.prompt(), f'Ctrl-C: {time.monotonic() - begun:.2f} s, {t.shown[-200:]}')
    t.line('Say hello.')
    check(t.expect(rb'\x1b\[36m.{2}') and t.expect(rb'\x1b\[0m'), f'the next answer: {t.shown[-200:]}')
    t.prompt()
    t.send(CONTROL_D)
    check(t.close() == 0, 'Ctrl-D')


def progress(path, folder):
    """A bar while a long prompt is read, gone before the answer; for terminals only."""
    t = Terminal('generate', path, '--raw', '--max-tokens', 2, '--prompt-file', os.path.join(folder, 'long.txt'), '--context', 8000)
    check(t.expect(rb'reading \[#+\.+\] +\d+% \d+ of \d+ tokens'), f'no bar: {t.shown[-300:]}')
    t.send(CONTROL_C)
    check(t.close() == 130, 'Ctrl-C in a terminal')
    check(t.shown.rstrip(b'^C\r\n').endswith(b'\x1b[K'), f'the bar is left: {t.shown[-100:]}')
    done = subprocess.run(command('generate', path, '--max-tokens', 2, 'Hello'), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(done.stderr == b'', f'a bar in a pipe: {done.stderr}')


def main():
    path = need_model(SMOLLM2)
    with tempfile.TemporaryDirectory() as folder:
        prompts(path, folder)
        answers(path)
        conversation(path)
        progress(path, folder)
    return verdict()


sys.exit(main())
