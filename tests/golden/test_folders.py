# SPDX-License-Identifier: Apache-2.0
"""Folders with weights in safetensors: test_folders.py ZOO_CHECK best|levels|few, test_folders.py MODEL_PROBE same
best: every model of tests/data/mlx against its golden logits with the best kernels, its text against the golden ids; levels: some with every kernel level;
few: two with the best kernels, and those that are refused; same: the same weights as a GGUF file and as a folder give the same bits: floats, and codes of
4, 5 and 8 bits and mxfp4 whose values are equal."""
import json
import os
import shlex
import struct
import subprocess
import sys
import tempfile

import reference
from program import answer, check, levels, run, verdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'unit'))
import folder_mutants  # noqa: E402
import gguf_mutants  # noqa: E402
from file_probe import Probe  # noqa: E402

REFUSED = {'mlx-qwen3-mxfp8': 'mxfp8', 'mlx-qwen3-nvfp4': 'nvfp4'}
VOCABULARY = {'llama': 'bpe-llama3', 'gemma': 'spm-gemma', 'qwen2': 'bpe-qwen2', 'qwen3': 'bpe-qwen2'}
FEW = ['mlx-llama-4bit-g64-2shards', 'mlx-llama-f16']
# Between them: all widths of codes, every kind of scales, groups of 32, 64 and 128, all families.
SOME = ['mlx-llama-2bit-g64', 'mlx-llama-3bit-g64', 'mlx-llama-5bit-g64', 'mlx-llama-4bit-g128', 'mlx-gemma3-6bit-g64', 'mlx-gemma3-4bit-g32-ropescale',
        'mlx-qwen2-8bit-g64-f16scales', 'mlx-qwen3-mxfp4', 'mlx-gemma3-bf16']


def judge(zoo_check, folder, name, level):
    model = os.path.join(folder, name)
    done = subprocess.run(zoo_check + [model, os.path.join(model, 'golden.json'), level], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    text = done.stdout.decode('utf-8', 'replace')
    good = check(done.returncode == 0, f'{name}, {level}')
    print('\n'.join([f'{name}, {level}:'] + text.splitlines()) if not good else f'{name}, {level}: ok', flush=True)


def refused(folder):
    for name, why in REFUSED.items():
        done = run('tokenize', os.path.join(folder, name), 'x')
        check(done.returncode == 1 and why.encode() in done.stderr and b'config.json' in done.stderr, f'{name}: {done}')


def check_text(folder, names):
    """Texts through tokenizer.json against the golden ids."""
    with open(os.path.join(reference.unpack(), 'tokenizers.json'), encoding='utf-8') as f:
        golden = json.load(f)
    for name in names:
        model = os.path.join(folder, name)
        want = golden[VOCABULARY[name[4:9]]]
        for case in want['strings'][:6]:
            got = answer('tokenize', '--no-bos', model, case['text'])
            check(got['ids'] == case['ids'], f'{name}: {case["text"]!r} gives {got["ids"]}, expected {case["ids"]}')


# ---- the same weights twice ----

NAMES = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj', 'attn_output': 'self_attn.o_proj',
         'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj', 'attn_norm': 'input_layernorm',
         'ffn_norm': 'post_attention_layernorm', 'token_embd': 'model.embed_tokens', 'output_norm': 'model.norm', 'output': 'lm_head'}
TYPES = {0: 'F32', 1: 'F16', 30: 'BF16'}
# Bytes of a block, the width of MLX's codes for it.
BLOCKS = {3: (20, 4), 7: (24, 5), 8: (34, 8), 39: (17, 4)}


def stored_name(name):
    part = name.split('.')
    return f'model.layers.{part[1]}.{NAMES[part[2]]}.{part[3]}' if part[0] == 'blk' else f'{NAMES[part[0]]}.{part[1]}'


def halves(data, rows, head):
    """Rows of a head in the order of halves; GGUF has neighbours beside each other."""
    size = len(data) // rows
    order = [h + 2 * i + j for h in range(0, rows, head) for j in range(2) for i in range(head // 2)]
    return b''.join(data[r * size:(r + 1) * size] for r in order)


def nibbles(b):
    return [v & 15 for v in b] + [v >> 4 for v in b]


def split_block(kind, b):
    """Scale, bias and 32 codes of a block of Q4_1, Q5_1, Q8_0 or MXFP4, as MLX would hold them."""
    if kind == 39:
        return b[:1], b'', nibbles(b[1:])
    if kind == 8:  # from integers to codes; 128 times the scale is exact
        return b[:2], struct.pack('<e', -128 * struct.unpack('<e', b[:2])[0]), [v ^ 0x80 for v in b[2:]]
    high = int.from_bytes(b[4:8], 'little') if kind == 7 else 0
    return b[:2], b[2:4], [v | (high >> i & 1) << 4 for i, v in enumerate(nibbles(b[-16:]))]


def codes_of(t):
    """Name's end, type, shape and bytes of the arrays of a matrix."""
    size, bits = BLOCKS[t.kind]
    scales, biases, codes = zip(*(split_block(t.kind, t.data[i:i + size]) for i in range(0, len(t.data), size)))
    stream = b''.join(sum(c << bits * i for i, c in enumerate(block)).to_bytes(4 * bits, 'little') for block in codes)
    n, rows = t.dims
    yield 'weight', 'U32', [rows, n * bits // 32], stream
    yield 'scales', 'U8' if t.kind == 39 else 'F16', [rows, n // 32], b''.join(scales)
    if t.kind != 39:
        yield 'biases', 'F16', [rows, n // 32], b''.join(biases)


def arrays_of(t):
    if t.kind in BLOCKS:
        return list(codes_of(t))
    return [(t.name.decode().rsplit('.', 1)[1], TYPES[t.kind], t.dims[::-1], t.data)]


def number(f, key, code='I'):
    return struct.unpack('<' + code, f.key('llama.' + key)[2])[0]


def convert(raw, place, tokenizer):
    """A Llama in GGUF as a folder."""
    f = gguf_mutants.File.parse(raw)
    heads, width, tensors = number(f, 'attention.head_count'), number(f, 'embedding_length'), []
    head = number(f, 'attention.key_length') if f.has('llama.attention.key_length') else width // heads
    for t in f.tensors:
        name = t.name.decode()
        for end, kind, shape, data in arrays_of(t):
            if '.attn_q.' in name or '.attn_k.' in name:
                data = halves(data, t.dims[1], head)
            tensors.append((f'{stored_name(name).rsplit(".", 1)[0]}.{end}', kind, shape, data))
    config = {'model_type': 'llama', 'num_hidden_layers': number(f, 'block_count'), 'hidden_size': width, 'num_attention_heads': heads,
              'num_key_value_heads': number(f, 'attention.head_count_kv'), 'head_dim': head, 'intermediate_size': number(f, 'feed_forward_length'),
              'vocab_size': f.tensor('token_embd.weight').dims[1], 'max_position_embeddings': number(f, 'context_length'), 'hidden_act': 'silu',
              'rms_norm_eps': number(f, 'attention.layer_norm_rms_epsilon', 'f'), 'rope_theta': number(f, 'rope.freq_base', 'f'),
              'tie_word_embeddings': False}
    quantised = {t.kind for t in f.tensors} & set(BLOCKS)
    if quantised:
        kind = quantised.pop()
        config['quantization'] = {'group_size': 32, 'bits': BLOCKS[kind][1], 'mode': 'mxfp4' if kind == 39 else 'affine'}
    os.makedirs(place)
    for name, content in (('model.safetensors', folder_mutants.pack(tensors)), ('config.json', json.dumps(config).encode()), *tokenizer.items()):
        with open(os.path.join(place, name), 'wb') as out:
            out.write(content)


def same(program):
    zoo, folder = reference.unpack(), reference.unpack('mlx')
    tokenizer = {}
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        with open(os.path.join(folder, 'mlx-qwen2-4bit-g32', name), 'rb') as f:  # any with no more ids than the embedding has rows
            tokenizer[name] = f.read()
    probe, seen = Probe(program), set()
    with tempfile.TemporaryDirectory() as made:
        for kind in ('f16', 'bf16', 'f32', 'q4_1', 'q5_1', 'q8_0', 'mxfp4'):
            path, place = reference.zoo_model(zoo, 'llama-' + kind), os.path.join(made, kind)
            with open(path, 'rb') as f:
                convert(f.read(), place, tokenizer)
            file, other = probe.open(path), probe.open(place)
            seen.add(file)
            check(file[0] == 'ok' and file == other, f'{kind}: GGUF {file}, folder {other}')
    check(len(seen) == 7, f'seven models, hashes {seen}')
    probe.close()


def main():
    program, which = sys.argv[1], sys.argv[2]
    if which == 'same':
        same(program)
        return verdict()
    folder, here = reference.unpack('mlx'), levels()
    everything = sorted(n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n)))
    check(len(everything) == 20 and set(REFUSED) <= set(everything), f'{len(everything)} models, expected 20')
    good = [n for n in everything if n not in REFUSED]
    names = {'best': good, 'levels': SOME, 'few': FEW}[which]
    for level in here if which == 'levels' else here[-1:]:
        for name in names:
            judge(shlex.split(program), folder, name, level)
    if which != 'levels':
        check_text(folder, names)
        refused(folder)
    return verdict()


sys.exit(main())
