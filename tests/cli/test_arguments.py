# SPDX-License-Identifier: Apache-2.0
"""What holds for every command: the model as an argument or as an option, in any order; files that are not there, are empty, are cut short, or are damaged."""
import os
import shutil
import subprocess
import tarfile
import tempfile
import time

from program import TINY, answer, check, command, run, verdict


def model_by_either_way():
    want = answer('tokenize', TINY, 'hello')
    for args in (('--model', TINY, 'hello'), ('hello', f'--model={TINY}'), ('--no-special', 'hello', '--model', TINY)):
        check(answer('tokenize', *args) == want, f'tokenize {args}')
    check(answer('info', '--model', TINY)['architecture'] == 'llama', 'info --model')


def every_command_knows_the_option():
    for name in ('generate', 'chat', 'tokenize', 'template', 'perplexity', 'benchmark', 'doctor', 'info'):
        more = ('--messages', os.devnull) if name == 'template' else ()
        done = run(name, '--model', '/no/such/model.gguf', *more)
        check(done.returncode == 1 and b'/no/such/model.gguf: No such file' in done.stderr, f'{name} --model: {done}')


def wrong_usage():
    for args, says in ((('tokenize', '--model'), b'--model needs a value'), (('tokenize', '--json'), b'an argument is missing'),
                       (('tokenize', '--modle', TINY, 'x'), b'did you mean --model?'),
                       (('generate', TINY, '--max', '3'), b'did you mean --max-tokens?'),
                       (('chat', TINY, '--top', '3'), b'did you mean --top-k, --top-p?'),
                       (('generate', TINY, '--zz'), b'unknown option --zz\n'),
                       (('generate', '--context', '0', TINY), b'0 is outside 2 .. 16777216\n'), (('help', 'chta'), b'did you mean "chat"?'),
                       (('info', '--model', TINY, 'other'), b'"other" is one argument too many'),
                       (('tokenize', '--model', TINY, *'abcdefghij'), b'is one argument too many')):
        done = run(*args)
        check(done.returncode == 2 and says in done.stderr and not done.stdout, f'{args}: {done}')


def help_by_either_way():
    for name in ('generate', 'chat', 'tokenize', 'info'):
        want = run(name, '--help')
        check(want.returncode == 0 and want.stdout.startswith(b'ironmule ' + name.encode()), f'{name} --help: {want}')
        check(run('help', name).stdout == want.stdout, f'help {name}')
    check(run('help').stdout == run('--help').stdout, 'help alone')


def a_context_beyond_the_models():
    if b'built without' in run('serve', TINY, '--dry-run').stderr:
        return
    for context, warned in ((2, False), (100000, True)):
        done = run('serve', TINY, '--dry-run', '--context', context)
        check(done.returncode == 0 and (b'the model was made for' in done.stderr) == warned, f'serve --context {context}: {done}')


def files_that_are_not_there():
    with tempfile.TemporaryDirectory() as folder:
        absent = os.path.join(folder, 'absent')
        for args in (('tokenize', TINY, '--file', absent), ('generate', TINY, '--ids-file', absent), ('template', TINY, '-m', absent)):
            done = run(*args)
            check(done.returncode == 1 and b'absent: No such file or directory' in done.stderr, f'{args}: {done}')
            done = run(*args[:-1], folder)
            check(done.returncode == 1 and b'Is a directory' in done.stderr, f'a folder, {args}: {done}')


def empty_inputs():
    with tempfile.TemporaryDirectory() as folder:
        empty = os.path.join(folder, 'empty')
        open(empty, 'w').close()
        with tarfile.open(os.path.join(os.path.dirname(TINY), 'arch.tar.xz')) as archive:
            archive.extract(next(m for m in archive if m.name.endswith('arch-qwen2-untied.gguf')), folder)
        no_bos = next(os.path.join(at, f) for at, _, files in os.walk(folder) for f in files if f.endswith('.gguf'))
        for args, says in ((('generate', '--raw', no_bos, '--prompt-file', empty), b'an empty prompt'),
                           (('generate', '--raw', no_bos, '-'), b'an empty prompt'),
                           (('perplexity', TINY, '--file', empty), b'at least 2'),
                           (('perplexity', no_bos, '--file', empty), b'at least 2')):
            done = run(*args)
            check(done.returncode == 1 and says in done.stderr and done.stderr.count(b'\n') == 1, f'nothing given, {args}: {done}')


def model_cut_short_in_use():
    """The model is open and mapped, the prompt is still to come; then the file loses its end."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'cut.gguf')
        shutil.copy(TINY, path)
        process = subprocess.Popen(command('generate', '--model', path, '--raw', '-'), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while 'cut.gguf' not in open(f'/proc/{process.pid}/maps').read() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)
        os.truncate(path, 0)
        out, err = process.communicate(b'hello', timeout=60)
        check(process.returncode == 1 and b'cut.gguf: cannot be read any more' in err and err.count(b'\n') == 1 and not out,
              f'cut short in use: exit {process.returncode}, {out} {err}')


def damaged_models():
    """What is damaged is refused by those who need it, and the message names the file."""
    whole = open(TINY, 'rb').read()
    begin = whole.index(b'{%', whole.index(b'tokenizer.chat_template'))
    damages = {'template.gguf': whole[:begin] + b'{{' + whole[begin + 2:], 'weights.gguf': whole[:-1000] + b'\xff' * 1000}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in damages.items():
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(data)
        template, weights = (os.path.join(folder, name) for name in damages)
        text = os.path.join(folder, 'text')
        with open(text, 'w') as f:
            f.write('some text')
        for args, says in ((('generate', template, 'hi'), b'template.gguf: chat template, line '), (('chat', template), b'template.gguf: chat template, line '),
                           (('generate', '--raw', weights, 'hi'), b'weights.gguf: a logit at position'),
                           (('perplexity', weights, '--file', text), b'weights.gguf: a logit at position 0')):
            done = run(*args, stdin=b'hi\n')
            check(done.returncode == 1 and says in done.stderr and done.stderr.count(b'\n') == 1 and not done.stdout, f'damaged, {args}: {done}')
        check(run('generate', '--raw', '-n', 2, template, 'hi').returncode == 0, 'a broken template keeps a model from plain text')


model_by_either_way()
every_command_knows_the_option()
wrong_usage()
help_by_either_way()
a_context_beyond_the_models()
files_that_are_not_there()
empty_inputs()
model_cut_short_in_use()
damaged_models()
raise SystemExit(verdict())
