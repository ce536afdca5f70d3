# SPDX-License-Identifier: Apache-2.0
"""The forms of stop: what is none, what is refused, and that a text that ends an answer is never part of it."""
from server import CHAT, COMPLETIONS, Server, check, expect_error, joined, verdict


def main():
    with Server() as s:
        plain = s.complete('Hello', max_tokens=60, ignore_eos=True).json()['choices'][0]['text']
        for stop in ('absent', None, []):
            body = {} if stop == 'absent' else {'stop': stop}
            a = s.complete('Hello', max_tokens=60, ignore_eos=True, **body)
            check(a.status == 200 and a.json()['choices'][0]['text'] == plain, f'stop {stop} is none')
        for stop in ('', [''], ['a', ''], ['a', None], 7, {'a': 1}, True, ['x'] * 17, [['a']], 'a\0b'):
            for path in (CHAT, COMPLETIONS):
                ask = {'messages': [{'role': 'user', 'content': 'a'}]} if path == CHAT else {'prompt': 'a'}
                expect_error(s.post(path, {**ask, 'stop': stop, 'max_tokens': 2}), 400, f'stop {stop!r}', 'stop')
        for stop in ('x' * 65536, ['a', 'b', 'c', 'd'], ['a', 'b', 'c', 'd', 'e'], [f'stop{i}' for i in range(16)], ['q', 'q'], '\U0001f600', '\n'):
            a = s.complete('Hello', max_tokens=20, ignore_eos=True, stop=stop)
            if not check(a.status == 200, f'stop {str(stop)[:30]!r}: {a}'):
                continue
            text = a.json()['choices'][0]['text']
            check(not any(x in text for x in ([stop] if isinstance(stop, str) else stop)), f'stop {str(stop)[:30]!r} is not in the answer')
        # Every text of two or three letters out of the middle of an answer, streamed and not.
        tried = 0
        for at in range(4, len(plain) - 3, max(1, len(plain) // 12)):
            for n in (1, 2, 3):
                stop = plain[at:at + n]
                if '\ufffd' in stop:
                    continue
                want = plain[:plain.index(stop)]
                tried += 1
                a = s.complete('Hello', max_tokens=60, ignore_eos=True, stop=[stop, 'never there']).json()['choices'][0]
                check((a['text'], a['finish_reason']) == (want, 'stop'), f'stop {stop!r}: {want!r}, got {a}')
                got = joined(s.events(COMPLETIONS, {'prompt': 'Hello', 'max_tokens': 60, 'ignore_eos': True, 'stop': stop}))
                check(got == (want, 'stop'), f'stop {stop!r}, streamed: {want!r}, got {got}')
        check(tried > 10, f'{tried} stop texts tried')
        # The model's own end token goes on to end answers: one that the bias makes certain.
        ended = 0
        for token in range(3):
            a = s.complete('Hello', max_tokens=5, stop='zzzz', logit_bias={str(token): 100}, temperature=0).json()['choices'][0]
            ended += a['finish_reason'] == 'stop' and a['text'] == ''
        check(ended >= 1, 'an end token ends the answer beside a stop text')
        check(s.get('/health').status == 200, 'the server lives')
    return verdict()


raise SystemExit(main())
