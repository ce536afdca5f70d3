# SPDX-License-Identifier: Apache-2.0
"""The chat page as `ironmule serve` serves it, with a real model, in a real browser: the policy of the server's own headers, a conversation, a key.

IM_SCREENSHOTS, a folder: pictures of the page are left there.
"""
import os
import tempfile
import time

import devtools
from server import SMOLLM2, Server, check, need_model, skip, verdict

KEY = 'a-key-for-the-page'


def ask(page, text):
    page.evaluate('document.getElementById("input").focus()')
    page.type(text)
    page.press('Enter')
    check(page.wait('running') and page.wait('!running', 60), f'{text!r} is answered')
    return page.evaluate('({text: turns.at(-1).text, numbers: turns.at(-1).numbers, problem: turns.at(-1).problem?.message ?? null, finish: turns.at(-1).finish})')


def test_conversation(page, s):
    page.open(f'http://127.0.0.1:{s.port}/')
    check(page.wait('model'), 'the page finds the model')
    check(not page.said, f'the page keeps to the policy of the server: {list(page.said)}')
    page.evaluate('settings = {system: "", temperature: 0, maxTokens: 48}')
    first = ask(page, 'What is the capital of France?')
    alone = s.chat('What is the capital of France?', max_tokens=48).json()['choices'][0]['message']['content']
    check(first['text'] == alone and first['problem'] is None, f'the page shows what the server says: {first} {alone!r}')
    second = ask(page, 'And of Italy?')
    usage = second['numbers']['usage']
    check(usage['prompt_tokens_details']['cached_tokens'] > 0 and usage['completion_tokens'] > 0, f'the second turn finds the first in the cache: {usage}')
    if 'IM_SCREENSHOTS' in os.environ:
        page.screenshot(os.path.join(os.environ['IM_SCREENSHOTS'], 'served.png'))
    text = second['text']
    page.click('.turn:last-child [data-action="again"]')
    check(page.wait('!running', 60) and page.evaluate('turns.at(-1).text') == text, 'again, the same answer at temperature 0')
    page.evaluate('settings.maxTokens = 4')
    check(ask(page, 'Tell me a story.')['finish'] == 'length', 'the limit is kept')
    page.click('.turn:last-child [data-action="continue"]')
    check(page.wait('running') and page.wait('!running', 60), 'an answer goes on')
    check(page.evaluate('turns.at(-1).numbers.usage.completion_tokens') == 4, 'by as many tokens again')
    page.evaluate('settings.maxTokens = 1000')
    page.evaluate('document.getElementById("input").focus()')
    page.type('Write a very long story.')
    page.press('Enter')
    check(page.wait('turns.at(-1).text.length > 20', 60), 'a long answer begins')
    page.press('Escape')
    check(page.wait('!running', 5) and page.evaluate('turns.at(-1).finish') == 'stopped', 'and is stopped')


def test_key(page, url):
    page.open(url)
    check(page.wait('document.getElementById("key-dialog").open'), 'the page asks for the key')
    page.type(KEY)
    page.press('Enter')
    check(page.wait('model'), 'and has the model then')
    page.evaluate('settings = {system: "", temperature: 0, maxTokens: 8}')
    check(ask(page, 'Hello')['problem'] is None, 'and answers')


def is_idle(s):
    """Within two seconds nothing is computed any more."""
    until = time.monotonic() + 2
    while s.metric('ironmule_requests_running') != 0 and time.monotonic() < until:
        time.sleep(0.05)
    return s.metric('ironmule_requests_running') == 0


def main():
    if not devtools.find_browser():
        skip('no Chromium here (Debian: chromium; or set IM_BROWSER)')
    model = need_model(SMOLLM2)
    with devtools.Browser() as page, tempfile.NamedTemporaryFile('w', suffix='.keys') as keys:
        with Server('--threads', '1', model=model) as s:
            test_conversation(page, s)
            check(is_idle(s), 'what was stopped in the page is stopped in the server')
        keys.write(KEY + '\n')
        keys.flush()
        with Server('--threads', '1', '--api-key-file', keys.name, model=model) as s:
            test_key(page, f'http://127.0.0.1:{s.port}/')
    return verdict()


if __name__ == '__main__':
    raise SystemExit(main())
