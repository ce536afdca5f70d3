# SPDX-License-Identifier: Apache-2.0
"""bench/serve measures what it says: its arithmetic by hand, and each mode against a small model."""
import json
import os
import subprocess
import sys
import tempfile

from server import Server, check, verdict

BENCH = os.path.join(os.environ['IM_SOURCE'], 'bench', 'serve')
sys.path.insert(0, BENCH)
import serve_load  # noqa: E402
from stream_client import Answer  # noqa: E402


def test_arithmetic():
    answer = Answer(10.0, arrivals=[10.5, 10.6, 10.9, 11.0], tokens=[10.5, 10.6, 10.9, 11.0], completion_tokens=6)
    check(answer.first_s == 0.5 and abs(answer.per_token_s - 0.1) < 1e-9, 'time to first token, and per token of the usage')
    check(abs(serve_load.largest_gap(answer, 0, 99) - 0.3) < 1e-9, 'the largest gap')
    check(abs(serve_load.largest_gap(answer, 10.95, 99) - 0.1) < 1e-9, 'of a time that begins late')
    check(abs(serve_load.largest_gap(answer, 10.7, 10.8) - 0.3) < 1e-9, 'a gap counts that spans the time')
    check(serve_load.largest_gap(answer, 0, 10.5) == 0, 'none before the first token')
    check(serve_load.percentiles([n / 1000 for n in range(1, 101)]) == {'p50': 51.0, 'p90': 91.0, 'p95': 96.0, 'p99': 100.0}, 'percentiles')
    cells = [{'wall_s': 2.0, 'tokens': 64, 'first_s': [0.1, 0.3], 'per_token_s': [0.01], 'prompt_tokens': [200]} for _ in range(3)]
    check(serve_load.summary_of(cells)['tokens_per_s'] == 32, 'tokens a second')
    answer.take({'choices': [], 'usage': {'prompt_tokens': 7, 'completion_tokens': 3, 'prompt_tokens_details': {'cached_tokens': 4}}}, 12.0)
    answer.take({'choices': [{'delta': {'content': 'x'}, 'finish_reason': 'stop'}]}, 13.0)
    check((answer.prompt_tokens, answer.cached_tokens, answer.text, answer.finish, answer.arrivals[-1]) == (7, 4, 'x', 'stop', 13.0), 'events are read')
    half = Answer(10.0)
    for at, delta in ((10.1, {'role': 'assistant', 'content': ''}), (10.2, {'content': 'x'}), (10.4, {'content': ''}), (10.5, {'content': '\u20ac'}), (10.9, {})):
        half.take({'choices': [{'delta': delta}]}, at)
    check(half.arrivals == [10.2, 10.5] and half.tokens == [10.2, 10.4, 10.5] and half.text == 'x\u20ac', f'tokens without text count, the role does not: {half}')
    check(abs(serve_load.largest_gap(half, 0, 99) - 0.2) < 1e-9, 'and end a gap')
    servers = ['a', 'b', 'c']
    check([serve_load.turn_of(servers, n)[0] for n in range(4)] == ['a', 'b', 'c', 'a'], 'each comes first in its turn')


def load(mode, url, *more, code=0):
    with tempfile.NamedTemporaryFile(suffix='.json') as out:
        command = [sys.executable, '-B', os.path.join(BENCH, 'serve_load.py'), mode, '--server', 'one', url, '--server', 'two', url, '--rounds', '2', '--json', out.name, *more]
        done = subprocess.run(command, capture_output=True, timeout=120)
        check(done.returncode == code, f'{mode} ends with {code}: {done.returncode} {done.stderr.decode()[-300:]}')
        return json.load(open(out.name)) if done.returncode == 0 else done.stderr.decode()


def main():
    test_arithmetic()
    with Server('--context', '512', '--parallel', '4') as s:
        url = f'http://127.0.0.1:{s.port}'
        rows = load('load', url, '--clients', '1,3', '--prompt-tokens', '100', '--new-tokens', '8')['rows']
        check([(row['server'], row['clients']) for row in rows] == [('one', 1), ('two', 1), ('one', 3), ('two', 3)], f'rows of load: {rows}')
        for row in rows:
            check(80 <= row['prompt_tokens'] <= 120, f'prompts have about the length that was asked for: {row["prompt_tokens"]}')
            check(all(cell['tokens'] == 8 * 2 * row['clients'] for cell in row['rounds']), 'answers have the full length')
        turns = load('chat', url, '--turns', '4', '--turn-words', '8', '--turn-tokens', '8')['rows'][0]['rounds'][0]
        lengths = [turn['prompt_tokens'] for turn in turns]
        check(len(turns) == 4 and lengths == sorted(set(lengths)), f'the history grows: {lengths}')
        stall = load('stall', url, '--streams', '2', '--stream-tokens', '200', '--steady-tokens', '4', '--prompt-tokens', '60', '--newcomer-tokens', '200')['rows'][0]
        check(all(len(one['during_s']) == 2 and one['first_s'] > 0 for one in stall['rounds']), f'a stall: {stall}')
        told = load('load', url, '--clients', '1', '--prompt-tokens', '2000', code=1)
        check('a request failed: status 400' in told, f'a refusal ends the run: {told}')
    return verdict()


if __name__ == '__main__':
    raise SystemExit(main())
