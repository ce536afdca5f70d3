# SPDX-License-Identifier: Apache-2.0
"""The numeric contract a second time, written from docs/numerics.md and not from the C code.

Every value is a Python float that holds a binary32 exactly. A single + - * / or sqrt of two of them is done in binary64 and rounded once
more, which is harmless (53 >= 2 * 24 + 2 bits); a fused multiply-add is done with fractions, so it is right by construction.
"""
import math
import struct
from decimal import Decimal, getcontext
from fractions import Fraction

getcontext().prec = 60
INF = math.inf


def f32(x):
    """The nearest binary32 of a binary64."""
    try:
        return struct.unpack('<f', struct.pack('<f', x))[0]
    except OverflowError:
        return math.copysign(INF, x)


def bits(x):
    return struct.unpack('<I', struct.pack('<f', x))[0]


def of_bits(u):
    return struct.unpack('<f', struct.pack('<I', u & 0xffffffff))[0]


def round32(exact):
    """The nearest binary32 of a fraction that is not 0, ties to even, subnormals kept."""
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    value = round(exact / unit) * unit
    return math.copysign(INF, value) if abs(value) >= 2 ** 128 else float(value)


def fma(a, b, c):
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return round32(exact) if exact else a * b + c


def half(x):
    """Stored in a binary16 cache: clamped, rounded, and back."""
    return struct.unpack('<e', struct.pack('<e', max(-65504.0, min(65504.0, x))))[0]


def divide(a, b):
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)
    return f32(a / b)


# ---- section 2 ----

def chain(pairs, start=0.0):
    for x, y in pairs:
        start = fma(x, y, start)
    return start


def chunked(pairs, length):
    total = None
    for begin in range(0, len(pairs), length):
        p = chain(pairs[begin:begin + length])
        total = p if total is None else f32(total + p)
    return total


def quantise(x):
    """Groups of (d, 32 integers)."""
    groups = []
    for g in range(0, len(x), 32):
        part = x[g:g + 32]
        a = max(abs(v) for v in part)
        if a < 2.0 ** -64:
            groups.append((0.0, [0] * 32))
        else:
            factor = f32(127.0 / a)
            groups.append((f32(a / 127.0), [round(f32(v * factor)) for v in part]))
    return groups


def rest(x, act):
    """What quantising lost."""
    return [f32(v - f32(act[i // 32][0] * act[i // 32][1][i % 32])) for i, v in enumerate(x)]


def dot_wide(weights, x, length, has_min):
    act = quantise(x)
    return f32(dot_quantised(weights, act, length, has_min) + dot_quantised(weights, quantise(rest(x, act)), length, has_min))


def dot_quantised(weights, act, length, has_min):
    """weights: list of (s, m, integers), each of `length` elements."""
    pairs = []
    for g, (s, m, w) in enumerate(weights):
        d, q = act[g * length // 32]
        q = q[g * length % 32:][:length]
        terms = [(f32(s * d), float(sum(a * b for a, b in zip(w, q))))]
        if has_min:
            terms.append((f32(m * d), float(sum(q))))
        pairs.append(terms)
    per_chunk, total = 256 // length, None
    for begin in range(0, len(pairs), per_chunk):
        p = chain([t for terms in pairs[begin:begin + per_chunk] for t in terms])
        total = p if total is None else f32(total + p)
    return total


# ---- section 3 ----

def tree(lane):
    half_width = 64
    while half_width:
        for l in range(half_width):
            lane[l] = f32(lane[l] + lane[l + half_width])
        half_width //= 2
    return lane[0]


def lane_sum(x):
    lane = [0.0] * 128
    for i, v in enumerate(x):
        lane[i % 128] = f32(lane[i % 128] + v)
    return tree(lane)


def lane_sum_squares(x):
    lane = [0.0] * 128
    for i, v in enumerate(x):
        lane[i % 128] = fma(v, v, lane[i % 128])
    return tree(lane)


def rms_norm(x, w, eps):
    r = f32(1.0 / f32(math.sqrt(f32(f32(lane_sum_squares(x) / float(len(x))) + eps))))
    return [f32(f32(v * r) * u) for v, u in zip(x, w)]


# ---- section 6 ----

def exp(x):
    if x != x:
        return x
    if x <= float.fromhex('-0x1.62e43p+5'):
        return 0.0
    if x > float.fromhex('0x1.62e42ep+6'):
        return INF
    shift = 1.5 * 2 ** 23
    n = f32(fma(x, float.fromhex('0x1.715476p+0'), shift) - shift)
    r = fma(n, float.fromhex('-0x1.62e43p-1'), x)
    r = fma(n, float.fromhex('0x1.05c61p-29'), r)
    p = float.fromhex('0x1.6a2458p-10')
    for c in ('0x1.1239d6p-7', '0x1.5558f2p-5', '0x1.555492p-3', '0x1.fffffcp-2', '0x1p+0', '0x1p+0'):
        p = fma(p, r, float.fromhex(c))
    return math.ldexp(p, int(n))


def silu(x):
    return divide(x, f32(1.0 + exp(-x)))


def gelu(x):
    g = fma(f32(x * x), float.fromhex('-0x1.2444f2p-4'), float.fromhex('-0x1.988454p+0'))
    return divide(x, f32(1.0 + exp(f32(x * g))))


def softcap(x, cap):
    e = exp(f32(2.0 * divide(x, cap)))
    return f32(cap * f32(1.0 - divide(2.0, f32(1.0 + e))))


# ---- section 4 ----

def merge(state, m, l, o):
    larger = max(state[0], m)
    alpha, beta = exp(f32(state[0] - larger)), exp(f32(m - larger))
    return (larger, fma(state[1], alpha, f32(l * beta)), [fma(a, alpha, f32(b * beta)) for a, b in zip(state[2], o)])


def attention(q, keys, values, position, window, scale, cap):
    """One row and head; keys and values: one list per position, as they are stored."""
    q = [f32(v * scale) for v in q]
    first = max(0, position - window + 1) if window else 0
    start = (-INF, 0.0, [0.0] * len(q))
    total = start
    for span in range(0, position + 1, 1024):
        state = start
        for block in range(span, min(span + 1024, position + 1), 64):
            visible = [j for j in range(block, block + 64) if first <= j <= position]
            if not visible:
                continue
            s = {j: chunked(list(zip(q, keys[j])), 64) for j in visible}
            if cap:
                s = {j: softcap(v, cap) for j, v in s.items()}
            m = max(s.values())
            p = {j: exp(f32(v - m)) for j, v in s.items()}
            l = lane_sum([p.get(j, 0.0) for j in range(block, block + 64)])
            o = [chain([(p[j], values[j][d]) for j in visible]) for d in range(len(q))]
            state = merge(state, m, l, o)
        if state[0] > -INF:
            total = merge(total, *state)
    return [divide(v, total[1]) for v in total[2]]


# ---- section 5 ----

def turn(x0, x1, c, s):
    return fma(x0, c, -f32(x1 * s)), fma(x0, s, f32(x1 * c))


def pi():
    """Machin's formula."""
    def arctan_of_inverse(n):
        total, term, k = Decimal(0), Decimal(1) / n, 1
        while abs(term) > Decimal(10) ** -70:
            total += term / k
            term /= -n * n
            k += 2
        return total
    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))


PI = pi()


def cos_sin(position, frequency):
    """The real cosine and sine of an integer times a binary64, to some 50 digits."""
    x = (Decimal(position) * Decimal(frequency)) % (2 * PI)
    cosine, sine, term, k = Decimal(0), Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** -50 or k < 4:
        if k % 2 == 0:
            cosine += term if k % 4 == 0 else -term
        else:
            sine += term if k % 4 == 1 else -term
        k += 1
        term *= x / k
    return cosine, sine
