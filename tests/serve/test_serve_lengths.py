# SPDX-License-Identifier: Apache-2.0
"""max_tokens in every odd form, and prompts at the edge of the context."""
import threading

from server import CHAT, COMPLETIONS, Answer, Server, check, expect_error, verdict

CONTEXT = 64


def raw(path, value, name='max_tokens'):
    ask = '"prompt":"Hi"' if path == COMPLETIONS else '"messages":[{"role":"user","content":"Hi"}]'
    return ('{%s%s}' % (ask, '' if value is None else f',"{name}":{value}')).encode()


def odd_values(s):
    for path in (CHAT, COMPLETIONS):
        for value in (None, 'null', '1000000000', '10', '10.0', '1'):
            a = s.post(path, raw(path, value))
            if not check(a.status == 200, f'{path}: max_tokens {value}: {a}'):
                continue
            tokens, reason = a.json()['usage']['completion_tokens'], a.json()['choices'][0]['finish_reason']
            if value == '1':
                check((tokens, reason) == (1, 'length'), f'max_tokens 1: {tokens} {reason}')
            elif value in ('10', '10.0'):
                check(tokens <= 10, f'max_tokens {value}: {tokens}')
            else:
                total = a.json()['usage']['total_tokens']
                check(total <= CONTEXT and (reason == 'stop' or total == CONTEXT), f'max_tokens {value} ends with the context: {total} {reason}')
        for value in ('0', '-1', '-15335', '1.5', '"10"', 'true', '[]', '{}', '9223372036854775808', '-9223372036854775809', '1e400', '1e300'):
            expect_error(s.post(path, raw(path, value)), 400, f'{path}: max_tokens {value}', 'max_tokens')
        expect_error(s.post(path, raw(path, '0')), 400, 'max_tokens 0', 'max_tokens', 'integer_below_min_value')
    for value in ('0', '-1', 'true'):
        expect_error(s.post(CHAT, raw(CHAT, value, 'max_completion_tokens')), 400, f'max_completion_tokens {value}', 'max_completion_tokens')
    two = s.chat(max_tokens=3, max_completion_tokens=3)
    check(two.status == 200 and two.json()['usage']['completion_tokens'] == 3, 'both names with one value')
    expect_error(s.chat(max_tokens=3, max_completion_tokens=4), 400, 'both names with two values')
    check(s.chat(max_tokens=None, max_completion_tokens=4).json()['usage']['completion_tokens'] == 4, 'the newer name')


def edges(s, crowded):
    what = ' among others' if crowded else ''
    ids = [10 + i % 100 for i in range(5000)]
    for n in (62, 63, 64, 65, 5000):
        for stream in (False, True):
            body = {'prompt': ids[:n], 'max_tokens': 4}
            a = s.events(COMPLETIONS, body) if stream else s.post(COMPLETIONS, body)
            if n >= CONTEXT:
                check(isinstance(a, Answer), f'{n} tokens{what}: an answer before any event')
                expect_error(a, 400, f'{n} tokens{what}', 'prompt', 'context_length_exceeded')
                said = a.error['message']
                check(str(n) in said and f"this model's maximum context length is {CONTEXT} tokens" in said, f'both numbers are said: {said}')
                check('--context' in said and '512' in said, f'and which of them is whose: {said}')
            elif stream:
                check(a[-1] == '[DONE]', f'{n} tokens, streamed{what}')
            else:
                usage = a.json()['usage']
                check(usage['prompt_tokens'] == n and usage['completion_tokens'] <= CONTEXT - n, f'{n} tokens{what}: {usage}')
                check(a.json()['choices'][0]['finish_reason'] in ('length', 'stop'), f'{n} tokens{what}: an end')
    a = s.complete(ids[:60], max_tokens=100, ignore_eos=True)
    check(a.json()['usage']['total_tokens'] == CONTEXT and a.json()['choices'][0]['finish_reason'] == 'length', f'60 + 100{what}: {a}')
    long = s.chat('word ' * 400, max_tokens=4)
    expect_error(long, 400, f'a long chat{what}', 'messages', 'context_length_exceeded')


def main():
    with Server('--context', CONTEXT, '--parallel', 4) as s:
        odd_values(s)
        edges(s, False)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                s.complete('Hello', max_tokens=40, ignore_eos=True)
        others = [threading.Thread(target=work) for _ in range(3)]
        for t in others:
            t.start()
        edges(s, True)
        stop.set()
        for t in others:
            t.join()
    return verdict()


raise SystemExit(main())
