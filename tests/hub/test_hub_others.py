# SPDX-License-Identifier: Apache-2.0
"""huggingface_hub, the library that others use, reads what we wrote, and we read what it wrote, cuts included. Exit 77 when it cannot be had: it is taken from
this Python, from IM_TEST_VENV, or installed into a folder of the build."""
import os
import subprocess
import sys

from hub_client import Fault, Home, TINY, check, noise, skip, verdict

FILES = {'config.json': b'{"model_type": "llama"}', 'tokenizer.json': b'{"a": 1}', 'model.safetensors': noise(200_000), 'generation_config.json': b''}


def python_with_hub():
    folder = os.path.join(os.environ['IM_BUILD'], 'hub-venv')
    for python in (sys.executable, os.path.join(os.environ.get('IM_TEST_VENV', '/nowhere'), 'bin/python'), os.path.join(folder, 'bin/python')):
        if os.path.exists(python) and subprocess.run([python, '-c', 'import huggingface_hub'], capture_output=True).returncode == 0:
            return python
    python = os.path.join(folder, 'bin/python')
    for step in ([sys.executable, '-m', 'venv', folder], [os.path.join(folder, 'bin/pip'), 'install', '-q', 'huggingface_hub']):
        if subprocess.run(step, capture_output=True).returncode != 0:
            skip('huggingface_hub is not here and cannot be installed')
    return python


PYTHON = python_with_hub()


def other(home, script, *args, **env):
    """The last line that the script prints."""
    done = subprocess.run([PYTHON, '-c', 'from huggingface_hub import *; import sys\n' + script, *args], capture_output=True, timeout=120,
                          env={**home.env, 'HF_HUB_DISABLE_XET': '1', 'HF_HUB_DISABLE_TELEMETRY': '1', **env})
    check(done.returncode == 0, f'{script}: {done.stderr.decode()[-600:]}')
    return done.stdout.decode().strip().split('\n')[-1]


def they_read_ours():
    with Home() as home:
        commit = home.hub.add('acme/tiny', FILES)
        pull = home.hub.add('acme/tiny', {'config.json': b'[]', 'sub/x.safetensors': b'abc'}, revision='refs/pr/1')
        home.good('models', 'add', 'acme/tiny', '--download', '--file', '*')
        home.good('models', 'add', 'acme/tiny@refs/pr/1', '--download', '--file', '*')
        asked = len(home.hub.log)
        folder = other(home, 'print(snapshot_download("acme/tiny", local_files_only=True))', HF_HUB_OFFLINE='1')
        check(folder == os.path.join(home.repo('acme/tiny'), 'snapshots', commit), f'their folder {folder}')
        for path, data in FILES.items():
            got = other(home, 'print(hf_hub_download("acme/tiny", sys.argv[1], local_files_only=True))', path, HF_HUB_OFFLINE='1')
            check(open(got, 'rb').read() == data, f'their {path}')
        got = other(home, 'print(hf_hub_download("acme/tiny", "sub/x.safetensors", revision="refs/pr/1", local_files_only=True))')
        check(os.path.join('snapshots', pull, 'sub') in got, f'their pull request {got}')
        check(not [e for e in home.hub.log[asked:] if 'acme' in e.path], 'they asked the hub')
        # They scan it without a warning, and with the hub at hand they fetch nothing again.
        scanned = other(home, 'i = scan_cache_dir()\nprint(len(i.warnings), sorted((r.repo_id, r.nb_files, len(r.revisions)) for r in i.repos))')
        check(scanned == "0 [('acme/tiny', 6, 2)]", f'their scan: {scanned}')
        sent = home.hub.sent('acme/tiny')
        other(home, 'print(snapshot_download("acme/tiny"))')
        check(home.hub.sent('acme/tiny') == sent, 'they fetched again what we had')


def we_read_theirs():
    with Home() as home:
        commit = home.hub.add('acme/theirs', {**FILES, 'm-Q4_0.gguf': open(TINY, 'rb').read()})
        other(home, 'print(snapshot_download("acme/theirs"))')
        got = home.good('models', 'show', 'acme/theirs:Q4_0')
        check(got and got['commit'] == commit and got['runs'], f'we: {got}')
        check({m['name'] for m in home.good('models', 'list')} == {'acme/theirs', 'acme/theirs:Q4_0'}, 'our list')
        sent = home.hub.sent('acme/theirs')
        got = home.good('models', 'add', 'acme/theirs', '--download')
        check(got['fetched_bytes'] == 0 and home.hub.sent('acme/theirs') == sent, f'we fetched again: {got}')
        got = home.good('models', 'remove', 'acme/theirs', '--delete', '--yes')
        scanned = other(home, 'i = scan_cache_dir()\nprint(len(i.warnings), len(i.repos))')
        check(scanned == '0 0', f'after our removal they see {scanned}')


def both_at_once():
    """The lock is the same: whoever comes second waits and finds the file."""
    data = noise(1_000_000)
    with Home() as home:
        home.hub.add('acme/both', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', pace=0.03)]
        ours = home.start('models', 'add', 'acme/both', '--download')
        while home.hub.sent('acme/both') < 100_000 and ours.poll() is None:
            pass
        path = other(home, 'print(hf_hub_download("acme/both", "m-Q4_0.gguf"))')
        out, err = ours.communicate(timeout=60)
        check(ours.returncode == 0 and open(path, 'rb').read() == data, f'{out} {err}')
        check(home.hub.sent('acme/both') == len(data), f'{home.hub.sent("acme/both")} bytes for {len(data)}')


they_read_ours()
we_read_theirs()
both_at_once()
raise SystemExit(verdict())
