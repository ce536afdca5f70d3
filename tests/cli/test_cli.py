# SPDX-License-Identifier: Apache-2.0
"""How the program behaves, on a model of 130 KB: help, exit codes, inputs, JSON documents, refusals, output that cannot be written."""
import json
import os
import re
import sys
import tempfile

from program import TINY, answer, check, emulated, levels, run, verdict

COMMANDS = ('generate', 'chat', 'tokenize', 'template', 'perplexity', 'benchmark', 'verify', 'doctor', 'info')
TEXT = 'the mule carried the load up the hill'
GENERATE = ('generate', TINY, '--raw', '--max-tokens', 5, '--ignore-eos')
HEX = re.compile(r'[0-9a-f]{16}\Z')


class Files:
    """Small files for the commands; each call gives a path."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def __call__(self, data):
        self.count += 1
        path = os.path.join(self.folder, f'input-{self.count}')
        with open(path, 'wb') as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return path


def fails(code, args, *words, stdin=b''):
    """It ends with this code, says the words on stderr in at most two lines, and leaves stdout empty."""
    done, label = run(*args, stdin=stdin), ' '.join(map(str, args))[-100:]
    message = done.stderr.decode('utf-8')
    check(done.returncode == code, f'{label}: exit {done.returncode}, expected {code}; {message}')
    check(done.stdout == b'', f'{label}: stdout {done.stdout[:200]!r}')
    check(message.startswith('ironmule') and 0 < message.count('\n') <= 2 and 'Sanitizer' not in message, f'{label}: {message!r}')
    for word in words:
        check(word in message, f'{label}: "{word}" is not in {message!r}')


def has(document, label, **kinds):
    """The fields are there, with these types."""
    for name, kind in kinds.items():
        value = document.get(name)
        good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        check(good, f'{label}: field {name} is {value!r}')


# ---- help and usage

def help_texts(_):
    for args in (['--help'], ['-h'], ['help']):
        done = run(*args)
        check(done.returncode == 0 and done.stderr == b'' and all(c.encode() in done.stdout for c in COMMANDS), f'{args}: {done}')
    for command in COMMANDS:
        for args in ([command, '--help'], [command, '-h'], [command, '--json', '--help']):
            if command == 'chat' and '--json' in args:
                continue
            done = run(*args)
            text = done.stdout.decode('utf-8')
            check(done.returncode == 0 and done.stderr == b'', f'{args}: exit {done.returncode}, {done.stderr}')
            check(f'Usage: ironmule {command} ' in text and '--help' in text and 'Options:' in text, f'{args}: {text[:200]}')
            check('\033' not in text and max(map(len, text.splitlines())) <= 140, f'{args}: an escape or an overlong line')
    done = run()
    check(done.returncode == 2 and done.stdout == b'' and b'Usage:' in done.stderr, f'without arguments: {done}')
    done = run('--version')
    check(done.returncode == 0 and re.match(rb'ironmule \d+\.\d+\.\d+ \(numerics \d+\)\n\Z', done.stdout), f'--version: {done}')


def wrong_usage(_):
    for name, near in (('genrate', 'generate'), ('tokenise', 'tokenize'), ('chatt', 'chat'), ('inof', 'info')):
        fails(2, [name], f'"{name}"', f'did you mean "{near}"?')
    fails(2, ['unrelated'], 'unknown command "unrelated"')
    for args, words in (
            (['generate', '--max-token', '5', TINY], ['--max-token;', 'did you mean --max-tokens?']),
            (['generate', '--sead=5', TINY], ['did you mean --seed?']),
            (['tokenize', '--jsn', TINY], ['did you mean --json?']),
            (['generate', '--wholly-other', TINY], ['unknown option --wholly-other']),
            (['generate', '--' + 'x' * 1000, TINY], ['unknown option --xxxx']),
            (['generate', '-z', TINY], ['unknown option -z']),
            (['generate', '-n5', TINY], ['-n5', 'apart']),
            (['generate'], ['MODEL']),
            (['generate', TINY, 'a', 'b'], ['"b"', 'too many']),
            (['generate', TINY, '--max-tokens'], ['--max-tokens needs a value']),
            (['generate', TINY, '--max-tokens', 'many'], ['"many"', 'whole number']),
            (['generate', TINY, '--max-tokens', '0'], ['--max-tokens', 'outside']),
            (['generate', TINY, '--max-tokens', '99999999999999999999'], ['--max-tokens', 'outside']),
            (['generate', TINY, '--temperature', '-1'], ['--temperature', 'outside']),
            (['generate', TINY, '--temperature', 'nan'], ['--temperature', 'outside']),
            (['generate', TINY, '--top-p', '0'], ['--top-p']),
            (['generate', TINY, '--json=yes'], ['--json takes no value']),
            (['generate', TINY, 'a', '--prompt-file', 'b'], ['given twice']),
            (['generate', TINY, '--ids-file', 'a', '--prompt-file', 'b'], ['given twice']),
            (['generate', TINY, 'a', '--top', '5'], ['--top needs --json']),
            (['generate', TINY, 'a', '--raw', '--system', 'b'], ['--system', 'template']),
            (['generate', TINY, '--ids-file', 'a', '--system', 'b'], ['--system', 'template']),
            (['generate', TINY, 'a', '--stop', ''], ['--stop']),
            (['tokenize', TINY, 'a', '--file', 'b'], ['given twice']),
            (['perplexity', TINY, '--file', 'a', '--ids-file', 'b'], ['given twice']),
            (['perplexity', TINY, '--per-token'], ['--per-token needs --json']),
            (['template', TINY], ['--messages']),
            (['info', '--program'], ['MODEL'])):
        fails(2, args, *words)
    fails(2, ['generate', TINY] + ['--stop=x'] * 17 + ['a'], '16')


# ---- inputs

def ways_to_give_a_prompt(files):
    want = answer(*GENERATE, TEXT)
    path = files(TEXT)
    ids = files(json.dumps(want['prompt_ids']))
    for args, stdin in (([*GENERATE, '-'], TEXT), (list(GENERATE), TEXT), ([*GENERATE, '--prompt-file', path], ''), ([*GENERATE, '-f', path], ''),
                        ([*GENERATE, f'--prompt-file={path}'], ''), ([*GENERATE, '--prompt-file', '-'], TEXT), ([*GENERATE, '--ids-file', ids], ''),
                        ([*GENERATE, '--ids-file', '-'], json.dumps(want['prompt_ids'])), ([*GENERATE, '--', TEXT], '')):
        got = answer(*args, stdin=stdin.encode())
        check([got[k] for k in ('prompt_ids', 'ids', 'text', 'logits_hash')] == [want[k] for k in ('prompt_ids', 'ids', 'text', 'logits_hash')],
              f'{args[3:]}: {got}, expected {want}')
    dashed = answer(*GENERATE, '--', '--json')
    check(len(dashed['prompt_ids']) > 2, 'a prompt that looks like an option')
    tokens = answer('tokenize', TINY, TEXT)
    check(tokens['ids'] == want['prompt_ids'], f'tokenize: {tokens["ids"]}, generate: {want["prompt_ids"]}')
    for args, stdin in ((['-'], TEXT), ([], TEXT), (['--file', path], ''), (['--file', '-'], TEXT)):
        check(answer('tokenize', TINY, *args, stdin=stdin.encode()) == tokens, f'tokenize {args}')
    scored = answer('perplexity', TINY, '--ids-file', ids)
    for args, stdin in ((['--file', path], ''), ([], TEXT), (['--file', '-'], TEXT)):
        check(answer('perplexity', TINY, *args, stdin=stdin.encode()) == scored, f'perplexity {args}')


def odd_texts(files):
    for text in ('Grüße, 東京 🫏\n\ttab', 'a' * 300):
        got = answer('tokenize', TINY, '--file', files(text))
        check(len(got['ids']) == len(got['pieces']) > 0, f'{text[:20]!r}: {got}')
    got = answer('tokenize', TINY, '--file', files(b'\xff\xfe\x00a\xc3'))
    check(len(got['ids']) >= 5, f'bytes that are no UTF-8: {got}')
    check(answer('tokenize', TINY, '--no-bos', '')['ids'] == [], 'an empty text')
    check(answer('tokenize', TINY, '')['ids'] == [1], 'an empty text with BOS')
    special = answer('tokenize', TINY, '--no-bos', '</s>')['ids']
    plain = answer('tokenize', TINY, '--no-bos', '--no-special', '</s>')['ids']
    check(special == [2] and 2 not in plain and len(plain) > 1, f'control tokens: {special} and {plain}')


def bad_inputs(files):
    fails(1, [*GENERATE, '--prompt-file', files('') + '.none'], 'input', 'No such file')
    fails(1, [*GENERATE, '--prompt-file', files.folder], files.folder)
    for data, word in (('[1, 2', 'line 1'), ('{"ids": [1]}', 'list'), ('[1, -2]', 'entry 1'), ('[1, 2.5]', 'entry 1'), ('[1, "2"]', 'entry 1'),
                       ('[1, 99999999999]', 'entry 1'), ('', 'line'), ('[1, 2] [3]', 'line 1'), (b'[1, \xff]', 'line 1')):
        fails(1, [*GENERATE, '--ids-file', files(data)], 'input', word)
    fails(1, [*GENERATE, '--ids-file', files('[]')], 'at least one token')
    fails(1, [*GENERATE, '--ids-file', files('[1, 389]')], '389', '0 .. 388')
    fails(1, ['perplexity', TINY, '--ids-file', files('[1]')], 'at least 2')
    fails(1, ['template', TINY, '--messages', files('[{"role": "user"')])
    fails(1, ['template', TINY, '--messages', files('"text"')])
    fails(1, [*GENERATE[:2], '--context', 16, '--json', TEXT * 10], '16 positions')
    many = len(answer('tokenize', TINY, TEXT)['ids'])
    fails(1, ['generate', TINY, '--raw', '--context', many, TEXT], f'{many} tokens', f'{many} positions')
    fails(1, ['generate', TINY, '--raw', '--prompt-file', files('mule ' * 1000)], 'tokens', '512 positions')
    fails(1, [*GENERATE, '--cpu', 'sse9', 'a'], 'sse9')
    fails(1, [*GENERATE, '--device', 'abacus', 'a'], 'abacus')
    fails(1, [*GENERATE, '--pre', 'abacus', 'a'], 'pre-tokeniser')


def bad_models(files):
    with open(TINY, 'rb') as f:
        tiny = f.read()
    cases = [(files(''), ''), (files('not a model'), 'GGUF'), (files(tiny[:50000]), ''), (files(tiny[:100]), ''), (TINY + '.none', 'No such file'),
             (files.folder, ''), ('/dev/null', ''), (files(b'GGUF' + b'\xff' * 100), '')]
    for path, word in cases:
        for command in (['generate', path, 'a'], ['info', path, '--json'], ['tokenize', path, 'a'], ['chat', path], ['perplexity', path]):
            fails(1, command, path, word)
    named = files('') + '-grün \x1b[31m'
    fails(1, ['info', named], 'grün')
    check(b'\x1b' not in run('info', named).stderr, 'an escape sequence of a file name reaches the terminal')


# ---- output

def generate_document(_):
    got = answer(*GENERATE, '--top', 3, TEXT)
    has(got, 'generate', model=str, prompt_ids=list, ids=list, text=str, stop_reason=str, logits_hash=str, usage=dict, timings=dict, steps=list, cpu_level=str,
        threads=int)
    has(got['timings'], 'timings', load_ms=float, prompt_ms=float, first_token_ms=float, generate_ms=float, prompt_tokens_per_s=float, tokens_per_s=float)
    check(all(v > 0 for v in got['timings'].values()), f'timings: {got["timings"]}')
    n = len(got['prompt_ids'])
    check(got['usage'] == {'prompt_tokens': n, 'completion_tokens': 5, 'total_tokens': n + 5}, f'usage: {got["usage"]}')
    check(len(got['ids']) == 5 and got['stop_reason'] == 'length' and HEX.match(got['logits_hash']), f'{got}')
    check(len(got['steps']) == 5, f'{len(got["steps"])} steps')
    for id, step in zip(got['ids'], got['steps']):
        check(step['id'] == id == step['top'][0][0] and len(step['top']) == 3, f'step {step}')
        check(step['top'] == sorted(step['top'], key=lambda x: (-x[1], x[0])), f'order of {step}')
    check('steps' not in answer(*GENERATE, TEXT), 'steps without --top')
    check(answer(*GENERATE, '--top', 1000, TEXT)['steps'][0]['top'][388][1] <= got['steps'][0]['top'][2][1], '--top beyond the vocabulary')


def how_an_answer_ends(_):
    long = ('generate', TINY, '--raw', '--ignore-eos', '--max-tokens', 40)
    full = answer(*long, TEXT)
    cut = full['text'][len(full['text']) // 2:][:4]
    stopped = answer(*long, '--stop', cut, '--stop', 'never there', TEXT)
    check(stopped['stop_reason'] == 'stop' and stopped['text'] == full['text'][:full['text'].index(cut)], f'--stop {cut!r}: {stopped["text"]!r} of {full["text"]!r}')
    check(len(stopped['ids']) < 40 and stopped['ids'] == full['ids'][:len(stopped['ids'])], 'ids up to the stop')
    n = len(full['prompt_ids'])
    small = answer(*long, '--context', n + 7, TEXT)
    check(small['stop_reason'] == 'length' and small['ids'] == full['ids'][:7], f'context of {n + 7}: {small["ids"]}')
    check(answer(*long, '--temperature', 1, '--seed', 3, TEXT)['ids'] == answer(*long, '--temperature', 1, '--seed', 3, '--threads', 3, TEXT)['ids'], 'a seed')
    check(answer(*long, '--temperature', 1, '--seed', 3, TEXT)['ids'] != answer(*long, '--temperature', 1, '--seed', 4, TEXT)['ids'], 'another seed')
    idle = run(*long, '--seed', 3, TEXT)
    check(idle.stdout.decode() == full['text'] and b'no effect' in idle.stderr and idle.stderr.count(b'\n') == 1, f'a seed that has no effect: {idle.stderr}')
    check(answer(*long, '--temperature', 2, '--top-k', 1, TEXT)['ids'] == full['ids'], '--top-k 1 is greedy')


def one_answer(_):
    want = answer(*GENERATE, TEXT)['logits_hash']
    for level in levels():
        got = answer(*GENERATE, '--cpu', level, '--threads', 2, '--chunk', 3, '--neighbours', 3, TEXT)
        check(got['logits_hash'] == want and got['cpu_level'] == level and got['threads'] == 2, f'{level}: {got["logits_hash"]}, expected {want}')


def plain_text(_):
    want = answer(*GENERATE, TEXT)['text'].encode('utf-8')
    for env in ({}, {'NO_COLOR': '1'}, {'TERM': 'dumb'}):
        done = run(*GENERATE, TEXT, env=env)
        check(done.returncode == 0 and done.stdout == want and done.stderr == b'', f'{env}: {done}')


def conversations(files):
    messages = [{'role': 'user', 'content': 'Hello </s> mule'}]
    path = files(json.dumps(messages))
    got = answer('template', TINY, '--messages', path)
    has(got, 'template', text=str, ids=list)
    check('Hello </s> mule' in got['text'] and got['ids'][1:].count(2) == got['text'].replace('Hello </s> mule', '').count('</s>'), f'template: {got}')
    check(answer('template', TINY, '--messages', path, '--parse-special')['ids'].count(2) == got['ids'].count(2) + 1, '--parse-special')
    check(run('template', TINY, '--messages', path).stdout.decode() == got['text'], 'template without --json')
    check(len(answer('template', TINY, '--messages', path, '--no-generation-prompt')['text']) <= len(got['text']), '--no-generation-prompt')
    check(answer('template', TINY, '--messages', '-', stdin=json.dumps(messages).encode()) == got, 'template from standard input')
    own = answer('template', TINY, '--messages', path, '--chat-template', files('{{ messages[0].content }}|{{ tools[0].name }}|{{ x }}'), '--tools', files('[{"name": "t"}]'),
                 '--variables', files('{"x": 7}'))
    check(own['text'] == 'Hello </s> mule|t|7', f'an own template: {own["text"]!r}')
    fails(1, ['template', TINY, '--messages', path, '--chat-template', files("{{ raise_exception('no mules') }}")], 'no mules')
    fails(1, ['template', TINY, '--messages', path, '--chat-template', files('{% if %}')], 'line 1')
    chat = answer('generate', TINY, '--max-tokens', 3, '--ignore-eos', messages[0]['content'])
    check(chat['prompt_ids'] == got['ids'], f'generate uses the template: {chat["prompt_ids"]}, expected {got["ids"]}')
    done = run('chat', TINY, '--max-tokens', 3, stdin=b'Hello </s> mule\n/stats\n/hepl\n\n/exit\nnot read\n')
    check(done.returncode == 0 and b'\x1b' not in done.stdout + done.stderr, f'chat in a pipe: {done}')
    check(b'tokens at' in done.stderr and b'unknown command /hepl' in done.stderr and done.stdout.count(b'\n') >= 1, f'chat in a pipe: {done}')


def perplexity_document(files):
    ids = [1] + [30 + i * 7 % 300 for i in range(39)]
    path = files(json.dumps(ids))
    got = answer('perplexity', TINY, '--ids-file', path, '--per-token')
    has(got, 'perplexity', tokens=int, nll=float, perplexity=float, per_token=list, top1=list, top1_logprob=list)
    check(got['tokens'] == len(got['per_token']) == 39 and abs(sum(got['per_token']) / 39 + got['nll']) < 1e-6, f'{got["tokens"]} tokens, {got["nll"]}')
    check(all(a <= b + 1e-6 for a, b in zip(got['per_token'], got['top1_logprob'])), 'a token likelier than the likeliest')
    windows = answer('perplexity', TINY, '--ids-file', path, '--per-token', '--context', 16)
    check(windows['tokens'] == 37 and windows['per_token'][:15] == got['per_token'][:15], f'windows of 16: {windows["tokens"]} tokens')
    check('per_token' not in answer('perplexity', TINY, '--ids-file', path), 'per_token unasked')
    text = run('perplexity', TINY, '--ids-file', path).stdout.decode()
    check(re.match(r'tokens 39\nnll \d+\.\d{6}\nperplexity \d+\.\d{4}\n\Z', text), f'perplexity as text: {text!r}')


def machine_documents(files):
    info = answer('info')
    has(info, 'info', version=str, numerics=int, licence=str, compiler=str, cpu_levels=list, backends=list, libraries=list)
    check(info['cpu_levels'][0] == 'c', f'levels {info["cpu_levels"]}')
    about = answer('info', TINY)
    has(about, 'info MODEL', path=str, name=str, architecture=str, quantisation=str, licence=str, parameters=int, file_bytes=int, vocabulary=int, layers=int,
        embedding=int, context=int, chat_template=bool, bos=int, eos=int, program_digest=str, memory=dict)
    check([about[k] for k in ('architecture', 'quantisation', 'vocabulary', 'layers', 'embedding', 'context', 'bos', 'eos')] == ['llama', 'Q8_0', 389, 2, 64, 512, 1, 2], f'{about}')
    check(about['file_bytes'] == os.path.getsize(TINY) and HEX.match(about['program_digest']), f'{about}')
    has(about['memory'], 'memory', weights=int, kv=int, workspace=int, kv_bytes_per_token=int, available=int)
    for args in (['info'], ['info', TINY], ['info', TINY, '--program']):
        done = run(*args)
        check(done.returncode == 0 and len(done.stdout) > 100 and done.stderr == b'', f'{args}: {done}')
    if emulated():
        return  # a bandwidth says nothing there
    doctor = answer('doctor', TINY)
    has(doctor, 'doctor', cpu=str, cores=int, kernels=list, memory_available_bytes=int, read_bytes_per_s=float, gpu=str, advice=str, model=dict)
    check([k['level'] for k in doctor['kernels']] == info['cpu_levels'] and all(k['proved'] for k in doctor['kernels']), f'{doctor["kernels"]}')
    check(doctor['model']['fits'] and doctor['read_bytes_per_s'] > 1e8, f'{doctor}')


def unwritable(files):
    messages = files('[{"role": "user", "content": "Hi"}]')
    for args in ([*GENERATE, TEXT], [*GENERATE, '--json', TEXT], ['tokenize', TINY, TEXT], ['tokenize', TINY, '--json', TEXT], ['info'], ['info', '--json'],
                 ['info', TINY, '--program'], ['--help'], ['--version'], ['generate', '--help'], ['template', TINY, '--messages', messages],
                 ['perplexity', TINY, '--file', files(TEXT)]):
        with open('/dev/full', 'wb') as full:
            done = run(*args, stdout=full)
        check(done.returncode == 1 and b'standard output cannot be written' in done.stderr and done.stderr.count(b'\n') == 1, f'{args} > /dev/full: {done}')


def main():
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder)
        for part in (help_texts, wrong_usage, ways_to_give_a_prompt, odd_texts, bad_inputs, bad_models, generate_document, how_an_answer_ends, one_answer, plain_text,
                     conversations, perplexity_document, machine_documents, unwritable):
            part(files)
            print(part.__name__, flush=True)
    return verdict()


sys.exit(main())
