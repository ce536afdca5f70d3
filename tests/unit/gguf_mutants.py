# SPDX-License-Identifier: Apache-2.0
"""Takes a good GGUF file apart and puts it together again with one fault. Standard library only.

    for name, verdict, files in mutants(open('model.gguf', 'rb').read()): ...

`files` maps file names to bytes: one file, or the shards of a split model. The verdict says what has to happen:

    refuse   the reader of the format must refuse it
    later    well-formed as a file, but no model: whoever builds model or tokenizer from it must refuse it at load
    load     the same model as the good file
    either   refused cleanly, or loaded and safe to use
"""
import math
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODE = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: 'B', U64: 'Q', I64: 'q', F64: 'd'}
# Elements and bytes of a block.
BLOCK = {0: (1, 4), 1: (1, 2), 3: (32, 20), 7: (32, 24), 8: (32, 34), 30: (1, 2), 39: (32, 17)}
MASK64 = 2**64 - 1


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack('<Q', len(s)) + s


def payload(kind, value):
    """Bytes of a value; an array is given as (element type, list)."""
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        item, values = value
        return struct.pack('<IQ', item, len(values)) + b''.join(payload(item, v) for v in values)
    return struct.pack('<' + CODE[kind], value)


class Tensor:
    def __init__(self, name, dims, kind, data):
        self.name, self.dims, self.kind, self.data = name, dims, kind, data
        self.offset = None  # where the directory says it is, if not where it is
        self.n_dims = None  # what the directory says, if not len(dims)

    def copy(self):
        t = Tensor(self.name, list(self.dims), self.kind, self.data)
        t.offset, t.n_dims = self.offset, self.n_dims
        return t


class File:
    def __init__(self):
        self.version, self.keys, self.tensors = 3, [], []
        self.align = 32

    @staticmethod
    def parse(raw):
        f, at = File(), 24
        f.version, n_tensors, n_keys = struct.unpack_from('<IQQ', raw, 4)

        def number(code):
            nonlocal at
            at += struct.calcsize('<' + code)
            return struct.unpack_from('<' + code, raw, at - struct.calcsize('<' + code))[0]

        def string():
            nonlocal at
            n = number('Q')
            at += n
            return raw[at - n : at]

        def skip(kind):
            if kind == STRING:
                string()
            elif kind == ARRAY:
                item, count = number('I'), number('Q')
                for _ in range(count):
                    skip(item)
            else:
                number(CODE[kind])
        for _ in range(n_keys):
            name, kind = string(), number('I')
            start = at
            skip(kind)
            f.keys.append([name, kind, raw[start:at]])
        directory = []
        for _ in range(n_tensors):
            name = string()
            dims = [number('Q') for _ in range(number('I'))]
            directory.append((name, dims, number('I'), number('Q')))
        f.header_end = at
        f.data_start = -(-at // 32) * 32
        for name, dims, kind, offset in directory:
            length, size = BLOCK[kind]
            start = f.data_start + offset
            f.tensors.append(Tensor(name, dims, kind, raw[start : start + math.prod(dims) // length * size]))
        return f

    def copy(self):
        f = File()
        f.__dict__.update(self.__dict__)
        f.keys, f.tensors = [list(k) for k in self.keys], [t.copy() for t in self.tensors]
        return f

    def key(self, name):
        return next(k for k in self.keys if k[0] == name.encode())

    def has(self, name):
        return any(k[0] == name.encode() for k in self.keys)

    def put(self, name, kind, value):
        if self.has(name):
            self.key(name)[1:] = [kind, payload(kind, value)]
        else:
            self.keys.append([name.encode(), kind, payload(kind, value)])
        return self

    def add(self, name, kind, value):
        self.keys.append([name.encode() if isinstance(name, str) else name, kind, payload(kind, value)])
        return self

    def drop(self, name):
        self.keys.remove(self.key(name))
        return self

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name.encode())

    def without(self, name):
        self.tensors.remove(self.tensor(name))
        return self

    def tokens(self):
        raw, at, out = self.key('tokenizer.ggml.tokens')[2], 12, []
        for _ in range(struct.unpack_from('<Q', raw, 4)[0]):
            n = struct.unpack_from('<Q', raw, at)[0]
            out.append(raw[at + 8 : at + 8 + n])
            at += 8 + n
        return out

    def pack(self, magic=b'GGUF', n_keys=None, n_tensors=None, pad=b'\0', gap=0, order=None, key_tail=b'', tail=b''):
        """The file as bytes. Data lies in the order `order` with `gap` unused units between; key_tail follows the keys."""
        data, place = b'', {}
        for t in order or self.tensors:
            data += pad * (-len(data) % self.align) + pad * (gap * self.align)
            place[id(t)] = len(data)
            data += t.data
        out = magic + struct.pack('<IQQ', self.version, len(self.tensors) if n_tensors is None else n_tensors,
                                  len(self.keys) if n_keys is None else n_keys)
        out += b''.join(text(k) + struct.pack('<I', kind) + value for k, kind, value in self.keys) + key_tail
        for t in self.tensors:
            out += text(t.name) + struct.pack('<I', len(t.dims) if t.n_dims is None else t.n_dims)
            out += b''.join(struct.pack('<Q', d & MASK64) for d in t.dims)
            out += struct.pack('<IQ', t.kind & 0xFFFFFFFF, (place[id(t)] if t.offset is None else t.offset) & MASK64)
        return out + pad * (-len(out) % self.align) + data + pad * (-len(data) % self.align) + tail

    def split(self, parts=3, count=None, total=None, numbers=None, first_empty=False):
        """Shards as llama.cpp's splitter names them: keys in the first, three split keys in each."""
        shards = {}
        groups = parts - 1 if first_empty else parts
        each = -(-len(self.tensors) // groups)
        for i in range(parts):
            f = self.copy()
            j = i - 1 if first_empty else i
            f.tensors = f.tensors[j * each : (j + 1) * each] if j >= 0 else []
            f.keys = f.keys if i == 0 else []
            f.put('split.no', U16, numbers[i] if numbers else i)
            f.put('split.count', U16, parts if count is None else count)
            f.put('split.tensors.count', I32, len(self.tensors) if total is None else total)
            shards[f'm-{i + 1:05d}-of-{parts:05d}.gguf'] = f.pack()
        return shards


def mutants(raw):
    """All mutants of a good file; the list is in the functions below."""
    base = File.parse(raw)
    for part in (headers, directory, keys, hyper_parameters, tokenizer, weights, splits):
        for name, verdict, made in part(base, raw):
            if isinstance(made, File):
                made = made.pack()
            yield name, verdict, made if isinstance(made, dict) else {name + '.gguf': made}


def headers(base, raw):
    array = bytes.fromhex('4747554603000000 0000000000000000 0100000000000000 0100000000000000 61 09000000')
    nest = bytes.fromhex('09000000 0100000000000000')
    yield 'magic-only', 'refuse', b'GGUF'
    yield 'keys-2e61', 'refuse', b'GGUF' + struct.pack('<IQQ', 3, 0, 2**61)
    yield 'key-of-2e62-bytes', 'refuse', b'GGUF' + struct.pack('<IQQQ', 3, 0, 1, 2**62)
    yield 'array-of-2e62', 'refuse', array + struct.pack('<IQ', U32, 2**62)
    yield 'array-nested-100000', 'refuse', array + nest * 100000 + struct.pack('<IQB', U8, 1, 1)
    yield 'empty', 'refuse', b''
    yield 'header-23-bytes', 'refuse', raw[:23]
    middle = (base.data_start + len(raw)) // 2
    for n in sorted({24, 25, 40, base.header_end // 2, base.header_end - 1, base.header_end, base.data_start - 1, base.data_start,
                     base.data_start + 1, middle, len(raw) - 33, len(raw) - 64}):
        yield f'cut-{n}', 'refuse', raw[:n]
    end = raw.rindex(base.tensors[-1].data) + len(base.tensors[-1].data)
    yield 'cut-last-byte', 'refuse', raw[: end - 1]
    yield 'cut-final-padding', 'load', raw[:end]
    yield 'magic-lower', 'refuse', base.pack(magic=b'gguf')
    yield 'magic-ggml', 'refuse', base.pack(magic=b'lmgg')
    for version in (0, 1, 2, 4, 2**32 - 1):
        f = base.copy()
        f.version = version
        yield f'version-{version}', 'load' if version == 2 else 'refuse', f
    yield 'big-endian', 'refuse', b'GGUF' + struct.pack('>IQQ', 3, len(base.tensors), len(base.keys)) + raw[24:]
    for name, verdict, fault in (
            ('n-keys-2e63', 'refuse', dict(n_keys=2**63)), ('n-keys-plus-1', 'refuse', dict(n_keys=len(base.keys) + 1)),
            ('n-keys-minus-1', 'refuse', dict(n_keys=len(base.keys) - 1)), ('n-keys-0', 'refuse', dict(n_keys=0)),
            ('n-tensors-2e63', 'refuse', dict(n_tensors=2**63)), ('n-tensors-2e32', 'refuse', dict(n_tensors=2**32)),
            ('n-tensors-plus-1', 'refuse', dict(n_tensors=len(base.tensors) + 1)), ('n-tensors-0', 'later', dict(n_tensors=0)),
            ('n-tensors-minus-1', 'either', dict(n_tensors=len(base.tensors) - 1))):
        yield name, verdict, base.pack(**fault)


def directory(base, raw):
    q, hidden = 'blk.0.attn_q.weight', base.tensors[0].dims[0]
    place, at = {}, 0
    for t in base.tensors:
        at += -at % 32
        place[t.name], at = at, at + len(t.data)

    def change(which=q, **fields):
        f = base.copy()
        f.tensor(which).__dict__.update(fields)
        return f
    here = place[q.encode()]
    for name, offset in (('plus-1', here + 1), ('plus-32', here + 32), ('at-end', -(-at // 32) * 32), ('2e63', 2**63), ('wraps', 2**64 - 32),
                         ('same-as-first', 0)):
        yield 'offset-' + name, 'refuse', change(offset=offset)
    yield 'offset-hole', 'either', base.pack(gap=1)
    yield 'data-order-reversed', 'either', base.pack(order=base.tensors[::-1])
    f = base.copy()
    f.tensors.reverse()
    yield 'directory-reversed', 'load', f
    yield 'padding-garbage', 'load', base.pack(pad=b'\xa5')
    yield 'trailing-garbage', 'load', base.pack(tail=b'\x5a' * 4096)
    rows = base.tensor(q).dims[1]
    for name, dims in (('dims-none', []), ('dims-5', [hidden, 1, 1, 1, 1]), ('dim-zero', [0, 64]), ('dim-zero-2', [hidden, 0]), ('dim-2e63', [2**63, 2]),
                       ('dims-overflow', [2**32, 2**32]), ('dims-overflow-3', [2**62, 4, 4]), ('dims-negative', [-32, 64]), ('dim-huge', [hidden, 2**40]),
                       ('row-not-of-blocks', [hidden + 1, rows]), ('row-shorter-than-block', [16, rows])):
        yield name, 'refuse', change(dims=dims)
    yield 'dim-1d', 'later', change(dims=[hidden * rows])
    yield 'dims-swapped', 'later', change('blk.0.ffn_gate.weight', dims=base.tensor('blk.0.ffn_gate.weight').dims[::-1])
    yield 'dims-trailing-1', 'either', change(dims=[hidden, rows, 1])
    yield 'n-dims-1000', 'refuse', change(n_dims=1000)
    yield 'n-dims-2e32-1', 'refuse', change(n_dims=2**32 - 1)
    for kind in (4, 5, 9, 15, 36, 63, 200, 2**31, 2**32 - 1):
        yield f'type-{kind}', 'refuse', change(kind=kind)
    yield 'type-of-larger-blocks', 'refuse', change(base.tensors[-1].name.decode(), kind=12)
    yield 'type-i32', 'refuse', change(kind=26)
    yield 'norm-as-q8', 'later', change('output_norm.weight', kind=8)
    f = base.copy()
    f.tensors.append(f.tensor(q).copy())
    yield 'tensor-twice', 'refuse', f
    f = base.copy()
    f.tensors.append(f.tensor(q).copy())
    f.tensors[-1].offset = here
    yield 'tensor-twice-same-bytes', 'refuse', f
    for name in ('blk.1.ffn_down.weight', 'output_norm.weight', 'token_embd.weight'):
        yield 'tensor-missing-' + name, 'later', base.copy().without(name)
    f = base.copy()
    f.tensors.append(f.tensor(q).copy())
    f.tensors[-1].name = b'blk.0.mystery.weight'
    yield 'tensor-unknown', 'either', f
    for name, bad in (('empty', b''), ('200', b'x' * 200), ('zero-byte', q.encode() + b'\0x'), ('not-utf8', b'\xff\xfe\xc3\x28')):
        yield 'tensor-name-' + name, 'refuse', change(name=bad)
    whole = base.pack()
    at = whole.index(text(q))
    yield 'tensor-name-2e62', 'refuse', whole[:at] + struct.pack('<Q', 2**62) + whole[at + 8 :]


def every_type(f, nested):
    values = [(U8, 255), (I8, -1), (U16, 65535), (I16, -1), (U32, 2**32 - 1), (I32, -1), (F32, 1.5), (BOOL, 1), (STRING, '\u00fc\U0001f642'),
              (U64, 2**64 - 1), (I64, -1), (F64, -0.5), (ARRAY, (STRING, ['', 'a', 'b'])), (ARRAY, (F64, [1.0])), (ARRAY, (BOOL, [0, 1])), (ARRAY, (U8, []))]
    if nested:
        values.append((ARRAY, (ARRAY, [(U8, [1, 2]), (U8, [])])))
    for i, (kind, value) in enumerate(values):
        f.put(f'x.unknown.{i}', kind, value)
    return f


def keys(base, raw):
    arch = base.key('general.architecture')[2][8:].decode()
    blocks, count = arch + '.block_count', len(base.keys) + 1
    needed = ['general.architecture', 'tokenizer.ggml.model', 'tokenizer.ggml.tokens', blocks, arch + '.embedding_length', arch + '.feed_forward_length',
              arch + '.attention.head_count', arch + '.attention.layer_norm_rms_epsilon']
    optional = [arch + '.context_length', arch + '.attention.head_count_kv', arch + '.rope.dimension_count', 'tokenizer.ggml.scores',
                'tokenizer.ggml.token_type', 'tokenizer.ggml.merges', 'tokenizer.ggml.bos_token_id', 'tokenizer.ggml.eos_token_id', 'tokenizer.ggml.pre',
                'general.file_type', 'general.quantization_version', 'tokenizer.chat_template']
    for k in needed + optional:
        if base.has(k):
            yield 'without-' + k, 'later' if k in needed else 'either', base.copy().drop(k)
    value = struct.unpack('<I', base.key(blocks)[2])[0]
    yield 'key-twice', 'refuse', base.copy().add(blocks, U32, 7)
    yield 'key-twice-same-value', 'either', base.copy().add(blocks, U32, value)
    yield 'key-empty', 'either', base.copy().add('', U32, 7)
    yield 'key-70000', 'refuse', base.copy().add('k' * 70000, U32, 7)
    yield 'key-65535', 'load', base.copy().add('k' * 65535, U32, 7)
    yield 'key-zero-byte', 'either', base.copy().add(b'x.\0y', U32, 7)
    yield 'key-shadow', 'either', base.copy().add(blocks.encode() + b'\0x', U32, 99)
    yield 'key-not-utf8', 'either', base.copy().add(b'\xff\xfe', U32, 7)
    yield 'key-with-new-line', 'refuse', base.copy().add('a\nb', U32, 7).add('a\nb', U32, 7)
    yield 'unknown-keys', 'load', every_type(base.copy(), False)
    yield 'unknown-keys-nested', 'either', every_type(base.copy(), True)
    for name, verdict, tail in (
            ('value-type-13', 'refuse', text('x') + struct.pack('<II', 13, 0)), ('value-type-2e32-1', 'refuse', text('x') + struct.pack('<II', 2**32 - 1, 0)),
            ('array-type-99', 'refuse', text('x') + struct.pack('<IIQQ', ARRAY, 99, 1, 0)),
            ('array-length-wraps', 'refuse', text('x') + struct.pack('<IIQ', ARRAY, U64, 2**61)),
            ('string-2e64-1', 'refuse', text('x') + struct.pack('<IQ', STRING, MASK64)),
            ('strings-2e32', 'refuse', text('x') + struct.pack('<IIQ', ARRAY, STRING, 2**32)),
            ('bool-2', 'either', text('x.b') + struct.pack('<IB', BOOL, 2))):
        yield name, verdict, base.pack(key_tail=tail, n_keys=count)

    def put(name, verdict, key, kind, v):
        return name, verdict, base.copy().put(key, kind, v)
    tokens = len(base.tokens())
    yield put('block-count-string', 'later', blocks, STRING, '2')
    yield put('block-count-u64', 'either', blocks, U64, value)
    yield put('embedding-length-float', 'later', arch + '.embedding_length', F32, 64.0)
    yield put('head-count-negative', 'later', arch + '.attention.head_count', I32, -2)
    yield put('tokens-of-numbers', 'later', 'tokenizer.ggml.tokens', ARRAY, (U32, list(range(tokens))))
    yield put('tokens-a-string', 'later', 'tokenizer.ggml.tokens', STRING, 'abc')
    for a, verdict in ((0, 'refuse'), (3, 'refuse'), (1, 'either'), (24, 'either'), (2**31, 'refuse'), (2**32 - 1, 'refuse')):
        yield put(f'alignment-{a}', verdict, 'general.alignment', U32, a)
    yield put('alignment-u64', 'either', 'general.alignment', U64, 32)
    yield put('alignment-string', 'refuse', 'general.alignment', STRING, '32')
    for a in (8, 64, 4096):
        f = base.copy().put('general.alignment', U32, a)
        f.align = a
        yield f'alignment-{a}-true', 'load', f
    yield put('alignment-64-false', 'refuse', 'general.alignment', U32, 64)
    for name, v in (('unknown', 'fooarch'), ('empty', ''), ('zero-byte', arch + '\0x'), ('upper', arch.upper())):
        yield put('architecture-' + name, 'later', 'general.architecture', STRING, v)


def hyper_parameters(base, raw):
    arch = base.key('general.architecture')[2][8:].decode()
    hidden, tokens = base.tensors[0].dims[0], len(base.tokens())
    cases = {
        'block_count': [(U32, 0), (U32, 2**31), (U32, 2**32 - 1), (U32, 3), (U32, 1, 'either')],
        'embedding_length': [(U32, 0), (U32, hidden // 2), (U32, 2**31)],
        'feed_forward_length': [(U32, 0), (U32, 128), (U32, 2**32 - 32)],
        'attention.head_count': [(U32, 0), (U32, 3), (U32, 2**31), (U32, 1000), (ARRAY, (U32, [2, 2]), 'either'), (ARRAY, (U32, [2]))],
        'attention.head_count_kv': [(U32, 0), (U32, 3), (U32, 64), (U32, 2**31)],
        'attention.key_length': [(U32, 0), (U32, 33), (U32, 2**31), (U32, 1)],
        'rope.dimension_count': [(U32, 4096), (U32, 31)],
        'context_length': [(U32, 0, 'either'), (U32, 2**32 - 1, 'either')],
        'attention.layer_norm_rms_epsilon': [(F32, math.nan), (F32, -1.0), (F32, math.inf), (F32, 0.0, 'either')],
        'rope.freq_base': [(F32, math.nan), (F32, 0.0), (F32, -1e4), (F32, math.inf)],
        'rope.scaling.factor': [(F32, math.nan, 'either'), (F32, 0.0, 'either')],
        'rope.scaling.type': [(STRING, 'foo'), (STRING, 'linear', 'either')],
        'vocab_size': [(U32, tokens + 1000, 'either'), (U32, 0, 'either')],
    }
    for key, values in cases.items():
        for kind, value, *verdict in values:
            yield f'{key}-{value}'.replace(' ', ''), verdict[0] if verdict else 'later', base.copy().put(f'{arch}.{key}', kind, value)
    yield 'linear-factor-0', 'later', base.copy().put(arch + '.rope.scaling.type', STRING, 'linear').put(arch + '.rope.scaling.factor', F32, 0.0)


def tokenizer(base, raw):
    tokens = base.tokens()

    def changed(at, value):
        return base.copy().put('tokenizer.ggml.tokens', ARRAY, (STRING, tokens[:at] + [value] + tokens[at + 1 :]))
    for name, verdict, new in (('shorter', 'later', tokens[:-10]), ('longer', 'later', tokens + [b'extra%d' % i for i in range(10)]), ('empty', 'later', [])):
        yield 'vocabulary-' + name, verdict, base.copy().put('tokenizer.ggml.tokens', ARRAY, (STRING, new))
    for name, token in (('not-utf8', b'\xc3\x28\xff'), ('zero-byte', b'a\0b'), ('empty', b''), ('twice', tokens[301]), ('megabyte', b'q' * 1000000)):
        yield 'token-' + name, 'either', changed(300, token)
    for key, item in (('scores', F32), ('token_type', I32)):
        if base.has('tokenizer.ggml.' + key):
            for name, verdict, v in (('short', 'later', (item, [0] * 5)), ('empty', 'later', (item, [])), ('strings', 'later', (STRING, ['x'] * len(tokens))),
                                     ('odd', 'either', (item, [math.nan if item == F32 else 99] * len(tokens)))):
                yield f'{key}-{name}', verdict, base.copy().put('tokenizer.ggml.' + key, ARRAY, v)
    if base.has('tokenizer.ggml.merges'):
        for name, verdict, v in (('no-space', 'later', (STRING, ['ab', 'a b'])), ('unknown', 'either', (STRING, ['zzz yyy', 'a b'])), ('numbers', 'later', (U32, [1, 2]))):
            yield 'merges-' + name, verdict, base.copy().put('tokenizer.ggml.merges', ARRAY, v)
    for key in ('bos', 'eos'):
        for v in (2**32 - 1, len(tokens)):
            yield f'{key}-{v}', 'later', base.copy().put(f'tokenizer.ggml.{key}_token_id', U32, v)
    yield 'tokenizer-model-unknown', 'later', base.copy().put('tokenizer.ggml.model', STRING, 'foo')
    yield 'tokenizer-pre-unknown', 'either', base.copy().put('tokenizer.ggml.pre', STRING, 'foo')
    for name, v in (('bad-syntax', '{% for m in %}{{'), ('endless', '{% for i in range(1000000000) %}x{% endfor %}'), ('not-utf8', b"{{ '\xff\xfe' }}")):
        yield 'template-' + name, 'either', base.copy().put('tokenizer.chat_template', STRING, v)


def weights(base, raw):
    def poke(name, new):
        f = base.copy()
        t = f.tensor(name)
        t.data = new + t.data[len(new) :]
        return f
    yield 'weight-nan', 'either', poke('blk.0.attn_q.weight', b'\x00\x7e')
    yield 'weight-infinite', 'either', poke('blk.0.attn_q.weight', b'\x00\x7c')
    yield 'norm-nan', 'either', poke('output_norm.weight', struct.pack('<f', math.nan))
    if any(t.name == b'output.weight' for t in base.tensors):
        yield 'no-output', 'either', base.copy().without('output.weight')  # tied to the embedding: loads, with other logits
        f = base.copy()
        t = f.tensor('output.weight')
        t.data = t.data[: len(t.data) // t.dims[1] * (t.dims[1] - 1)]
        t.dims[1] -= 1
        yield 'output-of-other-shape', 'later', f


def splits(base, raw):
    good = base.split()
    first, second, third = sorted(good)
    yield 'split', 'load', good
    yield 'split-of-two', 'load', base.split(parts=2)
    yield 'split-of-one', 'load', base.split(parts=1)
    yield 'split-first-without-tensors', 'load', base.split(first_empty=True)
    for name, gone in (('first', [first]), ('second', [second]), ('third', [third]), ('two', [first, third])):
        yield f'split-{name}-missing', 'refuse', {k: v for k, v in good.items() if k not in gone}
    yield 'split-count-2', 'refuse', base.split(count=2)
    yield 'split-count-65535', 'refuse', base.split(count=65535)
    yield 'split-count-0', 'refuse', base.split(count=0)
    yield 'split-total-plus-1', 'refuse', base.split(total=len(base.tensors) + 1)
    yield 'split-total-negative', 'refuse', base.split(total=-1)
    yield 'split-numbers-swapped', 'refuse', base.split(numbers=[0, 2, 1])
    yield 'split-numbers-from-1', 'refuse', base.split(numbers=[1, 2, 3])
    yield 'split-shard-empty', 'refuse', {**good, second: b''}
    yield 'split-shard-cut', 'refuse', {**good, third: good[third][:-100]}
    yield 'split-shard-repeated', 'refuse', {**good, second: good[third]}
    yield 'split-shard-without-keys', 'refuse', {**good, second: base.pack()}
