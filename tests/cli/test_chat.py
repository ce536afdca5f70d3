# SPDX-License-Identifier: Apache-2.0
"""The conversation in a terminal, on a model of 130 KB: editing, history, commands, colours, ways out."""
import sys

from program import TINY, check, verdict
from terminal import CONTROL_C, CONTROL_D, UP, Terminal

NUMBERS = rb'last answer: (\d+) prompt tokens \((?:\d+) known\) at .*?, (\d+) tokens at .*?conversation: (\d+) answers, (\d+) tokens, (\d+) of (\d+) positions'


def chat(*args, env=None):
    t = Terminal('chat', TINY, '--max-tokens', 6, *args, env=env)
    check(t.expect(rb'/help for commands'), f'no greeting: {t.shown}')
    check(t.prompt(), f'no prompt: {t.shown}')
    return t


def stats(t):
    t.line('/stats')
    numbers = t.expect(NUMBERS)
    check(numbers and t.prompt(), f'/stats: {t.shown[-300:]}')
    return [int(n) for n in numbers.groups()] if numbers else [0] * 6


def ask(t, question):
    t.line(question)
    check(t.expect(rb'\[cut: --max-tokens|\x1b\[0m\r\n') and t.prompt(), f'no answer: {t.shown[-300:]}')


def commands():
    t = chat()
    t.line('/help')
    shown = t.expect(rb'/help .*/clear .*/stats .*/exit .*Ctrl-C')
    check(shown and t.prompt(), f'/help: {t.shown}')
    t.line('/stats')
    check(t.expect(rb'no answer yet; \d+ threads, \w+ kernels, context 512') and t.prompt(), f'/stats: {t.shown}')
    t.line('/hepl')
    check(t.expect(rb'unknown command /hepl') and t.prompt(), f'/hepl: {t.shown}')
    t.line('')
    check(t.prompt(), 'an empty line')
    t.line('/exit')
    check(t.close() == 0, '/exit')


def history():
    t = chat()
    ask(t, 'Hello mule')
    first = stats(t)
    ask(t, 'And again')
    second = stats(t)
    check(first[0] > 0 and first[1] == 6 and first[2] == 1, f'after one answer: {first}')
    check(second[0] > first[0] + 6 and second[2] == 2 and second[3] == 12, f'the second prompt holds the first answer: {second} after {first}')
    t.send(UP + UP)  # over /stats to the question
    check(t.expect(rb'And again'), f'history: {t.shown[-200:]}')
    t.send(b'\r')
    check(t.prompt() and stats(t)[2] == 3, 'the question from the history')
    t.line('/clear')
    check(t.expect(rb'forgotten') and t.prompt(), '/clear')
    ask(t, 'Hello mule')
    check(stats(t)[0] == first[0], 'a prompt as at first, after /clear')
    t.send(CONTROL_D)
    check(t.close() == 0, 'Ctrl-D')


def editing():
    t = chat(env={'LC_ALL': 'C'})
    t.send(b'never sent')
    check(t.expect(rb'never sent'), 'echo')
    t.send(CONTROL_C)
    check(t.prompt(), f'Ctrl-C throws the line away: {t.shown[-200:]}')
    t.line('/stats')
    check(t.expect(rb'no answer yet') and t.prompt(), 'the line was not sent')
    t.send('grüße'.encode())
    check(t.expect('grüße'.encode(), 10), f'characters of several bytes: {t.shown[-200:]}')
    t.send(CONTROL_C)
    check(t.prompt(), 'Ctrl-C again')
    t.line('Hello \\')
    check(t.expect(rb'\.\.\. '), f'a continued line: {t.shown[-200:]}')
    t.line('mule')
    check(t.prompt() and stats(t)[2] == 1, 'a continued line is one message')
    t.send(CONTROL_D)
    check(t.close() == 0, 'Ctrl-D')


def no_room():
    t = chat('--context', '24')
    t.line('the mule carried the load up the hill and down the hill')
    check(t.expect(rb'the prompt has \d+ tokens, but the context has 24 positions') and t.expect(rb'/clear begins') and t.prompt(), f'{t.shown[-400:]}')
    t.line('a')
    check(t.prompt(), 'a shorter message afterwards')
    t.send(CONTROL_D)
    check(t.close() == 0, 'Ctrl-D')


def remembers():
    t = chat()
    for question in ('The mule carried iron over the mountain', 'slowly and never the same way twice', 'and at night it counted the stars', 'why'):
        ask(t, question)
    t.line('/stats')
    found = t.expect(rb'last answer: (\d+) prompt tokens \((\d+) known\)')
    check(found and t.prompt() and 64 <= int(found.group(2)) < int(found.group(1)), f'the turns before are not computed again: {t.shown[-300:]}')
    t.send(CONTROL_D)
    check(t.close() == 0, 'Ctrl-D')


def colours():
    for env, coloured in (({}, True), ({'NO_COLOR': '1'}, False), ({'TERM': 'dumb'}, False)):
        t = Terminal('chat', TINY, '--max-tokens', 6, env=env)
        t.prompt()
        t.line('Hello')
        check(t.expect(rb'\[cut') and t.prompt(), f'{env}: {t.shown}')
        check((b'\x1b[36m' in t.shown) == coloured, f'{env}: {t.shown}')
        t.send(CONTROL_D)
        check(t.close() == 0, f'{env}: Ctrl-D')


def main():
    for part in (commands, history, editing, no_room, remembers, colours):
        part()
        print(part.__name__, flush=True)
    return verdict()


sys.exit(main())
