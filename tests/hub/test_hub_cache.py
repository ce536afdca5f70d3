# SPDX-License-Identifier: Apache-2.0
"""Models by name from the local cache: revisions, links, shards, several roots, other writers' caches, and never a packet."""
import hashlib
import json
import os
import shutil
import subprocess
import sys

from hub_client import Home, TINY, check, command, skip, verdict

sys.path.insert(0, os.path.join(os.environ.get('IM_SOURCE', ''), 'tests', 'unit'))
sys.path.insert(0, os.path.join(os.environ.get('IM_SOURCE', ''), 'tests', 'golden'))
import reference  # noqa: E402
from gguf_mutants import File  # noqa: E402

A, B = 'a' * 40, 'b' * 40


def store(repo, commit, files):
    """Files of a snapshot as links to blobs; the same bytes are one blob."""
    for path, data in files.items():
        blob = os.path.join(repo, 'blobs', hashlib.sha256(data).hexdigest())
        link = os.path.join(repo, 'snapshots', commit, path)
        for p in (blob, link):
            os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(blob, 'wb') as f:
            f.write(data)
        os.symlink(os.path.relpath(blob, os.path.dirname(link)), link)


def ref(repo, name, text):
    path = os.path.join(repo, 'refs', name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as f:
        f.write(text)


def revisions():
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        repo = home.repo('acme/tiny')
        store(repo, A, {'m-Q4_0.gguf': tiny})
        store(repo, B, {'m-Q4_0.gguf': tiny[:-1]})
        home.refused(f'not its revision "main"; commits there: ', 'models', 'show', 'acme/tiny')
        for text in (A, A + '\n', A + '\r\n'):
            ref(repo, 'main', text)
            got = home.good('models', 'show', 'acme/tiny')
            check(got and got['path'] == os.path.join(repo, 'snapshots', A, 'm-Q4_0.gguf') and got['runs'] is True, f'main: {got}')
        ref(repo, 'refs/pr/1', B)
        for name, commit in (('acme/tiny@refs/pr/1', B), (f'acme/tiny@{B}', B), (f'acme/tiny@{A}:Q4_0', A)):
            got = home.good('models', 'show', name)
            check(got and got['commit'] == commit, f'{name}: {got}')
        for text in ('', 'main', A[:39], '../' + A, B.upper()):
            ref(repo, 'main', text)
            home.refused('not its revision "main"', 'models', 'show', 'acme/tiny')
        home.refused('not its revision "gone"', 'tokenize', 'acme/tiny@gone', 'x')
        home.refused("is not in the cache", 'models', 'show', 'acme/absent')


def every_command_takes_names():
    with Home() as home:
        repo = home.repo('acme/tiny')
        store(repo, A, {'m-Q4_0.gguf': open(TINY, 'rb').read()})
        ref(repo, 'main', A)
        home.good('models', 'add', 'acme/tiny', '--name', 'mine')
        want = json.loads(home.run('tokenize', '--json', TINY, 'hello').stdout)
        for name in ('acme/tiny', 'acme/tiny:Q4_0', 'mine', 'MINE'):
            done = home.run('tokenize', '--json', name, 'hello')
            check(done.returncode == 0 and json.loads(done.stdout) == want, f'{name}: {done}')
        for args in (('generate', 'mine', '--raw', '-n', 2, 'hi'), ('info', 'mine'), ('serve', 'mine', '--dry-run')):
            done = home.run(*args)
            check(done.returncode == 0 or b'built without' in done.stderr, f'{args}: {done}')
        # A path that is there comes before a name.
        shutil.copy(TINY, os.path.join(home.path, 'mine'))
        os.truncate(os.path.join(home.path, 'mine'), 100)
        check(home.run('tokenize', 'mine', 'x').returncode == 1, 'a file was not taken before a name')


def split_models():
    shards = File.parse(open(TINY, 'rb').read()).split()
    with Home() as home:
        repo = home.repo('acme/split')
        store(repo, A, {'README.md': b'', **dict(reversed(shards.items()))})
        ref(repo, 'main', A)
        first, _, last = sorted(shards)
        snapshot = os.path.join(repo, 'snapshots', A)
        got = home.good('models', 'show', 'acme/split')
        check(got and got['path'] == os.path.join(snapshot, first) and got['runs'] and got['bytes'] == sum(map(len, shards.values())), f'split: {got}')
        check(home.run('models', 'list', '--names').stdout.count(b'\n') == 1, 'each shard is listed')
        want = home.run('generate', '--json', TINY, '--raw', '-n', '2', 'hi')
        for path in (*(os.path.join(snapshot, s) for s in shards), snapshot, 'acme/split'):
            done = home.run('generate', '--json', path, '--raw', '-n', '2', 'hi')
            check(done.returncode == 0 and json.loads(done.stdout)['logits_hash'] == json.loads(want.stdout)['logits_hash'], f'{path}: {done}')
        os.remove(os.path.join(snapshot, last))
        home.refused(last, 'generate', 'acme/split', '--raw', 'hi')


def roots():
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        for place in ('one', 'two/hub'):
            repo = os.path.join(home.path, place, 'models--acme--' + place[:3])
            store(repo, A, {'m-Q4_0.gguf': tiny})
            ref(repo, 'main', A)
        one, two = os.path.join(home.path, 'one'), os.path.join(home.path, 'two')
        for env, name in (({'HF_HUB_CACHE': one}, 'acme/one'), ({'HF_HOME': two}, 'acme/two'), ({'HF_HUB_CACHE': one, 'HF_HOME': two}, 'acme/one'),
                          ({'HF_HUB_CACHE': '~/one'}, 'acme/one'), ({'HUGGINGFACE_HUB_CACHE': one}, 'acme/one')):
            done = home.run('models', 'list', '--names', env=env)
            check(done.stdout.decode() == name + ':Q4_0\n', f'{env}: {done}')
            check(home.run('tokenize', name, 'x', env=env).returncode == 0, f'{env}: {name}')


def lists():
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        repo = home.repo('acme/many')
        store(repo, A, {'m-Q4_0.gguf': tiny, 'm-Q8_0.gguf': tiny[:5000], 'mmproj-m-f16.gguf': b'x', 'README.md': b''})
        store(repo, B, {'config.json': b'{"model_type": "strange", "quantization": {"bits": 4, "group_size": 64}, "max_position_embeddings": 77}',
                        'model.safetensors': b'x' * 500})
        ref(repo, 'main', A)
        folder = os.path.join(home.path, 'plain')
        os.makedirs(os.path.join(folder, 'sub'))
        shutil.copy(TINY, os.path.join(folder, 'sub', 'plain.gguf'))
        home.good('models', 'add', os.path.join(folder, 'sub', 'plain.gguf'), '--name', 'reg')
        shutil.copy(TINY, os.path.join(folder, 'other.gguf'))
        home.good('setup', '--set', f'model_folders={folder}:~/absent')
        listed = {m['name']: m for m in home.good('models', 'list', '--context', '128')}
        check(set(listed) == {'reg', 'acme/many:Q4_0', 'acme/many:Q8_0', f'acme/many@{B}', 'other'}, f'listed {sorted(listed)}')
        good, bad, strange = listed['acme/many:Q4_0'], listed['acme/many:Q8_0'], listed[f'acme/many@{B}']
        check(good['runs'] and good['family'] == 'llama' and good['format'] == 'gguf' and good['bytes'] == len(tiny) and good['needs_bytes'] > 0
              and good['context'] == 128 and good['why_not'] is None and good['source'] == 'cache' and good['revision'] == 'main', f'{good}')
        check(not bad['runs'] and bad['bytes'] == 5000 and bad['quantisation'] == 'Q8_0' and 'm-Q8_0.gguf' in bad['why_not'], f'{bad}')
        check(not strange['runs'] and strange['format'] == 'safetensors' and strange['family'] == 'strange' and strange['why_not']
              and strange['quantisation'] == '4-bit, groups of 64' and strange['made_for'] == 77, f'{strange}')
        check(listed['reg']['source'] == 'registered' and listed['other']['source'] == 'folder', 'sources')
        names = home.run('models', 'list', '--names').stdout.decode().split()
        for name in names:
            check(home.run('models', 'show', name).returncode == 0 or name == 'other', f'show {name}')
        text = home.run('models', 'list').stdout.decode()
        check(all(n in text for n in names), f'{text}')
        before = home.good('models', 'show', 'reg', '--context', '16')['needs_bytes']
        check(before < home.good('models', 'show', 'reg', '--context', '512')['needs_bytes'], 'memory does not grow with the context')


def folders():
    """A model of MLX in the cache runs and says so; it answers by its name."""
    place = os.path.join(reference.unpack('mlx'), 'mlx-llama-4bit-g64-2shards')
    files = {n: open(os.path.join(place, n), 'rb').read() for n in os.listdir(place) if n != 'golden.json'}
    with Home() as home:
        repo = home.repo('acme/mlx')
        store(repo, A, files)
        ref(repo, 'main', A)
        listed = home.good('models', 'list', '--context', '128')
        check([m['name'] for m in listed] == ['acme/mlx'], f'listed {listed}')
        for m in (listed[0], home.good('models', 'show', 'acme/mlx', '--context', '128')):
            check(m['runs'] and m['format'] == 'safetensors' and m['family'] == 'llama' and m['quantisation'] == 'AFFINE4' and m['why_not'] is None
                  and m['bytes'] == sum(len(b) for n, b in files.items() if n.endswith('.safetensors')), f'{m}')
        by_name = home.run('generate', 'acme/mlx', '--raw', '--json', '-n', '4', 'hello')
        by_path = home.run('generate', place, '--raw', '--json', '-n', '4', 'hello')
        hashes = [json.loads(done.stdout)['logits_hash'] for done in (by_name, by_path)]
        check(by_name.returncode == 0 and hashes[0] == hashes[1], f'{by_name}, {by_path}')


def registering():
    with Home() as home:
        evil = 'a\x1b[31mb\nc\u009b.gguf'
        shutil.copy(TINY, os.path.join(home.path, evil))
        outputs = [home.run(*args).stdout for args in (('models', 'add', evil), ('models', 'list'), ('models', 'list', '--names'), ('models', 'registered'), ('models', 'show', evil),
                                                       ('models', 'remove', 'a?[31mb?c??'))]
        check(all(o and b'\x1b' not in o and b'\xc2\x9b' not in o for o in outputs) and b'no longer registered' in outputs[-1], f'control characters: {outputs}')
        path = os.path.join(home.path, 'x.gguf')
        shutil.copy(TINY, path)
        home.good('models', 'add', 'x.gguf')
        check([m['name'] for m in home.good('models', 'registered')] == ['x'], 'a name from the file')
        home.good('models', 'add', './x.gguf', '--name', 'second')
        check([m['name'] for m in home.good('models', 'registered')] == ['second', 'x'], 'the latest is first')
        home.good('models', 'add', './x.gguf', '--name', 'x')
        check([m['name'] for m in home.good('models', 'registered')] == ['x', 'second'], 'one of the same name goes')
        home.refused('no model is registered as nobody', 'models', 'remove', 'nobody')
        home.good('models', 'remove', 'second')
        check(os.path.exists(path), 'weights went with the registration')
        home.refused('nothing was removed', 'models', 'remove', 'x', '--delete', lines=None)
        check(os.path.exists(path), 'the end of input counted as a yes')
        done = home.run('models', 'remove', 'x', '--delete', stdin=b'n\n')
        check(done.returncode == 1 and os.path.exists(path), f'{done}')
        got = home.good('models', 'remove', 'x', '--delete', '--yes')
        check(got['deleted'] and not os.path.exists(path) and home.good('models', 'registered') == [], f'{got}')
        shutil.copy(TINY, path)
        home.good('models', 'add', 'x.gguf')
        os.remove(path)
        home.refused('is registered as', 'tokenize', 'x', 'hello')
        home.good('models', 'remove', 'x')
        state = os.path.join(home.path, '.local/state/ironmule/models.json')
        for text in ('', '{"version":2,"models":[]}', '{"version":1,"models":[{"name":"a"}]}', '[]', '{"version":1,"version":1,"models":[]}'):
            with open(state, 'w') as f:
                f.write(text)
            home.refused('damaged, or from a later version', 'models', 'registered')
            home.refused('damaged, or from a later version', 'models', 'add', TINY)
            check(open(state).read() == text, 'a damaged file was written over')


def many_writers():
    """Ten at once: none is lost."""
    with Home() as home:
        processes = [home.start('models', 'add', TINY, '--name', f'm{i}') for i in range(10)]
        ends = [p.communicate(timeout=60) for p in processes]
        names = {m['name'] for m in home.good('models', 'registered')}
        check(names == {f'm{i}' for i in range(10)}, f'{names} {ends}')


def deleting_from_the_cache():
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        repo = home.repo('acme/tiny')
        for commit, name, other in ((A, 'main', b'one'), (B, 'next', b'two')):
            store(repo, commit, {'m-Q4_0.gguf': tiny, f'{name}-Q8_0.gguf': other * 1000})
            ref(repo, name, commit)
            home.good('models', 'add', f'acme/tiny@{name}:Q4_0', '--name', f'acme/tiny@{name}')
        got = home.good('models', 'remove', 'acme/tiny', '--delete', '--yes')
        check(got and got['freed_bytes'] == 3000, f'the blob that both need went too: {got}')
        check(home.run('models', 'show', 'acme/tiny').returncode == 1, 'still there')
        check(home.run('tokenize', 'acme/tiny@next:Q4_0', 'x').returncode == 0, 'the other revision is damaged')
        check(not os.path.exists(os.path.join(repo, 'snapshots', A)), 'the snapshot is there')
        home.good('models', 'remove', 'acme/tiny@next', '--delete', '--yes')
        check(not os.path.exists(repo), 'an empty folder is left')
        # A link that leads to another model's file, or out of the cache: the link goes, the file stays.
        outside = os.path.join(home.path, 'mine.gguf')
        shutil.copy(TINY, outside)
        other = home.repo('acme/other')
        store(other, A, {'m-Q4_0.gguf': tiny})
        for target in (os.path.join(other, 'snapshots', A, 'm-Q4_0.gguf'), outside):
            link = os.path.join(repo, 'snapshots', A, 'm-Q4_0.gguf')
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(os.path.realpath(target), link)
            ref(repo, 'main', A)
            got = home.good('models', 'add', 'acme/tiny@main:Q4_0', '--name', 'acme/tiny') and home.good('models', 'remove', 'acme/tiny', '--delete', '--yes')
            check(got and got['freed_bytes'] == 0 and os.path.exists(target) and not os.path.lexists(link), f'{target}: {got}')


def deleting_what_was_planted():
    """Links in a snapshot that lead out of the model's folder: what is behind them stays."""
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        repo, outside, other = home.repo('acme/tiny'), os.path.join(home.path, 'mine'), home.repo('acme/other')
        store(repo, A, {'m-Q4_0.gguf': tiny})
        store(other, B, {'o-Q4_0.gguf': tiny})
        for folder in (outside, os.path.join(repo, 'refs'), os.path.join(repo, '.no_exist')):
            os.makedirs(folder)
        for name in ('letter.txt', 'x.safetensors', 'ref'):
            with open(os.path.join(outside, name), 'w') as f:
                f.write(A)
        ref(repo, 'main', A)
        os.symlink(outside, os.path.join(repo, 'snapshots', A, 'sub'))
        os.symlink(outside, os.path.join(repo, 'refs', 'sub'))
        os.symlink(outside, os.path.join(repo, '.no_exist', A))
        os.symlink(os.path.join(other, 'snapshots', B, 'o-Q4_0.gguf'), os.path.join(repo, 'snapshots', A, 'o-Q4_0.gguf'))
        os.symlink(os.path.join(outside, 'letter.txt'), os.path.join(repo, 'snapshots', A, 'letter.txt'))
        done = home.run('models', 'remove', f'acme/tiny@{A}', '--delete', '--yes')
        check(sorted(os.listdir(outside)) == ['letter.txt', 'ref', 'x.safetensors'], f'files outside of the cache went: {os.listdir(outside)} {done}')
        check(home.run('tokenize', f'acme/other@{B}', 'x').returncode == 0, "another model's blob went")
        check(done.returncode == 0 and not os.path.exists(os.path.join(repo, 'snapshots', A, 'm-Q4_0.gguf')), f'{done}')


def pipes_in_place_of_files():
    """Nobody writes into them: they are not waited for."""
    with Home() as home:
        repo = home.repo('acme/tiny')
        store(repo, A, {'model.safetensors': b'x' * 100})
        os.makedirs(os.path.join(repo, 'refs'))
        state, config = (os.path.join(home.path, p) for p in ('.local/state/ironmule/models.json', '.config/ironmule/settings.toml'))
        os.mkfifo(os.path.join(repo, 'refs', 'main'))
        os.mkfifo(os.path.join(repo, 'snapshots', A, 'config.json'))
        home.run('models', 'show', 'acme/tiny', timeout=20)
        home.run('models', 'show', os.path.join(repo, 'snapshots', A), timeout=20)
        for path in (state, config):
            os.makedirs(os.path.dirname(path))
            os.mkfifo(path)
            home.refused('no file that could be ours', 'models', 'list', timeout=20)
            os.remove(path)


def offline_without_a_packet():
    """In a namespace that has no network at all, and by what strace sees of sockets."""
    tiny = open(TINY, 'rb').read()
    with Home() as home:
        repo = home.repo('acme/tiny')
        store(repo, A, {'m-Q4_0.gguf': tiny})
        ref(repo, 'main', A)
        for args in (('models', 'add', 'acme/tiny'), ('models', 'list'), ('models', 'show', 'acme/tiny'), ('generate', 'acme/tiny', '--raw', '-n', '2', 'hi'),
                     ('models', 'add', 'acme/absent'), ('models', 'registered')):
            if shutil.which('strace'):
                log = os.path.join(home.path, 'log')
                traced = subprocess.run(['strace', '-f', '-o', log, '-e', 'trace=network', *command(*args)], env=home.env, capture_output=True)
                text = open(log).read()
                if 'ptrace' in traced.stderr.decode():
                    continue
                check('socket(' not in text, f'{args}: {text[:300]}')
        done = home.run('models', 'add', 'acme/tiny', '--download', env={'HF_HUB_OFFLINE': '1'})
        check(done.returncode == 0, f'offline, what is here will do: {done}')
        home.refused('is not in the cache', 'models', 'add', 'acme/absent', '--download', env={'HF_HUB_OFFLINE': 'yes'})
        check(not home.hub.log, f'the hub was asked: {home.hub.log}')
        alone = ['unshare', '-rn', *command('generate', 'acme/tiny', '--raw', '-n', '2', 'hi')]
        if subprocess.run(['unshare', '-rn', 'true'], capture_output=True).returncode == 0:
            done = subprocess.run(alone, env=home.env, capture_output=True)
            check(done.returncode == 0, f'without a network: {done}')
        elif not shutil.which('strace'):
            skip('neither strace nor a network namespace here')


revisions()
every_command_takes_names()
split_models()
roots()
lists()
folders()
registering()
many_writers()
deleting_from_the_cache()
deleting_what_was_planted()
pipes_in_place_of_files()
offline_without_a_packet()
raise SystemExit(verdict())
