# SPDX-License-Identifier: Apache-2.0
"""What clients of OpenAI's API expect, asked through them: the official one, litellm and langchain-openai. Run by test_serve_clients.py.

    client_checks.py URL URL-OF-A-SERVER-WITH-ROOM-FOR-ONE KEY
"""
import asyncio
import contextlib
import io
import os
import re
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.environ['IM_SOURCE'], 'tests', 'cli'))
from program import check, verdict  # noqa: E402

import openai  # noqa: E402

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP='True', LITELLM_TELEMETRY='False')
import litellm  # noqa: E402

litellm.suppress_debug_info = True
from langchain_openai import ChatOpenAI, OpenAI as LangchainCompletion  # noqa: E402

URL, NARROW, KEY = sys.argv[1:4]
QUESTION = [{'role': 'user', 'content': 'Name three colours.'}]


def client(url=URL, key=KEY, **more):
    return openai.OpenAI(base_url=f'{url}/v1', api_key=key, **{'max_retries': 0, **more})


def raises(kind, what, call, **attributes):
    """Does the call raise this exception, with these attributes?"""
    try:
        got = call()
    except Exception as problem:
        seen = {name: getattr(problem, name, None) for name in attributes}
        return check(isinstance(problem, kind) and seen == attributes, f'{what}: {kind.__name__} {attributes}, not {type(problem).__name__} {seen}: {str(problem)[:200]}')
    return check(False, f'{what}: {kind.__name__}, not {got!r:.200}')


def text_of(stream):
    """Joined text of a chat stream; its usage, if it came."""
    text, usage = '', None
    for chunk in stream:
        usage = chunk.usage or usage
        text += ''.join(choice.delta.content or '' for choice in chunk.choices)
    return text, usage


def running(url):
    request = urllib.request.Request(f'{url}/metrics', headers={'Authorization': f'Bearer {KEY}'})
    page = urllib.request.urlopen(request).read().decode()
    return sum(float(line.split()[1]) for line in page.splitlines() if line.startswith(('ironmule_requests_running ', 'ironmule_requests_queued ')))


def wait_for(what, good):
    until = time.monotonic() + 10
    while not good() and time.monotonic() < until:
        time.sleep(0.02)
    return check(good(), what)


# ---- the official client ----


def openai_chat(c, model):
    ask = dict(model=model, messages=QUESTION, max_tokens=24)
    answer = c.chat.completions.create(**ask)
    text = answer.choices[0].message.content
    check(text and answer.choices[0].finish_reason in ('stop', 'length') and answer.model == model, f'chat: {answer}')
    usage = answer.usage
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.prompt_tokens_details.cached_tokens is not None, f'usage: {usage}')
    check(answer.system_fingerprint.startswith('im-') and answer._request_id, 'fingerprint and request id')
    check(text_of(c.chat.completions.create(**ask, stream=True)) == (text, None), 'a stream says the same')
    streamed, usage = text_of(c.chat.completions.create(**ask, stream=True, stream_options={'include_usage': True}))
    check(streamed == text and usage.completion_tokens == answer.usage.completion_tokens, 'and has the usage at its end')
    with c.chat.completions.stream(**ask, stop=' ') as events:  # it refuses answers that reached the limit
        for _ in events:
            pass
        check(events.get_final_completion().choices[0].message.content == text.split(' ')[0], 'the helper for streams puts it together')
    more = c.chat.completions.create(**ask, extra_body={'ironmule': {'logits_hash': True, 'token_ids': True}, 'made_up': 1})
    check(len(more.ironmule['logits_hash']) == 16 and more.ironmule['ignored'] == ['made_up'], f'what is ours: {more.ironmule}')
    parts = c.chat.completions.create(model=model, max_tokens=24, messages=[{'role': 'user', 'content': [{'type': 'text', 'text': 'Name three colours.'}]}])
    check(parts.choices[0].message.content == text, 'text parts are as good as text')


def openai_sampling(c, model):
    ask = dict(model=model, messages=QUESTION, max_tokens=16, temperature=0.9, seed=11)
    two = c.chat.completions.create(**ask, n=2)
    texts = [choice.message.content for choice in two.choices]
    check(len(texts) == 2 and texts[0] != texts[1], f'n=2: {texts}')
    check([choice.message.content for choice in c.chat.completions.create(**ask, n=2).choices] == texts, 'the same seed, the same two')
    check(c.chat.completions.create(**ask).choices[0].message.content == texts[0], 'the first of two is the one alone')
    parts = {0: '', 1: ''}
    for chunk in c.chat.completions.create(**ask, n=2, stream=True):
        for choice in chunk.choices:
            parts[choice.index] += choice.delta.content or ''
    check([parts[0], parts[1]] == texts, 'two at once, streamed')
    whole = c.chat.completions.create(model=model, messages=QUESTION, max_completion_tokens=24).choices[0].message.content
    word = whole.split()[2]
    cut = c.chat.completions.create(model=model, messages=QUESTION, max_tokens=24, stop=[word, 'never seen']).choices[0]
    check(cut.finish_reason == 'stop' and cut.message.content == whole[:whole.index(word)], f'stop {word!r}: {cut.message.content!r} of {whole!r}')
    few = c.chat.completions.create(model=model, messages=QUESTION, max_tokens=1).choices[0]
    check(few.finish_reason == 'length', 'one token, then the limit')


def openai_logprobs(c, model):
    choice = c.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, logprobs=True, top_logprobs=5).choices[0]
    entries = choice.logprobs.content
    check(b''.join(bytes(e.bytes or []) for e in entries).decode() == choice.message.content, 'the bytes joined are the text')
    for entry in entries:
        values = [top.logprob for top in entry.top_logprobs]
        check(len(values) == 5 and values == sorted(values, reverse=True) and entry.logprob == values[0] <= 0, f'log-probabilities of {entry.token!r}')
    streamed = []
    for chunk in c.chat.completions.create(model=model, messages=QUESTION, max_tokens=8, logprobs=True, top_logprobs=5, stream=True):
        for one in chunk.choices:
            streamed += one.logprobs.content if one.logprobs else []
    check([e.logprob for e in streamed] == [e.logprob for e in entries], 'streamed, the same')


def openai_completions(c, model):
    answer = c.completions.create(model=model, prompt='Once upon a time', max_tokens=12, logprobs=2)
    choice = answer.choices[0]
    check(choice.text and ''.join(choice.logprobs.tokens) == choice.text and len(choice.logprobs.top_logprobs[0]) == 2, f'completion: {choice}')
    streamed = ''.join(one.text for chunk in c.completions.create(model=model, prompt='Once upon a time', max_tokens=12, stream=True) for one in chunk.choices)
    check(streamed == choice.text, 'streamed, the same')
    several = c.completions.create(model=model, prompt=['Once upon a time', 'The sea is'], max_tokens=12)
    check(len(several.choices) == 2 and several.choices[0].text == choice.text, 'two prompts at once')
    ids = c.completions.create(model=model, prompt=[19556, 905], max_tokens=4, temperature=0.7, seed=5)
    check(ids.usage.prompt_tokens == 2, 'a prompt of ids')


def openai_models(c):
    listed = list(c.models.list())
    check(len(listed) == 1 and c.models.retrieve(listed[0].id).id == listed[0].id, f'models: {listed}')
    raises(openai.NotFoundError, 'another model', lambda: c.models.retrieve('other'), status_code=404, code='model_not_found')
    return listed[0].id


def openai_errors(c, model):
    def chat(**fields):
        return lambda: c.chat.completions.create(**{'model': model, 'messages': QUESTION, 'max_tokens': 4, **fields})

    bad = openai.BadRequestError
    raises(bad, 'a temperature out of range', chat(temperature=9), status_code=400, param='temperature', type='invalid_request_error')
    raises(bad, 'no messages', chat(messages=[]), status_code=400, param='messages')
    raises(bad, 'tools', chat(tools=[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]), status_code=400, param='tools')
    raises(bad, 'JSON as the format', chat(response_format={'type': 'json_object'}), status_code=400, param='response_format')
    raises(bad, 'a prompt that is too long', chat(messages=[{'role': 'user', 'content': 'word ' * 3000}]), status_code=400, code='context_length_exceeded')
    raises(bad, 'the same, streamed', lambda: text_of(chat(messages=[{'role': 'user', 'content': 'word ' * 3000}], stream=True)()), status_code=400, code='context_length_exceeded')
    raises(openai.NotFoundError, 'a model that is not there', chat(model='gpt-4o'), status_code=404, code='model_not_found')
    raises(openai.AuthenticationError, 'a wrong key', lambda: client(key='wrong').models.list(), status_code=401, code='invalid_api_key')
    raises(openai.NotFoundError, 'embeddings', lambda: c.embeddings.create(model=model, input='x'), status_code=404)
    raises(openai.NotFoundError, 'responses', lambda: c.responses.create(model=model, input='x'), status_code=404)
    raises(openai.APIConnectionError, 'no server', lambda: client('http://127.0.0.1:9').models.list())
    raises(openai.APITimeoutError, "the client's own deadline", lambda: client(timeout=0.05).chat.completions.create(model=model, messages=QUESTION, max_tokens=900, extra_body={'ignore_eos': True}))


def openai_busy(model):
    """One runs, one waits, the third is told to come again; the client does, and is served when there is room."""
    c, long = client(NARROW), dict(model=model, messages=QUESTION, max_tokens=900, stream=True, extra_body={'ignore_eos': True})
    first = c.chat.completions.create(**long)
    for _, chunk in zip(range(3), first):
        pass
    waiting = asyncio.new_event_loop()
    other = openai.AsyncOpenAI(base_url=f'{NARROW}/v1', api_key=KEY, max_retries=0)
    second = waiting.create_task(other.chat.completions.create(**{**long, 'stream': False}))
    waiting.run_until_complete(asyncio.sleep(0.3))
    wait_for('one runs and one waits', lambda: running(NARROW) == 2)
    raises(openai.InternalServerError, 'a full queue', lambda: c.chat.completions.create(model=model, messages=QUESTION, max_tokens=4), status_code=503, code='queue_full')
    second.cancel()
    waiting.run_until_complete(asyncio.gather(second, return_exceptions=True))
    first.close()
    waiting.run_until_complete(other.close())
    wait_for('who hangs up makes room', lambda: running(NARROW) == 0)
    check(client(NARROW, max_retries=3).chat.completions.create(model=model, messages=QUESTION, max_tokens=4).choices, 'then there is room')


async def openai_async(model):
    c = openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key=KEY, max_retries=0)
    ask = dict(model=model, messages=QUESTION, max_tokens=24)
    answers = await asyncio.gather(*(c.chat.completions.create(**ask) for _ in range(6)))
    texts = {answer.choices[0].message.content for answer in answers}
    check(len(texts) == 1, f'six at once say the same: {texts}')
    text = ''
    async for chunk in await c.chat.completions.create(**ask, stream=True):
        text += ''.join(choice.delta.content or '' for choice in chunk.choices)
    check({text} == texts, 'as does a stream')
    await c.close()


def openai_example():
    """The program of docs/http.md, at this server."""
    with open(os.path.join(os.environ['IM_SOURCE'], 'docs', 'http.md'), encoding='utf-8') as file:
        program, = re.findall(r'```python\n(.*?)```', file.read(), re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program.replace('http://127.0.0.1:8080', URL).replace("'none'", repr(KEY)), {})
    check(re.search(r' [0-9a-f]{16}\n.+', out.getvalue(), re.S), f'the example of the document says something: {out.getvalue()!r}')


# ---- litellm ----


async def litellm_checks(model):
    ask = dict(model=f'openai/{model}', api_base=f'{URL}/v1', api_key=KEY, messages=QUESTION, max_tokens=16, num_retries=0)
    text = litellm.completion(**ask).choices[0].message.content
    check(text, 'litellm: an answer')
    check(''.join(chunk.choices[0].delta.content or '' for chunk in litellm.completion(**ask, stream=True)) == text, 'litellm: a stream')
    check((await litellm.acompletion(**ask)).choices[0].message.content == text, 'litellm: asynchronous')
    parts = [chunk async for chunk in await litellm.acompletion(**ask, stream=True, stream_options={'include_usage': True})]
    check(''.join(part.choices[0].delta.content or '' for part in parts if part.choices) == text, 'litellm: an asynchronous stream')
    done = litellm.text_completion(model=f'text-completion-openai/{model}', api_base=f'{URL}/v1', api_key=KEY, prompt='Once upon a time', max_tokens=8)
    check(done.choices[0].text, 'litellm: a completion')
    raises(litellm.BadRequestError, 'litellm: a bad field', lambda: litellm.completion(**{**ask, 'temperature': 9}), status_code=400)
    raises(litellm.AuthenticationError, 'litellm: a wrong key', lambda: litellm.completion(**{**ask, 'api_key': 'wrong'}), status_code=401)
    raises(litellm.ContextWindowExceededError, 'litellm: a prompt that is too long',
           lambda: litellm.completion(**{**ask, 'messages': [{'role': 'user', 'content': 'word ' * 3000}]}), status_code=400)
    raises(litellm.NotFoundError, 'litellm: no such model', lambda: litellm.completion(**{**ask, 'model': 'openai/other'}), status_code=404)


# ---- langchain ----


async def langchain_checks(model):
    chat = ChatOpenAI(model=model, base_url=f'{URL}/v1', api_key=KEY, max_tokens=16, temperature=0, max_retries=0, stream_usage=True)
    answer = chat.invoke('Name three colours.')
    check(answer.content and answer.usage_metadata['output_tokens'] > 0, f'langchain: an answer: {answer}')
    chunks = list(chat.stream('Name three colours.'))
    check(''.join(chunk.content for chunk in chunks) == answer.content, 'langchain: a stream')
    check(any(chunk.usage_metadata for chunk in chunks), 'langchain: with its usage')
    check([one.content for one in chat.batch(['Name three colours.'] * 3)] == [answer.content] * 3, 'langchain: a batch')
    check((await chat.ainvoke('Name three colours.')).content == answer.content, 'langchain: asynchronous')
    check(''.join([chunk.content async for chunk in chat.astream('Name three colours.')]) == answer.content, 'langchain: an asynchronous stream')
    check(chat.bind(logprobs=True, top_logprobs=2).invoke('Hi').response_metadata['logprobs']['content'], 'langchain: log-probabilities')
    check(chat.bind(stop=[' ']).invoke('Name three colours.').content == answer.content.split(' ')[0], 'langchain: a stop text')
    completion = LangchainCompletion(model=model, base_url=f'{URL}/v1', api_key=KEY, max_tokens=8, temperature=0, max_retries=0)
    check(completion.invoke('Once upon a time'), 'langchain: a completion')
    raises(openai.AuthenticationError, 'langchain: a wrong key', lambda: ChatOpenAI(model=model, base_url=f'{URL}/v1', api_key='wrong', max_retries=0).invoke('Hi'))


def main():
    c = client()
    model = openai_models(c)
    for part in (openai_chat, openai_sampling, openai_logprobs, openai_completions, openai_errors):
        part(c, model)
    asyncio.run(openai_async(model))
    openai_busy(model)
    openai_example()
    asyncio.run(litellm_checks(model))
    asyncio.run(langchain_checks(model))
    wait_for('nothing is left running', lambda: running(URL) == 0 and running(NARROW) == 0)
    return verdict()


if __name__ == '__main__':
    sys.exit(main())
