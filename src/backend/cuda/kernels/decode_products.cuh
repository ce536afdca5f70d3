/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a row with the block's tiles of a matrix. A lane is an output of a tile, a unit a chunk of the contract; what a chunk sums to goes to shared
 * memory, and a row is its chunk sums from left to right.
 *
 * Two warps (a team) share a task: the groups of the first and of the second half of a chunk. Both multiply at once; only the short chain of the second waits for
 * the first's. A task is one unit, or two that meet the same activations (gate and up). A wide row brings two planes of activations to the same weights.
 */
#pragma once

#include "decode_block.cuh"
#include "decode_math.cuh"

/* ---- a group of a unit, for one output ---- */

CONSTANT bool has_min(int form) { return form == IM__CUDA_4_SUPER_MIN; }
CONSTANT int scales_of(int form) { return form == IM__CUDA_6_SUPER_16 ? 2 : 1; } /* of a group of 32 */
CONSTANT bool sum_begins(int form) { return form == IM__CUDA_4_HALF || form == IM__CUDA_5_HALF || form == IM__CUDA_6_SUPER_16; }

/* The integers of a group as dp4a takes them: elements 0..15 and 16..31. Four-bit codes of the second half stay sixteen times too large. */
struct codes {
    u32 low[4], high[4];
};

/* Where a lane finds its parts of the groups of a unit, from group `first` on; `in_unit` groups. */
template <int FORM> struct unit_view {
    u32 code, extra, scale, super;
    __device__ __forceinline__ unit_view(u32 unit, int in_unit, int first, int lane)
    {
        const u32 after = unit + code_bytes(FORM, 1) * in_unit, scales = after + extra_bytes(FORM, 1) * in_unit;
        code = unit + first * code_bytes(FORM, 1) + lane * 16;
        extra = after + first * extra_bytes(FORM, 1) + lane * (FORM == IM__CUDA_6_SUPER_16 ? 8 : 4);
        super = scales + lane * (FORM == IM__CUDA_4_SUPER_MIN ? 4 : 2);
        if (FORM == IM__CUDA_4_SUPER_MIN)
            scale = scales + 128 + first * 64 + lane * 2;
        else if (FORM == IM__CUDA_6_SUPER_16)
            scale = scales + 64 + first * 64 + lane;
        else
            scale = scales + first * 64 + lane * 2;
    }
};

INLINE void words_of(u32 *to, uint4 w) { to[0] = w.x, to[1] = w.y, to[2] = w.z, to[3] = w.w; }

template <int FORM> INLINE codes load_codes(const unit_view<FORM> &v, int g)
{
    codes c;
    words_of(c.low, lds_u4(v.code + g * code_bytes(FORM, 1)));
    if constexpr (FORM == IM__CUDA_8_HALF) {
        words_of(c.high, lds_u4(v.code + g * 1024 + 512));
    } else if constexpr (FORM == IM__CUDA_5_HALF) {
        const u32 top = lds_u(v.extra + g * 128);
        UNROLL for (int k = 0; k < 4; k++)
        {
            c.high[k] = (c.low[k] >> 4 & 0x0f0f0f0fu) | (top >> k & 0x10101010u);
            c.low[k] = (c.low[k] & 0x0f0f0f0fu) | (top << (4 - k) & 0x10101010u);
        }
    } else if constexpr (FORM == IM__CUDA_6_SUPER_16) {
        const uint2 top = lds_u2(v.extra + g * 256);
        UNROLL for (int k = 0; k < 4; k++)
        {
            const u32 x = k < 2 ? top.x << (4 - 2 * k) : top.x >> (2 * k - 4),
                      y = k < 2 ? top.y << (4 - 2 * k) : top.y >> (2 * k - 4);
            c.high[k] = (c.low[k] >> 4 & 0x0f0f0f0fu) | (y & 0x30303030u);
            c.low[k] = (c.low[k] & 0x0f0f0f0fu) | (x & 0x30303030u);
        }
    } else {
        UNROLL for (int k = 0; k < 4; k++)
        {
            c.high[k] = c.low[k] & 0xf0f0f0f0u;
            c.low[k] &= 0x0f0f0f0fu;
        }
    }
    return c;
}

/* The scales of a group: value = s (code - offset) + m. */
struct scales {
    float s[2], m;
};

template <int FORM> INLINE scales load_scales(const unit_view<FORM> &v, int g, float2 super)
{
    scales x;
    x.m = 0.0f;
    x.s[1] = 0.0f;
    if (FORM == IM__CUDA_4_SUPER_MIN) {
        u32 kl = lds_u16(v.scale + g * 64);
        x.s[0] = super.x * (float)(kl & 255);
        x.m = super.y * (float)(kl >> 8);
    } else if (FORM == IM__CUDA_6_SUPER_16) {
        x.s[0] = super.x * (float)lds_s8(v.scale + g * 64);
        x.s[1] = super.x * (float)lds_s8(v.scale + g * 64 + 32);
    } else {
        x.s[0] = f32_of_f16(lds_u16(v.scale + g * 64));
    }
    return x;
}

template <int FORM> INLINE float2 load_super(const unit_view<FORM> &v)
{
    if (FORM == IM__CUDA_4_SUPER_MIN) return f32_of_f16x2(lds_u(v.super));
    if (FORM == IM__CUDA_6_SUPER_16) return make_float2(f32_of_f16(lds_u16(v.super)), 0.0f);
    return make_float2(0.0f, 0.0f);
}

/* The sums of code * activation, exact, as floats. */
template <int FORM> INLINE void integer_sums(float *f, const codes &c, uint4 a, uint4 b, u32 word, u32 word2)
{
    const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
    int low = sum_begins(FORM) ? (int)word : (int)MAGIC, high = FORM == IM__CUDA_6_SUPER_16 ? (int)word2 : 0;
    UNROLL for (int k = 0; k < 4; k++)
    {
        low = FORM == IM__CUDA_8_HALF ? dot4(c.low[k], x[k], low) : dot4_unsigned(c.low[k], x[k], low);
        high = FORM == IM__CUDA_8_HALF ? dot4(c.high[k], y[k], high) : dot4_unsigned(c.high[k], y[k], high);
    }
    if (FORM == IM__CUDA_6_SUPER_16)
        f[1] = f32_of((u32)high) - 0x1.8p23f;
    else
        low += FORM == IM__CUDA_4_HALF || FORM == IM__CUDA_4_SUPER_MIN ? high >> 4 : high;
    f[0] = f32_of((u32)low) - 0x1.8p23f;
}

/* ---- everything of some groups that does not depend on the chain so far, and then the chain: R units, P planes, G groups ---- */

template <int FORM, int G, int R, int P> struct products {
    float f[G][R][P][scales_of(FORM)], sd[G][R][P][scales_of(FORM)];
    float md[G][R][P], sum[G][P]; /* forms with a minimum */
};

template <int FORM, int G, int R, int P>
INLINE void multiply(products<FORM, G, R, P> &x, const u32 *unit, int in_unit, int first, int lane, u32 acts, u32 plane)
{
    float2 super[R];
    UNROLL for (int r = 0; r < R; r++) super[r] = load_super(unit_view<FORM>(unit[r], in_unit, first, lane));
    UNROLL for (int g = 0; g < G; g++)
    {
        codes c[R];
        scales s[R];
        UNROLL for (int r = 0; r < R; r++)
        {
            const unit_view<FORM> v(unit[r], in_unit, first, lane);
            c[r] = load_codes<FORM>(v, g);
            s[r] = load_scales<FORM>(v, g, super[r]);
        }
        UNROLL for (int p = 0; p < P; p++)
        {
            const u32 record = acts + p * plane + g * RECORD;
            const uint4 a = lds_u4(record), b = lds_u4(record + 16);
            const float2 ds = lds_f2(record + 32);
            const u32 second = FORM == IM__CUDA_6_SUPER_16 ? lds_u(record + 40) : 0;
            x.sum[g][p] = ds.y;
            UNROLL for (int r = 0; r < R; r++)
            {
                integer_sums<FORM>(x.f[g][r][p], c[r], a, b, bits_of(ds.y), second);
                UNROLL for (int k = 0; k < scales_of(FORM); k++) x.sd[g][r][p][k] = s[r].s[k] * ds.x;
                x.md[g][r][p] = has_min(FORM) ? s[r].m * ds.x : 0.0f;
            }
        }
    }
}

template <int FORM, int G, int R, int P> INLINE void chain(const products<FORM, G, R, P> &x, float (&sum)[R][P])
{
    UNROLL for (int g = 0; g < G; g++) UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++)
    {
        UNROLL for (int k = 0; k < scales_of(FORM); k++) sum[r][p] = fmaf(x.sd[g][r][p][k], x.f[g][r][p][k], sum[r][p]);
        if (has_min(FORM)) sum[r][p] = fmaf(x.md[g][r][p], x.sum[g][p], sum[r][p]);
    }
}

/* ---- the tasks of a matrix: `tiles` tiles (pairs of tiles for R 2) of C chunks, the last of LAST groups; those from `wide` on with two planes ---- */

template <int C, int LAST, int R> struct task {
    int n, count, tile, chunk; /* task, tasks */
    u32 unit[R];
};

/* Chunk sums: [tile][unit of the task][plane][chunk][output]. */
template <class S, int C, int R, int P> INLINE u32 part_of(const block<S> &b, int tile, int r, int p, int chunk)
{
    return b.memory + S::O_PARTS + ((((tile * R + r) * P + p) * C) + chunk) * 128;
}

template <class S, int C, int LAST, int R> INLINE void task_fetch(block<S> &b, task<C, LAST, R> &t)
{
    if (t.n >= t.count) return;
    t.tile = t.n / C;
    t.chunk = t.n - t.tile * C;
    UNROLL for (int r = 0; r < R; r++) t.unit[r] = ring_unit(b, t.n * R + r);
}

/* Before the input of the phase is waited for: the first task, with its weights. */
template <class S, int C, int LAST, int R> INLINE task<C, LAST, R> tasks_begin(block<S> &b, int tiles)
{
    task<C, LAST, R> t = {}; /* all of it: what is not set on some path would be kept from the layer before, in registers */
    t.n = (fresh(b.me) >> 5) % TEAMS;
    t.count = tiles * C;
    task_fetch<S, C, LAST, R>(b, t);
    return t;
}

template <class S, int FORM, int C, int GROUPS, int R, int P, int PLANES, int LAST>
INLINE void task_do(block<S> &b, const task<C, LAST, R> &t)
{
    const int id = fresh(b.me), lane = id & 31, half = id / (TEAMS * 32), bar = BAR_TEAM + (id >> 5) % TEAMS;
    const u32 acts = b.memory + S::O_ACTS + t.chunk * CHUNK_BYTES + half * (GROUPS / 2 * RECORD);
    const u32 part = part_of<S, C, R, PLANES>(b, t.tile, 0, 0, t.chunk) + lane * 4;
    products<FORM, GROUPS / 2, R, P> x;
    multiply<FORM, GROUPS / 2, R, P>(x, t.unit, GROUPS, half * (GROUPS / 2), lane, acts, S::CHUNKS * CHUNK_BYTES);
    float sum[R][P];
    UNROLL for (int i = 0; i < R * P; i++) sum[i / P][i % P] = 0.0f;
    if (half != 0) {
        bar_sync(bar, 64);
        UNROLL for (int i = 0; i < R * P; i++) sum[i / P][i % P] = lds_f(part + (i / P * PLANES + i % P) * C * 128);
    }
    chain<FORM, GROUPS / 2, R, P>(x, sum);
    UNROLL for (int i = 0; i < R * P; i++) sts_f(part + (i / P * PLANES + i % P) * C * 128, sum[i / P][i % P]);
    if (half == 0) bar_sync(bar, 64);
    UNROLL for (int r = 0; r < R; r++) ring_release(b, t.n * R + r);
}

template <class S, int FORM, int C, int LAST, int R, int PLANES> INLINE void tasks_do(block<S> &b, task<C, LAST, R> &t, int wide)
{
    if (t.n < t.count) ROLL for (;;)
        {
            const bool last = LAST != 8 && t.chunk == C - 1, two = PLANES == 2 && t.tile >= wide;
            if (last && two)
                task_do<S, FORM, C, LAST, R, PLANES, PLANES, LAST>(b, t);
            else if (last)
                task_do<S, FORM, C, LAST, R, 1, PLANES, LAST>(b, t);
            else if (two)
                task_do<S, FORM, C, 8, R, PLANES, PLANES, LAST>(b, t);
            else
                task_do<S, FORM, C, 8, R, 1, PLANES, LAST>(b, t);
            t.n += TEAMS;
            if (t.n >= t.count) break;
            task_fetch<S, C, LAST, R>(b, t);
        }
    b.used += (u32)(t.count * R);
    sync_all(b);
}

/* A row of the product: its chunk sums from left to right. `part` is that of chunk 0. */
template <int C> INLINE float row_sum(u32 part)
{
    float v[C], y;
    UNROLL for (int c = 0; c < C; c++) v[c] = lds_f(part + c * 128);
    y = v[0];
    UNROLL for (int c = 1; c < C; c++) y = y + v[c];
    return y;
}
