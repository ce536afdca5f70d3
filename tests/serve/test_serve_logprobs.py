# SPDX-License-Identifier: Apache-2.0
"""Both shapes of logprobs, their edges, and that entries, text and chunks tell the same story."""
import math

from server import CHAT, COMPLETIONS, Server, check, expect_error, verdict

# Without the tiny model's byte tokens its text is whole characters, so that bytes and text can be compared.
WHOLE = {'logit_bias': {str(i): -100 for i in range(3, 259)}, 'ignore_eos': True}
ASK = {'messages': [{'role': 'user', 'content': 'Hello'}], 'max_tokens': 24}


def text_of(entries):
    return bytes(b for e in entries for b in e['bytes'] or []).decode('utf-8', 'replace')


def check_entries(what, entries, text, top, greedy):
    if '\ufffd' not in text:
        check(text_of(entries) == text, f'{what}: the bytes joined are the text: {text_of(entries)!r} {text!r}')
    for e in entries:
        check(set(e) == {'token', 'logprob', 'bytes', 'top_logprobs'}, f'{what}: the fields of an entry')
        check(isinstance(e['token'], str) and math.isfinite(e['logprob']) and e['logprob'] <= 0, f'{what}: {e["token"]!r} {e["logprob"]}')
        check(len(e['top_logprobs']) == top, f'{what}: {top} alternatives, got {len(e["top_logprobs"])}')
        values = [t['logprob'] for t in e['top_logprobs']]
        check(values == sorted(values, reverse=True) and all(v <= 0 for v in values), f'{what}: falling')
        if greedy and top:
            check(e['top_logprobs'][0]['bytes'] == e['bytes'] and values[0] == e['logprob'], f'{what}: the chosen token is the first')


def chats(s):
    for temperature, extra in ((0, {}), (0, WHOLE), (1, {}), (1, WHOLE)):
        for more, top in (({}, 0), ({'top_logprobs': 0}, 0), ({'top_logprobs': 5}, 5), ({'top_logprobs': 20}, 20)):
            what = f'chat, temperature {temperature}, {more}{", whole characters" if extra else ""}'
            body = {**ASK, 'logprobs': True, 'temperature': temperature, 'seed': 5, **more, **extra}
            choice = s.post(CHAT, body).json()['choices'][0]
            entries, text = choice['logprobs']['content'], choice['message']['content']
            check_entries(what, entries, text, top, temperature == 0 and not extra)
            check(not extra or '\ufffd' not in text, f'{what}: {text!r}')
            streamed, shown = [], ''
            for e in s.events(CHAT, body)[:-1]:
                c = e['choices'][0]
                part = (c['logprobs'] or {}).get('content') or []
                shown += c['delta'].get('content') or ''
                streamed += part
                check(len(text_of(streamed).encode()) <= len(shown.encode()) or '\ufffd' in shown, f'{what}: no entry before its text')
            check(streamed == entries and shown == text, f'{what}: the same entries when streamed')
    none = s.post(CHAT, {**ASK, 'logprobs': False}).json()['choices'][0]
    check(none['logprobs'] is None, 'logprobs false is null')
    for wrong in ({'logprobs': True, 'top_logprobs': 21}, {'logprobs': True, 'top_logprobs': -1}, {'logprobs': False, 'top_logprobs': 5},
                  {'top_logprobs': 5}, {'logprobs': True, 'top_logprobs': '5'}, {'logprobs': True, 'top_logprobs': 1.5}):
        expect_error(s.post(CHAT, {**ASK, **wrong}), 400, f'{wrong}', 'top_logprobs')
    for wrong in (1, 'true', []):
        expect_error(s.post(CHAT, {**ASK, 'logprobs': wrong}), 400, f'logprobs {wrong!r}', 'logprobs')


def completions(s):
    for n in (0, 1, 5, 6):
        choice = s.complete('Hello', max_tokens=12, logprobs=n, **WHOLE).json()['choices'][0]
        o = choice['logprobs']
        check(set(o) == {'tokens', 'token_logprobs', 'top_logprobs', 'text_offset'}, f'completions, logprobs {n}: the fields')
        count = len(o['tokens'])
        check(count > 0 and len(o['token_logprobs']) == len(o['text_offset']) == count, f'completions, logprobs {n}: one entry a token')
        check(all(v <= 0 and math.isfinite(v) for v in o['token_logprobs']), f'completions, logprobs {n}: values')
        if n:
            check(all(0 < len(t) <= n for t in o['top_logprobs']), f'completions, logprobs {n}: alternatives')
        if '\ufffd' not in choice['text']:
            said = [t if t in choice['text'] else '' for t in o['tokens']]  # a control token has a name, and adds nothing
            check(''.join(said) == choice['text'], f'completions: the tokens joined are the text: {said} {choice["text"]!r}')
            offsets = [len(''.join(said[:i])) for i in range(count)]
            check(o['text_offset'] == offsets, f'completions: offsets {o["text_offset"]} {offsets}')
        events = s.events(COMPLETIONS, {'prompt': 'Hello', 'max_tokens': 12, 'logprobs': n, **WHOLE})[:-1]
        got = {'tokens': [], 'token_logprobs': [], 'text_offset': []}
        for e in events:
            for k in got:
                got[k] += (e['choices'][0]['logprobs'] or {}).get(k, [])
        check(all(got[k] == o[k] for k in got), f'completions, logprobs {n}: the same when streamed')
    for wrong in (True, 'x', -1, 21, 1.5):
        expect_error(s.complete(logprobs=wrong), 400, f'completions, logprobs {wrong!r}', 'logprobs')


def cut_by_stop(s):
    whole = s.post(CHAT, {**ASK, **WHOLE, 'max_tokens': 40}).json()['choices'][0]['message']['content']
    for at in (3, 9, len(whole) // 2):
        stop = whole[at:at + 2]
        if '\ufffd' in stop or not stop:
            continue
        body = {**ASK, **WHOLE, 'max_tokens': 40, 'logprobs': True, 'top_logprobs': 2, 'stop': stop}
        choice = s.post(CHAT, body).json()['choices'][0]
        check(choice['finish_reason'] == 'stop', f'{stop!r} ends it')
        check(text_of(choice['logprobs']['content']) == choice['message']['content'], f'stop {stop!r}: the entries end with the text: {choice}')
        streamed = [x for e in s.events(CHAT, body)[:-1] for x in (e['choices'][0]['logprobs'] or {}).get('content') or []]
        check(text_of(streamed) == choice['message']['content'], f'stop {stop!r}, streamed: {text_of(streamed)!r}')


    # A stop text that begins inside a token: the token's entry keeps what is in front.
    body = {**ASK, **WHOLE, 'max_tokens': 40, 'logprobs': True}
    tokens = [e['token'] for e in s.post(CHAT, body).json()['choices'][0]['logprobs']['content'] if e['bytes']]
    inside = [t[1:] for i, t in enumerate(tokens) if len(t) > 1 and t[1:] not in ''.join(tokens[:i]) + t[0]]
    check(inside, f'a token of several letters: {tokens}')
    for stop in inside[:3]:
        choice = s.post(CHAT, {**body, 'stop': stop}).json()['choices'][0]
        check(choice['finish_reason'] == 'stop' and text_of(choice['logprobs']['content']) == choice['message']['content'], f'stop {stop!r} inside a token: {choice}')
        streamed = [x for e in s.events(CHAT, {**body, 'stop': stop})[:-1] for x in (e['choices'][0]['logprobs'] or {}).get('content') or []]
        check(streamed == choice['logprobs']['content'], f'stop {stop!r} inside a token, streamed: {streamed}')


def main():
    with Server() as s:
        chats(s)
        completions(s)
        cut_by_stop(s)
    return verdict()


raise SystemExit(main())
