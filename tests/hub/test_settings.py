# SPDX-License-Identifier: Apache-2.0
"""The settings file: what it may say, who wins, that the user's own lines stay, that nobody else can read it, and that two writers do not lose each other's."""
import json
import os
import stat

from hub_client import Home, TINY, check, verdict


def shown(home, **env):
    """key -> (value, source)"""
    return {s['key']: (s['value'], s['source']) for s in home.good('info', '--settings', env=env)['settings']}


def path_of(home):
    return os.path.join(home.path, '.config/ironmule/settings.toml')


def write(home, text):
    os.makedirs(os.path.dirname(path_of(home)), exist_ok=True)
    with open(path_of(home), 'w') as f:
        f.write(text)


def a_new_file():
    with Home() as home:
        check(all(source == 'default' for _, source in shown(home).values()) and not os.path.exists(path_of(home)), 'looking writes nothing')
        printed = home.run('setup', '--mode', 'server', '--set', 'port=9000', '--print')
        check(printed.returncode == 0 and not os.path.exists(path_of(home)), f'--print {printed}')
        done = home.run('setup', '--mode', 'server', '--set', 'port=9000')
        check(done.returncode == 0 and done.stdout.decode().strip() == path_of(home), f'setup {done}')
        check(open(path_of(home), 'rb').read() == printed.stdout, '--print shows something else')
        for path in (path_of(home), path_of(home) + '.lock'):
            check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, f'{path} can be read by others')
        check(stat.S_IMODE(os.stat(os.path.dirname(path_of(home))).st_mode) == 0o700, 'the folder can be read by others')
        check(sorted(os.listdir(os.path.dirname(path_of(home)))) == ['settings.toml', 'settings.toml.lock'], 'something was left behind')
        now = shown(home)
        check(now['mode'] == ('server', 'file') and now['port'] == ('9000', 'file') and now['parallel'] == (None, 'default'), f'{now}')
        text = open(path_of(home)).read()
        check(all(f'# {key} =' in text or f'\n{key} = ' in text for key in now), 'a setting is not in the new file')


def the_users_lines_stay():
    with Home() as home:
        write(home, '# mine\nport=8001 # why\n\n  threads = 2\n# queue = 5\nmodel = "a \\"b\\" \\\\c"\nlog_level = debug')
        home.good('setup', '--set', 'queue=7', '--set', 'port=8002', '--set', 'device=cpu', '--unset', 'threads')
        text = open(path_of(home)).read()
        check(text == '# mine\nport = 8002\n\n# threads =\nqueue = 7\nmodel = "a \\"b\\" \\\\c"\nlog_level = debug\ndevice = "cpu"\n', f'{text}')
        check(shown(home)['model'] == ('a "b" \\c', 'file'), 'quotes')
        before = open(path_of(home)).read()
        home.good('setup')
        home.good('setup', '--unset', 'host')
        check(open(path_of(home)).read() == before, 'nothing to change, but changed')
    # A file that is kept elsewhere, behind a link.
    with Home() as home:
        kept = os.path.join(home.path, 'dotfiles.toml')
        with open(kept, 'w') as f:
            f.write('# mine\n')
        os.makedirs(os.path.dirname(path_of(home)))
        os.symlink(kept, path_of(home))
        home.good('setup', '--set', 'port=9001')
        text = open(kept).read()
        check(os.path.islink(path_of(home)) and '# mine' in text and 'port = 9001' in text, f'behind a link: {text[:200]}')


def who_wins():
    with Home() as home:
        write(home, 'parallel = 3\nqueue = 9\nthreads = 1\ncontext = 64\n')
        dry = ('serve', TINY, '--dry-run', '--json')
        if b'built without' in home.run(*dry).stderr:
            return
        engine = json.loads(home.run(*dry).stdout)['engine']
        check((engine['parallel'], engine['queue'], engine['threads'], engine['context']) == (3, 9, 1, 64), f'file {engine}')
        engine = json.loads(home.run(*dry, env={'IRONMULE_PARALLEL': '5'}).stdout)['engine']
        check((engine['parallel'], engine['queue']) == (5, 9), f'environment beats file {engine}')
        engine = json.loads(home.run(*dry, '--parallel', '6', env={'IRONMULE_PARALLEL': '5'}).stdout)['engine']
        check((engine['parallel'], engine['queue']) == (6, 9), f'command line beats both {engine}')
        check(shown(home, IRONMULE_PARALLEL='5')['parallel'] == ('5', 'environment'), 'the source')
        check(home.good('info', TINY)['memory']['kv'] == home.good('info', TINY, env={'IRONMULE_CONTEXT': '128'})['memory']['kv'], 'context is for servers and chats')


def places():
    with Home() as home:
        for env, place in (({'IRONMULE_HOME': os.path.join(home.path, 'own')}, 'own'), ({'XDG_CONFIG_HOME': os.path.join(home.path, 'c')}, 'c/ironmule')):
            home.good('setup', '--set', 'port=1', env=env)
            check(os.path.exists(os.path.join(home.path, place, 'settings.toml')), f'{env}')
            check(shown(home, **env)['port'] == ('1', 'file'), f'{env}')
        check(not os.path.exists(path_of(home)), 'elsewhere was written too')
        home.good('setup', '--set', 'port=2', env={'XDG_CONFIG_HOME': 'relative', 'IRONMULE_HOME': ''})
        check(shown(home)['port'] == ('2', 'file') and not os.path.exists(os.path.join(home.path, 'relative')), 'a relative XDG_CONFIG_HOME')
        home.good('models', 'add', TINY, '--name', 'x', env={'XDG_STATE_HOME': os.path.join(home.path, 's')})
        check(os.path.exists(os.path.join(home.path, 's/ironmule/models.json')), 'XDG_STATE_HOME')


def refusals():
    with Home() as home:
        for line, says in (('prot = 1', 'line 2: unknown setting "prot"; did you mean "port"?'), ('zzzzzzzz = 1', 'unknown setting "zzzzzzzz"; '),
                           ('port = x', 'port: "x" is no whole number within 0 .. 65535'), ('port = 70000', 'port: "70000" is no'),
                           ('port = 1\nport = 2', 'line 3: port is there already, on line 2'), ('[serve]', 'a line is: key = value'), ('port', 'a line is: key = value'),
                           ('port =', 'port: the value is empty'), ('mode = "home"', 'mode: "home" is none of: desktop server'), ('browser = yes', 'true or false'),
                           ('cache_ram = 1T', 'no size'), ('model = "a', 'the closing quote is missing'), ('model = "a" b', 'something follows'),
                           ('model = a b', 'stands in double quotes'), ("model = 'a'", 'stands in double quotes'), ('model = "a\\n"', 'after a backslash'),
                           ('host = "a\x07"', 'one line of text'), ('cache_ram = inf', 'no size'), ('max_step_ms = nan', 'is no number')):
            write(home, '# one\n' + line + '\n')
            for args in (('info', '--settings'), ('generate', TINY, '--raw', '-n', '1', 'x')):
                home.refused(says, *args)
            check(home.run('generate', '--help').returncode == 0, 'no help because of the settings')
        write(home, 'port = 1\n')
        for args, says in ((('--set', 'prot=1'), 'did you mean "port"?'), (('--set', 'port=x'), 'is no whole number'), (('--unset', 'prot'), 'did you mean "port"?'),
                           (('--mode', 'x'), 'is none of'), (('--set', 'model=a\nb'), 'one line of text')):
            home.refused(says, 'setup', *args)
        home.refused('KEY=VALUE is meant', 'setup', '--set', 'port', code=2, lines=2)
        check(open(path_of(home)).read() == 'port = 1\n', 'a refused change was written')
        home.refused('IRONMULE_PORT in the environment: port: "x"', 'info', '--settings', env={'IRONMULE_PORT': 'x'})
        done = home.run('serve', TINY, '--dry-run', env={'IRONMULE_HOST': '0.0.0.0'})
        check(done.returncode in (1, 2) and (b'can be reached by others' in done.stderr or b'built without' in done.stderr), f'{done}')
        os.remove(path_of(home))
        os.mkdir(path_of(home))
        home.refused('no file that could be ours', 'info', '--settings')


def two_writers():
    keys = ('port', 'parallel', 'queue', 'threads', 'context', 'max_tokens')
    with Home() as home:
        processes = [home.start('setup', '--set', f'{key}={i + 2}') for i, key in enumerate(keys)]
        ends = [p.communicate(timeout=60) for p in processes]
        now = shown(home)
        check(all(now[key] == (str(i + 2), 'file') for i, key in enumerate(keys)), f'{now} {ends}')


a_new_file()
the_users_lines_stay()
who_wins()
places()
refusals()
two_writers()
raise SystemExit(verdict())
