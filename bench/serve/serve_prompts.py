# SPDX-License-Identifier: Apache-2.0
"""Prompts of a wanted length, the same on each machine and different from each other from the first word on."""
import random

WORDS = '''time people water house river mountain garden bridge market winter summer letter window story music paper silver copper harbour engine
morning evening question answer number village forest island teacher captain doctor farmer painter soldier merchant quiet narrow broken golden
ancient simple heavy gentle distant hidden careful walk carry build follow remember measure open close between behind without against during
because although together slowly often never always perhaps still'''.split()


def words(name, count):
    """`count` words drawn for a name."""
    draw = random.Random(name)
    return ' '.join(draw.choices(WORDS, k=count))


def question(name, count, shared=''):
    """A message of about `count` words in all. `shared`: a beginning that several prompts have in common."""
    return f'{shared}{words(name, max(1, count - 6))}. Tell a long story with these words.'


def shared_beginning(count):
    return words('shared', count) + '. ' if count else ''
