#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model as an MLX folder, and what IronMule's arithmetic costs on it.

    smollm2_mlx.py make GGUF PLAIN FOLDER [BITS GROUP]   the GGUF's weights as a Hugging Face folder in bfloat16, and mlx-lm's conversion of that (4 64)
    smollm2_mlx.py oracle FOLDER ORACLE.json             log-probabilities by mlx-lm in float32, on exactly the weights that mlx dequantises
    smollm2_mlx.py judge FOLDER ORACLE.json [RESULT]     IronMule (IM_PROGRAM) on the same ids: perplexity ratio with its interval

`make` and `oracle` need mlx[cpu], mlx-lm and gguf (measured with 0.32.4, 0.32.2, 0.19.0), `judge` the standard library alone. Texts and ids are those of
tests/data/golden. The oracle widens the scales to float32 before anything is multiplied, so both sides compute with the same weights.
"""
import hashlib
import json
import math
import os
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault('IM_TEST_DATA', os.path.join(SOURCE, 'tests', 'data'))
os.environ.setdefault('IM_SOURCE', SOURCE)
sys.path[:0] = [os.path.join(SOURCE, 'tests', 'golden')]

MOST = 1.005
NAMES = {'attn_q': 'self_attn.q_proj', 'attn_k': 'self_attn.k_proj', 'attn_v': 'self_attn.v_proj', 'attn_output': 'self_attn.o_proj',
         'ffn_gate': 'mlp.gate_proj', 'ffn_up': 'mlp.up_proj', 'ffn_down': 'mlp.down_proj', 'attn_norm': 'input_layernorm',
         'ffn_norm': 'post_attention_layernorm', 'token_embd': 'model.embed_tokens', 'output_norm': 'model.norm', 'output': 'lm_head'}


# ---- the folder

def stored_name(role):
    part = role.split('.')
    return f'model.layers.{part[1]}.{NAMES[part[2]]}.{part[3]}' if part[0] == 'blk' else f'{NAMES[part[0]]}.{part[1]}'


def write_config(value, tied, path):
    config = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_act': 'silu', 'tie_word_embeddings': tied, 'torch_dtype': 'bfloat16',
              'num_hidden_layers': value('llama.block_count'), 'hidden_size': value('llama.embedding_length'),
              'intermediate_size': value('llama.feed_forward_length'), 'num_attention_heads': value('llama.attention.head_count'),
              'num_key_value_heads': value('llama.attention.head_count_kv'), 'vocab_size': value('llama.vocab_size'),
              'max_position_embeddings': value('llama.context_length'), 'rope_theta': value('llama.rope.freq_base'), 'rms_norm_eps': 1e-5,
              'bos_token_id': value('tokenizer.ggml.bos_token_id'), 'eos_token_id': value('tokenizer.ggml.eos_token_id')}
    with open(os.path.join(path, 'config.json'), 'w') as f:
        json.dump(config, f, indent=2)


def write_tokenizer(value, path):
    tokens, kinds = value('tokenizer.ggml.tokens'), value('tokenizer.ggml.token_type')
    added = [{'id': i, 'content': t, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': True}
             for i, (t, kind) in enumerate(zip(tokens, kinds)) if kind == 3]
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    tokenizer = {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added, 'normalizer': None,
                 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', 'individual_digits': True}, byte_level]},
                 'post_processor': None, 'decoder': {**byte_level, 'add_prefix_space': True},
                 'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None, 'end_of_word_suffix': None,
                           'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False, 'vocab': {t: i for i, t in enumerate(tokens)},
                           'merges': value('tokenizer.ggml.merges')}}
    config = {'tokenizer_class': 'PreTrainedTokenizerFast', 'add_prefix_space': False, 'model_max_length': value('llama.context_length'),
              'bos_token': tokens[value('tokenizer.ggml.bos_token_id')], 'eos_token': tokens[value('tokenizer.ggml.eos_token_id')],
              'unk_token': tokens[value('tokenizer.ggml.unknown_token_id')], 'chat_template': value('tokenizer.chat_template')}
    for name, content in (('tokenizer.json', tokenizer), ('tokenizer_config.json', config)):
        with open(os.path.join(path, name), 'w', encoding='utf-8') as f:
            json.dump(content, f, ensure_ascii=False)


def make(gguf, plain, folder, bits='4', group='64'):
    import mlx.core as mx
    import mlx_lm
    from gguf import GGUFReader
    from gguf.quants import dequantize
    reader = GGUFReader(gguf)

    def value(key):
        return reader.fields[key].contents()
    os.makedirs(plain)
    weights = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type)
        for part, heads in (('attn_q', value('llama.attention.head_count')), ('attn_k', value('llama.attention.head_count_kv'))):
            if f'.{part}.' in t.name:  # GGUF has the two elements of a rotation beside each other, the folder those of a head in halves
                w = w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        weights[stored_name(t.name)] = mx.array(w).astype(mx.bfloat16)
    mx.save_safetensors(os.path.join(plain, 'model.safetensors'), weights, metadata={'format': 'pt'})
    write_config(value, 'lm_head.weight' not in weights, plain)
    write_tokenizer(value, plain)
    mlx_lm.convert(plain, folder, quantize=True, q_bits=int(bits), q_group_size=int(group))


# ---- the oracle

def digest(folder):
    h = hashlib.sha256()
    for name in sorted(n for n in os.listdir(folder) if n.endswith('.safetensors')):
        with open(os.path.join(folder, name), 'rb') as f:
            h.update(f.read())
    return h.hexdigest()


def score_text(model, ids):
    import mlx.core as mx
    logits = model(mx.array([ids]))[0, :-1].astype(mx.float32)
    logprob = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    best = mx.argmax(logits, axis=-1)
    true = mx.take_along_axis(logprob, mx.array(ids[1:])[:, None], axis=-1)[:, 0]
    top = mx.take_along_axis(logprob, best[:, None], axis=-1)[:, 0]
    return {'logprob': true.tolist(), 'top1': best.tolist(), 'top1_logprob': top.tolist()}


def oracle(folder, out):
    import reference
    from pathlib import Path

    import mlx.core as mx
    from mlx_lm.utils import dequantize_model, load_model
    mx.set_default_device(mx.cpu)
    model, _ = load_model(Path(folder))
    model.set_dtype(mx.float32)  # scales, biases and norms; codes stay
    model = dequantize_model(model)
    segments = []
    for s in reference.load('smollm2-135m.score')['segments']:
        segments.append({'kind': s['kind'], 'ids': s['ids'], **score_text(model, s['ids'])})
        print(s['kind'], math.exp(-sum(segments[-1]['logprob']) / len(segments[-1]['logprob'])), flush=True)
    with open(out, 'w') as f:
        json.dump({'weights_sha256': digest(folder), 'segments': segments}, f)


# ---- the judgement

def judge(folder, golden, result=None):
    import quality
    from program import answer, levels
    with open(golden) as f:
        golden = json.load(f)
    if golden['weights_sha256'] != digest(folder):
        raise SystemExit('the oracle saw other weights')
    ours = [quality.score(folder, s['ids']) for s in golden['segments']]
    figures = quality.summary(golden['segments'], ours)
    figures['texts'] = {g['kind']: quality.summary([g], [o]) for g, o in zip(golden['segments'], ours)}
    print(quality.describe(os.path.basename(folder.rstrip('/')), figures))
    if result:
        info = answer('info')
        with open(os.path.join(folder, 'config.json')) as f:
            figures['quantization'] = json.load(f)['quantization']
        figures['weights_sha256'] = golden['weights_sha256']
        figures['made_with'] = {'version': info['version'], 'numerics': info['numerics'], 'level': levels()[-1], 'processor': quality.processor()}
        with open(result, 'w') as f:
            json.dump(figures, f, indent=1)
            f.write('\n')
    if figures['interval'][1] > MOST:
        raise SystemExit(f'FAILED: the interval of the ratio reaches {figures["interval"][1]:.5f}; {MOST} is the most')


if __name__ == '__main__':
    steps = {'make': make, 'oracle': oracle, 'judge': judge}
    if len(sys.argv) < 3 or sys.argv[1] not in steps:
        raise SystemExit(__doc__)
    steps[sys.argv[1]](*sys.argv[2:])
