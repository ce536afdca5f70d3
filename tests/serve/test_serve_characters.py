# SPDX-License-Identifier: Apache-2.0
"""Characters that several tokens make: nothing half is ever sent, nothing is lost, and where the limit cuts one, the answer says so in valid UTF-8.

    test_serve_characters.py tiny | gemma3
"""
import sys

from server import CHAT, COMPLETIONS, GEMMA3, Answer, Server, check, joined, need_model, verdict


def walk(s, tokens, **more):
    body = {'prompt': 'Hello', 'max_tokens': tokens, 'ignore_eos': True, 'temperature': 1.7, 'logprobs': 0, **more}
    a = s.post(COMPLETIONS, body)
    events = s.events(COMPLETIONS, body)
    check(a.status == 200 and not isinstance(events, Answer), f'{more}: answered')
    text, reason = joined(events)
    choice = a.json()['choices'][0]
    check(text == choice['text'], f'{more}, {tokens} tokens: the joined stream is the whole: {text!r} {choice["text"]!r}')
    # Each token has its event, also one that makes no character yet; and there is one that ends the answer.
    check(tokens <= len(events[:-1]) <= tokens + 2, f'{more}, {tokens} tokens: {len(events) - 1} events')
    return choice['text'], events


def pieces(s, ids):
    """What detokenize says of ids."""
    return s.post('/detokenize', {'tokens': ids}).json()['text']


def raw_bytes(s, seed):
    """The log-probabilities carry the bytes of each token as they are, in a stream too."""
    body = {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 1 + seed % 25, 'ignore_eos': True, 'temperature': 1.7, 'seed': seed, 'logprobs': True,
            'ironmule': {'token_ids': True}}
    a = s.post(CHAT, body).json()
    whole = [x['bytes'] or [] for x in a['choices'][0]['logprobs']['content']]
    ids = a['ironmule']['token_ids']
    check(len(whole) == len(ids), f'seed {seed}: {len(whole)} entries for {len(ids)} tokens')
    for token, found in zip(ids, whole):
        good = found == [token - 3] if 3 <= token < 259 else bytes(found).decode('utf-8')
        check(good or found == [], f'seed {seed}: token {token} is {found}')
    pieces = [(e['choices'][0]['logprobs'] or {'content': []})['content'] for e in s.events(CHAT, body)[:-1]]
    check([x['bytes'] or [] for piece in pieces for x in piece] == whole, f'seed {seed}: the same bytes in a stream: {pieces}')
    return sum(3 <= token < 259 for token in ids)


def tiny():
    with Server() as s:
        check(sum(raw_bytes(s, seed) for seed in range(40)) > 50, 'there are bytes')
        # Only byte tokens are admitted, so that nearly every character is broken somewhere: lengths and seeds without end.
        broken = whole = 0
        for seed in range(40):
            text, events = walk(s, 1 + seed % 25, seed=seed)
            broken += '\ufffd' in text
            for e in events[:-1]:
                part = e['choices'][0]['text']
                part.encode('utf-8')
                whole += bool(part)
        check(broken > 5 and whole > 50, f'{broken} answers with broken characters, {whole} pieces')
        # Two bytes of a character of two, three and four bytes are certain: it comes whole, in one piece.
        for text in ('\u00e9', '\u20ac', '\U00012031', '\U0001f600'):
            ids = [3 + b for b in text.encode()]  # <0x00> is token 3
            check(pieces(s, ids) == text, f'{text!r}: its byte tokens')
            for n in range(1, len(ids)):
                cut = pieces(s, ids[:n])
                check(cut == '\ufffd' * n, f'{text!r} cut after {n} bytes: one sign for each byte token: {cut!r}')
            check(pieces(s, ids[:-1] + s.post('/tokenize', {'text': 'a', 'bos': False}).json()['tokens']).startswith('\ufffd'), f'{text!r}: broken, then good')


def live(s, ids, what, cut):
    """A run that writes `ids` and ends there: each token is made certain by its bias, for as long as the ones before it are the prompt."""
    start = s.post('/tokenize', {'text': 'Say it:'}).json()['tokens']
    for n in range(len(ids)):
        a = s.complete(start + ids[:n], max_tokens=1, logit_bias={str(ids[n]): 100}, ironmule={'token_ids': True}, logprobs=0)
        if not check(a.json()['ironmule']['token_ids'] == [ids[n]], f'{what}: token {n} is forced: {a}'):
            return
    check(pieces(s, ids) == cut, f'{what}: {pieces(s, ids)!r}')


def gemma3():
    with Server('--context', 512, model=need_model(GEMMA3)) as s:
        sign = '\U00012031'
        ids = [478, 384, 366, 415]
        live(s, ids, 'a character of four byte tokens', sign)
        live(s, [236746] + ids[:3], 'cut inside it', 'a\ufffd\ufffd\ufffd')
        live(s, ids[:3] + [236746], 'broken, then good', '\ufffd\ufffd\ufffda')
        # The four tokens alone are admitted, so that the run writes nothing but pieces of that character.
        bias = {str(i): 100 for i in ids}
        for n in range(1, 9):
            for seed in range(3):
                body = {'prompt': 'Say:', 'max_tokens': n, 'logit_bias': bias, 'temperature': 2, 'seed': seed, 'ironmule': {'token_ids': True}, 'logprobs': 0}
                choice = s.post(COMPLETIONS, body).json()
                events = s.events(COMPLETIONS, body)
                got, want = choice['choices'][0]['text'], pieces(s, choice['ironmule']['token_ids'])
                check(got == want, f'{n} tokens, seed {seed}: {got!r}, as detokenize has it {want!r}')
                check(joined(events)[0] == got, f'{n} tokens, seed {seed}, streamed: {joined(events)[0]!r} {got!r}')
                raw = [x for e in events[:-1] for x in (e['choices'][0]['logprobs'] or {}).get('tokens', [])]
                check(len(raw) == n, f'{n} tokens, seed {seed}: one entry a token: {raw}')


{'tiny': tiny, 'gemma3': gemma3}[sys.argv[1]]()
raise SystemExit(verdict())
