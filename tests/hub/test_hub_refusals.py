# SPDX-License-Identifier: Apache-2.0
"""What must be refused, in one sentence with a page to visit, and what must never get out: tokens, signed addresses, files outside the cache."""
import os
import re
import shutil

from hub_client import Fault, Home, check, noise, verdict

TOKEN = 'hf_' + 'secret' * 5
DATA = {'m-Q4_0.gguf': noise(60_000)}
ADD = ('models', 'add', 'acme/tiny', '--download')


def no_such_thing():
    with Home() as home:
        home.refused(f'there is no such model, or it is private or gated (401): look at {home.hub.url}/acme/absent, and set HF_TOKEN if it needs a login',
                     'models', 'add', 'acme/absent', '--download')
        home.hub.add('acme/tiny', DATA)
        home.refused(f'acme/tiny has no revision "v9": see {home.hub.url}/acme/tiny/tree/main', *ADD, '--revision', 'v9')
        home.refused('has no revision', 'models', 'add', 'acme/tiny@' + '0' * 40, '--download')
        for name in ('acme', 'acme/', '/acme', 'acme/a/b', 'acme/a--b', 'acme/..', 'acme/a b', 'acme/a@', 'acme/a@../x', 'acme/a:', 'acme/a:../b', '-a/b'):
            done = home.run('models', 'add', '--download', '--', name)
            check(done.returncode in (1, 2) and done.stderr.count(b'\n') <= 2 and not done.stdout, f'{name}: {done}')
        check(not [e for e in home.hub.log if not e.path.startswith(('/api/models/acme/tiny', '/api/models/acme/absent'))], 'a name that is none was asked for')
        home.refused('No such file or directory', 'models', 'add', './absent.gguf')


def logins():
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        home.hub.gated.add('acme/tiny')
        home.refused(f'acme/tiny is gated: accept its terms at {home.hub.url}/acme/tiny, then set HF_TOKEN', *ADD)
        home.refused('and the account of this token has no access yet', *ADD, env={'HF_TOKEN': TOKEN})
        home.hub.gated.clear()
        home.hub.token = TOKEN
        home.refused('set HF_TOKEN if it needs a login', *ADD)
        home.refused(f'does not accept the token (401): see {home.hub.url}/settings/tokens', *ADD, env={'HF_TOKEN': 'hf_wrong'})
        home.refused('cannot be a token', *ADD, env={'HF_TOKEN': 'a\x01b'})
        home.good(*ADD, env={'HF_TOKEN': f' {TOKEN}\n'})


def token_files():
    for variable, place in ((None, '.cache/huggingface/token'), ('HF_TOKEN_PATH', 'elsewhere'), ('HF_HOME', 'hf/token')):
        with Home() as home:
            home.hub.add('acme/tiny', DATA)
            home.hub.token = TOKEN
            path = os.path.join(home.path, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w') as f:
                f.write(TOKEN + '\n')
            env = {} if variable is None else {variable: path if variable == 'HF_TOKEN_PATH' else os.path.dirname(path)}
            home.good(*ADD, env=env)
            home.refused('set HF_TOKEN if it needs a login', *ADD, env={**env, 'HF_HUB_DISABLE_IMPLICIT_TOKEN': '1'})


def secrets_stay_secret():
    """The token goes to the hub alone; neither it nor a signature is printed or written."""
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        home.hub.token = TOKEN
        env = {'HF_TOKEN': TOKEN}
        home.hub.faults += [Fault(where='store', cut=1000), Fault(where='store', status=403), Fault(where='store', status=500)]
        outputs = [home.run(*ADD, env=env)]
        home.hub.faults[:] = [Fault(where='store', status=500, headers={'Retry-After': '0'}, times=99)]
        home.hub.add('acme/more', {'m-Q4_0.gguf': noise(50_000)})
        outputs.append(home.run('models', 'add', 'acme/more', '--download', env=env))
        check(outputs[0].returncode == 0 and outputs[1].returncode == 1 and b'could not be fetched from localhost: status 500' in outputs[1].stderr, f'{outputs}')
        outputs.append(home.run('info', '--settings', env=env))
        outputs.append(home.run('models', 'list', '--json', env=env))
        secret = [TOKEN.encode(), *(s.encode() for s in home.hub.signatures), b'X-Signature']
        for done in outputs:
            check(not any(s in done.stdout + done.stderr for s in secret), f'a secret was printed: {done}')
        for path, data in home.everything_written():
            check(not any(s in data for s in secret), f'a secret was written into {path}')
        check(all(e.token is None for e in home.hub.log if e.where == 'store'), 'the store saw the token')
        check(all(e.token == f'Bearer {TOKEN}' for e in home.hub.log if e.where == 'hub'), 'the hub did not see the token')


def redirects():
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        for location in ('file:///etc/passwd', 'ftp://localhost/x', 'gopher://localhost/'):
            home.hub.faults[:] = [Fault(where='hub', path='/api/', location=location)]
            done = home.run(*ADD)
            check(done.returncode == 1 and b'root:' not in done.stdout + done.stderr, f'{location}: {done}')
        home.hub.faults[:] = [Fault(where='hub', path='/api/', location='/api/models/acme/tiny/revision/main', times=99)]
        home.refused('leads to an address that may not be followed', *ADD)
        # A relative one inside the hub, and one of its own to another host that asks for nothing.
        home.hub.faults[:] = [Fault(where='hub', path='/api/', location='/api/models/acme/tiny/revision/main?blobs=true')]
        home.good(*ADD)


def control_characters():
    """What a hub says of a model is shown, but no terminal obeys it."""
    with Home() as home:
        config = b'{"model_type": "ll\\u001b[2Jama\\u009b31m", "torch_dtype": "f\\n16"}'
        home.hub.add('acme/tiny', {'config.json': config, 'model.safetensors': noise(3000)}, licence='mit\x1b]0;x\x07\x9b1m')
        done = [home.run(*ADD), home.run('models', 'list'), home.run('models', 'show', 'acme/tiny')]
        check(b'licence: mit?]0;x???1m' in done[0].stderr and b'll?[2Jama??31m' in done[1].stdout, f'{done}')
        home.hub.add('acme/name', {'a\x9b.gguf': noise(3000)})
        done.append(home.run('models', 'add', 'acme/name', '--download'))
        check(done[3].returncode == 1 and b"would leave the model's folder" in done[3].stderr, f'{done[3]}')
        for d in done:
            text = (d.stdout + d.stderr).decode()
            check(not any(ord(c) < 32 and c != '\n' or 127 <= ord(c) < 160 for c in text), f'{d}')


def links_in_the_cache():
    """What was planted is replaced, never written through, and a file of the right size is not taken for the right file."""
    with Home() as home:
        data = DATA['m-Q4_0.gguf']
        commit = home.hub.add('acme/tiny', DATA)
        repo, digest = home.repo('acme/tiny'), home.hub.metadata_digest('acme/tiny', commit, 'm-Q4_0.gguf')
        precious = os.path.join(home.path, 'precious')
        partial, named = os.path.join(repo, 'blobs', digest + '.incomplete'), os.path.join(repo, 'snapshots', commit, 'm-Q4_0.gguf')
        for plant in (os.symlink, os.link):
            for path in (partial, named):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(precious, 'wb') as f:
                    f.write(bytes(len(data)))
                plant(precious, path)
                done = home.run(*ADD)
                check(open(precious, 'rb').read() == bytes(len(data)), f'{plant.__name__} {path}: written through')
                if (plant, path) == (os.symlink, partial):
                    check(done.returncode == 0 or b'symbolic links' in done.stderr, f'{done}')
                else:
                    check(done.returncode == 0, f'{plant.__name__} {path}: {done}')
                if done.returncode == 0:
                    home.holds('acme/tiny', commit, DATA)
                shutil.rmtree(repo)
                os.remove(precious)


def a_cache_that_cannot_be_written():
    """All is there: nothing has to be written, and so nothing fails."""
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        home.good(*ADD)
        refs = os.path.join(home.repo('acme/tiny'), 'refs')
        before = os.stat(os.path.join(refs, 'main')).st_ino
        home.good(*ADD)
        check(os.stat(os.path.join(refs, 'main')).st_ino == before, 'a ref was written again')


def wrong_contents():
    data = DATA['m-Q4_0.gguf']
    for bad, whole, says in ((data[:-1] + b'\x00', False, 'arrived with another digest than the hub'), (data + b'more', False, 'more bytes of m-Q4_0.gguf arrive'),
                             (data[:-100], False, 'is shorter at the server'), (data[:-100], True, 'has fewer bytes at the server')):
        with Home() as home:
            home.hub.add('acme/tiny', DATA)
            home.hub.faults += [Fault(where='store', body=bad, ignore_range=whole, times=99)]
            home.refused(says, *ADD, lines=2)
            left = os.listdir(os.path.join(home.repo('acme/tiny'), 'blobs'))
            check(len(bad) < len(data) or not left, f'{says}: {left} is left')
            check(not os.path.exists(os.path.join(home.repo('acme/tiny'), 'refs')), f'{says}: there is a ref')
            check(home.run('models', 'list', '--names').stdout == b'', f'{says}: listed')
    with Home() as home: # a small file, by git's digest
        home.hub.add('acme/tiny', {'config.json': b'{}', 'model.safetensors': b'x' * 3000})
        home.hub.faults += [Fault(where='hub', path='config.json', body=b'[]')]
        home.refused('config.json arrived with another digest', *ADD, lines=2)


def metadata_that_lies():
    def refuse(says, files, changes=None, lines=1):
        with Home() as home:
            home.hub.add('acme/tiny', files, changes=changes)
            home.refused(says, *ADD, '--file', '*', lines=lines)
            for folder in (os.path.dirname(home.path), home.path, '/etc'): # others may write beside the home, but not these
                check(not {'x', 'evil'} & set(os.listdir(folder)), f'{says}: something appeared in {folder}')
            for e in home.hub.log:
                check('/resolve/' not in e.path, f'{says}: a file was asked for')

    for path in ('../x', '/etc/x', 'a/../../x', 'a//b', './a', 'a\\b', 'a\nb', '..', 'a/./b', 'x' * 300, ''):
        refuse("which would leave the model's folder; refused", {path: b'x'})
    refuse('no digest for x', {'x': b'x'}, {'x': {'blobId': '../../../evil'}})
    refuse('no digest for x', {'x': b'x'}, {'x': {'blobId': None}})
    refuse('no digest for x', {'x': b'x'}, {'x': {'lfs': {'size': 1}}})
    refuse('no sensible size for x', {'x': b'x'}, {'x': {'size': -1}})
    refuse('no sensible size for x', {'x': b'x'}, {'x': {'size': 1.5}})
    refuse('no sensible size for x', {'x': b'x'}, {'x': {'size': 1 << 60}})
    refuse('too large together', {'x': b'x', 'y': b'y', 'z': b'z'}, {n: {'size': 1 << 49} for n in 'xyz'})
    refuse('are needed, and', {'x': b'x'}, {'x': {'size': 1 << 49}}, lines=2)
    for body in (b'', b'[]', b'{"sha":', b'{"sha":"main","siblings":[]}', b'{"sha":"' + b'0' * 40 + b'"}', b'\xff' * 100, b'[' * 100000):
        with Home() as home:
            home.hub.add('acme/tiny', DATA)
            home.hub.faults += [Fault(where='hub', path='/api/', body=body)]
            done = home.run(*ADD)
            check(done.returncode == 1 and done.stderr.count(b'\n') == 1 and b"the hub's answer" in done.stderr, f'{body[:20]}: {done}')


def odd_environments():
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        for env, says in (({'HF_ENDPOINT': 'ftp://x'}, 'HF_ENDPOINT must be'), ({'HF_ENDPOINT': 'http://user:word@127.0.0.1:1'}, 'HF_ENDPOINT must be'),
                          ({'HF_HUB_DOWNLOAD_TIMEOUT': 'x'}, 'HF_HUB_DOWNLOAD_TIMEOUT must be')):
            home.refused(says, *ADD, env=env)
        home.refused('Not a directory', *ADD, env={'HF_HUB_CACHE': '/dev/null/hub'}, lines=None)
        done = home.run(*ADD, env={'HF_ENDPOINT': 'http://127.0.0.1:9/'})
        check(done.returncode == 1 and re.search(rb'could not be fetched from 127.0.0.1: .*connect.*, 6 times', done.stderr), f'nobody there: {done}')
        home.good(*ADD, env={'HF_ENDPOINT': home.hub.url + '/'})
        # A token over plain http does not leave this machine, not by a proxy either (where nobody listens).
        home.hub.add('acme/small', {'config.json': b'{}', 'model.safetensors': noise(100)})
        home.hub.token = TOKEN
        home.good('models', 'add', 'acme/small', '--download', env={'HF_TOKEN': TOKEN, 'http_proxy': 'http://127.0.0.1:9', 'ALL_PROXY': 'http://127.0.0.1:9'})


def answers_without_an_end():
    with Home() as home:
        home.hub.add('acme/tiny', DATA)
        for fault, says in ((Fault(where='hub', path='/resolve/', status=404, endless=True), 'there is no such model'),
                            (Fault(where='store', status=200, endless=True, headers={'more': '1'}, times=9), 'could not be fetched'),
                            (Fault(where='hub', path='/api/', status=403, endless=True, headers={'more': '1'}, times=9), ''),
                            (Fault(where='hub', path='/api/', status=200, endless=True), 'list of files')):
            home.hub.log.clear()
            home.hub.faults[:] = [fault]
            home.refused(says, *ADD, lines=None)
            most = 64 << 20 if says == 'list of files' else 12 << 20
            check(max(e.sent for e in home.hub.log) < most + (8 << 20), f'{says}: {[(e.path, e.sent) for e in home.hub.log]}')


no_such_thing()
answers_without_an_end()
logins()
token_files()
secrets_stay_secret()
control_characters()
links_in_the_cache()
a_cache_that_cannot_be_written()
redirects()
wrong_contents()
metadata_that_lies()
odd_environments()
raise SystemExit(verdict())
