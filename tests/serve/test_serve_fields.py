# SPDX-License-Identifier: Apache-2.0
"""Every other field of a request: its type, its limits, the name of the culprit, and that values in force are told."""
from server import CHAT, COMPLETIONS, Server, check, expect_error, verdict

ASK = {'messages': [{'role': 'user', 'content': 'Hello'}], 'max_tokens': 8, 'ignore_eos': True}
WRONG = {
    'temperature': (-0.1, 2.1, '1', True, [], 1e300), 'top_p': (-0.1, 1.1, '1', True), 'top_k': (-2, 1.5, '1', True, 1 << 40),
    'min_p': (-0.1, 1.1, 'x'), 'presence_penalty': (-2.1, 2.1, 'x'), 'frequency_penalty': (-2.1, 2.1, 'x'), 'repetition_penalty': (0, -1, 'x'),
    'seed': (1.5, 'x', True, []), 'n': (0, -1, 9, 1.5, 'x', True), 'logit_bias': (7, [], {'x': 1}, {'1': 'x'}, {'1': 101}, {'-1': 1}, {'99999': 1}, {' 1': 1}),
    'user': (7, {}), 'model': (7, [], {}), 'ironmule': (7, [], {'x': True}), 'ignore_eos': (1, 'x'),
}
RIGHT = {
    'temperature': (0, 0.0, 1, 2, None), 'top_p': (0, 0.5, 1, None), 'top_k': (-1, 0, 1, 40, None), 'min_p': (0, 0.5, 1, None), 'presence_penalty': (-2, 0, 2),
    'frequency_penalty': (-2, 0, 2), 'repetition_penalty': (0.5, 1, 1.3), 'seed': (0, -1, 42, (1 << 63) - 1, -(1 << 63), None), 'n': (1, 8, None),
    'logit_bias': ({}, {'5': -100, '6': 100, '7': 0.5}, None), 'user': ('x', '', None), 'model': ('', None), 'ironmule': ({}, None, {'timings': None}),
}


def values(s):
    for name, wrong in WRONG.items():
        for value in wrong:
            if name == 'min_p' and value == 1:
                continue
            expect_error(s.post(CHAT, {**ASK, 'temperature': 0.5, name: value}), 400, f'{name} {value!r}',
                         'ironmule' if name == 'ironmule' else name)
    for name, right in RIGHT.items():
        for value in right:
            if (name, value) == ('min_p', 1):
                continue
            a = s.post(CHAT, {**ASK, 'temperature': 0.5, name: value})
            check(a.status == 200, f'{name} {value!r}: {a}')


def effects(s):
    def text(**f):
        return s.post(CHAT, {**ASK, 'max_tokens': 24, **f}).json()['choices'][0]['message']['content']
    greedy = text()
    check(greedy == text() == text(temperature=0) == text(temperature=1, top_k=1) == text(temperature=2, top_p=0), 'greedy by default, and by other ways')
    sampled = [text(temperature=1.5, seed=i) for i in range(6)]
    check(len(set(sampled)) > 3 and sampled == [text(temperature=1.5, seed=i) for i in range(6)], 'a seed decides')
    check(len({text(temperature=2) for _ in range(6)}) > 1, 'without a seed answers differ')
    check(text(repetition_penalty=2) != greedy and text(frequency_penalty=2) != greedy, 'penalties have an effect')
    told = s.post(CHAT, {**ASK, 'temperature': 1.5, 'ironmule': {'timings': True}}).json()
    seed = told['ironmule']['sampling']['seed']
    again = s.post(CHAT, {**ASK, 'temperature': 1.5, 'seed': seed}).json()
    check(told['choices'] == again['choices'], 'the seed that was drawn is told, and gives the answer again')
    told = s.post(CHAT, {**ASK, 'temperature': 0.25, 'top_p': 0.5, 'top_k': 3, 'min_p': 0.125, 'seed': 9, 'presence_penalty': 0.5, 'frequency_penalty': -0.5,
                         'repetition_penalty': 1.5, 'ironmule': {}}).json()['ironmule']['sampling']
    check(told == {'temperature': 0.25, 'top_p': 0.5, 'top_k': 3, 'min_p': 0.125, 'seed': 9, 'presence_penalty': 0.5, 'frequency_penalty': -0.5,
                   'repetition_penalty': 1.5}, f'the values in force: {told}')
    idle = s.post(CHAT, {**ASK, 'top_p': 0.5, 'seed': 7, 'top_k': 0}).json()['ironmule']['ignored']
    check(sorted(idle) == ['seed', 'top_p'], f'fields without effect are named: {idle}')
    forced = s.post(COMPLETIONS, {'prompt': 'Hello', 'max_tokens': 4, 'ignore_eos': True, 'logit_bias': {'300': 100}, 'ironmule': {'token_ids': True}}).json()
    check(forced['ironmule']['token_ids'] == [300] * 4, f'a bias of 100 decides: {forced}')


def models(s, name):
    for known in (name, 'second', None, ''):
        check(s.post(CHAT, {**ASK, 'model': known}).status == 200, f'model {known!r}')
    for path in (CHAT, COMPLETIONS, '/tokenize'):
        a = s.post(path, {'model': 'gpt-4o', 'prompt' if path == COMPLETIONS else 'text': 'x', **(ASK if path == CHAT else {})})
        expect_error(a, 404, f'{path}: another model', 'model', 'model_not_found')
    check(s.post(CHAT, ASK).json()['model'] == name, 'the model of an answer')
    listed = s.get('/v1/models').json()
    check(listed['object'] == 'list' and [m['id'] for m in listed['data']] == [name], f'/v1/models: {listed}')
    check(s.get(f'/v1/models/{name}').json()['id'] == name, 'one model')
    expect_error(s.get('/v1/models/other'), 404, 'another model', 'model', 'model_not_found')
    for path in ('/v1/embeddings', '/v1/images/generations', '/v1/audio/speech', '/api/generate', '/v2/models'):
        expect_error(s.post(path, {}), 404, path, None, 'not_found')


def text_routes(s):
    ids = s.post('/tokenize', {'text': 'Hello world', 'pieces': True}).json()
    check(ids['count'] == len(ids['tokens']) == len(ids['pieces']), f'tokenize: {ids}')
    bare = s.post('/tokenize', {'text': 'Hello world', 'bos': False}).json()['tokens']
    check(ids['tokens'][1:] == bare, f'without the first token: {bare}')
    check(s.post('/detokenize', {'tokens': ids['tokens']}).json()['text'].strip() == 'Hello world', 'detokenize')
    check(s.post('/tokenize', {'text': ''}).status == 200 and s.post('/detokenize', {'tokens': []}).json()['text'] == '', 'nothing')
    for body, param in (({}, 'text'), ({'text': 7}, 'text'), ({'text': 'a', 'plain': 1}, 'plain'), ({'text': 'a', 'x': 1}, None)):
        expect_error(s.post('/tokenize', body), 400, f'/tokenize {body}', param)
    for body in ({}, {'tokens': 7}, {'tokens': ['a']}, {'tokens': [-1]}, {'tokens': [1 << 31]}, {'tokens': [100000]}):
        expect_error(s.post('/detokenize', body), 400, f'/detokenize {body}', 'tokens')
    typed = 'Hello</s>Hello'
    parsed, plain = (s.post('/tokenize', {'text': typed, 'plain': x}).json()['count'] for x in (False, True))
    got = s.complete(typed, max_tokens=1).json()['usage']['prompt_tokens']
    check(parsed < plain and got == parsed, f'control tokens in a prompt are parsed: {got}, {parsed} parsed, {plain} plain')
    for prompt in (7, {}, [], [[]], ['a', 7], [1.5], [-1], [100000], [True], [['a']], ['a'] * 9):
        expect_error(s.complete(prompt), 400, f'prompt {prompt!r}', 'prompt')
    expect_error(s.post(COMPLETIONS, {}), 400, 'no prompt', 'prompt', 'missing_field')
    expect_error(s.post(CHAT, {}), 400, 'no messages', 'messages', 'missing_field')
    for name, value in (('echo', True), ('suffix', 'x'), ('best_of', 2)):
        expect_error(s.complete('a', **{name: value}), 400, name, name, 'unsupported_field')
    check(s.complete('a', echo=False, suffix=None, best_of=1, max_tokens=1).status == 200, 'and nothing asked by them')


def codes(s):
    """The documented code of each kind of mistake."""
    chat = {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 1}
    picture = {'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'data:,'}}]}
    for code, path, body, headers in (
            ('invalid_json', CHAT, b'{"messages": [', {}), ('invalid_type', CHAT, {**chat, 'stop': 7}, {}), ('invalid_value', CHAT, {**chat, 'stop': ''}, {}),
            ('integer_below_min_value', CHAT, {**chat, 'n': 0}, {}), ('integer_above_max_value', CHAT, {**chat, 'n': 9}, {}),
            ('number_out_of_range', CHAT, {**chat, 'temperature': 3}, {}), ('missing_field', CHAT, {}, {}), ('empty_array', CHAT, {'messages': []}, {}),
            ('unsupported_field', CHAT, {**chat, 'tools': [{}]}, {}), ('unsupported_content', CHAT, {**chat, 'messages': [picture]}, {}),
            ('unknown_field', '/tokenize', {'text': 'a', 'x': 1}, {}), ('context_length_exceeded', COMPLETIONS, {'prompt': [20] * 600}, {}),
            ('content_type', CHAT, chat, {'Content-Type': 'text/plain'})):
        a = s.post(path, body, headers=headers)
        expect_error(a, 400, code, ..., code)
        check(a.error.get('type') == 'invalid_request_error' and a.error['message'], f'{code}: its type: {a}')
    for a, status, kind, code in ((s.ask('DELETE', CHAT), 405, 'invalid_request_error', 'method_not_allowed'),
                                  (s.get('/health', headers={'Host': 'evil.test'}), 403, 'permission_error', 'foreign_host')):
        expect_error(a, status, code, None, code)
        check(a.error['type'] == kind, f'{code}: its type: {a}')
    check(s.ask('DELETE', CHAT).headers['allow'] == 'POST, OPTIONS', 'what is allowed is said')


def choices():
    with Server('--max-choices', 2) as s:
        check(len(s.chat(n=2, max_tokens=1).json()['choices']) == 2, 'as many answers as are allowed')
        expect_error(s.chat(n=3, max_tokens=1), 400, 'one more', 'n', 'integer_above_max_value')
        expect_error(s.complete(['a', 'b'], n=2), 400, 'two prompts, two answers each', 'n')


def main():
    with Server('--alias', 'first', '--alias', 'second') as s:
        values(s)
        effects(s)
        models(s, 'first')
        text_routes(s)
        codes(s)
    choices()
    with Server('--any-model') as s:
        check(s.post(CHAT, {**ASK, 'model': 'gpt-4o'}).json()['model'] == 'arch-tiny', 'any model, when that is asked for')
        models_alone = s.get('/v1/models').json()['data'][0]['id']
        check(models_alone == 'arch-tiny', f'the name of the file is the name of the model: {models_alone}')
    return verdict()


raise SystemExit(main())
