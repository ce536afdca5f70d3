# SPDX-License-Identifier: Apache-2.0
"""The chat page in a real browser, against a server that writes what no model would: every control, the markdown, and what must never become HTML.

IM_SCREENSHOTS, a folder: pictures of the page are left there.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
import devtools
import fake_server
from program import check, skip, verdict

PAGE = os.path.join(os.environ['IM_SOURCE'], 'apps', 'serve', 'page')
DONE = '!running'
SAMPLE = '''## Sorting, briefly

A **stable** sort keeps *equal* elements in order. Use `sorted()`, see [the docs](https://docs.python.org/3/).

1. Divide the list
2. Sort each half
   - recursively
   - until length 1
3. Merge

```python
def merge(a, b):
    while a and b:
        yield a.pop(0) if a[0] <= b[0] else b.pop(0)  # a rather long comment, so that the line leaves the column at its right side
```

| algorithm | worst case | stable |
|:--|--:|:-:|
| merge sort | n log n | yes |
| quick sort | n² | no |

> Premature optimisation is the root of all evil.'''

# Markdown and the HTML that the nodes made of it serialise to.
MARKDOWN = {
    'plain': '<p>plain</p>',
    'a\nb\n\nc': '<p>a<br>b</p><p>c</p>',
    '# One\n###### Six ##\n####### seven': '<h1>One</h1><h6>Six</h6><p>####### seven</p>',
    '**b** *i* ***bi*** __b__ _i_ ~~s~~': '<p><strong>b</strong> <em>i</em> <strong><em>bi</em></strong> <strong>b</strong> <em>i</em> <del>s</del></p>',
    '**a *b* c** *a **b***': '<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong></em></p>',
    'snake_case_name 2*3*4 a * b': '<p>snake_case_name 2<em>3</em>4 a * b</p>',
    '**open and *never closed': '<p>**open and *never closed</p>',
    r'\*not\* \<b\>': '<p>*not* &lt;b&gt;</p>',
    '`a*b*` ``x`y`` `open': '<p><code>a*b*</code> <code>x`y</code> `open</p>',
    '- a\n- b\n  - c\n- d': '<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>',
    '- a\n\t- b\n\t\t- c': '<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li></ul>',
    '3. a\n4. b\n\ntext': '<ol start="3"><li>a</li><li>b</li></ol><p>text</p>',
    '1. a\n\n   more\n\n2. b': '<ol><li>a<p>more</p></li><li>b</li></ol>',
    '* a\n1. b': '<ul><li>a</li></ul><ol><li>b</li></ol>',
    '> a\n> - b\n\nc': '<blockquote><p>a</p><ul><li>b</li></ul></blockquote><p>c</p>',
    'a\n---\nb\n* * *': '<p>a</p><hr><p>b</p><hr>',
    '|a|b|\n|-|:-:|\n|1|`x\\|y`|\n|2': '<div class="table"><table><thead><tr><th>a</th><th class="center">b</th></tr></thead><tbody><tr><td>1</td>'
                                     '<td class="center"><code>x|y</code></td></tr><tr><td>2</td><td class="center"></td></tr></tbody></table></div>',
    'a | b\nnot | a table': '<p>a | b<br>not | a table</p>',
    '[t](https://x.org/a_(b)) <https://y.org> https://z.org/q?a=b.': '<p><a href="https://x.org/a_(b)" target="_blank" rel="noopener noreferrer">t</a> '
        '<a href="https://y.org/" target="_blank" rel="noopener noreferrer">https://y.org</a> '
        '<a href="https://z.org/q?a=b" target="_blank" rel="noopener noreferrer">https://z.org/q?a=b</a>.</p>',
    '[https://bank.org](https://evil.org)': '<p><a href="https://evil.org/" target="_blank" rel="noopener noreferrer">https://bank.org</a></p>',
    '![x](https://i.org/p.png)': '<p><a href="https://i.org/p.png" target="_blank" rel="noopener noreferrer">x</a></p>',
    '[t](javascript:alert(1)) [u](data:text/html,x) [v](/local) [w](//h.org)': '<p>[t](javascript:alert(1)) [u](data:text/html,x) [v](/local) [w](//h.org)</p>',
    '<b onclick=x>hi</b> &amp; &lt;': '<p>&lt;b onclick=x&gt;hi&lt;/b&gt; &amp;amp; &amp;lt;</p>',
}

ATTACKS = '''<img src=x onerror="hacked=1"> <script>hacked=1</script> <svg onload=hacked=1> <iframe srcdoc="<script>parent.hacked=1</script>"></iframe>

[a](javascript:hacked=1) [b](JaVaScRiPt:hacked=1) [c](java\tscript:hacked=1) [d](data:text/html,<script>hacked=1</script>) [e]( javascript:hacked=1)
[f](vbscript:x) <javascript:hacked=1> ![g](javascript:hacked=1) [h](https://x.org" onmouseover="hacked=1) [i](&#106;avascript:hacked=1)

```html" onmouseover="hacked=1
</code></pre><img src=x onerror=hacked=1><script>hacked=1</script>
```

| <img src=x onerror=hacked=1> | <style>*{display:none}</style> |
|--|--|
| <a href="javascript:hacked=1">x</a> | </td><script>hacked=1</script> |

# <form action=https://evil.org><input name=key></form>

- <base href=https://evil.org> <meta http-equiv=refresh content=0;url=https://evil.org> <link rel=stylesheet href=https://evil.org>

> <object data=x></object><embed src=x> <math><mtext></mtext><style><img src=x onerror=hacked=1></style></math>

https://x.org/"onmouseover="hacked=1 <https://x.org/"onclick="hacked=1>'''

# One line each that a careless pattern would try for minutes.
HOSTILE = ['*' * 100000, '* ' * 50000, '`' * 99999 + ' `', '[' * 100000, '[a](' * 25000, '_a' * 50000, '> ' * 50000 + 'x', '- ' * 50000 + 'x', '# ' + ' ' * 100000 + 'x',
           '```' + ' ' * 100000 + '`', '|' * 100000 + '\n' + '-' * 100000, ' ' * 100000 + '- x', 'a|b\n' + ' ' * 100000 + 'x-', 'https://x' + '.' * 100000 + 'y',
           '\\' * 99999, '<http://' * 12000, '~~a ' * 25000, ' ' * 100000 + '\nx', '*a **b ' * 15000, '1.' * 50000, '-' * 100000 + 'x', '| a |\n' * 15000]


def text_of(page, selector, number=-1):
    return page.evaluate(f'[...document.querySelectorAll({json.dumps(selector)})].at({number})?.innerText ?? null')


def picture(page, name):
    if 'IM_SCREENSHOTS' in os.environ:
        page.screenshot(os.path.join(os.environ['IM_SCREENSHOTS'], f'{name}.png'))


def ask(page, text, done=True):
    """Types a message and sends it as a person does."""
    page.evaluate('document.getElementById("input").focus()')
    page.type(text)
    page.press('Enter')
    check(page.wait('turns.length && turns.at(-1).role === "assistant"'), f'{text[:20]!r} was sent')
    if done:
        check(page.wait(DONE), f'{text[:20]!r} was answered')


def start(page, server):
    """A fresh page, and a server without a key that remembers nothing."""
    server.key = None
    server.requests.clear()
    server.left.clear()
    page.size(1200, 860)
    page.scheme('light')
    page.open(server.url)
    page.evaluate('(sessionStorage.clear(), localStorage.clear())')
    page.open(server.url)
    check(page.wait('model === "fake-model"'), 'the page finds the model')
    page.said.clear()


def test_conversation(page, server):
    check(text_of(page, '#model') == 'fake-model', 'the name of the model is shown')
    check(page.evaluate('document.activeElement.id') == 'input', 'the page begins in the message')
    picture(page, 'empty')
    ask(page, 'say Hello **you**', done=False)
    check(page.wait(DONE), 'an answer ends')
    check(text_of(page, '.answer') == 'Hello you', 'the text of the answer')
    foot = text_of(page, '.assistant .numbers')
    for part in ('s to first token', '5 tokens', 'prompt 201, 182 cached'):
        check(part in (foot or ''), f'{part!r} under the answer: {foot!r}')
    body = server.requests[-1]
    check(body['stream'] and body['stream_options'] == {'include_usage': True} and body['model'] == 'fake-model', 'the request streams and asks for usage')
    check(body['temperature'] == 0 and 'max_tokens' not in body, 'the default settings')
    ask(page, 'say second')
    told = [(m['role'], m['content']) for m in server.requests[-1]['messages']]
    check(told == [('user', 'say Hello **you**'), ('assistant', 'Hello **you**'), ('user', 'say second')], f'the history is told: {told}')
    letters = 'Z\u00fcrich \u65e5\u672c\u8a9e \U0001f469\u200d\U0001f680 ' * 20
    ask(page, f'say {letters}')
    check(page.evaluate('turns.at(-1).text') == letters, 'characters that arrive in halves')
    page.click('#new-chat')
    check(page.evaluate('turns.length === 0 && !document.querySelector(".turn")'), 'a new chat is empty')
    ask(page, 'say third')
    check(len(server.requests[-1]['messages']) == 1, 'a new chat has no history')


def test_streaming_and_stop(page, server):
    ask(page, 'slow', done=False)
    check(page.wait('turns.at(-1).text.split(" ").length > 5'), 'text comes while the answer is written')
    check(page.wait('document.querySelector(".answer").innerText.length > 5'), 'and is shown')
    check(page.evaluate('!document.getElementById("stop").hidden && document.getElementById("send").hidden'), 'Stop takes the place of Send')
    check(page.evaluate('document.querySelector(".assistant").getAttribute("aria-busy")') == 'true', 'the answer is marked as busy')
    check(page.wait('document.querySelector(".assistant .numbers").textContent.includes("tokens/s")'), 'the rate is shown while it runs')
    picture(page, 'streaming')
    page.type('a draft')
    page.press('Enter')
    check(page.evaluate('turns.length === 2 && document.getElementById("input").value === "a draft"'), 'Enter keeps a draft while an answer runs')
    page.click('#stop')
    check(page.wait(DONE, 5), 'Stop ends the answer')
    kept = page.evaluate('turns.at(-1).text')
    check('Stopped.' in text_of(page, '.assistant'), 'and says so')
    for _ in range(100):
        if server.left:
            break
        time.sleep(0.05)
    check(server.left == ['slow'], 'the server sees the reader leave')
    check(page.evaluate('turns.at(-1).text') == kept and kept, 'the text so far stays')
    page.evaluate('document.getElementById("input").value = ""')
    ask(page, 'slow', done=False)
    page.wait('turns.at(-1).text !== ""')
    page.press('Escape')
    check(page.wait(DONE, 5), 'Escape stops as well')
    page.click('.turn:last-child [data-action="continue"]')
    check(page.wait(DONE), 'a stopped answer can be continued')
    check(server.requests[-1]['messages'][-1]['role'] == 'assistant', 'by sending it as the last message')
    check(page.evaluate('turns.at(-1).text.endsWith("one two ")'), 'the rest is added')


def test_edit_and_again(page, server):
    ask(page, 'say one')
    ask(page, 'say two')
    page.click('.user [data-action="edit"]', 0)
    check(page.evaluate('document.activeElement.tagName === "TEXTAREA" && document.activeElement.value === "say one"'), 'Edit opens the message')
    picture(page, 'edit')
    page.press('Escape')
    check(text_of(page, '.user .text', 0) == 'say one', 'Escape leaves it as it was')
    page.click('.user [data-action="edit"]', 0)
    page.evaluate('document.activeElement.select()')
    page.type('say other')
    page.press('Enter', devtools.SHIFT)
    check(page.evaluate('document.activeElement.value') == 'say other\n', 'Shift+Enter starts a line')
    page.press('Enter')
    check(page.wait('turns.length === 2') and page.wait(DONE), 'sending cuts what came after')
    check([m['content'] for m in server.requests[-1]['messages']] == ['say other\n'], 'and the history with it')
    check(text_of(page, '.answer') == 'other', 'the answer is the new one')
    page.click('.assistant [data-action="again"]')
    check(page.wait(DONE) and page.evaluate('turns.length === 2'), 'an answer can be had again')
    check(server.requests[-1] == server.requests[-2], 'of the same question')
    check('temperature 0' in text_of(page, '.assistant .notice'), 'the page says that it is the same')
    page.evaluate('navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }')
    page.click('.assistant [data-action="copy"]')
    check(page.evaluate('copied') == 'other\n' and page.wait('document.querySelector(".assistant [data-action=copy]").textContent === "Copied"'), 'Copy copies the text')
    ask(page, 'say ```c\nint x;\n\ty;\n```')
    page.click('[data-action="copy-code"]')
    check(page.evaluate('copied') == 'int x;\n\ty;', 'the code alone can be copied')


def test_markdown(page, _):
    page.evaluate('window.shown = text => { const node = make("div"); new MarkdownView(node).show(text); return node.innerHTML; }')
    for text, right in MARKDOWN.items():
        got = page.evaluate(f'shown({json.dumps(text)})')
        check(got == right, f'{text!r} is shown as {got!r}, not {right!r}')
    code = page.evaluate(f'shown({json.dumps("~~~ c x" + chr(10) + "</code>" + chr(10) + chr(9) + "```" + chr(10) + "~~~" + chr(10) + "after")})')
    check('<span>c</span>' in code and '<code>&lt;/code&gt;\n\t```</code>' in code and code.endswith('<p>after</p>'), f'fenced code: {code!r}')
    # Growing a text letter by letter ends where the whole text does.
    same = page.evaluate(f'''(() => {{
        const text = {json.dumps(SAMPLE)}, node = make('div'), view = new MarkdownView(node);
        for (let n = 0; n <= text.length; n++) view.show(text.slice(0, n));
        return node.innerHTML === shown(text);
    }})()''')
    check(same, 'a text that grows is shown as the whole text is')
    for text in HOSTILE:
        took = page.evaluate(f'(() => {{ const begun = performance.now(); shown({json.dumps(text)}); return performance.now() - begun; }})()')
        check(took < 2000, f'{text[:20]!r} x {len(text)} took {took:.0f} ms')


def test_attacks(page, _):
    ask(page, 'say ' + ATTACKS)
    found = page.evaluate('''(() => {
        const inside = [...document.querySelectorAll('#turns *')];
        return {
            hacked: typeof hacked !== 'undefined',
            tags: [...new Set(inside.map(node => node.tagName))].filter(tag => !/^(ARTICLE|DIV|P|SPAN|A|BR|CODE|PRE|BUTTON|UL|OL|LI|H[1-6]|BLOCKQUOTE|TABLE|THEAD|TBODY|TR|TH|TD|EM|STRONG|DEL|HR)$/.test(tag)),
            handlers: inside.flatMap(node => [...node.attributes]).filter(one => /^on|^style|^src/.test(one.name)).map(one => one.name),
            links: [...document.querySelectorAll('#turns a')].filter(one => !/^https?:$/.test(one.protocol) || one.rel !== 'noopener noreferrer').map(one => one.href),
        };
    })()''')
    check(found == {'hacked': False, 'tags': [], 'handlers': [], 'links': []}, f'nothing of a text becomes HTML: {found}')
    check(page.evaluate('document.querySelector(".answer").innerText.includes("<script>hacked=1</script>")'), 'it is shown as it was written')
    for node in range(page.evaluate('document.querySelectorAll("#turns .answer a").length')):
        page.evaluate(f'document.querySelectorAll("#turns .answer a")[{node}].dispatchEvent(new MouseEvent("mouseover", {{bubbles: true}}))')
    check(not page.evaluate('typeof hacked !== "undefined"'), 'nothing runs under the pointer')
    # The policy is the second wall: a node that got in all the same may not run.
    page.evaluate('''document.getElementById('turns').insertAdjacentHTML('beforeend', '<img src="x" onerror="hacked=1"><a href="javascript:hacked=1" id="bad">x</a>')''')
    page.evaluate('document.getElementById("bad").click()')
    time.sleep(0.2)
    check(not page.evaluate('typeof hacked !== "undefined"'), 'the policy stops what gets in')
    check(any('Content Security Policy' in line for line in page.said), f'and the browser says so: {list(page.said)}')


def test_key(page, server):
    server.key = 'right-key'
    page.open(server.url)
    check(page.wait('document.getElementById("key-dialog").open'), 'a server with a key asks at once')
    picture(page, 'key')
    page.press('Escape')
    check(page.wait('!document.getElementById("key-dialog").open'), 'the question can be left')
    ask(page, 'say hidden', done=False)
    check(page.wait('document.getElementById("key-dialog").open'), 'sending asks again')
    page.type('wrong-key')
    page.press('Enter')
    check(page.wait('document.getElementById("key-dialog").open && document.getElementById("key-reason").textContent.includes("not accept")'), 'a wrong key is said')
    page.type('right-key')
    page.press('Enter')
    check(page.wait('turns.at(-1)?.text === "hidden"'), 'the answer comes after the right key, unasked')
    check(page.evaluate('!JSON.stringify({...localStorage}).includes("right-key") && sessionStorage.getItem("key") === "right-key"'), 'the key is for this tab only')
    check('right-key' not in page.evaluate('document.body.innerHTML'), 'the key is not in the page')
    page.open(server.url)
    check(page.wait('model === "fake-model"'), 'a reload keeps the key')
    page.click('#open-settings')
    page.click('#forget-key')
    check(page.evaluate('sessionStorage.getItem("key") === null && key === null'), 'and it can be forgotten')


def test_errors(page, server):
    def notice():
        return text_of(page, '.assistant .notice') or ''

    ask(page, 'busy')
    check(notice() == 'The queue is full. Try again in 3 s.', f'a refusal is said: {notice()!r}')
    ask(page, 'fail')
    check(notice() == 'The numbers went wrong.' and page.evaluate('turns.at(-1).text') == 'one two ', 'so is an error in the stream')
    picture(page, 'errors')
    ask(page, 'cut')
    check('before the answer was complete' in notice(), 'and a broken connection')
    ask(page, 'drop')
    check('before the answer was complete' in notice(), f'wherever it breaks: {notice()!r}')
    ask(page, 'silent')
    check(notice() == 'The model answered with nothing.', 'and an empty answer')
    ask(page, 'say on')
    roles = [m['role'] for m in server.requests[-1]['messages']]
    check(all(a != b for a, b in zip(roles, roles[1:])), f'turns alternate whatever failed: {roles}')
    ask(page, 'limit')
    check('limit of tokens' in notice(), 'an answer that was cut says so')
    page.click('.turn:last-child [data-action="continue"]')
    check(page.wait(DONE) and page.evaluate('turns.at(-1).text') == 'one two one two ', 'and can go on')
    server.model = 'another-model'
    ask(page, 'say more')
    check('not served here' in notice(), 'a model that has gone is said')
    page.click('.turn:last-child [data-action="again"]')
    check(page.wait(DONE) and page.evaluate('turns.at(-1).text') == 'more' and text_of(page, '#model') == 'another-model', 'and the next try takes the one that came')
    server.model = 'fake-model'
    page.evaluate('window.fetch = () => Promise.reject(new TypeError("Failed to fetch"))')
    ask(page, 'say nothing')
    check('cannot be reached' in notice(), 'a server that is gone is said')


def test_settings(page, server):
    page.click('#open-settings')
    check(page.wait('document.getElementById("settings").open'), 'the settings open')
    picture(page, 'settings')
    page.evaluate('''(() => {
        for (const [id, value] of [['system', 'Be brief.'], ['temperature', '0.7'], ['max-tokens', '32']]) {
            document.getElementById(id).value = value;
            document.getElementById(id).dispatchEvent(new Event('input'));
        }
    })()''')
    check(page.evaluate('document.getElementById("temperature-range").value') == '0.7', 'slider and number go together')
    page.click('#settings .primary')
    check(page.wait('!document.getElementById("settings").open && settings.maxTokens === 32'), 'and close')
    ask(page, 'say x')
    body = server.requests[-1]
    check(body['temperature'] == 0.7 and body['max_tokens'] == 32 and body['messages'][0] == {'role': 'system', 'content': 'Be brief.'}, f'they are used: {body}')
    page.open(server.url)
    check(page.evaluate('settings.system') == 'Be brief.', 'and kept')
    page.click('#open-settings')
    page.evaluate('document.getElementById("temperature").value = "7"')
    page.click('#settings .primary')
    check(page.evaluate('document.getElementById("settings").open'), 'a temperature out of range is not taken')
    page.click('#settings [type="reset"]')
    page.click('#settings .primary')
    check(page.wait('settings.temperature === 0 && settings.system === "" && settings.maxTokens === null'), 'the defaults can be had back')
    check(page.evaluate('Object.keys(localStorage).every(name => name === "settings" || name === "theme")'), 'nothing else is kept')
    page.evaluate('localStorage.setItem("settings", "not JSON")')
    page.open(server.url)
    check(page.wait('settings.temperature === 0 && model'), 'damaged settings are the defaults')


CONTRAST = '''(() => {
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(n => n / 255).map(n => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
        for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor;
            if (!/, 0\\)$|transparent/.test(colour)) return colour;
        }
    };
    return [...document.querySelectorAll('body *')]
        .filter(node => node.offsetWidth > 1 && [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim()))
        .map(node => {
            const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
            return [(a + 0.05) / (b + 0.05), node.tagName, node.id, node.className, node.textContent.slice(0, 20)];
        })
        .filter(([ratio]) => ratio < 4.5);
})()'''


def test_colours(page, server):
    ask(page, 'say ' + SAMPLE + '\n\n[link](https://x.org) `code`')
    ask(page, 'busy')
    seen = {}
    for scheme in ('light', 'dark'):
        page.scheme(scheme)
        seen[scheme] = page.evaluate('getComputedStyle(document.body).backgroundColor')
        poor = page.evaluate(CONTRAST)
        check(poor == [], f'{scheme}: contrast of at least 4.5: {poor}')
        page.evaluate('document.getElementById("scroller").scrollTop = document.querySelector(".answer").offsetTop - 80')
        picture(page, f'answer-{scheme}')
    check(seen['light'] != seen['dark'], 'the page follows the colours of the system')
    page.click('#theme')
    check(page.evaluate('getComputedStyle(document.body).backgroundColor') == seen['light'], 'a click changes them')
    page.open(server.url)
    check(page.evaluate('getComputedStyle(document.body).backgroundColor') == seen['light'], 'and stays')


def test_phone(page, _):
    page.size(360, 700, phone=True)
    page.call('Emulation.setTouchEmulationEnabled', enabled=True)
    page.evaluate('document.getElementById("input").focus()')
    page.type('say ' + SAMPLE + '\n\n' + 'x' * 300 + '\n\nhttps://x.org/' + 'y' * 200)
    page.press('Enter')
    check(page.evaluate('turns.length') == 0, 'Enter starts a line where there are fingers')
    page.click('#send')
    check(page.wait('turns.length === 2') and page.wait(DONE), 'the button sends')
    check(page.evaluate('document.documentElement.scrollWidth <= innerWidth && document.getElementById("scroller").scrollWidth <= innerWidth'), 'nothing is wider than the phone')
    outside = page.evaluate('''[...document.querySelectorAll('button, textarea, a')].filter(node => node.offsetWidth && !node.closest('.code, .table'))
        .map(node => [node.getBoundingClientRect(), node]).filter(([box]) => box.left < 0 || box.right > innerWidth).map(([, node]) => node.outerHTML.slice(0, 60))''')
    check(outside == [], f'every control is inside: {outside}')
    check(page.evaluate('document.getElementById("input").getBoundingClientRect().bottom <= innerHeight'), 'the message is in sight')
    check(page.evaluate('parseFloat(getComputedStyle(document.getElementById("input")).fontSize) >= 16'), 'typing does not zoom')
    picture(page, 'phone')
    page.evaluate('document.getElementById("scroller").scrollTop = 0')
    check(page.wait('!document.getElementById("to-end").hidden'), 'there is a way to the end')
    page.click('#to-end')
    check(page.wait('document.getElementById("to-end").hidden'), 'that leads there')
    page.click('#open-settings')
    picture(page, 'phone-settings')
    check(page.evaluate('document.getElementById("settings").getBoundingClientRect().right <= innerWidth'), 'the settings fit')
    page.press('Escape')
    page.call('Emulation.setTouchEmulationEnabled', enabled=False)


def test_directions(page, _):
    ask(page, 'say \u0645\u0631\u062d\u0628\u0627\n\nplain\n\n- \u05e9\u05dc\u05d5\u05dd')
    sides = page.evaluate('''[...document.querySelectorAll('.answer p, .answer li')].map(node => {
        const range = document.createRange();
        range.selectNodeContents(node);
        const [inner, outer] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
        return outer.right - inner.right < inner.left - outer.left ? 'right' : 'left';
    })''')
    check(sides == ['right', 'left', 'right'], f'each paragraph runs in the direction of its script: {sides}')


def test_keyboard(page, _):
    page.type('say a')
    page.press('Enter', devtools.SHIFT)
    page.type('b')
    check(page.evaluate('document.getElementById("input").value') == 'say a\nb' and page.evaluate('turns.length === 0'), 'Shift+Enter starts a line')
    page.press('Enter')
    check(page.wait('turns.length === 2') and page.wait(DONE), 'Enter sends')
    check(page.evaluate('document.activeElement.id') == 'input', 'the focus stays in the message')
    page.press('Enter')
    check(page.evaluate('turns.length === 2'), 'an empty message is not sent')
    page.evaluate('document.getElementById("new-chat").focus()')
    seen = []
    for _ in range(12):
        page.press('Tab')
        seen.append(page.evaluate('document.activeElement.id || document.activeElement.dataset.action || document.activeElement.tagName'))
    for control in ('open-settings', 'theme', 'edit', 'copy', 'again', 'input'):
        check(control in seen, f'Tab reaches {control}: {seen}')
    names = page.evaluate('''[...document.querySelectorAll('button, input, textarea')].filter(node =>
        !(node.textContent.trim() || node.getAttribute('aria-label') || document.querySelector(`label[for="${node.id}"]`))).map(node => node.outerHTML)''')
    check(names == [], f'every control has a name: {names}')
    check(page.evaluate('document.querySelector("[role=log]") && document.querySelector("[role=status]") && document.documentElement.lang'), 'what changes is announced')


def test_following(page, _):
    ask(page, 'slow', done=False)
    page.wait('turns.at(-1).text.length > 10')
    page.evaluate('''(() => { const selection = getSelection(); selection.selectAllChildren(document.querySelector('.user .text')); })()''')
    page.wait('turns.at(-1).text.length > 60')
    check(page.evaluate('getSelection().toString()') == 'slow', 'a selection lives on while text comes')
    page.press('Escape')
    page.wait(DONE)
    page.click('#new-chat')
    ask(page, 'say ' + 'line\n\n' * 400, done=False)
    check(page.wait('turns.at(-1)?.text.length > 600') and page.evaluate('isAtEnd()'), 'the view follows the text')
    page.evaluate('document.getElementById("scroller").scrollTop = 0')
    page.wait('turns.at(-1).text.length > 900')
    check(page.evaluate('document.getElementById("scroller").scrollTop') == 0, 'but not a reader who has scrolled away')


TESTS = [test_conversation, test_streaming_and_stop, test_edit_and_again, test_markdown, test_attacks, test_key, test_errors, test_settings, test_colours, test_phone,
         test_directions, test_keyboard, test_following]
EXPECTED = ('Failed to load resource', 'Content Security Policy', 'violates the following')


def main():
    if not devtools.find_browser():
        skip('no Chromium here (Debian: chromium; or set IM_BROWSER)')
    with fake_server.FakeServer(fake_server.joined_page(PAGE)) as server, devtools.Browser() as page:
        for test in TESTS:
            start(page, server)
            test(page, server)
            strange = [line for line in page.said if not any(part in line for part in EXPECTED)]
            check(strange == [], f'{test.__name__}: the browser complains: {strange}')
            if test is not test_attacks:
                check(not any('Policy' in line for line in page.said), f'{test.__name__}: the page keeps to its own policy')
    return verdict()


if __name__ == '__main__':
    sys.exit(main())
