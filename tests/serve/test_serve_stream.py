# SPDX-License-Identifier: Apache-2.0
"""Streams: order and shape of the chunks, where the usage stands, and that they say what the same request says without a stream."""
from server import CHAT, COMPLETIONS, Answer, Server, check, expect_error, joined, verdict

OPTIONS = {'absent': {}, 'empty': {'stream_options': {}}, 'null': {'stream_options': None}, 'inner null': {'stream_options': {'include_usage': None}},
           'false': {'stream_options': {'include_usage': False}}, 'true': {'stream_options': {'include_usage': True}}}


def shape(what, events, chat, usage, n=1):
    check(events[-1] == '[DONE]' and events.count('[DONE]') == 1, f'{what}: ends with [DONE], once')
    chunks = events[:-1]
    for key in ('id', 'created', 'model', 'object', 'system_fingerprint'):
        check(len({c[key] for c in chunks}) == 1, f'{what}: {key} is the same in all chunks')
    check(chunks[0]['object'] == ('chat.completion.chunk' if chat else 'text_completion'), f'{what}: object')
    if usage:
        last = chunks.pop()
        check(last['choices'] == [] and last['usage']['prompt_tokens_details'].keys() == {'cached_tokens'}, f'{what}: the usage stands alone')
        check(all('usage' in c and c['usage'] is None for c in chunks), f'{what}: earlier chunks have usage null')
    else:
        check(not any('usage' in c for c in chunks), f'{what}: no usage')
    for i in range(n):
        mine = [c['choices'][0] for c in chunks if c['choices'][0]['index'] == i]
        reasons = [c['finish_reason'] for c in mine]
        check(all(len(c['choices']) == 1 for c in chunks) and reasons[:-1] == [None] * (len(mine) - 1) and reasons[-1] in ('stop', 'length'),
              f'{what}: finish_reason is there, and null until the last: {reasons}')
        if chat:
            check(mine[0]['delta'].get('role') == 'assistant' and not any('role' in c['delta'] for c in mine[1:]), f'{what}: the role comes first')
            check(all(isinstance(c['delta'].get('content', ''), str) for c in mine), f'{what}: content is text')


def main():
    with Server() as s:
        for path, ask in ((CHAT, {'messages': [{'role': 'user', 'content': 'Hello'}]}), (COMPLETIONS, {'prompt': 'Hello'})):
            body = {**ask, 'max_tokens': 5, 'temperature': 0.9, 'seed': 3, 'ignore_eos': True}
            whole = s.post(path, body).json()
            choice = whole['choices'][0]
            text = choice['message']['content'] if path == CHAT else choice['text']
            check(whole['usage']['completion_tokens'] == 5 and whole['usage']['total_tokens'] == 5 + whole['usage']['prompt_tokens'], f'{path}: usage')
            for name, options in OPTIONS.items():
                events = s.events(path, {**body, **options})
                shape(f'{path}, stream_options {name}', events, path == CHAT, name == 'true')
                check(joined(events) == (text, choice['finish_reason']), f'{path}, {name}: the same text as without a stream')
                if name == 'true':
                    usage, want = events[-2]['usage'], whole['usage']
                    same = all(usage[k] == want[k] for k in ('prompt_tokens', 'completion_tokens', 'total_tokens'))
                    check(same, f'{path}: the same totals as without a stream: {usage} {want}')
            expect_error(s.post(path, {**body, 'stream_options': {'include_usage': True}}), 400, 'stream_options without stream', 'stream_options')
            for wrong in ('x', [], 3, True):
                refused = s.events(path, {**body, 'stream_options': wrong})
                expect_error(refused, 400, f'stream_options {wrong}', 'stream_options')
            for wrong in ('true', 1, []):
                expect_error(s.post(path, {**body, 'stream': wrong}), 400, f'stream {wrong}', 'stream')

            # Several answers at once.
            whole = s.post(path, {**body, 'n': 3}).json()
            texts = [c['message']['content'] if path == CHAT else c['text'] for c in whole['choices']]
            check([c['index'] for c in whole['choices']] == [0, 1, 2] and len(set(texts)) > 1, f'{path}: three answers that differ')
            check(texts[0] == text, f'{path}: the first of several is the only one of one')
            check(whole['usage']['completion_tokens'] == 15, f'{path}: tokens of all answers count: {whole["usage"]}')
            events = s.events(path, {**body, 'n': 3, 'stream_options': {'include_usage': True}})
            shape(f'{path}, n 3', events, path == CHAT, True, 3)
            check([joined(events, i)[0] for i in range(3)] == texts, f'{path}: n 3, streamed and not')
            check(events[-2]['usage']['completion_tokens'] == 15, f'{path}: n 3, usage')
            events = s.events(path, {**body, 'n': 3, 'ironmule': {'logits_hash': True}})
            ours = [i for i, e in enumerate(events) if 'ironmule' in e]
            check(ours == [len(events) - 2] and len(events[-2]['ironmule']['logits_hash']) == 3, f'{path}: n 3, ours once, for all: {ours}')

            # What is ours stands in the last chunk, and says the same in both ways.
            extras = {'ironmule': {'logits_hash': True, 'token_ids': True, 'timings': True}}
            ours = s.post(path, {**body, **extras, 'frobnicate': 1}).json()['ironmule']
            for options in ({}, {'stream_options': {'include_usage': True}}):
                events = s.events(path, {**body, **extras, **options, 'frobnicate': 1})
                check(not any('ironmule' in e for e in events[:-2]), f'{path}: nothing of ours before the last chunk')
                mine = events[-2].get('ironmule', {})
                check(all(mine.get(k) == ours[k] for k in ('logits_hash', 'token_ids', 'ignored', 'sampling')), f'{path}: ours: {mine} {ours}')
                check(mine['timings'].keys() == ours['timings'].keys(), f'{path}: timings')
            check(ours['ignored'] == ['frobnicate'] and len(ours['token_ids']) == 5 and ours['sampling']['seed'] == 3, f'{path}: {ours}')

        # A refusal comes before any event.
        for body in ({'messages': []}, {'messages': [{'role': 'user', 'content': 'x ' * 4000}]}, {'messages': [{'role': 'banana', 'content': 'x'}]}):
            refused = s.events(CHAT, body)
            check(isinstance(refused, Answer) and refused.status == 400 and refused.error, f'a streamed request is refused like others: {refused}')
        several = s.complete(['One', 'Two'], max_tokens=3).json()
        check(len(several['choices']) == 2 and several['choices'][0]['text'] == s.complete('One', max_tokens=3).json()['choices'][0]['text'],
              'a list of prompts')
        ids = s.post('/tokenize', {'text': 'Hello'}).json()['tokens']
        same = s.complete(ids, max_tokens=4).json()['choices'] == s.complete('Hello', max_tokens=4).json()['choices']
        check(same, 'ids as a prompt')
    return verdict()


raise SystemExit(main())
