# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json and docs/http.md say what the server does: each route, field and code is in all three places, each answer fits its schema, and the
examples run."""
import json
import os
import re
import shlex
import shutil
import subprocess

from json_schema import Schemas
from server import CHAT, COMPLETIONS, Server, check, verdict
from program import run  # server.py says where it is

SOURCE = os.environ['IM_SOURCE']
OPENAPI = json.load(open(os.path.join(SOURCE, 'docs', 'openapi.json'), encoding='utf-8'))
PAGE = open(os.path.join(SOURCE, 'docs', 'http.md'), encoding='utf-8').read()
SCHEMAS = Schemas(OPENAPI)
REQUESTS = {CHAT: 'ChatRequest', COMPLETIONS: 'CompletionRequest', '/tokenize': 'TokenizeRequest', '/detokenize': 'DetokenizeRequest',
            '/apply-template': 'TemplateRequest'}
ANSWERS = {CHAT: 'ChatAnswer', COMPLETIONS: 'CompletionAnswer', '/tokenize': 'TokenizeAnswer', '/detokenize': 'DetokenizeAnswer',
           '/apply-template': 'TemplateAnswer'}
CHUNKS = {CHAT: 'ChatChunk', COMPLETIONS: 'CompletionChunk'}
MINIMAL = {CHAT: {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 3}, COMPLETIONS: {'prompt': 'Hi', 'max_tokens': 3}, '/tokenize': {'text': 'Hi'},
           '/detokenize': {'tokens': [5, 6]}, '/apply-template': {'messages': [{'role': 'user', 'content': 'Hi'}]}}
# Any type but the field's own: each must be refused by name.
WRONG = {'messages': 7, 'prompt': {}, 'stop': 7, 'logprobs': 'x', 'tokens': 'x', 'text': 7, 'user': 7, 'model': 7}


def source(name):
    return open(os.path.join(SOURCE, 'apps', 'serve', name), encoding='utf-8').read()


def properties(name):
    return set(OPENAPI['components']['schemas'][name]['properties'])


def fits(name, value, what):
    faults = SCHEMAS.faults({'$ref': f'#/components/schemas/{name}'}, value)
    return check(not faults, f'{what} fits {name}: {faults[:5]}')


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == '$ref':
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_document():
    """The file holds together."""
    used = set(references(OPENAPI))
    for reference in used:
        check(SCHEMAS.resolve(reference), f'{reference} leads somewhere')
    for kind in ('schemas', 'responses', 'headers'):
        for name in OPENAPI['components'][kind]:
            known_elsewhere = name in CHUNKS.values()  # named in words, since streams have no schema of their own
            check(f'#/components/{kind}/{name}' in used or known_elsewhere, f'{kind} {name} is used')
    ids = [operation['operationId'] for path in OPENAPI['paths'].values() for operation in path.values()]
    check(len(set(ids)) == len(ids), 'operations have names of their own')
    version = re.search(r'IM_VERSION_MAJOR (\d+)\n#define IM_VERSION_MINOR (\d+)\n#define IM_VERSION_PATCH (\d+)',
                        open(os.path.join(SOURCE, 'include', 'ironmule', 'ironmule.h'), encoding='utf-8').read())
    check(OPENAPI['info']['version'] == '.'.join(version.groups()), 'the version is the header\'s')


def test_names():
    """Routes, fields, codes and options of the source are those of the documents."""
    routes = set(re.findall(r'^    \{"(/[^"]*)", "', source('router.c'), re.M))
    check(len(routes) >= 10 and routes | {'/v1/models/{model}'} == set(OPENAPI['paths']), f'routes: {routes ^ set(OPENAPI["paths"])}')
    fields = re.findall(r'^    \{"(\w+)", (CHAT|COMPLETION|BOTH), ', source('fields.c'), re.M)
    check(len(fields) > 20, 'the fields are found in the source')
    for path, where in ((CHAT, 'CHAT'), (COMPLETIONS, 'COMPLETION')):
        known = {name for name, place in fields if place in (where, 'BOTH')} | {'user'}
        check(known == properties(REQUESTS[path]), f'fields of {path}: {known ^ properties(REQUESTS[path])}')
    extras = set(re.findall(r'"ironmule\.(\w+)"', source('fields.c')))
    check(extras == properties('OursIn'), f'fields of ironmule: {extras ^ properties("OursIn")}')
    lists = [set(re.findall(r'"(\w+)"', text)) | {'model'} for text in re.findall(r'known\[\] = \{([^}]*)\};', source('text_routes.c'))]
    check(lists == [properties(REQUESTS[p]) for p in ('/tokenize', '/detokenize', '/apply-template')], f'fields of the other routes: {lists}')
    for path in OPENAPI['paths']:
        check(f'`{path}`' in PAGE or f'GET {path}`' in PAGE or f'POST {path}`' in PAGE, f'http.md tells of {path}')
    for name in set.union(*map(properties, (*REQUESTS.values(), 'OursIn', 'OursOut', 'Timings'))):
        check(re.search(rf'`"?{name}\b', PAGE), f'http.md tells of the field {name}')
    unserved = re.search(r'names\[\] = \{([^}]*)\};', source('fields.c')[source('fields.c').index('is_unserved'):])
    for name in re.findall(r'"(\w+)"', unserved[1]):
        check(f'`{name}`' in PAGE, f'http.md tells that {name} is not served')
    text = ''.join(source(name) for name in os.listdir(os.path.join(SOURCE, 'apps', 'serve')) if name.endswith('.c'))
    codes = set(re.findall(r'(?:problem_set\([^;]*?|refuse\(c, \d+, |INVALID\()[^;]*?4\d\d, [^,]+, "(\w+)"', text)) | set(re.findall(r'\*code = "(\w+)"', text))
    check(len(codes) > 10, 'the codes are found in the source')
    for code in codes:
        check(f'`{code}`' in PAGE, f'http.md tells of the code {code}')
    help_text = run('serve', '--help').stdout.decode()
    options = set(re.findall(r'(--[a-z][a-z-]+)', help_text))
    check(len(options) > 30, 'the options are found')
    for option in set(re.findall(r'`(--[a-z][a-z-]+)', PAGE)):
        check(option in options, f'{option} of http.md is an option')


def test_fields(s):
    """Each field that is described is known, and refused by name when it is wrong."""
    for path, name in REQUESTS.items():
        for field in sorted(properties(name)):
            wrong = s.post(path, {**MINIMAL[path], field: WRONG.get(field, 'wrong' if field not in ('tools',) else 7)})
            told = wrong.error.get('param') or wrong.error.get('message', '')
            check(wrong.status == 400 and field in told, f'{path}: a wrong {field} is refused by name: {wrong}')
            fits('Error', wrong.json(), f'{path}: the refusal of {field}')
            if field not in MINIMAL[path]:
                check(s.post(path, {**MINIMAL[path], field: None}).status == 200, f'{path}: {field} null is as good as absent')


def test_answers(s):
    """Whatever is answered is described."""
    every = {'ironmule': {'logits_hash': True, 'timings': True, 'token_ids': True}, 'frobnicate': 1}
    variants = [{}, every, {**every, 'n': 2, 'temperature': 0.9, 'seed': 1}, {'stop': 'e', 'logit_bias': {'5': 3}, 'min_p': 0.1, 'repetition_penalty': 1.1}]
    chat = [{'logprobs': True}, {'logprobs': True, 'top_logprobs': 3, 'ignore_eos': True}]
    completion = [{'logprobs': 0}, {'logprobs': 3, 'ignore_eos': True}, {'prompt': ['One', 'Two'], **every}, {'prompt': [[5, 6], [7]]}]
    for path in (CHAT, COMPLETIONS):
        for more in variants + (chat if path == CHAT else completion):
            body = {**MINIMAL[path], **more}
            fits(REQUESTS[path], body, f'{path} {more}: the request')
            answer = s.post(path, body)
            check(answer.status == 200, f'{path} {more}: {answer}') and fits(ANSWERS[path], answer.json(), f'{path} {more}')
            for options in ({}, {'stream_options': {'include_usage': True}}):
                events = s.events(path, {**body, **options})
                for event in events[:-1]:
                    fits(CHUNKS[path], event, f'{path} {more}, streamed')
    for path in ('/tokenize', '/detokenize', '/apply-template'):
        more = {'pieces': True} if path == '/tokenize' else {}
        for body in (MINIMAL[path], {**MINIMAL[path], **more}):
            fits(REQUESTS[path], body, f'{path}: the request')
            fits(ANSWERS[path], s.post(path, body).json(), path)
    models = s.get('/v1/models').json()
    fits('ModelList', models, '/v1/models')
    fits('Model', s.get(f'/v1/models/{models["data"][0]["id"]}').json(), '/v1/models/...')


def test_operations(s):
    """Each operation answers with a status, a type and headers that are described."""
    for path, operations in OPENAPI['paths'].items():
        for method, operation in operations.items():
            url = path.replace('{model}', s.get('/v1/models').json()['data'][0]['id'])
            good = s.ask(method.upper(), url, MINIMAL.get(path))
            described = operation['responses']['200']
            kind = good.headers['content-type'].split(';')[0]
            check(good.status == 200 and kind in described['content'], f'{method} {path}: {good.status} {kind}')
            check('x-request-id' in good.headers, f'{method} {path}: an id')
            bad = s.ask(method.upper(), url, None if method == 'get' else b'{', headers={'Host': 'evil.test'})
            check(bad.status == 403 and '403' in operation['responses'], f'{method} {path}: a foreign host is refused: {bad}')
            fits('Error', bad.json(), f'{method} {path} from a foreign host')
            other = s.ask('DELETE', url)
            check(other.status == 405 and 'allow' in other.headers, f'DELETE {path}: {other}')
    key = {'Content-Type': None}
    for what, answer, status in (('no type', s.ask('POST', CHAT, b'{}', headers=key), 400), ('no path', s.get('/nowhere'), 404),
                                 ('no model', s.get('/v1/models/other'), 404), ('no JSON', s.post(CHAT, b'{'), 400)):
        check(answer.status == status, f'{what}: {answer}')
        fits('Error', answer.json(), what)


def test_examples(s):
    """The curl lines of http.md, sent to this server."""
    examples = [block for block in re.findall(r'```sh\n(.*?)```', PAGE, re.S) if block.startswith('curl')]
    check(len(examples) >= 6, f'{len(examples)} examples')
    if not shutil.which('curl'):
        print('the examples are not run: no curl here')
        return
    for example in examples:
        done = subprocess.run(shlex.split(example.replace(':8080', f':{s.port}')) + ['-sS', '--fail-with-body'], capture_output=True, timeout=60)
        good = done.returncode == 0 and (b'data: [DONE]' in done.stdout or b'error' not in json.loads(done.stdout))
        check(good, f'{example[:70]!r}: {done.stdout[:200]} {done.stderr[:200]}')


def main():
    test_document()
    test_names()
    with Server('--context', '256') as s:
        for test in (test_fields, test_answers, test_operations, test_examples):
            test(s)
    return verdict()


if __name__ == '__main__':
    raise SystemExit(main())
