# SPDX-License-Identifier: Apache-2.0
"""Running a server: TLS, request ids, log lines, metrics that add up, the plan and what does not fit, and a loop that answers at once whatever is computed."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import ssl
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import warnings

from server import CHAT, COMPLETIONS, SLOWER, TINY, Answer, Server, Stream, check, command, drain, expect_error, slow_model, statuses, until, verdict

SECRET = 'xyzzy-plugh'


def tls():
    if not shutil.which('openssl'):
        print('no openssl command: TLS is not tested')
        return
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, 'cert.pem'), os.path.join(folder, 'key.pem')
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', cert,
                        '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], check=True, capture_output=True)
        context = ssl.create_default_context(cafile=cert)
        with Server('--tls-cert', cert, '--tls-key', key, '--timeout-head', 2) as s:
            plain = s.connect

            def secure(timeout=None):
                return context.wrap_socket(plain(timeout), server_hostname='localhost')
            s.connect = secure
            check(s.get('/health').status == 200 and s.chat(max_tokens=3).status == 200, 'TLS')
            events = s.events(CHAT, {'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 30, 'ignore_eos': True})
            check(events[-1] == '[DONE]', 'a stream over TLS')
            raw = s.exchange(b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' * 3 + b'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
            check(statuses(raw) == [200] * 4, 'several requests in one record')
            large = s.post('/tokenize', {'text': 'word ' * 100000})
            check(large.status == 200 and large.json()['count'] > 100000, 'a large body and a large answer')
            for asked in (b'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n',
                          b'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n' % CHAT.encode() + b' ' * 9000):
                with plain() as c:
                    c.sendall(asked)
                    told = drain(c)
                    check(statuses(told) == [400] and b'https://' in told, f'plain HTTP on a TLS port is told so: {told[:80]!r}')
            begun = time.monotonic()
            with plain() as c:
                drain(c)
            check(1 < time.monotonic() - begun < 4 * SLOWER, 'whoever does not shake hands is dropped')
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.set_ciphers('DEFAULT:@SECLEVEL=0')  # so that it is the server who refuses
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter('ignore')
                    old.minimum_version = ssl.TLSVersion.TLSv1
                    old.maximum_version = ssl.TLSVersion.TLSv1_1
                with contextlib.closing(old.wrap_socket(plain())) as c:
                    check(False, f'TLS 1.1 is refused, not {c.version()}')
            except (OSError, ValueError):
                pass
            s.connect = plain
        bad = Server('--tls-cert', key, '--tls-key', cert, ready=False)
        check(bad.wait() == 1 and 'TLS' in bad.text(), f'a certificate that is none: {bad.text()}')
        start_errors(folder, cert, key)


def start_errors(folder, cert, key):
    """Whatever keeps a server from starting is one line of level "error"; a dry run says the same before anything is started."""
    short, empty, other = (os.path.join(folder, name) for name in ('short', 'empty', 'other'))
    for path, text in ((short, 'abc\n'), (empty, '# nothing\n')):
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
    subprocess.run(['openssl', 'genpkey', '-algorithm', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-out', other], check=True, capture_output=True)
    os.mkdir(os.path.join(folder, 'open'))
    os.chmod(os.path.join(folder, 'open'), 0o777)
    missing = os.path.join(folder, 'missing')
    for what, args, word in (('a certificate that is not there', ('--tls-cert', missing, '--tls-key', key), 'No such file'), ('a key in its place', ('--tls-cert', key, '--tls-key', key), key),
                             ('the key of another', ('--tls-cert', cert, '--tls-key', other), other), ('no keys file', ('--api-key-file', missing), missing),
                             ('a short key', ('--api-key-file', short), 'at least 8'), ('no key in it', ('--api-key-file', empty), 'no key'),
                             ('no such variable', ('--api-key-env', 'IM_NOT_SET'), 'IM_NOT_SET'), ('no such host', ('--host', '127.0.0.300', '--api-key-file', short), 'at least 8'),
                             ('no such address', ('--host', '127.0.0.300'), '127.0.0.300'),
                             ('a socket in none', ('--unix', os.path.join(missing, 'x')), missing), ('a file as a socket', ('--unix', short), 'a file of that name')):
        s = Server(*args, '--log-format', 'json', ready=False)
        code, lines = s.wait(), [json.loads(line) for line in s.log]
        errors = [x['message'] for x in lines if x['level'] == 'error']
        check(code == 1 and len(errors) == 1 and word in errors[0] and not [x for x in lines if x['level'] == 'warning'], f'{what}: one error and exit code 1: {code} {s.text()}')
        done = subprocess.run(command('serve', TINY, '--dry-run', *args), capture_output=True, timeout=60)
        check(done.returncode == 1 and done.stdout == b'' and word in done.stderr.decode(), f'{what}: a dry run says so: {done.returncode} {done.stderr.decode()}')
    whole = ('--tls-cert', cert, '--tls-key', key, '--cache-dir', missing)
    done = subprocess.run(command('serve', TINY, '--dry-run', '--json', *whole), capture_output=True, timeout=60)
    check(done.returncode == 0 and done.stderr == b'' and json.loads(done.stdout)['listen']['tls'] and not os.path.exists(missing), f'a dry run of what is right: {done}')
    for what, path in (('an open folder', os.path.join(folder, 'open')), ('a file as a folder', short), ('a folder in none', os.path.join(missing, 'x'))):
        done = subprocess.run(command('serve', TINY, '--dry-run', '--json', '--cache-dir', path), capture_output=True, timeout=60)
        check(done.returncode == 0 and path.encode() in done.stderr and b'warning' in done.stderr and json.loads(done.stdout), f'{what}: a dry run warns: {done}')
        with Server('--cache-dir', path) as s:
            check(until(lambda: f'warning engine: prefix cache on disk: {path}' in s.text()), f'{what}: and a start goes on without it: {s.text()}')
    with Server() as s:
        done = subprocess.run(command('serve', TINY, '--dry-run', '--json', '--port', str(s.port)), capture_output=True, timeout=60)
        check(done.returncode == 0 and b'in use' in done.stderr and json.loads(done.stdout), f'a port that is in use is no mistake of the settings: {done}')


def ids_and_log():
    with Server('--log-format', 'json') as s:
        for given, kept in (('abc-1.2:3_X', True), ('a b', False), ('x' * 200, False), ('"quoted"', False), ('', False)):
            got = s.get('/health', headers={'X-Request-Id': given}).headers['x-request-id']
            check((got == given) == kept and re.fullmatch(r'[\w.:-]{1,129}', got), f'request id {given[:20]!r}: {got!r}')
        ids = {s.get('/health').headers['x-request-id'] for _ in range(20)}
        check(len(ids) == 20, 'every request has an id of its own')
        s.chat(SECRET, max_tokens=3)
        s.complete(SECRET, max_tokens=3, logprobs=2)
        s.post(CHAT, {'messages': [{'role': SECRET, 'content': SECRET}]})
        s.post('/tokenize', {'text': SECRET})
        s.get(f'/health?{SECRET}')
        s.post(CHAT, b'{"messages": "' + SECRET.encode())
        until(lambda: len(s.log) > 30, 2)
        lines = []
        for line in s.log:
            lines.append(json.loads(line))
        check(SECRET not in s.text(), 'no text of a prompt or a query in the log')
        check(all({'time', 'level', 'message'} <= set(x) for x in lines), 'fields of every line')
        asked = [x for x in lines if x['message'] == 'request']
        chat = [x for x in asked if x['path'] == CHAT and x['status'] == 200][0]
        check(chat['completion_tokens'] == 3 and chat['finish'] and chat['prompt_tokens'] > 3 and chat['method'] == 'POST', f'a line of a chat: {chat}')
        check([x for x in asked if x['status'] == 400 and x.get('reason')], 'a refusal has its reason')
    with Server() as s:
        s.get('/' + 'p' * 4000)
        s.ask('M' * 4000, '/health')
        check(until(lambda: 'status=404' in s.text() and 'status=405' in s.text(), 2), f'what a client chooses pushes nothing out of its line: {s.text()[-1500:]}')


def labels(s):
    """Metrics as a dict; every line must be in the format."""
    text, values, typed = s.get('/metrics').body.decode(), {}, set()
    for line in text.splitlines():
        if line.startswith('# TYPE '):
            typed.add(line.split()[2])
        if line.startswith('#'):
            continue
        m = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})?) (-?[0-9.e+-]+|\+?Inf|NaN)', line)
        if check(m, f'a line of the metrics: {line!r}'):
            name = re.sub(r'\{.*', '', m[1])
            check(name in typed or re.sub(r'_(bucket|sum|count)$', '', name) in typed, f'{name} has a type')
            values[m[1].replace(',le="', '{le="')] = float(m[2])
    return values


def metrics():
    with Server() as s:
        before = labels(s)
        for i in range(3):
            s.complete('Hello', max_tokens=5, ignore_eos=True)
        s.events(COMPLETIONS, {'prompt': 'Hello', 'max_tokens': 5, 'ignore_eos': True})
        s.complete(7)
        s.get('/nope')
        now = labels(s)

        def grown(name):
            return now.get(name, 0) - before.get(name, 0)
        check(grown('ironmule_generated_tokens_total') == 20, f'tokens out: {grown("ironmule_generated_tokens_total")}')
        check(grown('ironmule_prompt_tokens_total') == 4 * 6, f'tokens in: {grown("ironmule_prompt_tokens_total")}')
        check(grown('ironmule_generations_total{end="finished"}') == 4, 'generations')
        check(grown('ironmule_http_answers_total{route="completions",status="200"}') == 4, 'answers')
        check(grown('ironmule_http_answers_total{route="completions",status="400"}') == 1, 'refusals')
        check(grown('ironmule_refusals_total{reason="invalid_type"}') == 1 and grown('ironmule_refusals_total{reason="not_found"}') == 1, 'their reasons')
        for name in ('time_to_first_token', 'time_per_token', 'queue', 'request'):
            check(grown(f'ironmule_{name}_seconds_count') == 4 and grown(f'ironmule_{name}_seconds_bucket{{le="+Inf"}}') == 4, f'{name}: {now}')
            counts = [v for k, v in now.items() if k.startswith(f'ironmule_{name}_seconds_bucket')]
            check(counts == sorted(counts), f'{name}: buckets add up')
        for name in ('ironmule_up', 'ironmule_requests_running', 'ironmule_requests_queued', 'ironmule_kv_pages{state="all"}', 'ironmule_cached_tokens_total',
                     'ironmule_cache_hits_total', 'ironmule_connections', 'process_resident_memory_bytes', 'process_open_fds', 'ironmule_stuck'):
            check(name in now, f'{name} is there')
        build = [k for k in now if k.startswith('ironmule_build_info{')]
        check(len(build) == 1 and 'numerics=' in build[0] and 'fingerprint="im-' in build[0], f'build info: {build}')
        print_ = s.complete('a', max_tokens=1).json()['system_fingerprint']
        check(print_ in build[0], 'the fingerprint of the answers is that of the metrics')


def plan():
    def dry(*args):
        return subprocess.run(command('serve', TINY, '--dry-run', *args), capture_output=True, timeout=60)
    done = dry('--json', '--parallel', '3', '--context', '256', '--mode', 'server')
    doc = json.loads(done.stdout)
    check(done.returncode == 0 and doc['memory']['total'] == sum(doc['memory'][k] for k in ('weights', 'kv', 'workspace')), f'a dry run: {doc}')
    check(doc['engine']['parallel'] == 3 and doc['engine']['context'] == 256 and doc['engine']['queue'] == 512, f'settings in force: {doc["engine"]}')
    small, large = (json.loads(dry('--json', '--cache-ram', x).stdout)['memory']['kv'] for x in ('1M', '9M'))
    check(large - small >= 7 << 20, f'the cache is part of the plan: {small} {large}')
    check(json.loads(dry().stdout)['memory'].keys() == doc['memory'].keys(), 'for people, with line ends')
    done = dry('--cache-ram', '900000G')
    check(done.returncode == 1 and b'MiB' in done.stderr and b'--cache-ram' in done.stderr, f'what does not fit is refused with numbers: {done.stderr}')


def full():
    """A full queue gets 503 with Retry-After, a request that can never fit 400; others go on."""
    model, options = slow_model()
    with Server(*options, '--parallel', 1, '--queue', 2, '--max-tokens', 30, model=model) as s:
        body = {'prompt': 'Hello', 'max_tokens': 60, 'ignore_eos': True}
        streams = [Stream(s, body, COMPLETIONS) for _ in range(3)]
        check(until(lambda: s.metric('ironmule_requests_queued') == 2, 10), 'the queue is full')
        begun = time.monotonic()
        a = s.complete('x', max_tokens=1)
        expect_error(a, 503, 'a full queue', None, 'queue_full')
        check('retry-after' in a.headers and time.monotonic() - begun < 0.5 * SLOWER, f'at once, with Retry-After: {a.headers}')
        a = s.events(COMPLETIONS, {'prompt': 'x', 'n': 2, 'max_tokens': 1})
        expect_error(a if isinstance(a, Answer) else Answer(200, {}, b''), 503, 'the same for a stream', None, 'queue_full')
        check(all(x.wait(60 * SLOWER) for x in streams) and all(x.events()[-1] == '[DONE]' for x in streams), 'the others are answered')
        check(s.complete('x').json()['usage']['completion_tokens'] <= 30, '--max-tokens is the default')
    for context in ((), ('--context', 512)):
        with Server('--kv-tokens', 128, *context) as s:
            check('warning' in s.text() and '128' in s.text(), f'few positions are said at the start: {s.text()}')
            a = s.complete([20] * 200, max_tokens=4)
            expect_error(a, 400, 'a request that can never fit', 'prompt', 'context_length_exceeded')
            check('128' in a.error['message'] and '200' in a.error['message'] and '--kv-tokens' in a.error['message'], f'with the numbers: {a}')
            check(s.complete([20] * 20, max_tokens=4).status == 200, 'one that fits')
            a = s.complete([20] * 20, ignore_eos=True)
            check(a.status == 200 and a.json()['usage']['total_tokens'] == 128, f'without max_tokens: all that there is: {a}')
            check(s.get('/v1/models').json()['data'][0]['ironmule']['context'] == 128, 'the model says how many')
    done = subprocess.run(command('serve', TINY, '--kv-tokens', '63', '--dry-run'), capture_output=True, timeout=60)
    check(done.returncode == 2 and b'--kv-tokens' in done.stderr, f'less than a page: {done.stderr}')
    with Server(*options, '--timeout-request', 1, '--parallel', 1, model=model) as s:
        a = s.complete('Hello', max_tokens=400, ignore_eos=True)
        expect_error(a, 504, 'a deadline', None, 'timeout')
        events = s.events(COMPLETIONS, {'prompt': 'Hello', 'max_tokens': 400, 'ignore_eos': True})
        check(events[-1].get('error', {}).get('code') == 'timeout', f'a deadline in a stream: {events[-1]}')


def latency():
    """Health, metrics and refusals while a long prompt is computed and large bodies are read."""
    model, options = slow_model()
    with Server(*options, model=model) as s:
        busy = [Stream(s, {'prompt': [5 + i % 300 for i in range(480)], 'max_tokens': 20, 'ignore_eos': True}, COMPLETIONS) for _ in range(2)]
        large = json.dumps({'text': ('lorem ipsum dolor ' * 60000)[:1000000]})
        measured = threading.Event()

        def read_large():
            while not measured.is_set():
                s.post('/tokenize', large.encode(), timeout=120 * SLOWER)
        readers = [threading.Thread(target=read_large) for _ in range(2)]
        for r in readers:
            r.start()
        check(until(lambda: s.metric('ironmule_requests_running') > 0, 10), 'a prompt is being computed')
        times = {}
        with contextlib.closing(s.connection()) as c:
            for what, (method, path, body) in {'health': ('GET', '/health', None), 'metrics': ('GET', '/metrics', None), 'models': ('GET', '/v1/models', None),
                                               'no path': ('POST', '/nope', '{}'), 'no JSON': ('POST', CHAT, '{'), 'a wrong field': ('POST', CHAT, '{"n":0}')}.items():
                times[what] = []
                for _ in range(15):
                    begun = time.monotonic()
                    c.request(method, path, body, {'Content-Type': 'application/json'})
                    c.getresponse().read()
                    times[what].append((time.monotonic() - begun) * 1e3)
        still = not all(x.first.is_set() for x in busy)
        measured.set()
        for what, t in times.items():
            print(f'{what}: median {statistics.median(t):.2f} ms, at most {max(t):.2f} ms')
            check(statistics.median(t) < 10 * SLOWER, f'{what} takes {statistics.median(t):.1f} ms while a prompt is computed')
            check(max(t) < 50 * SLOWER, f'{what} takes up to {max(t):.1f} ms while a prompt is computed')
        check(still, 'the prompts were being computed all the while')
        for x in busy:
            x.leave()
        for r in readers:
            r.join()


def turns():
    """The loop's thread has short turns, so that it runs at once where other threads compute; those keep theirs."""
    def of(task):
        at = ctypes.create_string_buffer(56)
        number = {'x86_64': 315, 'aarch64': 275}.get(os.uname().machine)
        if number is None or ctypes.CDLL(None).syscall(number, task, at, 56, 0) != 0:
            return 0
        return struct.unpack_from('<Q', at, 24)[0]
    with Server() as s:
        mine = of(0)
        if mine == 0:
            print('this kernel does not tell how long a turn is')
            return
        own = {int(t): of(int(t)) for t in os.listdir(f'/proc/{s.pid}/task')}
        check(own.pop(s.pid) == 100000 and set(own.values()) == {mine}, f'turns of the threads in ns: {own}, of this one {mine}')


def large_answer():
    """Eight answers with log-probabilities, more than a megabyte: the loop has other things to do than to put them together."""
    with Server('--parallel', 8, '--threads', 1) as s:
        times, done = [], []
        body = {'prompt': [20] * 8, 'max_tokens': 500, 'ignore_eos': True, 'n': 8, 'logprobs': 20, 'temperature': 1}
        large = threading.Thread(target=lambda: done.append(s.post(COMPLETIONS, body, timeout=120 * SLOWER)))
        large.start()
        with contextlib.closing(s.connection()) as c:
            while large.is_alive():
                begun = time.monotonic()
                c.request('GET', '/health')
                c.getresponse().read()
                times.append((time.monotonic() - begun) * 1e3)
                time.sleep(0.002)
        check(done[0].status == 200 and len(done[0].body) > 1 << 20, f'a large answer: {done[0]}')
        times.sort()
        print(f'health beside a large answer: median {statistics.median(times):.2f} ms, at most {times[-1]:.2f} ms')
        check(times[-1] < 100 * SLOWER, f'health takes {times[-1]:.0f} ms while a large answer is put together')


def silence():
    """A stream whose prompt takes long says that it lives; the comments are no events."""
    model, options = slow_model()
    with Server(*options, '--stream-comment', 0.2, model=model) as s:
        stream = Stream(s, {'prompt': [5 + i % 300 for i in range(480)], 'max_tokens': 3, 'ignore_eos': True}, COMPLETIONS)
        check(until(lambda: b': waiting\n\n' in stream.raw, 10) and not stream.first.is_set(), f'a comment before the first token: {stream.raw[:100]!r}')
        check(stream.wait(120 * SLOWER) and stream.events()[-1] == '[DONE]' and len(stream.events()) == 5, f'and then the answer: {stream.raw[-300:]!r}')
        check(s.chat(max_tokens=1).status == 200, 'an answer that does not stream has none')


def stuck():
    """A watchdog that finds every step too long."""
    model, options = slow_model()
    with Server(*options, '--watchdog', 0.1, '--max-step-ms', 0, '--chunk', 512, model=model) as s:
        stream = Stream(s, {'prompt': [5 + i % 300 for i in range(500)], 'max_tokens': 2, 'ignore_eos': True}, COMPLETIONS)
        check(until(lambda: 'watchdog' in s.text(), 10), 'the log reports a stuck step')
        a = s.get('/health')
        check(a.status == 503 and a.json()['status'] == 'stuck' and s.metric('ironmule_stuck') == 1, f'health says so: {a}')
        stream.wait(60 * SLOWER)
        check(until(lambda: s.get('/health').status == 200, 5), 'and takes it back')


def idle():
    """An idle server takes no processor time."""
    def ticks(s):
        return sum(map(int, open(f'/proc/{s.pid}/stat').read().rsplit(')', 1)[1].split()[11:13]))
    with Server() as s:
        s.chat(max_tokens=3)
        time.sleep(1.5)
        before = ticks(s)
        time.sleep(2)
        check(ticks(s) - before <= 1, f'idle, and {ticks(s) - before} ticks')


def main():
    tls()
    ids_and_log()
    metrics()
    plan()
    full()
    latency()
    turns()
    large_answer()
    silence()
    stuck()
    idle()
    return verdict()


raise SystemExit(main())
