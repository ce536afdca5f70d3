#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast servers of OpenAI's shape answer many clients, side by side on one machine.

    serve_load.py load  --start ironmule 'ironmule serve MODEL --port {port}' --start peer 'llama-server -m MODEL --port {port}'
    serve_load.py chat  --server NAME URL ...      a conversation that re-sends its history: time to first token of each turn
    serve_load.py stall --server NAME URL ...      what a long prompt does to streams that are running

Servers take turns within each round, in changing order, so that a drift of the machine's speed meets all of them. See README.md in this folder.
"""
import argparse
import asyncio
import json
import os
import platform
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time

from serve_prompts import question, shared_beginning, words
from stream_client import Refused, ask, fetch

START_S = 180
PAUSE_S = 0.3  # threads of the server before stop spinning


class Server:
    """A server that runs already, or one that is started here and ended with the run."""

    def __init__(self, name, url=None, command=None):
        self.name, self.url, self.command = name, url, command
        self.process = None
        self.model = None
        self.words_per_token = 1.0  # of this model, for these prompts
        self.extra_tokens = 0       # of the chat template

    def start(self, log):
        if not self.command:
            return
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        self.url = f'http://127.0.0.1:{port}'
        argv = shlex.split(self.command.replace('{port}', str(port)))
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def ready(self):
        until = time.monotonic() + START_S
        while True:
            try:
                await fetch(self.url, '/health')
                await self.loaded()
                self.model = (await fetch(self.url, '/v1/models'))['data'][0]['id']
                return
            except (OSError, ValueError, IndexError, Refused) as problem:
                if self.process and self.process.poll() is not None:
                    raise SystemExit(f'{self.name} ended with status {self.process.returncode}') from None
                if time.monotonic() > until:
                    raise SystemExit(f'{self.name} does not answer at {self.url}: {problem}') from None
                await asyncio.sleep(0.2)

    async def loaded(self):
        """Some servers answer /health before they have a model, and say at /ready when they have."""
        try:
            await fetch(self.url, '/ready')
        except Refused as problem:
            if problem.status != 404:
                raise

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def body(self, options, messages, new_tokens):
        body = {'model': self.model, 'messages': messages, 'max_tokens': new_tokens, 'temperature': 0}
        return {**body, 'ignore_eos': True} if options.ignore_eos else body

    async def calibrate(self, options):
        """Learns how many words make a prompt of so many tokens; a warm-up too."""
        counts = []
        fewer, more = 20, 60
        for n in (fewer, more):
            answer = await ask(self.url, self.body(options, [{'role': 'user', 'content': question(f'warm-up {n}', n)}], 4))
            counts.append(answer.prompt_tokens)
        self.words_per_token = (more - fewer) / (counts[1] - counts[0])
        self.extra_tokens = counts[1] - more / self.words_per_token

    def words_for(self, tokens):
        return max(8, round((tokens - self.extra_tokens) * self.words_per_token))


def turn_of(servers, number):
    """Servers in the order of a round: each comes first equally often."""
    at = number % len(servers)
    return servers[at:] + servers[:at]


# ---- load: many clients at once ----


async def measure_load(server, options, clients, name):
    """Each client sends its requests one after another; the answers of all of them, and the time that they took together."""
    shared = shared_beginning(options.shared_prefix)
    count = server.words_for(options.prompt_tokens) - options.shared_prefix

    async def client(number):
        answers = []
        for n in range(options.requests):
            text = question(f'{name} {number} {n}', count, shared)
            answers.append(await ask(server.url, server.body(options, [{'role': 'user', 'content': text}], options.new_tokens)))
        return answers

    begun = time.perf_counter()
    answers = sum(await asyncio.gather(*map(client, range(clients))), [])
    wall = max(answer.arrivals[-1] for answer in answers) - begun
    return {'wall_s': wall, 'tokens': sum(a.completion_tokens for a in answers), 'prompt_tokens': [a.prompt_tokens for a in answers],
            'cached_tokens': [a.cached_tokens for a in answers], 'first_s': [a.first_s for a in answers],
            'per_token_s': [a.per_token_s for a in answers if a.completion_tokens > 1]}


async def run_load(servers, options):
    cells = {(server.name, clients): [] for clients in options.clients for server in servers}
    for number in range(options.rounds):
        for clients in options.clients:
            for server in turn_of(servers, number):
                await asyncio.sleep(PAUSE_S)
                cells[server.name, clients].append(await measure_load(server, options, clients, f'load {number} {clients}'))
        print(f'  round {number + 1} of {options.rounds}', file=sys.stderr)
    return [{'server': name, 'clients': clients, 'rounds': rounds, **summary_of(rounds)} for (name, clients), rounds in cells.items()]


def summary_of(rounds):
    first = sum((cell['first_s'] for cell in rounds), [])
    per_token = sum((cell['per_token_s'] for cell in rounds), [])
    rates = [cell['tokens'] / cell['wall_s'] for cell in rounds]
    return {'tokens_per_s': statistics.median(rates), 'tokens_per_s_least': min(rates), 'tokens_per_s_most': max(rates),
            'first_ms': percentiles(first), 'per_token_ms': percentiles(per_token),
            'prompt_tokens': statistics.mean(sum((cell['prompt_tokens'] for cell in rounds), []))}


def percentiles(seconds):
    """In milliseconds, the nearest rank."""
    ordered = sorted(seconds)
    return {f'p{p}': 1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 90, 95, 99)}


def table_of_load(rows):
    yield '| clients | server | tokens/s [rounds] | to first token, ms: p50 | p95 | p99 | per token, ms: p50 | p95 | p99 |'
    yield '|--:|---|--:|--:|--:|--:|--:|--:|--:|'
    for row in sorted(rows, key=lambda r: r['clients']):
        first, token = row['first_ms'], row['per_token_ms']
        yield (f'| {row["clients"]} | {row["server"]} | {row["tokens_per_s"]:.1f} [{row["tokens_per_s_least"]:.1f}; {row["tokens_per_s_most"]:.1f}] '
              f'| {first["p50"]:.0f} | {first["p95"]:.0f} | {first["p99"]:.0f} | {token["p50"]:.1f} | {token["p95"]:.1f} | {token["p99"]:.1f} |')


# ---- chat: a conversation that grows ----


async def measure_chat(server, options, name):
    """Time to first token of each turn, and how much of the prompt was cached."""
    messages, turns = [], []
    for number in range(options.turns):
        text = words(f'{name} {number}', options.turn_words)
        messages.append({'role': 'user', 'content': f'{text}. What do you think of that?'})
        answer = await ask(server.url, server.body(options, messages, options.turn_tokens))
        messages.append({'role': 'assistant', 'content': answer.text})
        turns.append({'first_s': answer.first_s, 'prompt_tokens': answer.prompt_tokens, 'cached_tokens': answer.cached_tokens})
    return turns


async def run_chat(servers, options):
    rounds = {server.name: [] for server in servers}
    for number in range(options.rounds):
        for server in turn_of(servers, number):
            await asyncio.sleep(PAUSE_S)
            rounds[server.name].append(await measure_chat(server, options, f'chat {number}'))
        print(f'  round {number + 1} of {options.rounds}', file=sys.stderr)
    return [{'server': name, 'rounds': several, **chat_summary(several)} for name, several in rounds.items()]


def chat_summary(rounds):
    first_ms = [1000 * statistics.median(turn['first_s'] for turn in turns) for turns in zip(*rounds)]
    return {'first_ms': first_ms, 'last_to_second': first_ms[-1] / first_ms[1]}


def table_of_chat(rows):
    shown = [1, 2, 5, 10, 15, 20]
    shown = [n for n in shown if n <= len(rows[0]['first_ms'])]
    yield '| server | ' + ' | '.join(f'turn {n}, ms' for n in shown) + ' | last to second | prompt of the last turn, tokens | cached |'
    yield '|---|' + '--:|' * (len(shown) + 3)
    for row in rows:
        last = row['rounds'][-1][-1]
        yield (f'| {row["server"]} | ' + ' | '.join(f'{row["first_ms"][n - 1]:.0f}' for n in shown) +
              f' | {row["last_to_second"]:.2f} | {last["prompt_tokens"]} | {last["cached_tokens"]} |')


# ---- stall: a long prompt arrives among running streams ----


async def measure_stall(server, options, name):
    """The largest gap of each stream while nothing else happens, and between the newcomer's request and its first token."""
    warm = asyncio.Event()
    live, newcomer = [], {}

    def on_text(answer):
        if answer not in live:
            live.append(answer)
        if len(live) == options.streams and all(len(one.arrivals) >= options.steady_tokens for one in live):
            warm.set()

    async def stream(number):
        text = question(f'{name} {number}', server.words_for(options.prompt_tokens))
        return await ask(server.url, server.body(options, [{'role': 'user', 'content': text}], options.stream_tokens), on_text=on_text)

    streams = [asyncio.create_task(stream(number)) for number in range(options.streams)]
    waiting = asyncio.create_task(warm.wait())
    await asyncio.wait([waiting, *streams], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    text = question(f'{name} newcomer', server.words_for(options.newcomer_tokens))
    newcomer = await ask(server.url, server.body(options, [{'role': 'user', 'content': text}], 4))
    answers = await asyncio.gather(*streams)
    steady_from = max(answer.arrivals[0] for answer in answers)
    return {'prompt_tokens': newcomer.prompt_tokens, 'first_s': newcomer.first_s,
            'before_s': [largest_gap(answer, steady_from, newcomer.begun) for answer in answers],
            'during_s': [largest_gap(answer, newcomer.begun, newcomer.arrivals[0]) for answer in answers],
            'outlasted': sum(answer.arrivals[-1] > newcomer.arrivals[0] for answer in answers)}


def largest_gap(answer, since, until):
    """Between tokens of which at least one came in that time, with text or without."""
    return max((later - earlier for earlier, later in zip(answer.tokens, answer.tokens[1:]) if later > since and earlier < until), default=0.0)


async def run_stall(servers, options):
    rounds = {server.name: [] for server in servers}
    for number in range(options.rounds):
        for server in turn_of(servers, number):
            await asyncio.sleep(PAUSE_S)
            rounds[server.name].append(await measure_stall(server, options, f'stall {number}'))
        print(f'  round {number + 1} of {options.rounds}', file=sys.stderr)
    return [{'server': name, 'rounds': several, **stall_summary(several)} for name, several in rounds.items()]


def stall_summary(rounds):
    before = [1000 * max(one['before_s']) for one in rounds]
    during = [1000 * max(one['during_s']) for one in rounds]
    return {'before_ms': statistics.median(before), 'during_ms': statistics.median(during), 'during_ms_most': max(during),
            'raised_ms': statistics.median(d - b for d, b in zip(during, before)), 'first_ms': 1000 * statistics.median(one['first_s'] for one in rounds)}


def table_of_stall(rows):
    yield '| server | largest gap before, ms | while the newcomer is read, ms [most] | raised by, ms | newcomer to first token, ms | its prompt, tokens | streams that outlasted it |'
    yield '|---|--:|--:|--:|--:|--:|--:|'
    for row in rows:
        last = row['rounds'][-1]
        yield (f'| {row["server"]} | {row["before_ms"]:.0f} | {row["during_ms"]:.0f} [{row["during_ms_most"]:.0f}] | {row["raised_ms"]:.0f} | {row["first_ms"]:.0f} '
              f'| {last["prompt_tokens"]} | {last["outlasted"]} |')


# ---- the command ----

# What measures, and what makes lines of a table of its rows.
MODES = {'load': (run_load, table_of_load), 'chat': (run_chat, table_of_chat), 'stall': (run_stall, table_of_stall)}


def machine():
    cpu = platform.machine()
    try:
        with open('/proc/cpuinfo', encoding='ascii', errors='replace') as file:
            cpu = next((line.split(':', 1)[1].strip() for line in file if line.startswith('model name')), cpu)
    except OSError:
        pass
    return {'cpu': cpu, 'cores': os.cpu_count(), 'load_before': os.getloadavg()[0], 'date': time.strftime('%Y-%m-%d')}


def plain_command():
    """This command without the folders of this machine."""
    words = ['serve_load.py', *sys.argv[1:]]
    return shlex.join(' '.join(os.path.basename(part) if part.startswith('/') else part for part in word.split(' ')) for word in words)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('mode', choices=MODES)
    parser.add_argument('--server', nargs=2, action='append', default=[], metavar=('NAME', 'URL'), help='a server that is running')
    parser.add_argument('--start', nargs=2, action='append', default=[], metavar=('NAME', 'COMMAND'), help='a server to start; {port} is filled in')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--prompt-tokens', type=int, default=200, metavar='N')
    parser.add_argument('--new-tokens', type=int, default=64, metavar='N')
    parser.add_argument('--no-ignore-eos', dest='ignore_eos', action='store_false', help='let the model end its answers: tokens then differ')
    parser.add_argument('--clients', type=lambda text: [int(n) for n in text.split(',')], default=[1, 4, 8, 16], metavar='N,N')
    parser.add_argument('--requests', type=int, default=2, metavar='N', help='of each client in a round, one after another')
    parser.add_argument('--shared-prefix', type=int, default=0, metavar='WORDS', help='a beginning that all prompts have in common')
    parser.add_argument('--turns', type=int, default=20, metavar='N')
    parser.add_argument('--turn-words', type=int, default=30, metavar='N', help='of each message of the user')
    parser.add_argument('--turn-tokens', type=int, default=32, metavar='N', help='of each answer')
    parser.add_argument('--streams', type=int, default=4, metavar='N')
    parser.add_argument('--stream-tokens', type=int, default=256, metavar='N')
    parser.add_argument('--steady-tokens', type=int, default=24, metavar='N', help='that each stream has before the newcomer arrives')
    parser.add_argument('--newcomer-tokens', type=int, default=1800, metavar='N')
    parser.add_argument('--json', metavar='FILE', help='every sample')
    parser.add_argument('--log', default=os.devnull, metavar='FILE', help='what started servers write')
    return parser.parse_args()


async def measure(servers, options):
    for server in servers:
        await server.ready()
        await server.calibrate(options)
    return await MODES[options.mode][0](servers, options)


def main():
    options = arguments()
    servers = [Server(name, url=url.rstrip('/')) for name, url in options.server] + [Server(name, command=command) for name, command in options.start]
    if not servers:
        raise SystemExit('which server? --server NAME URL or --start NAME COMMAND')
    about = machine()
    with open(options.log, 'ab') as log:
        try:
            for server in servers:
                server.start(log)
            rows = asyncio.run(measure(servers, options))
        except (Refused, OSError, asyncio.IncompleteReadError) as problem:
            raise SystemExit(f'a request failed: {problem}') from None
        finally:
            for server in servers:
                server.stop()
    print(*MODES[options.mode][1](rows), sep='\n')
    if options.json:
        document = {'mode': options.mode, 'command': plain_command(), 'machine': about, 'rows': rows}
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump(document, file, indent=1)
            file.write('\n')


if __name__ == '__main__':
    main()
