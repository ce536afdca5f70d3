# SPDX-License-Identifier: Apache-2.0
"""`ironmule start` from an empty home: settings, a model fetched after a yes, the server, an answered chat; and every way to say no."""
import http.client
import json
import os
import re
import signal
import socket

from hub_client import Home, SLOWER, TINY, check, skip, verdict


def proposals(home):
    """Ids that start can propose are whatever this machine's memory allows: the hub offers the tiny model under each."""
    done = home.run('start', '--no-browser')
    check(done.returncode == 1 and b'nothing was fetched' in done.stderr and b'[y/N]' in done.stderr, f'the end of input: {done}')
    check(not home.hub.log, 'the network was asked before the yes')
    return re.search(r'Fetch (\S+) \(about [0-9.]+ [MG]B, licence Apache-2.0\)', done.stderr.decode())[1]


def offer(home, model):
    name, tag = model.split(':')
    home.hub.add(name, {f'm-{tag}.gguf': open(TINY, 'rb').read(), 'README.md': b''})


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def chat(port, model):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60 * SLOWER)
    body = json.dumps({'model': model, 'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 3})
    connection.request('POST', '/v1/chat/completions', body, {'Content-Type': 'application/json'})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def serve_and_ask(home, *args, model=None):
    """Starts, waits for the announcement, asks, ends; the announcement."""
    process = home.start('start', '--no-browser', '--json', *args)
    line = process.stdout.readline()
    if not line:
        check(False, f'{args}: {process.communicate(timeout=30)}')
        return None
    told = json.loads(line)
    status, answer = chat(told['port'], model or told['model'])
    check(status == 200 and answer['choices'][0]['message']['role'] == 'assistant', f'{args}: {status} {answer}')
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    check(process.returncode == 0 and not out, f'{args}: exit {process.returncode}, {out} {err}')
    return told


with Home() as home:
    if b'built without' in home.run('serve', TINY, '--dry-run').stderr:
        skip('this build has no server')
    model = proposals(home)
    check(os.path.exists(os.path.join(home.path, '.config/ironmule/settings.toml')), 'no settings were written')
    offer(home, model)
    done = home.run('start', stdin=b'no\n')
    check(done.returncode == 1 and not home.hub.log, f'no: {done}')

# One command, from nothing to an answered chat.
with Home() as home:
    offer(home, model)
    port = free_port()
    told = serve_and_ask(home, '--yes', '--port', port)
    check(told == {'url': f'http://127.0.0.1:{port}/', 'model': model, 'port': port}, f'{told}')
    entry, = home.good('models', 'registered')
    check(entry['name'] == model, f'{entry}')
    # From now on without the network, and without a question.
    asked = len(home.hub.log)
    serve_and_ask(home, '--port', free_port())
    check(len(home.hub.log) == asked, 'the network was asked again')
    # A model by name, by path, by the settings; a port that is taken.
    home.good('models', 'add', TINY, '--name', 'mine')
    check(serve_and_ask(home)['model'] == 'mine', 'the latest is first')
    home.good('setup', '--set', f'model={model}', '--set', f'port={free_port()}')
    check(serve_and_ask(home)['model'] == model, 'the settings choose')
    check(serve_and_ask(home, TINY)['model'] == 'arch-tiny', 'the command line chooses')
    home.refused('No such file', 'start', '/no/such.gguf')
    home.refused('no model is registered under this name', 'start', 'nobody')
    done = home.run('start', 'acme/absent', '--yes')
    check(done.returncode == 1 and b'there is no such model' in done.stderr, f'{done}')
    home.refused('is none of: desktop server', 'start', '--mode', 'x', code=2, lines=2)
raise SystemExit(verdict())
