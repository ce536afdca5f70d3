# SPDX-License-Identifier: Apache-2.0
"""`ironmule verify`: it passes, its hashes are those of `generate`, a kernel that is wrong by one bit in one shape makes it fail in the right place, Ctrl-C ends it.

    test_verify.py tiny       models of a few MB
    test_verify.py smollm2    the real model, and the time that the quick form takes"""
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time

from program import SMOLLM2, TINY, answer, check, command, emulated, levels, need_model, run, verdict

BASE = ['--threads', '2', '--device', 'cpu']


def report_of(*args, code=0, program=None, env=None):
    """The JSON document, after this exit code."""
    words = [*(program or command()), 'verify', '--json', *BASE, *map(str, args)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, timeout=300)
    if not check(done.returncode == code, f'{args}: exit {done.returncode}, expected {code}: {done.stderr.decode("utf-8", "replace")}'):
        raise SystemExit(verdict())
    got = json.loads(done.stdout)
    check(done.stderr.decode() == (f'ironmule verify: {got["different"]} of {got["runs"]} runs are different\n' if code == 3 else ''), f'{args}: {done.stderr}')
    return got


def ways(report):
    return [(a['cpu_level'], a['threads'], a['batch'], a['company'], a['warm']) for a in report['arms']]


def ids_file(folder, prompt):
    path = os.path.join(folder, prompt['name'] + '.json')
    with open(path, 'w') as f:
        json.dump(prompt['prompt_ids'], f)
    return path


def passes(path, folder, tokens=6):
    """All agree, and with what generate gives for the same ids, which other tests compare with the oracle."""
    here, got = levels(), report_of(path, '-n', tokens)
    check(got['same'] and got['different'] == 0 and got['numerics'] == 1 and 'difference' not in got and got['cpu_levels'] == here, f'{path}: {got["same"]}')
    check(got['runs'] == sum(len(a['results']) for a in got['arms']) > 20, f'{path}: {got["runs"]} runs')
    done = ways(got)
    check(done[0] == (here[-1], 1, 1, 'none', False), f'the reference: {done[0]}')
    check({w[0] for w in done} >= set(here) - {'c'} and {w[1] for w in done} == {1, 2} and {w[2] for w in done} == {1, 2, 5, 8} and
          {w[3] for w in done} == {'none', 'requests', 'neighbours'} and {w[4] for w in done} == {True, False}, f'{path}: ways {done}')
    check({1, 7, 64} <= {a['chunk'] for a in got['arms']}, f'{path}: chunks')
    check(any(r['cached_tokens'] > 0 for a in got['arms'] if a['warm'] for r in a['results']) and
          not any(r['cached_tokens'] for a in got['arms'] if not a['warm'] for r in a['results']), f'{path}: a warm cache has something, a cold one nothing')
    hashes = {p['name']: p['logits_hash'] for p in got['prompts']}
    check(all(r['same'] and r['logits_hash'] in (hashes[r['prompt']], None) for a in got['arms'] for r in a['results']), f'{path}: hashes')
    check(sum(r['logits_hash'] is None for a in got['arms'] for r in a['results']) == 3, f'{path}: tokens only')
    check(len(set(hashes.values())) == len(hashes) >= 3, f'{path}: each prompt has its own hash: {hashes}')
    for prompt in got['prompts']:
        want = answer('generate', path, '--ids-file', ids_file(folder, prompt), '-n', tokens, '--ignore-eos', '--device', 'cpu')
        check(want['logits_hash'] == prompt['logits_hash'] and want['ids'] == prompt['ids'], f'{path}: {prompt["name"]}: generate gives {want["logits_hash"]}')
    return got


def table(path):
    """What a person sees: one row a run, and the last line sums up."""
    done = run('verify', path, *BASE)
    lines = done.stdout.decode().splitlines()
    check(done.returncode == 0 and done.stderr == b'', f'{path}: exit {done.returncode}, {done.stderr}')
    rows = [line for line in lines if line.endswith('  same')]
    check(lines[-1].startswith(f'one answer: {len(rows)} runs in ') and len(lines) == len(rows) + 3, f'{path}: {lines[:3]} ... {lines[-1:]}')
    check('DIFFERENT' not in done.stdout.decode() and max(map(len, lines)) < 120, f'{path}: {lines[-1]}')


def full(path):
    got = report_of(path, '--full', '--prompt', 'One mule, one answer', '--prompt', 'z', '-n', 2)
    done = ways(got)
    expected = len(levels()) * 2 * 4 * 15  # threads, chunks, companies
    check(got['same'] and len(done) == expected and len(got['prompts']) == 2, f'--full: {len(done)} ways, expected {expected}')


def bits_at(program, path, ids, step, row, *args, env=None):
    """The bits of a logit as generate shows them."""
    words = [*program, 'generate', path, '--json', '--ids-file', ids, '-n', step + 1, '--ignore-eos', '--top', 1000, *BASE, *args]
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, check=True, env={**os.environ, **(env or {})})
    value = dict(json.loads(done.stdout)['steps'][step]['top'])[row]
    return struct.pack('>f', value).hex()


def faults(path, folder):
    """Eight sequences at once: their logits are a product of 16 rows, as the head reads each row and what its quantisation lost."""
    best = levels()[-1]
    faulty = shlex.split(os.environ['IM_FAULTY'])
    if best == 'c':
        print('plain C alone here: no kernel to break')
        return
    check(report_of(path, program=faulty)['same'], 'the other program without a fault')
    vocabulary = answer('info', path)['vocabulary']
    env = {'IM_FAULT': f'16 {vocabulary} 17'}
    got = report_of(path, code=3, program=faulty, env=env)
    d = got['difference']
    check(not got['same'] and got['different'] == sum(not r['same'] for a in got['arms'] for r in a['results']) > 0, 'the fault is counted')
    check(d['arm'] == f'cpu {best}, 2 threads, default chunk, 8 neighbours, cold' and d['row'] == 17, f'the fault is at {d}')
    check(abs(int(d['bits'], 16) - int(d['reference_bits'], 16)) == 1, f'one bit: {d}')
    for arm in got['arms']:
        check(arm['batch'] == 8 or all(r['same'] for r in arm['results']), f'a difference where there is no fault: {arm}')
    ids = ids_file(folder, next(p for p in got['prompts'] if p['name'] == d['prompt']))
    check(bits_at(command(), path, ids, d['step'], 17) == d['reference_bits'], f'the bits of the reference: {d}')
    check(bits_at(faulty, path, ids, d['step'], 17, '--neighbours', 7, env=env) == d['bits'], f'the wrong bits: {d}')
    done = subprocess.run([*faulty, 'verify', path, *BASE], stdout=subprocess.PIPE, env={**os.environ, **env})
    last = done.stdout.decode().splitlines()[-2:]
    check(done.returncode == 3 and last[0].startswith('DIFFERENT: ') and f'{d["arm"]}, prompt {d["prompt"]}, step {d["step"]}, row 17: bits {d["bits"]}' in last[1], last)
    d = report_of(path, code=3, program=faulty, env={'IM_FAULT': f'10 {vocabulary} 17'})['difference']
    check(d['arm'] == f'cpu {best}, 1 thread, default chunk, 5 beside, cold' and d['row'] == 17, f'five requests are in one step: {d}')
    wrong_reference = report_of(path, code=3, program=faulty, env={'IM_FAULT': f'2 {vocabulary} 17'})
    check(all(not r['same'] for a in wrong_reference['arms'] if a['cpu_level'] == 'c' for r in a['results']), 'a wrong reference is not believed')


def identity(path, folder):
    """A model is known by what it holds, not by where it lies."""
    with open(path, 'rb') as f:
        data = bytearray(f.read())
    found = []
    for name, change in (('copy', 0), ('changed', 1)):
        data[-40] ^= change  # of a weight: behind the last one are up to 31 bytes of nothing
        other = os.path.join(folder, f'{name}.gguf')
        with open(other, 'wb') as f:
            f.write(data)
        found.append(report_of(other, '-n', 1, '--prompt', 'z')['model']['fingerprint'])
    own = report_of(path, '-n', 1, '--prompt', 'z')['model']['fingerprint']
    check(found[0] == own and found[1] != own, f'fingerprints: {own}, of a copy and a changed copy {found}')


def usage():
    for args, word in (((TINY, 'b'), 'too many'), ((TINY, '--quick', '--full'), 'not both'), ((TINY, '--compare'), 'two reports'), ((TINY, '--device', 'abacus'), 'abacus'),
                       ((TINY, '-n', '0'), 'outside'), ((), 'missing')):
        done = run('verify', *args)
        check(done.returncode == 2 and word in done.stderr.decode() and done.stdout == b'', f'{args}: {done}')
    for args, word in ((('/nowhere.gguf',), 'nowhere'), ((TINY, '--prompt', 'mule ' * 600), 'do not fit')):
        done = run('verify', *args)
        check(done.returncode == 1 and word in done.stderr.decode() and done.stdout == b'', f'{args}: {done}')


def interrupt(path, after):
    process = subprocess.Popen(command('verify', path, '--full', '--device', 'cpu'), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(after)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    took = time.monotonic() - begun
    check(process.returncode == 130 and took < 2, f'Ctrl-C after {after} s: exit {process.returncode} after {took:.2f} s, {err}')


def tiny(folder):
    passes(TINY, folder)
    table(TINY)
    identity(TINY, folder)
    usage()
    faults(TINY, folder)
    if not emulated():
        full(TINY)


def smollm2(folder):
    path = need_model(SMOLLM2)
    got = passes(path, folder)
    print(f'{got["runs"]} runs in {got["seconds"]:.1f} s')
    for after in (0.2, 0.7, 1.9, 3.1):
        interrupt(path, after)


def main():
    with tempfile.TemporaryDirectory() as folder:
        {'tiny': tiny, 'smollm2': smollm2}[sys.argv[1]](folder)
    return verdict()


sys.exit(main())
