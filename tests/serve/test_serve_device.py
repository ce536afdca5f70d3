# SPDX-License-Identifier: Apache-2.0
"""A server whose GPU, a fake one, fails while it answers: with leave the processor goes on, without it everybody gets 503 and the server stays."""
import os
import sys
import threading

os.environ.setdefault('IM_PROGRAM', os.environ.get('IM_FAKED', ''))
from server import CHAT, PATIENCE, Server, check, expect_error, joined, until, verdict

if 'IM_FAKED' not in os.environ:
    print('IM_FAKED is not set')
    sys.exit(77)
GPU = {'IM_FAKE_GPU': '100 1024 1'}
BODY = {'max_tokens': 8, 'ignore_eos': True, 'ironmule': {'logits_hash': True}}
TEXTS = ['One', 'Two and a longer text that takes more rows', 'Three', 'Two and a longer text that takes another end']


def everybody(s):
    """Answers to all texts at once, streams and others."""
    got = [None] * len(TEXTS)

    def ask(i):
        body = {'messages': [{'role': 'user', 'content': TEXTS[i]}], **BODY}
        got[i] = s.events(CHAT, body, timeout=PATIENCE) if i % 2 else s.post(CHAT, body, timeout=PATIENCE)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(TEXTS))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


def texts_of(answers):
    return [joined(a)[0] if isinstance(a, list) else a.json()['choices'][0]['message']['content'] if a.status == 200 else repr(a) for a in answers]


def started(*args, lose=None):
    env = {**GPU, **({'IM_FAKE_LOSE': f'{lose} 700'} if lose else {})}
    os.environ['IM_PROGRAM'] = os.environ['IM_FAKED']
    return Server('--parallel', 4, '--context', 256, '--cache-ram', '4M', *args, env=env)


with started('--device', 'cpu') as s:
    expected = texts_of(everybody(s))
    check(s.get('/health').json() == {'status': 'ok'}, 'a server on the processor is well')

with started('--device', 'cuda') as s:
    check(texts_of(everybody(s)) == expected, 'the GPU gives the same texts')
    check(s.get('/health').json() == {'status': 'ok'} and s.metric('ironmule_device_failures_total') == 0, 'and is well')

for lose in ('launch 5', 'launch 45', 'stream_wait 8', 'copy_out 5'):
    with started('--device', 'cuda', '--device-fallback', 'cpu', lose=lose) as s:
        check(texts_of(everybody(s)) == expected, f'{lose}: the processor finishes what the GPU began')
        health = s.get('/health')
        check(health.status == 200 and health.json()['status'] == 'degraded' and 'processor' in health.json()['reason'], f'{lose}: degraded: {health}')
        check(s.get('/ready').status == 200, f'{lose}: but ready')
        check(s.metric('ironmule_device_failures_total') == 1 and s.metric('ironmule_device_fallbacks_total') == 1, f'{lose}: counted')
        check('device="cpu"' in s.get('/metrics').body.decode(), f'{lose}: metrics name the device that computes')
        check(until(lambda: s.text().count('the GPU has failed') == 1 and s.text().count('takes over') == 1), f'{lose}: logged once')
        check(texts_of(everybody(s)) == expected, f'{lose}: and answers what comes after')

with started('--device', 'cuda', lose='launch 40') as s:
    for a in everybody(s):
        if isinstance(a, list):
            check(any('error' in e for e in a if e != '[DONE]'), 'a stream ends with an error')
        else:
            expect_error(a, 503, 'without leave', code='device')
    expect_error(s.chat(), 503, 'afterwards', code='device')
    health = s.get('/health')
    check(health.status == 503 and health.json()['status'] == 'degraded' and 'start the server again' in health.json()['reason'], f'degraded: {health}')
    check(s.get('/ready').status == 503 and s.get('/v1/models').status == 200, 'not ready, but there')
    check(s.metric('ironmule_device_failures_total') == 1 and s.metric('ironmule_device_fallbacks_total') == 0, 'counted')
    check(until(lambda: s.text().count('the GPU has failed') == 1), 'logged once')

sys.exit(verdict())
