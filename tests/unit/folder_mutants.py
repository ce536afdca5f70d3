# SPDX-License-Identifier: Apache-2.0
"""Takes a good folder of safetensors apart and puts it together again with one fault. Standard library only.

    for name, verdict, files in mutants(folder): ...

The folder must be an untied Llama of affine codes in two shards. `files` maps names to bytes: the whole folder. Verdicts:

    refuse   must be refused at load
    numeric  loads, and is an error before its first token
    load     the same model as the good folder
"""
import json
import os
import struct

FIRST, SECOND, INDEX = 'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors', 'model.safetensors.index.json'
UP = 'model.layers.0.mlp.up_proj'


def parse(raw):
    """[name, type, shape, bytes] of each tensor."""
    n = struct.unpack('<Q', raw[:8])[0]
    header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    header.pop('__metadata__', None)
    return [[name, t['dtype'], t['shape'], data[t['data_offsets'][0]:t['data_offsets'][1]]] for name, t in header.items()]


def pack(tensors):
    header, data = {}, b''
    for name, kind, shape, raw in tensors:
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + data


class Folder:
    def __init__(self, path):
        self.files = {}
        for name in os.listdir(path):
            with open(os.path.join(path, name), 'rb') as f:
                self.files[name] = f.read()
        self.files.pop('golden.json', None)
        self.config, self.index = json.loads(self.files['config.json']), json.loads(self.files[INDEX])
        self.tensors = [t for shard in (FIRST, SECOND) for t in parse(self.files[shard])]

    def with_config(self, text):
        return {**self.files, 'config.json': text if isinstance(text, bytes) else json.dumps(text).encode()}

    def changed(self, **keys):
        """None takes a key away."""
        return self.with_config({k: v for k, v in {**self.config, **keys}.items() if v is not None})

    def with_index(self, text):
        return {**self.files, INDEX: text if isinstance(text, bytes) else json.dumps(text).encode()}

    def mapped(self, change):
        weight_map = dict(self.index['weight_map'])
        change(weight_map)
        return self.with_index({'weight_map': weight_map})

    def without(self, *names):
        return {k: v for k, v in self.files.items() if k not in names}

    def single(self, change=None):
        """All tensors in one file; change(tensors by name) may edit the lists."""
        tensors = {t[0]: list(t) for t in self.tensors}
        if change:
            change(tensors)
        return {**self.without(FIRST, SECOND, INDEX), 'model.safetensors': pack(list(tensors.values()))}


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, kind=None, shape=None, data=None):
    def change(tensors):
        t = tensors.setdefault(name, [name, None, None, None])
        for i, value in ((1, kind), (2, shape), (3, data)):
            if value is not None:
                t[i] = value
    return change


def mutants(path):
    f = Folder(path)
    yield 'good', 'load', f.files
    yield 'single', 'load', f.single()
    for part in (configs, quantisations, rotations, indexes, weights, vocabularies):
        yield from part(f)


def configs(f):
    yield 'config-absent', 'refuse', f.without('config.json')
    for name, text in (('empty', b''), ('list', b'[]'), ('cut', f.files['config.json'][:-3]), ('deep', b'[' * 100000), ('twice', b'{"a":1,"a":2}'),
                       ('not-utf8', b'{"\xff":1}')):
        yield f'config-{name}', 'refuse', f.with_config(text)
    for key in ('model_type', 'num_hidden_layers', 'hidden_size', 'num_attention_heads', 'intermediate_size', 'vocab_size', 'rms_norm_eps'):
        yield f'without-{key}', 'refuse', f.changed(**{key: None})
    for key in ('num_hidden_layers', 'hidden_size', 'num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'vocab_size', 'head_dim'):
        value = f.config[key]
        for wrong in (0, -1, 1, value + 1, value * 2, 2**31, 2**32 + value, 2**64, value + 0.5, str(value), [value], True):
            yield f'{key}-{wrong!r}', 'refuse', f.changed(**{key: wrong})
    for key, wrong in (('model_type', 'mamba'), ('model_type', 7), ('hidden_act', 'relu'), ('rms_norm_eps', 'x'), ('rms_norm_eps', -1), ('rope_theta', 0),
                       ('eos_token_id', 2**31), ('eos_token_id', f.config['vocab_size']), ('eos_token_id', [[1]]), ('partial_rotary_factor', 0.5),
                       ('max_position_embeddings', 'x'), ('tie_word_embeddings', 'x'), ('quantization_config', {'quant_method': 'gptq', 'bits': 4})):
        yield f'{key}-{wrong!r}'[:80], 'refuse', f.changed(**{key: wrong})
    yield 'generation-config-list', 'refuse', {**f.files, 'generation_config.json': b'[]'}
    yield 'generation-config-absent', 'load', f.without('generation_config.json')
    yield 'unknown-key', 'load', f.changed(nobody_knows={'a': [1, 2, None]})


def quantisations(f):
    q = f.config['quantization']
    yield 'no-quantisation', 'refuse', f.changed(quantization=None, quantization_config=None)
    for key, wrong in (('bits', 7), ('bits', 0), ('bits', 64), ('bits', 8), ('bits', 2), ('group_size', 48), ('group_size', 0), ('group_size', 32),
                       ('group_size', 2**40), ('mode', 'mxfp8'), ('mode', 'mxfp4'), ('mode', 4)):
        yield f'quantisation-{key}-{wrong}', 'refuse', f.changed(quantization={**q, key: wrong})
    yield 'quantisation-mode-lines', 'refuse', f.with_config(json.dumps({**f.config, 'quantization': {**q, 'mode': ['affine']}}, indent=1).encode())
    for name, wrong in (('false', False), ('bits-8', {'bits': 8, 'group_size': 64}), ('bits-0', {'bits': 0}), ('mode', {'mode': 'x'})):
        yield f'quantisation-own-{name}', 'refuse', f.changed(quantization={**q, UP: wrong})
    yield 'quantisation-own-same', 'load', f.changed(quantization={**q, UP: dict(q)})
    yield 'quantisation-copy-alone', 'load', f.changed(quantization=None)


def rotations(f):
    llama3 = {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 512}
    yield 'rotation-default', 'load', f.changed(rope_scaling={'rope_type': 'default'})
    yield 'rotation-lines', 'refuse', f.with_config(json.dumps({**f.config, 'rope_scaling': {'rope_type': ['linear']}}, indent=1).encode())
    for wrong in ({'rope_type': 'yarn', 'factor': 2.0}, {'rope_type': 'linear'}, {'type': 'linear', 'factor': 0}, {'rope_type': 3}, [1],
                  {**llama3, 'factor': 0}, {**llama3, 'low_freq_factor': 4.0}, {k: v for k, v in llama3.items() if k != 'high_freq_factor'}):
        yield f'rotation-{json.dumps(wrong)}'.replace('"', '')[:100], 'refuse', f.changed(rope_scaling=wrong)


def indexes(f):
    def point(shard):
        return lambda m: m.update({UP + '.weight': shard})
    yield 'shard-1-absent', 'refuse', f.without(FIRST)
    yield 'shards-absent', 'refuse', f.without(FIRST, SECOND)
    yield 'index-absent', 'refuse', f.without(INDEX)
    yield 'weights-absent', 'refuse', f.without(FIRST, SECOND, INDEX)
    yield 'index-empty', 'refuse', f.with_index(b'')
    yield 'index-no-map', 'refuse', f.with_index({})
    yield 'index-map-empty', 'refuse', f.with_index({'weight_map': {}})
    for name, wrong in (('up', '../' + FIRST), ('root', '/etc/passwd'), ('number', 1), ('other', SECOND), ('absent', 'x.safetensors'), ('zero', FIRST + '\0'),
                        ('control', 'a\tb.safetensors'), ('self', INDEX), ('config', 'config.json')):
        yield f'index-points-{name}', 'refuse', f.mapped(point(wrong))
    yield 'index-promises-more', 'refuse', f.mapped(lambda m: m.update({'model.layers.2.mlp.up_proj.weight': FIRST}))
    yield 'index-says-less', 'load', f.mapped(drop(UP + '.weight'))
    yield 'shards-the-same', 'refuse', {**f.files, SECOND: f.files[FIRST]}
    for n in (0, 7, 8, 100, len(f.files[FIRST]) // 2, len(f.files[FIRST]) - 1):
        yield f'shard-cut-{n}', 'refuse', {**f.files, FIRST: f.files[FIRST][:n]}
    yield 'shard-longer', 'refuse', {**f.files, FIRST: f.files[FIRST] + b'\0'}


def weights(f):
    by_name = {t[0]: t for t in f.tensors}
    codes, scales, norm = by_name[UP + '.weight'], by_name[UP + '.scales'], by_name['model.norm.weight']
    rows, words = codes[2]
    groups = scales[2][1]
    for name in (UP + '.weight', UP + '.scales', UP + '.biases', 'model.norm.weight', 'lm_head.weight', 'model.embed_tokens.weight',
                 'model.layers.1.self_attn.k_proj.weight', 'model.layers.1.input_layernorm.weight'):
        yield f'without-{name}', 'refuse', f.single(drop(name))
    yield 'tied-with-head-absent', 'refuse', f.single(lambda t: [t.pop(n) for n in list(t) if n.startswith('lm_head.')])
    for name, change in (
            ('codes-f32', put(UP + '.weight', kind='F32')), ('codes-i32', put(UP + '.weight', kind='I32')),
            ('codes-turned', put(UP + '.weight', shape=[words, rows])), ('codes-flat', put(UP + '.weight', shape=[rows * words])),
            ('codes-deep', put(UP + '.weight', shape=[1, rows, words])), ('codes-empty', put(UP + '.weight', shape=[0, words], data=b'')),
            ('codes-row-less', put(UP + '.weight', shape=[rows - 1, words], data=codes[3][:(rows - 1) * words * 4])),
            ('scales-turned', put(UP + '.scales', shape=[groups, rows])), ('scales-u16', put(UP + '.scales', kind='U16')),
            ('scales-flat', put(UP + '.scales', shape=[groups * rows])), ('scales-f16-alone', put(UP + '.scales', kind='F16')),
            ('scales-row-less', put(UP + '.scales', shape=[rows - 1, groups], data=scales[3][:(rows - 1) * groups * 2])),
            ('biases-turned', put(UP + '.biases', shape=[groups, rows])), ('biases-empty', put(UP + '.biases', shape=[0], data=b'')),
            ('norm-short', put('model.norm.weight', shape=[norm[2][0] - 1], data=norm[3][2:])),
            ('norm-cut', put('model.norm.weight', shape=[2, norm[2][0] // 2])), ('norm-i16', put('model.norm.weight', kind='I16')), ('unknown-tensor', put('model.layers.0.mlp.extra.weight', 'F32', [1], bytes(4))),
            ('layer-too-many', put('model.layers.9.mlp.up_proj.weight', 'F32', [1], bytes(4))), ('f8', put('model.layers.0.f8.weight', 'F8_E4M3', [1], b'\0')),
            ('name-of-two-lines', put('model.layers.0.a\nb.weight', 'F32', [1], bytes(4))), ('type-of-two-lines', put(UP + '.scales', kind='BF\n16')),
            ('long-name', put('model.' + 'x' * 250, 'F32', [1], bytes(4))), ('bias-of-q', put('model.layers.0.self_attn.q_proj.bias', 'F32', [3], bytes(12)))):
        yield name, 'refuse', f.single(change)
    yield 'norm-of-one-row', 'load', f.single(put('model.norm.weight', shape=[1, norm[2][0]]))
    yield 'scale-nan', 'numeric', f.single(put(UP + '.scales', data=b'\xc0\x7f' + scales[3][2:]))
    yield 'scale-infinite', 'numeric', f.single(put(UP + '.scales', data=b'\x80\x7f' + scales[3][2:]))
    yield 'norm-nan', 'numeric', f.single(put('model.norm.weight', data=b'\xc0\x7f' + norm[3][2:]))


def vocabularies(f):
    yield 'tokenizer-absent', 'refuse', f.without('tokenizer.json')
    yield 'tokenizer-empty', 'refuse', {**f.files, 'tokenizer.json': b''}
    yield 'tokenizer-of-nothing', 'refuse', {**f.files, 'tokenizer.json': b'{}'}
    yield 'tokenizer-cut', 'refuse', {**f.files, 'tokenizer.json': f.files['tokenizer.json'][:-9]}
