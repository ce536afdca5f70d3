/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a row with the block's tiles of a matrix. A unit is a chunk of the contract for 32 outputs; what it sums to goes to shared memory, and a row of the
 * product is its chunk sums from left to right.
 *
 * A warp takes 16 outputs of a unit: lanes 0..15 multiply the groups of the first half of the chunk, lanes 16..31 those of the second; only the short chain of the
 * second waits for the first's. Two warps (a team) share a unit, or two units that meet the same activations (gate and up). Of the down product, whose chunks are
 * many, a block may have pieces of 16 outputs, one warp a unit, of which it needs half: the other half is read by another block at about the same time. A wide row brings two planes of activations to the same weights.
 */
#pragma once

#include "decode_block.cuh"
#include "decode_math.cuh"

/* ---- a group of a unit, for one output ---- */

CONSTANT bool has_min(int form) { return form == IM__CUDA_4_SUPER_MIN; }
CONSTANT int scales_of(int form) { return form == IM__CUDA_6_SUPER_16 ? 2 : 1; } /* of a group of 32 */
/* Two products at once would not fit. */
CONSTANT bool takes_registers(int form) { return form == IM__CUDA_8_HALF || form == IM__CUDA_6_SUPER_16; }
CONSTANT bool sum_begins(int form) { return form == IM__CUDA_4_HALF || form == IM__CUDA_5_HALF || form == IM__CUDA_6_SUPER_16; }

/* The integers of a group as dp4a takes them: elements 0..15 and 16..31. Four-bit codes of the second half stay sixteen times too large. */
struct codes {
    u32 low[4], high[4];
};

/* Where a lane finds its parts of the groups of a unit of `groups` groups, from group `first` on, for an output of the 32. */
template <int FORM> struct unit_view {
    enum { STEP = code_bytes(FORM, 1) };
    u32 code, extra, scale, super;
    __device__ __forceinline__ unit_view(u32 unit, int groups, int first, int output)
    {
        const u32 after = unit + STEP * groups, scales = after + extra_bytes(FORM, 1) * groups;
        code = unit + first * STEP + output * 16;
        extra = after + first * extra_bytes(FORM, 1) + output * (FORM == IM__CUDA_6_SUPER_16 ? 8 : 4);
        super = scales + output * (FORM == IM__CUDA_4_SUPER_MIN ? 4 : 2);
        if (FORM == IM__CUDA_4_SUPER_MIN)
            scale = scales + 128 + first * 64 + output * 2;
        else if (FORM == IM__CUDA_6_SUPER_16)
            scale = scales + 64 + first * 64 + output;
        else
            scale = scales + first * 64 + output * 2;
    }
};

INLINE void words_of(u32 *to, uint4 w) { to[0] = w.x, to[1] = w.y, to[2] = w.z, to[3] = w.w; }

template <int FORM> INLINE codes load_codes(const unit_view<FORM> &v, int g)
{
    codes c;
    words_of(c.low, lds_u4(v.code + g * v.STEP));
    if constexpr (FORM == IM__CUDA_8_HALF) {
        words_of(c.high, lds_u4(v.code + g * v.STEP + 512));
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
template <int FORM> INLINE void integer_sums(float *f, const codes &c, uint4 a, uint4 b, uint2 words)
{
    const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
    int low = sum_begins(FORM) ? (int)words.x : (int)MAGIC, high = FORM == IM__CUDA_6_SUPER_16 ? (int)words.y : 0;
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

/* Of groups that are not `there` (beyond the end of a short unit) nothing enters the chain: their scales and sums count as 0. `plane`: from one plane of
 * activations to the next. */
template <int FORM, int G, int R, int P>
INLINE void multiply(products<FORM, G, R, P> &x, const u32 *unit, int groups, int first, int there, int output, u32 acts, u32 plane)
{
    float2 super[R];
    UNROLL for (int r = 0; r < R; r++) super[r] = load_super(unit_view<FORM>(unit[r], groups, first, output));
    UNROLL for (int g = 0; g < G; g++)
    {
        codes c[R];
        scales s[R];
        UNROLL for (int r = 0; r < R; r++)
        {
            const unit_view<FORM> v(unit[r], groups, first, output);
            c[r] = load_codes(v, g);
            s[r] = load_scales(v, g, super[r]);
        }
        UNROLL for (int p = 0; p < P; p++)
        {
            const u32 record = acts + p * plane + g * RECORD;
            const uint4 a = lds_u4(record), b = lds_u4(record + 16);
            const float2 ds = lds_f2(record + 32);
            const uint2 words = FORM == IM__CUDA_6_SUPER_16 ? lds_u2(record + 40) : make_uint2(bits_of(ds.y), 0);
            x.sum[g][p] = g < there ? ds.y : 0.0f;
            UNROLL for (int r = 0; r < R; r++)
            {
                float f[2];
                integer_sums<FORM>(f, c[r], a, b, words);
                UNROLL for (int k = 0; k < scales_of(FORM); k++)
                {
                    x.f[g][r][p][k] = g < there ? f[k] : 0.0f;
                    x.sd[g][r][p][k] = g < there ? s[r].s[k] * ds.x : 0.0f;
                }
                x.md[g][r][p] = has_min(FORM) && g < there ? s[r].m * ds.x : 0.0f;
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

/* ---- the tasks of a matrix: `tiles` tiles (pairs of tiles for R 2, pieces of 16 rows for ROWS 16) of C chunks, the last of LAST groups ---- */

template <int C, int LAST, int R, int ROWS> struct tasks {
    enum { STEP = ROWS == 32 ? TEAMS : WARPS };
    int n, count, tile, chunk; /* task, tasks */
    u32 unit[R];
};

/* Chunk sums: [tile][unit of the task][plane][chunk][ROWS outputs]. */
template <class S, int C, int R, int PLANES, int ROWS> INLINE u32 part_of(const block<S> &b, int tile, int r, int plane, int chunk)
{
    return b.memory + S::O_PARTS + ((((tile * R + r) * PLANES + plane) * C) + chunk) * (ROWS * 4);
}

template <class S, int C, int LAST, int R, int ROWS> INLINE void task_fetch(block<S> &b, tasks<C, LAST, R, ROWS> &t)
{
    if (t.n >= t.count) return;
    t.tile = t.n / C;
    t.chunk = t.n - t.tile * C;
    UNROLL for (int r = 0; r < R; r++) t.unit[r] = ring_unit(b, t.n * R + r);
}

/* Before the input of the phase is waited for: the first task, with its weights. */
template <class S, int C, int LAST, int R, int ROWS> INLINE tasks<C, LAST, R, ROWS> tasks_begin(block<S> &b, int tiles)
{
    tasks<C, LAST, R, ROWS> t = {}; /* all of it: what is not set on some path would be kept from the layer before, in registers */
    t.n = (fresh(b.me) >> 5) % t.STEP;
    t.count = tiles * C;
    task_fetch(b, t);
    return t;
}

/* P planes of a task, from `plane` on, for 16 of the 32 outputs (`half`: which). Lanes 0..15 multiply the first half of the groups, the others the second; only the short
 * chain of these waits. */
template <int FORM, int PLANES, int P, class S, int C, int LAST, int R, int ROWS>
INLINE void task_do(block<S> &b, const tasks<C, LAST, R, ROWS> &t, int half, int plane)
{
    const int lane = fresh(b.me) & 31, row = lane & 15, side = lane >> 4, groups = LAST == 8 || t.chunk < C - 1 ? 8 : LAST;
    const int first = LAST == 8 ? side * 4 : side * (groups >> 1), there = LAST == 8 ? 4 : groups >> 1, output = half * 16 + row;
    const u32 acts = b.memory + S::O_ACTS + plane * (S::CHUNKS * CHUNK_BYTES) + t.chunk * CHUNK_BYTES + first * RECORD;
    products<FORM, 4, R, P> x;
    multiply(x, t.unit, groups, first, there, output, acts, S::CHUNKS * CHUNK_BYTES);
    float sum[R][P];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) sum[r][p] = 0.0f;
    chain(x, sum);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) sum[r][p] = shfl(sum[r][p], row);
    chain(x, sum);
    if (side != 0)
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++)
            sts_f(part_of<S, C, R, PLANES, ROWS>(b, t.tile, r, plane + p, t.chunk) + (ROWS == 32 ? output : row) * 4, sum[r][p]);
}

/* Both planes. */
template <int FORM, class S, int C, int LAST, int R, int ROWS>
INLINE void task_wide(block<S> &b, const tasks<C, LAST, R, ROWS> &t, int half)
{
    if (takes_registers(FORM))
        ROLL for (int plane = 0; plane < 2; plane++) task_do<FORM, 2, 1>(b, t, half, plane);
    else
        task_do<FORM, 2, 2>(b, t, half, 0);
}

/* All tasks of the block. Tiles from `wide` on have two planes, those from `other` on, which are wide, the form OTHER. */
template <int FORM, int OTHER, int PLANES, class S, int C, int LAST, int R, int ROWS>
INLINE void tasks_do(block<S> &b, tasks<C, LAST, R, ROWS> &t, int wide, int other)
{
    ROLL while (t.n < t.count)
    {
        const int half = fresh(b.me) / (TEAMS * 32);
        if (OTHER != FORM && t.tile >= other)
            task_wide<OTHER>(b, t, half);
        else if (PLANES == 2 && t.tile >= wide)
            task_wide<FORM>(b, t, half);
        else
            task_do<FORM, PLANES, 1>(b, t, half, 0);
        UNROLL for (int r = 0; r < R; r++) ring_release(b, t.n * R + r, 1);
        t.n += t.STEP;
        task_fetch(b, t);
    }
    b.used += (u32)(t.count * R);
    sync_all(b);
}

/* The same of pieces, a warp each; `piece`: the number of the first. */
template <int FORM, class S, int C, int LAST> INLINE void pieces_do(block<S> &b, tasks<C, LAST, 1, 16> &t, int piece)
{
    ROLL while (t.n < t.count)
    {
        task_do<FORM, 1, 1>(b, t, (piece + t.tile) & 1, 0);
        ring_release(b, t.n, 2);
        t.n += t.STEP;
        task_fetch(b, t);
    }
    b.used += (u32)t.count;
    sync_all(b);
}

/* A row of the product: its chunk sums from left to right. `part` is that of chunk 0, `step` from one chunk to the next. */
template <int C> INLINE float row_sum(u32 part, int step)
{
    float v[C], y;
    UNROLL for (int c = 0; c < C; c++) v[c] = lds_f(part + c * step);
    y = v[0];
    UNROLL for (int c = 1; c < C; c++) y = y + v[c];
    return y;
}
