# SPDX-License-Identifier: Apache-2.0
"""The plain C functions against the second implementation of the contract (contract.py), bit for bit.

    test_contract.py PROBE...        PROBE is the command that runs contract_probe
"""
import struct
import subprocess
import sys
from decimal import Decimal

import contract as c
from contract import f32


class Input:
    """The generator of contract_probe.c."""

    def __init__(self, seed):
        self.state = seed

    def word(self):
        self.state = (self.state * 1664525 + 1013904223) % 2 ** 32
        return self.state >> 8

    def value(self):
        w, e = self.word(), self.word() % 8
        return (w % 65536 - 32768) / 2 ** (9 + e)

    def values(self, n):
        return [self.value() for _ in range(n)]

    def bytes(self, n):
        return bytearray(self.word() % 256 for _ in range(n))


class Probe:
    def __init__(self, command, seed):
        run = subprocess.run(command + [str(seed)], capture_output=True, text=True, check=True)
        self.lines, self.at, self.words, self.seed = run.stdout.splitlines(), 0, 0, seed

    def next(self, name):
        words = self.lines[self.at].split()
        self.at += 1
        if words[0] != name:
            raise SystemExit(f'seed {self.seed}, line {self.at}: {words[0]} where {name} was expected')
        return words[1:]

    def expect(self, name, wanted):
        got = self.next(name)
        if len(got) != len(wanted):
            raise SystemExit(f'seed {self.seed}, {name}: {len(got)} words, {len(wanted)} expected')
        for i, (g, w) in enumerate(zip(got, wanted)):
            if int(g, 16) != c.bits(w):
                raise SystemExit(f'seed {self.seed}, line {self.at}, {name}[{i}]: C gives {g}, the contract {c.bits(w):08x} ({w.hex()})')
        self.words += len(got)


def functions(p, x):
    v = x.values(300)
    p.expect('exp', [c.exp(u) for u in v])
    p.expect('exp_wide', [c.exp(i * 0.5 - 55.0) for i in range(300)])
    p.expect('silu', [c.silu(u) for u in v[:100]])
    p.expect('gelu', [c.gelu(u) for u in v[:100]])
    p.expect('softcap', [c.softcap(u, 30.0) for u in v[:100]])
    for u in v:  # and the contract itself against the real function
        y = c.exp(u)
        if y:
            ulp = Decimal(2) ** (c.bits(y) // 2 ** 23 - 150)
            assert abs(Decimal(y) - Decimal(u).exp()) < ulp, u.hex()


def reductions(p, x):
    for n in (1, 100, 128, 129, 500):
        v = x.values(n)
        p.expect('lanes', [c.lane_sum(v), c.lane_sum_squares(v)])
    v, w = x.values(1000), x.values(500)
    p.expect('rms_norm', c.rms_norm(v[:500], w, f32(1e-5)) + c.rms_norm(v[500:], w, f32(1e-5)))


def rotations(p, x):
    for adjacent in (False, True):
        v, cosine, sine = x.values(20), x.values(4), x.values(4)
        for h in (0, 10):
            for i in range(4):
                a, b = (h + 2 * i, h + 2 * i + 1) if adjacent else (h + i, h + i + 4)
                v[a], v[b] = c.turn(v[a], v[b], cosine[i], sine[i])
        p.expect('rope', v)


def angles(p, x):
    for i in range(120):
        position, frequency, *got = p.next('angle')
        assert int(position) == (i if i < 40 else x.word() % (2 ** 20 if i < 80 else 2 ** 24))
        frequency = struct.unpack('>d', bytes.fromhex(frequency))[0]
        theta, exponent = Decimal(10000 if i % 2 else 1000000), Decimal(-2 * (i % 32)) / 64
        real = (theta.ln() * exponent).exp()
        assert abs(Decimal(frequency) - real) < real * Decimal('1e-14'), f'frequency {i}'
        for word, real in zip(got, c.cos_sin(int(position), frequency)):
            value = c.of_bits(int(word, 16))
            half_ulp = Decimal(2) ** (max(int(word, 16) >> 23 & 255, 1) - 151)
            assert abs(Decimal(value) - real) < half_ulp + Decimal('1e-12'), f'angle {i}: {value} for {real}'
        p.words += 2


# ---- weights: the formats once more, from their description ----

def half_at(b, i):
    return struct.unpack_from('<e', b, i)[0]


def groups_q4_1(b):
    q = b[4:20]
    return [(half_at(b, 0), half_at(b, 2), [v & 15 for v in q] + [v >> 4 for v in q])]


def groups_q8_0(b):
    return [(half_at(b, 0), 0.0, list(struct.unpack_from('<32b', b, 2)))]


def groups_q6_k(b):
    low, high, scales, d = b[:128], b[128:192], struct.unpack_from('<16b', b, 192), half_at(b, 208)
    w = [0] * 256
    for i in range(256):
        part, r = divmod(i, 128)
        quarter, l = divmod(r, 32)
        nibble = low[64 * part + l + (32 if quarter % 2 else 0)] >> (4 if quarter >= 2 else 0) & 15
        w[i] = (nibble | (high[32 * part + l] >> 2 * quarter & 3) << 4) - 32
    return [(f32(d * scales[g]), 0.0, w[16 * g:16 * g + 16]) for g in range(16)]


def groups_q2_k(b):
    scales, q, d, dmin = b[:16], b[16:80], half_at(b, 80), half_at(b, 82)
    w = [q[32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3 for i in range(256)]
    return [(f32(d * (s & 15)), -f32(dmin * (s >> 4)), w[16 * g:16 * g + 16]) for g, s in enumerate(scales)]


def quantised(p, x, n):
    v = hostile_rows(x, n)
    rows = [c.quantise(v[:n]), c.quantise(v[n:])]
    q = [float(u) for _, group in rows[0] for u in group]
    p.expect('q', q)
    p.expect('d', [d for d, _ in rows[0]])
    p.expect('sum', [sum(q[i:i + 16]) for i in range(0, n, 16)])
    return rows


def make_weights(x, outs, n, block, fields, read):
    weights = []
    for _ in range(outs):
        row = []
        for _ in range(n // (256 if block > 40 else 32)):
            b = x.bytes(block)
            for f in fields:
                struct.pack_into('<e', b, f, x.value() / 64)
            row += read(b)
        weights.append(row)
    return weights


F32, F16, BF16 = (lambda u: u), c.half, (lambda u: c.of_bits(c.bits(u) & 0xffff0000))


def make_affine(x, outs, n, bits, group, narrow):
    """MLX's arrays: rows of (scale, bias, codes) for every 32 elements. Codes are one stream of bits, the lowest first."""
    rows = [int.from_bytes(x.bytes(n * bits // 8), 'little') for _ in range(outs)]
    scales, biases = ([narrow(x.value() * by) for _ in range(outs * n // group)] for by in (1 / 64, 1 / 8))
    return [[(scales[(r * n + i) // group], biases[(r * n + i) // group], [row >> bits * (i + j) & (1 << bits) - 1 for j in range(32)])
             for i in range(0, n, 32)] for r, row in enumerate(rows)]


def affine_groups(weights, bits):
    """As the contract multiplies them: with 8 bits the integers are code - 128."""
    if bits < 8:
        return weights
    return [[(s, c.fma(128.0, s, m), [code - 128 for code in codes]) for s, m, codes in row] for row in weights]


def affine(p, x, bits, group, narrow, n):
    rows, weights = quantised(p, x, n), make_affine(x, 3, n, bits, group, narrow)
    bias = x.values(3)
    p.expect('product', [f32(c.dot_quantised(w, row, 32, True) + b) for row in rows for w, b in zip(affine_groups(weights, bits), bias)])
    p.expect('values', [f32(f32(s * code) + m) for s, m, codes in weights[0] for code in codes])


def wide_affine(p, x, bits, group, narrow, n):
    v = hostile_rows(x, n)
    weights, bias = affine_groups(make_affine(x, 19, n, bits, group, narrow), bits), x.values(19)
    expect_wide(p, v, n, weights, bias, 32, True)


def hostile_rows(x, n):
    v = x.values(2 * n)
    v[32:64] = [0.0] * 32
    v[64:96] = [u * 2.0 ** -70 for u in v[64:96]]
    return v


def expect_wide(p, v, n, weights, bias, length, has_min):
    wanted = [f32(c.dot_wide(w, row, length, has_min) + b) for row in (v[:n], v[n:]) for w, b in zip(weights, bias)]
    p.expect('wide', wanted)
    p.expect('wide', wanted)


def product(p, x, n, block, fields, length, has_min, read):
    rows, weights = quantised(p, x, n), make_weights(x, 3, n, block, fields, read)
    bias = x.values(3)
    p.expect('product', [f32(c.dot_quantised(w, row, length, has_min) + b) for row in rows for w, b in zip(weights, bias)])


def wide_product(p, x, n, block, fields, length, has_min, read):
    v = hostile_rows(x, n)
    weights, bias = make_weights(x, 19, n, block, fields, read), x.values(19)
    expect_wide(p, v, n, weights, bias, length, has_min)


def float_product(p, x, n, narrow):
    v = x.values(2 * n)
    weights = [[narrow(u) for u in x.values(n)] for _ in range(3)]
    bias = x.values(3)
    p.expect('product', [f32(c.chunked(list(zip(w, row)), 256) + b) for row in (v[:n], v[n:]) for w, b in zip(weights, bias)])


def attend(p, x, heads, dim, positions, window, cap, is_half=True):
    stored = c.half if is_half else lambda u: u
    keys, values, clamped = [], [], 0
    for i in range(positions):
        k, v = x.values(dim), x.values(dim)
        if i == 1:
            v[0], v[1] = 70000.0, -65504.0
        clamped += sum(is_half and abs(u) > 65504 for u in k + v)
        keys.append([stored(u) for u in k])
        values.append([stored(u) for u in v])
    q, out = x.values(heads * dim), []
    for h in range(heads):
        out += c.attention(q[h * dim:h * dim + dim], keys, values, positions - 1, window, 0.0625, cap)
    p.expect('attention', out)
    assert p.next('clamped') == [str(clamped)] and clamped == is_half


def check(command, seed):
    p, x = Probe(command, seed), Input(seed)
    functions(p, x)
    reductions(p, x)
    rotations(p, x)
    angles(p, x)
    product(p, x, 288, 20, (0, 2), 32, True, groups_q4_1)
    product(p, x, 544, 34, (0,), 32, False, groups_q8_0)
    product(p, x, 512, 210, (208,), 16, False, groups_q6_k)
    product(p, x, 512, 84, (80, 82), 16, True, groups_q2_k)
    wide_product(p, x, 288, 20, (0, 2), 32, True, groups_q4_1)
    wide_product(p, x, 512, 210, (208,), 16, False, groups_q6_k)
    for bits, group, narrow, n in ((2, 64, BF16, 320), (3, 128, BF16, 384), (4, 64, BF16, 320), (4, 64, F16, 320), (4, 32, F32, 288), (5, 32, F16, 288),
                                   (5, 32, F32, 288), (6, 64, F16, 320), (8, 128, BF16, 512), (8, 32, F32, 288)):
        affine(p, x, bits, group, narrow, n)
    for bits in (2, 3, 4, 5, 6, 8):
        wide_affine(p, x, bits, 64, BF16, 320)
        wide_affine(p, x, bits, 32, F32, 288)
    float_product(p, x, 300, F32)
    float_product(p, x, 256, F16)
    float_product(p, x, 513, BF16)
    attend(p, x, 2, 130, 70, 50, 0)
    attend(p, x, 1, 6, 200, 0, 20.0)
    attend(p, x, 1, 2, 2100, 0, 0)
    attend(p, x, 1, 2, 1100, 40, 0)
    attend(p, x, 2, 66, 70, 50, 0, is_half=False)
    attend(p, x, 1, 2, 1100, 0, 20.0, is_half=False)
    assert p.at == len(p.lines)
    print(f'seed {seed}: {p.words} words equal')


if __name__ == '__main__':
    for s in (1, 2, 3):
        check(sys.argv[1:], s)
