# SPDX-License-Identifier: Apache-2.0
"""Sound files of kinds that do not run: the program refuses them in one line that names the file and what it is about them."""
import math
import os
import struct
import sys
import tempfile

import reference
from program import TINY, answer, check, run, verdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'unit'))
import gguf_mutants  # noqa: E402
from gguf_mutants import F32, STRING, U32  # noqa: E402

WIDE, FLOAT = 256, 0
# Types of the format that have no product here: number, elements and bytes of a block.
TYPES = {'Q8_K': (15, 256, 292), 'IQ2_XXS': (16, 256, 66), 'IQ2_XS': (17, 256, 74), 'IQ3_XXS': (18, 256, 98), 'IQ1_S': (19, 256, 50), 'IQ3_S': (21, 256, 110),
         'IQ2_S': (22, 256, 82), 'I8': (24, 1, 1), 'I16': (25, 1, 2), 'I32': (26, 1, 4), 'I64': (27, 1, 8), 'F64': (28, 1, 8), 'IQ1_M': (29, 256, 56),
         'TQ1_0': (34, 256, 54), 'TQ2_0': (35, 256, 66), 'NVFP4': (40, 64, 36)}
ARCHITECTURES = ('gemma2', 'gemma3', 'llama', 'qwen2', 'qwen3')


def wide_model():
    """arch-tiny with rows of 256, so that every type fits; all weights are floats."""
    with open(TINY, 'rb') as f:
        model = gguf_mutants.File.parse(f.read())
    model.put('llama.embedding_length', U32, WIDE).put('llama.feed_forward_length', U32, WIDE)
    model.put('llama.attention.head_count_kv', U32, 2).put('llama.rope.dimension_count', U32, WIDE // 2)
    for t in model.tensors:
        t.dims = [WIDE] if len(t.dims) == 1 else [WIDE, 389 if t.name in (b'token_embd.weight', b'output.weight') else WIDE]
        t.kind, t.data = FLOAT, struct.pack('<f', 0.01) * math.prod(t.dims)
    return model


def refused(folder, name, data, *words):
    path = os.path.join(folder, name + '.gguf')
    with open(path, 'wb') as f:
        f.write(data)
    done = run('generate', path, '--raw', '--json', '--max-tokens', 1, 'Hello')
    message = done.stderr.decode('utf-8')
    check(done.returncode == 1 and done.stdout == b'', f'{name}: exit {done.returncode}, stdout {done.stdout[:100]}')
    check(message.count('\n') == 1 and path in message, f'{name}: not one line with the file\'s name: {message!r}')
    check(not any(ord(c) < 0x20 and c != '\n' or 0x7f <= ord(c) < 0xa0 for c in message), f'{name}: control characters in {message!r}')
    for word in words:
        check(word in message, f'{name}: "{word}" is not in {message!r}')


def types(folder):
    good = wide_model()
    with open(os.path.join(folder, 'good.gguf'), 'wb') as f:
        f.write(good.pack())
    check(len(answer('generate', os.path.join(folder, 'good.gguf'), '--raw', '--max-tokens', 2, '--ignore-eos', 'Hello')['ids']) == 2, 'the good file')
    for kind, (number, elements, size) in TYPES.items():
        model = good.copy()
        t = model.tensor('blk.1.ffn_down.weight')
        t.kind, t.data = number, bytes(math.prod(t.dims) // elements * size)
        refused(folder, kind, model.pack(), kind, 'blk.1.ffn_down.weight')
    for number in (4, 33, 77, 2**31):  # withdrawn, or never given
        model = good.copy()
        model.tensor('blk.0.attn_q.weight').kind = number
        refused(folder, f'type-{number}', model.pack(), str(number), 'blk.0.attn_q.weight')
    model = good.copy()
    model.tensor('blk.0.attn_norm.weight').kind = 1
    model.tensor('blk.0.attn_norm.weight').data = bytes(2 * WIDE)
    path = os.path.join(folder, 'half-norm.gguf')
    with open(path, 'wb') as f:
        f.write(model.pack())
    done = run('generate', path, '--raw', '--max-tokens', 1, 'Hello')  # may run or be refused, cleanly
    check(done.returncode == 0 or b'blk.0.attn_norm.weight' in done.stderr, f'a norm in binary16: {done.returncode} {done.stderr}')


def architectures(folder):
    zoo = reference.unpack()
    for name, arch in (('bpe-olmo2', 'olmo2'), ('bpe-granite', 'granite'), ('spm-phi3', 'phi3')):
        with open(os.path.join(zoo, name + '.gguf'), 'rb') as f:
            refused(folder, name, f.read(), f'"{arch}"', *ARCHITECTURES)
    good = wide_model()
    for arch in ('mamba', 'clip', '', 'x' * 1000, 'l\x1b[2Jlama', 'l\x9b2Jlama'):
        refused(folder, f'arch-{len(arch)}', good.copy().put('general.architecture', STRING, arch).pack(), *ARCHITECTURES)
    refused(folder, 'arch-none', good.copy().drop('general.architecture').pack(), 'general.architecture')
    refused(folder, 'arch-number', good.copy().put('general.architecture', U32, 7).pack(), 'general.architecture')


def vocabularies(folder):
    good = wide_model()
    refused(folder, 'tokenizer', good.copy().put('tokenizer.ggml.model', STRING, 'rwkv').pack(), 'rwkv')
    refused(folder, 'no-tokenizer', good.copy().drop('tokenizer.ggml.model').pack(), 'tokenizer.ggml.model')
    with open(os.path.join(reference.unpack(), 'bpe-llama3.gguf'), 'rb') as f:
        unknown = f.read().replace(b'\x09' + bytes(7) + b'llama-bpe', b'\x09' + bytes(7) + b'other-bpe')
    refused(folder, 'pre', unknown, 'other-bpe')
    path = os.path.join(folder, 'pre.gguf')
    forced, want = (answer('tokenize', p, *how, 'Hello  world, 12345!') for p, how in (
        (path, ['--pre', 'llama-bpe']), (os.path.join(reference.unpack(), 'bpe-llama3.gguf'), [])))
    check(forced == want and len(want['ids']) > 5, f'with --pre: {forced}, expected {want}')
    done = run('tokenize', path, 'Hello')
    check(done.returncode == 1 and b'other-bpe' in done.stderr, f'tokenize: {done}')


def rope(folder):
    model = wide_model().put('llama.rope.scaling.type', STRING, 'yarn').put('llama.rope.scaling.factor', F32, 4.0)
    refused(folder, 'yarn', model.pack(), 'yarn')


def main():
    with tempfile.TemporaryDirectory() as folder:
        types(folder)
        architectures(folder)
        vocabularies(folder)
        rope(folder)
    return verdict()


sys.exit(main())
