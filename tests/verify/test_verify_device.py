# SPDX-License-Identifier: Apache-2.0
"""`ironmule verify` on a GPU, a fake one: it takes part, it is left out aloud when the model does not fit, and one that fails is an error."""
import json
import os
import sys

from program import TINY, check, run, skip, verdict

if 'IM_FAKED' not in os.environ:
    skip('IM_FAKED is not set')
os.environ['IM_PROGRAM'] = os.environ['IM_FAKED']
VERIFY = ['verify', TINY, '--threads', '2', '-n', '2', '--prompt', 'One mule, one answer', '--json']


def takes_part():
    done = run(*VERIFY, env={'IM_FAKE_GPU': '100 1024 2'})
    got = json.loads(done.stdout)
    check(done.returncode == 0 and got['same'] and len(got['gpus']) == 2 and got['left_out'] == [], f'two devices: {done.stderr}')
    devices = [a['device'] for a in got['arms']]
    check(devices[0] == 'cpu' and set(devices) == {'cpu', 'cuda:0', 'cuda:1'}, f'devices: {devices}')
    gpu = [a for a in got['arms'] if a['device'] == 'cuda:1']
    check({a['batch'] for a in gpu} == {1, 2, 5, 8} and any(a['warm'] for a in gpu) and any(r['logits_hash'] is None for a in gpu for r in a['results']), f'ways: {gpu}')
    got = json.loads(run(*VERIFY, '--device', 'cuda:1', env={'IM_FAKE_GPU': '100 1024 2'}).stdout)
    check({a['device'] for a in got['arms']} == {'cpu', 'cuda:1'}, 'the one that is named')
    got = json.loads(run(*VERIFY, '--device', 'cpu', env={'IM_FAKE_GPU': '100 1024 2'}).stdout)
    check({a['device'] for a in got['arms']} == {'cpu'}, 'none')


def left_out():
    small, args = {'IM_FAKE_GPU': '100 1 1'}, ('verify', TINY, '--threads', '2')  # with the long prompts
    done = run(*args, '--json', env=small)
    got = json.loads(done.stdout)
    check(done.returncode == 0 and got['left_out'] == ['cuda:0'] and done.stderr.count(b'is left out') == 1, f'too small: {done.stderr}')
    check(b'; left out: cuda:0' in run(*args, env=small).stdout, 'the last line says so')
    done = run(*args, '--json', '--device', 'cuda', env=small)
    check(done.returncode == 1 and done.stdout == b'' and b'are needed' in done.stderr, f'one that is named must serve: {done}')


def lost():
    done = run(*VERIFY, env={'IM_FAKE_GPU': '100 1024 1', 'IM_FAKE_LOSE': 'launch 300 700'})
    check(done.returncode == 1 and done.stdout == b'' and b'made up by a test' in done.stderr, f'a device that fails: {done}')


takes_part()
left_out()
lost()
sys.exit(verdict())
