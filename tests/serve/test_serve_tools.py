# SPDX-License-Identifier: Apache-2.0
"""A conversation with tool calls that comes back: null content, arguments as text or as an object, several tool messages. The calls themselves are not made here:
`tools` in a request is refused by name."""
from server import CHAT, Server, check, expect_error, verdict, with_template

ARGUMENTS = '{"city": "Z\u00fcrich", "n": 1}'
TURN = ('<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"city": "Z\u00fcrich", "n": 1}}\n</tool_call><|im_end|>\n'
        '<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n')
USER, RESULT = {'role': 'user', 'content': 'w?'}, {'role': 'tool', 'tool_call_id': 'c1', 'content': 'ok'}
ABSENT = object()


def call(content, arguments):
    message = {'role': 'assistant', 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': arguments}}]}
    if content is not ABSENT:
        message['content'] = content
    return message


def main():
    with Server(model=with_template('qwen3')) as s:
        def render(*messages):
            return s.post('/apply-template', {'messages': list(messages)})
        for content in (None, '', ABSENT):
            for arguments in (ARGUMENTS, {'city': 'Z\u00fcrich', 'n': 1}):
                a = render(USER, call(content, arguments), RESULT)
                check(a.status == 200 and a.json()['prompt'].endswith(TURN), f'content {content!r}, arguments {arguments!r}: {a}')
        two = render(USER, call(None, ARGUMENTS), RESULT, {**RESULT, 'content': 'too'}).json()['prompt']
        check(two.count('<tool_response>') == 2 and two.count('<|im_start|>user') == 2, f'two tool messages share a turn: {two!r}')
        for arguments in ('not json', '', '[1', 7, None):
            a = render(USER, call(None, arguments), RESULT)
            check(a.status in (200, 400), f'arguments {arguments!r}: {a}')
            if a.status == 400:
                expect_error(a, 400, f'arguments {arguments!r}')
        for message in ({'role': 'assistant'}, {'role': 'assistant', 'content': None}, {'role': 'assistant', 'content': None, 'tool_calls': []},
                        {'role': 'assistant', 'tool_calls': []}):
            expect_error(s.post(CHAT, {'messages': [USER, message, USER], 'max_tokens': 1}), 400, f'{message}', 'messages[1].content')
        check(render(USER, {'role': 'assistant', 'content': 'a', 'tool_calls': []}, USER).status == 200, 'content and no calls')
        for calls in (7, 'x', [7], [{}], [{'function': 7}], [{'function': {}}], [{'function': {'name': 'f', 'arguments': 7}}], [{'id': 7, 'function': {'name': 'f'}}],
                      [{'type': 'x', 'function': {'name': 'f'}}]):
            a = render(USER, {'role': 'assistant', 'content': 'a', 'tool_calls': calls}, RESULT)
            expect_error(a, 400, f'tool_calls {calls!r}', 'messages[1].tool_calls')
        answered = s.post(CHAT, {'messages': [USER, call(None, ARGUMENTS), RESULT], 'max_tokens': 3})
        check(answered.status == 200, f'the conversation is answered: {answered}')

        # What is not served is refused by name; what asks for nothing is not.
        ask = {'messages': [USER], 'max_tokens': 1}
        tool = {'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object'}}}
        for name, value in (('tools', [tool]), ('functions', [{'name': 'f'}]), ('tool_choice', 'required'), ('function_call', 'auto'),
                            ('response_format', {'type': 'json_object'}), ('response_format', {'type': 'json_schema', 'json_schema': {}}),
                            ('modalities', ['text', 'audio']), ('audio', {'voice': 'x'}), ('prediction', {'type': 'content', 'content': 'x'}),
                            ('web_search_options', {})):
            expect_error(s.post(CHAT, {**ask, name: value}), 400, f'{name} {value}', name, 'unsupported_field')
        for name, value in (('tools', []), ('tools', None), ('tool_choice', 'none'), ('tool_choice', 'auto'), ('response_format', {'type': 'text'}),
                            ('modalities', ['text']), ('user', 'someone'), ('audio', None)):
            a = s.post(CHAT, {**ask, name: value})
            check(a.status == 200 and 'ironmule' not in a.json(), f'{name} {value!r} asks for nothing: {a}')
        for name, value in (('store', True), ('metadata', {'a': 'b'}), ('parallel_tool_calls', True), ('service_tier', 'auto'), ('whatever', [1])):
            a = s.post(CHAT, {**ask, name: value})
            check(a.status == 200 and a.json().get('ironmule', {}).get('ignored') == [name], f'{name} is ignored, and that is said: {a}')
    return verdict()


raise SystemExit(main())
