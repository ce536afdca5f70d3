# SPDX-License-Identifier: Apache-2.0
"""Completion and manual pages: made from the tables that the commands have, so nothing of --help may be missing in them."""
import os
import re
import shutil
import subprocess
import tempfile

from hub_client import Home, TINY, check, command, left_out, verdict

COMMANDS = ('start', 'generate', 'chat', 'serve', 'models', 'setup', 'tokenize', 'template', 'perplexity', 'benchmark', 'verify', 'doctor', 'info', 'completion', 'manual')
MODELS = ('list', 'show', 'add', 'registered', 'remove')


def options_of(home):
    """Long options of each command as --help lists them."""
    out = {}
    for name in (*((c,) for c in COMMANDS if c != 'models'), *(('models', m) for m in MODELS)):
        help_text = home.run(*name, '--help').stdout.decode()
        out[' '.join(name)] = set(re.findall(r'^  (?:-., |    )(--[a-z0-9-]+)', help_text, re.M))
    return out


def completed(home, script, words):
    """What bash proposes for the last word."""
    line = ' '.join(f"'{w}'" for w in words)
    done = subprocess.run(['bash', '-c', f'. {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ironmule; printf "%s\\n" "${{COMPREPLY[@]}}"'],
                          env=home.env, capture_output=True, cwd=home.path)
    check(done.returncode == 0 and not done.stderr, f'{words}: {done}')
    return set(done.stdout.decode().split())


def bash(home, options):
    script = os.path.join(home.path, 'bash')
    with open(script, 'wb') as f:
        f.write(home.run('completion', 'bash').stdout)
    program = command()[0]
    check(completed(home, script, [program, 'ge']) == {'generate'}, 'a command')
    check(set(COMMANDS) <= completed(home, script, [program, '']), 'all commands')
    check(completed(home, script, [program, 'models', '']) == {*MODELS, '--help'}, 'commands of models')
    for name, wanted in options.items():
        got = completed(home, script, [program, *name.split(), '--'])
        check(got == wanted | {'--help'}, f'{name}: {got ^ wanted}')
    if len(command()) == 1:
        home.good('models', 'add', TINY, '--name', 'mymodel')
        check('mymodel' in completed(home, script, [program, 'chat', 'mym']), 'a registered model')
        # Names come from strangers: none of them is run, and none falls apart.
        home.good('models', 'add', TINY, '--name', 'odd$(touch ran)`touch ran` name')
        got = completed(home, script, [program, 'chat', 'odd'])
        check(got == {'odd$(touch', 'ran)`touch', 'ran`', 'name'} and not os.path.exists(os.path.join(home.path, 'ran')), f'a name was run: {got}')
        check('mymodel' not in completed(home, script, [program, 'chat', '--system', 'mym']), 'a model as the value of an option')


def other_shells(home, options):
    for shell, check_syntax in (('zsh', ['zsh', '-n']), ('fish', ['fish', '--no-execute'])):
        text = home.run('completion', shell).stdout.decode()
        for name, wanted in options.items():
            for option in wanted - {'--help'}:
                check((option[2:] if shell == 'fish' else option) in text, f'{shell}: {name} {option}')
        if shutil.which(shell):
            path = os.path.join(home.path, shell)
            with open(path, 'w') as f:
                f.write(text)
            done = subprocess.run([*check_syntax, path], capture_output=True)
            check(done.returncode == 0 and not done.stderr, f'{shell}: {done}')
        else:
            left_out(f'no {shell} here: its syntax')
    home.refused('bash, zsh or fish', 'completion', 'csh', code=2, lines=2)


def manual(home, options):
    folder = os.path.join(home.path, 'man')
    os.mkdir(folder)
    done = home.run('manual', '--folder', folder)
    check(done.returncode == 0, f'{done}')
    pages = {'ironmule.1'} | {f'ironmule-{n.replace(" ", "-")}.1' for n in options}
    check(set(os.listdir(folder)) == pages, f'{set(os.listdir(folder)) ^ pages}')
    for name, wanted in options.items():
        page = open(os.path.join(folder, f'ironmule-{name.replace(" ", "-")}.1')).read()
        check(page == home.run('manual', *name.split()).stdout.decode(), f'{name}: two ways, two pages')
        for option in wanted:
            check(option.replace('-', '\\-') in page, f'{name}: {option} is not on its page')
        check(page.startswith('.\\" SPDX') and '.SH SYNOPSIS' in page, f'{name}: no page')
    overview = home.run('manual').stdout.decode()
    check(all(f'.B {c}\n' in overview for c in COMMANDS), 'the overview')
    if shutil.which('groff'):
        for page in pages:
            done = subprocess.run(['groff', '-man', '-Tutf8', '-ww', '-z', os.path.join(folder, page)], capture_output=True)
            check(done.returncode == 0 and not done.stderr, f'{page}: {done.stderr[:300]}')
    home.refused('no command "x"', 'manual', 'x', code=2, lines=2)
    home.refused('No such file', 'manual', '--folder', os.path.join(home.path, 'absent'), lines=None)


with Home() as home:
    options = options_of(home)
    check(all('--model' not in options[n] for n in ('models list', 'setup', 'completion')), '--model where there is no model')
    bash(home, options)
    other_shells(home, options)
    manual(home, options)
raise SystemExit(verdict())
