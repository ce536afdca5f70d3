# SPDX-License-Identifier: Apache-2.0
"""`ironmule verify --compare`: equal reports, different ones, and files that are no reports."""
import copy
import json
import os
import random
import sys
import tempfile

from program import TINY, answer, check, run, verdict

ARGS = ('verify', TINY, '--device', 'cpu', '--threads', '2')


class Files:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def __call__(self, data):
        self.count += 1
        path = os.path.join(self.folder, f'report-{self.count}')
        with open(path, 'wb') as f:
            f.write(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path


def compare(a, b, code, *words):
    done = run('verify', '--compare', a, b)
    out, err = done.stdout.decode('utf-8'), done.stderr.decode('utf-8')
    check(done.returncode == code, f'{words}: exit {done.returncode}, expected {code}: {out}{err}')
    check((err.count('\n') == 1 and out == '') if code == 1 else err == '', f'{words}: {out!r} {err!r}')
    check('\033' not in out + err and 'Sanitizer' not in err, f'{words}: {err!r}')
    for word in words:
        check(word in out + err, f'"{word}" is not in {out!r} {err!r}')
    return out


def changed(report, change):
    other = copy.deepcopy(report)
    change(other)
    return other


def equal(files, report):
    path = files(report)
    out = compare(path, path, 0, f'one answer: {len(report["prompts"])} common prompts')
    check(out.count('  same\n') == len(report['prompts']), out)
    compare(path, files(answer(*ARGS, '--max-tokens', 6)), 0, 'one answer')
    fewer = changed(report, lambda r: r['prompts'].reverse() or r['prompts'].pop())
    compare(path, files(fewer), 0, f'one answer: {len(report["prompts"]) - 1} common prompts')
    other = answer(*ARGS, '--prompt', 'mule')
    compare(path, files(other), 1, 'no prompt in common')
    compare(path, files(answer(*ARGS, '--max-tokens', 5)), 1, 'no prompt in common')


def different(files, report):
    path, name = files(report), report['prompts'][1]['name']

    def flip(r):
        h = r['prompts'][1]['logits_hash']
        r['prompts'][1]['logits_hash'] = h[:-1] + ('0' if h[-1] != '0' else '1')

    out = compare(path, files(changed(report, flip)), 3, f'DIFFERENT: 1 of {len(report["prompts"])}')
    check([line.split()[0] for line in out.splitlines() if line.endswith('DIFFERENT')] == [name], out)

    def token(r):
        r['prompts'][0]['ids'][-1] ^= 1

    compare(path, files(changed(report, token)), 3, 'DIFFERENT, other tokens')
    compare(path, files(changed(report, lambda r: r.update(same=False))), 3, 'its own arms differ')
    compare(path, files(changed(report, lambda r: r.update(numerics=2))), 1, 'numerics 2')
    compare(path, files(changed(report, lambda r: r['model'].update(fingerprint='im-0123456789abcdef'))), 1, 'same model')


def damaged(files, report):
    path, whole = files(report), json.dumps(report).encode()
    for data in (b'', b'\0', b'[]', b'{}', b'"x"', b'{"report": "ironmule verify"}', whole[:-1], whole[:len(whole) // 2], whole + whole, b'[' * 100000, b'\xff' + whole,
                 whole.replace(b'"numerics": 1', b'"numerics": 1, "numerics": 1'), whole.replace(b'"numerics": 1', b'"numerics": 1e999'),
                 whole.replace(b'"numerics": 1', b'"numerics": 99999999999999999999')):
        compare(path, files(data), 1, 'report-')
        compare(files(data), path, 1, 'report-')
    compare(path, os.path.join(files.folder, 'none'), 1, 'No such file')
    compare(path, files.folder, 1, files.folder)
    compare(path, '/dev/zero', 1, '/dev/zero')
    compare(path, files(b' ' * (5 << 20)), 1, 'too large')
    compare(files(b'[' + b'[],' * (1 << 20) + b'0]'), path, 1, 'report-')
    many = [files(changed(report, lambda r: r.update(prompts=[{**r['prompts'][0], 'prompt_ids': [first + i]} for i in range(16000)]))) for first in (0, 100000)]
    compare(*many, 1, 'more prompts')

    def setting(*keys):
        def change(r, value):
            for key in keys[:-1]:
                r = r[key]
            r[keys[-1]] = value
        return change

    for keys in (('report',), ('numerics',), ('same',), ('model',), ('model', 'fingerprint'), ('prompts',), ('prompts', 0), ('prompts', 0, 'name'), ('prompts', 0, 'logits_hash'),
                 ('prompts', 0, 'ids'), ('prompts', 0, 'prompt_ids'), ('prompts', 0, 'ids', 0)):
        for value in (None, [], {}, '', 'x' * 100000, -1, 1.5, '\033[31m', 'im-\033[31m56789abcd', [[]], '0123456789abcde\n'):
            compare(path, files(changed(report, lambda r: setting(*keys)(r, value))), 1, 'report-')


def mutated(files, report):
    """Bytes changed anywhere: an outcome or an error, never a crash."""
    path, whole = files(report), json.dumps(report).encode()
    dice = random.Random(1)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data) // 4 if dice.random() < 0.7 else len(data))] = dice.choice((0, 0x22, 0x2c, 0x31, 0x5b, 0x5d, 0x7b, 0x7d, 0xff))
        done = run('verify', '--compare', path, files(bytes(data)))
        check(done.returncode in (0, 1, 3) and done.stderr.count(b'\n') <= 1 and b'Sanitizer' not in done.stderr, f'{done}')


def main():
    with tempfile.TemporaryDirectory() as folder:
        files, report = Files(folder), answer(*ARGS)
        equal(files, report)
        different(files, report)
        damaged(files, report)
        mutated(files, report)
    return verdict()


sys.exit(main())
