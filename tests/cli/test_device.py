# SPDX-License-Identifier: Apache-2.0
"""The commands on a GPU, a fake one: what they say of it, and what happens when it fails."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
import reference  # noqa: E402
from program import TINY, answer, check, run, skip, verdict

if 'IM_FAKED' not in os.environ:
    skip('IM_FAKED is not set')
os.environ['IM_PROGRAM'] = os.environ['IM_FAKED']
GPU = {'IM_FAKE_GPU': '100 1024 1'}
GENERATE = ['generate', TINY, '--raw', '--ignore-eos', '-n', '6', 'The same bits on any device']


def lost(entry, n):
    return {**GPU, 'IM_FAKE_LOSE': f'{entry} {n} 700'}


def fallback():
    cpu = answer(*GENERATE, '--device', 'cpu')
    gpu = answer(*GENERATE, '--device', 'cuda', env=GPU)
    check(gpu['logits_hash'] == cpu['logits_hash'] and gpu['device'] == 'cuda' and cpu['device'] == 'cpu', 'one hash on both devices')
    for entry, n in [('launch', 1), ('launch', 30), ('graph_launch', 2), ('copy_out', 4)]:
        done = run(*GENERATE, '--json', '--device', 'cuda', '--device-fallback', 'cpu', env=lost(entry, n))
        said = done.stderr.decode()
        if not check(done.returncode == 0, f'{entry} {n}: the processor goes on: {said}'):
            continue
        got = json.loads(done.stdout)
        check(got['logits_hash'] == cpu['logits_hash'] and got['ids'] == cpu['ids'], f'{entry} {n}: the same bits')
        check(got['device'] == 'cpu' and said.count('the GPU has failed') == 1, f'{entry} {n}: it is said once: {said}')
        done = run(*GENERATE, '--device', 'cuda', env=lost(entry, n))
        check(done.returncode == 1 and b'made up by a test' in done.stderr, f'{entry} {n}: without leave it is an error: {done.stderr}')
    done = run(*GENERATE, '--device-fallback', 'abacus')
    check(done.returncode == 1 and b'abacus' in done.stderr, 'another fallback is refused')


def doctor():
    done = run('doctor', '--json', env=GPU)
    got = json.loads(done.stdout)
    check(done.returncode == 0 and len(got['gpus']) == 1 and got['gpus'][0]['proved'], f'doctor proves the kernels: {got["gpus"]}')
    check(got['gpus'][0]['name'].startswith('Fake') and got['gpus'][0]['memory_bytes'] == 1 << 30, 'and shows the device')
    got = json.loads(run('doctor', TINY, '--json', env=GPU).stdout)['model']
    check(got['device'] == 'cuda' and got['fits'] and got['tokens_per_s_at_most'] > 0, f'a model is for the GPU: {got}')
    done = run('doctor', TINY, env=GPU)
    check(b"of the GPU's memory" in done.stdout and b'cuda:0 Fake' in done.stdout, f'in words: {done.stdout}')
    done = run('doctor', '--json', env=lost('launch', 3))
    got = json.loads(done.stdout)
    check(done.returncode == 1 and not got['gpus'][0]['proved'] and 'made up by a test' in got['gpus'][0]['error'], 'doctor tells a device that fails')


def folders():
    """Models of MLX: the processor's bits, or a refusal by name and the processor."""
    place = reference.unpack('mlx')
    prompt = ['--raw', '-n', '3', 'one two three four five six seven eight nine ten, and more of it that makes many rows']
    for name in ('mlx-gemma3-8bit-g64', 'mlx-llama-2bit-g64', 'mlx-llama-3bit-g64', 'mlx-llama-4bit-g128', 'mlx-qwen3-4bit-g64', 'mlx-qwen3-mxfp4'):
        gpu, cpu = (answer('generate', os.path.join(place, name), *prompt, '--device', d, env=GPU) for d in ('cuda', 'cpu'))
        check(gpu['logits_hash'] == cpu['logits_hash'] and gpu['device'] == 'cuda', f'{name}: {gpu["logits_hash"]}, {cpu["logits_hash"]}')
    for name, kind in (('mlx-gemma3-6bit-g64', b'AFFINE6'), ('mlx-qwen2-4bit-g32', b'AFFINE4_F')):
        done = run('generate', os.path.join(place, name), *prompt, '--device', 'cuda', env=GPU)
        check(done.returncode == 1 and kind in done.stderr and b'token_embd.weight' in done.stderr, f'{name}: {done}')
        got = answer('generate', os.path.join(place, name), *prompt, '--device', 'auto', env=GPU)
        check(got['device'] == 'cpu', f'{name}: {got}')


def info():
    got = json.loads(run('info', '--json', env=GPU).stdout)
    check(len(got['gpus']) == 1 and got['gpus'][0]['compute_capability'] == 10 and '1 device here' in got['cuda'], f'info shows the device: {got["cuda"]}')
    none = json.loads(run('info', '--json', env={'IM_FAKE_GPU': '100 1024 0'}).stdout)
    check(none['gpus'] == [] and 'finds no CUDA device' in none['cuda'], f'info says why there is none: {none["cuda"]}')
    gpu, cpu = (json.loads(run('info', TINY, '--json', '--device', d, env=GPU).stdout)['memory'] for d in ('cuda', 'cpu'))
    check(gpu['device'] == 'cuda' and gpu['available'] == 1 << 30 and gpu['host'] > 0, f'memory of the GPU: {gpu}')
    check(cpu['device'] == 'cpu' and cpu['host'] == 0 and cpu['workspace'] > 0, f'memory of the processor: {cpu}')
    done = run('info', TINY, env=GPU)
    check(b'memory of the GPU: weights' in done.stdout and b'memory here: ' in done.stdout, f'in words: {done.stdout}')


fallback()
doctor()
folders()
info()
sys.exit(verdict())
