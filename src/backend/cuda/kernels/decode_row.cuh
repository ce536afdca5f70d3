/* SPDX-License-Identifier: Apache-2.0
 *
 * The residual, which every block keeps for itself: embedding, norms, and rows quantised for products.
 */
#pragma once

#include "decode_products.cuh"

/* ---- records of quantised activations ---- */

template <class S> INLINE u32 record_of(const block<S> &b, int group)
{
    return b.memory + S::O_ACTS + (group >> 3) * CHUNK_BYTES + (group & 7) * RECORD;
}

/* The words of a record that speak of its sums, for weights of either form: scale, sum, and for groups of 16 two sums. By one lane. */
template <int FORM, int FORM2> INLINE void store_sums(u32 record, float d, int first, int second)
{
    constexpr int HALVES = IM__CUDA_6_SUPER_16, WHOLE = FORM == HALVES ? FORM2 : FORM;
    static_assert(WHOLE == FORM2 || FORM2 == HALVES || FORM2 == IM__CUDA_8_HALF, "two forms with sums of their own");
    const u32 word = sum_word<WHOLE>(first + second);
    if (FORM == HALVES || FORM2 == HALVES)
        sts_u4(record + 32, bits_of(d), word, sum_word<HALVES>(first), sum_word<HALVES>(second));
    else
        sts_f2(record + 32, d, f32_of(word));
}

/* The warp quantises groups g, g + step, ... below n: one element a lane of each of N (1 for a group that is not there: zero is slow). Leaves in x what that
 * lost. */
template <int FORM, int FORM2, int N, class S> INLINE void store_groups(block<S> &b, float *x, int g, int step, int n, u32 plane)
{
    const int lane = fresh(b.me) & 31;
    int q[N];
    float d[N];
    quantise<N>(x, q, d);
    UNROLL for (int i = 0; i < N; i++)
    {
        const bool halves = FORM == IM__CUDA_6_SUPER_16 || FORM2 == IM__CUDA_6_SUPER_16;
        int first = halves ? warp_sum(lane < 16 ? q[i] : 0) : 0, all = warp_sum(q[i]);
        x[i] = g + i * step < n ? x[i] - d[i] * (float)q[i] : 1.0f;
        if (g + i * step >= n) continue;
        u32 record = record_of(b, g + i * step) + plane;
        sts_u8(record + lane, q[i]);
        if (lane == 0) store_sums<FORM, FORM2>(record, d[i], first, all - first);
    }
}

/* A quantised group on its way to other blocks: 36 bytes in three packets of 12 and a tag; packet j of group g of n lies at j n + g. */
template <class S> INLINE void send_group(block<S> &b, float x, uint4 *to, int n, int g, u32 tag)
{
    const int id = fresh(b.me), lane = id & 31;
    const u32 bytes = b.memory + S::O_GROUP + (id >> 5) * RECORD;
    int q;
    float d;
    quantise<1>(&x, &q, &d);
    sts_u8(bytes + lane, q);
    if (lane == 0) sts_f(bytes + 32, d);
    warp_sync();
    if (lane < 3)
        packet_store4(to + lane * n + g, lds_u(bytes + lane * 12), lds_u(bytes + lane * 12 + 4), lds_u(bytes + lane * 12 + 8), tag);
    warp_sync();
}

/* All n groups into the records. */
template <int FORM, int FORM2, int N, class S> INLINE void receive_groups(block<S> &b, const uint4 *from, u32 tag)
{
    const u32 ones = 0x01010101;
    ROLL for (int g = fresh(b.me); g < N; g += WORKERS)
    {
        patience p;
        uint4 x, y, z;
        do {
            x = packet_load4(from + g);
            y = packet_load4(from + N + g);
            z = packet_load4(from + 2 * N + g);
        } while (!(x.w == tag && y.w == tag && z.w == tag) && !p.ends(b, WAIT_GROUPS));
        u32 record = record_of(b, g);
        sts_u4(record, x.x, x.y, x.z, y.x);
        sts_u4(record + 16, y.y, y.z, z.x, z.y);
        int first = dot4(x.x, ones, dot4(x.y, ones, 0)) + dot4(x.z, ones, dot4(y.x, ones, 0));
        int second = dot4(y.y, ones, dot4(y.z, ones, 0)) + dot4(z.x, ones, dot4(z.y, ones, 0));
        store_sums<FORM, FORM2>(record, f32_of(z.z), first, second);
    }
    sync_all(b);
}

/* ---- rows of a tile or a piece on their way: three values a packet ---- */

/* ROWS values, one a lane of the first or (piece 1 of two) the last ROWS. */
template <int ROWS> INLINE void send_rows(uint4 *to, int number, float y, int lane, u32 tag)
{
    constexpr int PACKETS = (ROWS + 2) / 3;
    const int row = lane % ROWS, base = lane - row;
    float y0 = shfl(y, base + min(3 * row, ROWS - 1)), y1 = shfl(y, base + min(3 * row + 1, ROWS - 1)),
          y2 = shfl(y, base + min(3 * row + 2, ROWS - 1));
    if (row < PACKETS) packet_store4(to + number * PACKETS + row, bits_of(y0), bits_of(y1), bits_of(y2), tag);
}

/* A whole row that was sent by ROWS, to O_PARTS. */
template <int ROWS, class S> INLINE void receive_row(block<S> &b, const uint4 *from, u32 tag)
{
    constexpr int PACKETS = (ROWS + 2) / 3, ALL = S::WIDTH / ROWS * PACKETS, N = (ALL + WORKERS - 1) / WORKERS;
    const int id = fresh(b.me);
    uint4 p[N];
    patience wait;
    bool all;
    do {
        all = true;
        UNROLL for (int i = 0; i < N; i++)
        {
            p[i] = packet_load4(from + min(id + i * WORKERS, ALL - 1));
            all &= p[i].w == tag;
        }
    } while (!all && !wait.ends(b, WAIT_ROW));
    UNROLL for (int i = 0; i < N; i++)
    {
        const int k = min(id + i * WORKERS, ALL - 1), number = k / PACKETS, row = (k - number * PACKETS) * 3;
        const u32 at = b.memory + S::O_PARTS + (number * ROWS + row) * 4;
        sts_u(at, p[i].x);
        if (row + 1 < ROWS) sts_u(at + 4, p[i].y); /* the last packet is not full */
        if (row + 2 < ROWS) sts_u(at + 8, p[i].z);
    }
    sync_all(b);
}

/* ---- norms ---- */

/* The first two steps of the lane rule's tree, over the four warps that hold the 128 lanes, and then the others. `half`: one of two
 * buffers, so that the second sum need not wait until all have read the first. */
template <class S> INLINE float lanes_tree(block<S> &b, float a, int id, int half)
{
    const u32 lanes = b.memory + S::O_LANES + half * 512;
    sts_f(lanes + id * 4, a);
    bar_sync(BAR_LANES, 128);
    const int lane = id & 31;
    const float a0 = lds_f(lanes + lane * 4), a1 = lds_f(lanes + lane * 4 + 128), a2 = lds_f(lanes + lane * 4 + 256),
                a3 = lds_f(lanes + lane * 4 + 384);
    return warp_tree((a0 + a2) + (a1 + a3));
}

/* Four warps: the residual takes the norm of the row that arrived (`post`: its weights, this thread's elements), and the factor of the residual's own norm is
 * left in M_FACTOR. Thread i has the elements of virtual lane i, so sums need no exchange but the tree. */
template <class S> INLINE void residual_lanes(block<S> &b, const float *post, bool arrived, bool normed)
{
    const int id = fresh(b.me);
    const u32 row = b.memory + S::O_ROW + id * 4, in = b.memory + S::O_PARTS + id * 4;
    float a = 0.0f, factor = 0.0f;
    if (arrived) {
        UNROLL for (int k = 0; k < S::LANE; k++)
        {
            float y = lds_f(in + k * 512);
            a = fmaf(y, y, a);
        }
        factor = norm_factor<S::WIDTH>(lanes_tree(b, a, id, 0), b.a.eps);
        a = 0.0f;
    }
    UNROLL for (int k = 0; k < S::LANE; k++)
    {
        float x = lds_f(row + k * 512);
        if (arrived) {
            x = x + (lds_f(in + k * 512) * factor) * post[k];
            sts_f(row + k * 512, x);
        }
        a = fmaf(x, x, a);
    }
    if (!normed) return;
    factor = norm_factor<S::WIDTH>(lanes_tree(b, a, id, 1), b.a.eps);
    if (id == 0) sts_f(b.memory + S::O_MISC + M_FACTOR, factor);
}

/* residual += norm of the row in `from` (none: NULL; sent by ROWS) with weights `post`; then, if wanted, the residual's norm with weights `pre` is quantised for FORM and FORM2, with
 * a second plane if `wide`. What does not depend on the row is fetched before it is waited for. */
template <int FORM, int FORM2, int ROWS, class S>
INLINE void norm(block<S> &b, const uint4 *from, u32 tag, int part, u32 target, const float *post, const float *pre, bool normed,
                 bool wide)
{
    const int id = fresh(b.me), warp = id >> 5;
    float after[S::LANE], before[S::MINE], x[S::MINE];
    UNROLL for (int k = 0; k < S::LANE; k++) after[k] = from != 0 && id < 128 ? load_constant(post + id + k * 128) : 0.0f;
    UNROLL for (int i = 0; i < S::MINE; i++) before[i] =
        normed && warp + i * WARPS < S::GROUPS ? load_constant(pre + id + i * WORKERS) : 0.0f;
    if (from != 0) {
        await_announced(b, part, target);
        receive_row<ROWS>(b, from, tag);
    }
    if (id < 128) residual_lanes(b, after, from != 0, normed);
    sync_all(b);
    if (!normed) return;
    const float factor = lds_f(b.memory + S::O_MISC + M_FACTOR);
    UNROLL for (int i = 0; i < S::MINE; i++) x[i] =
        warp + i * WARPS < S::GROUPS ? (lds_f(b.memory + S::O_ROW + (id + i * WORKERS) * 4) * factor) * before[i] : 1.0f;
    ROLL for (int plane = 0; plane < (wide ? 2 : 1); plane++)
        store_groups<FORM, FORM2, S::MINE>(b, x, warp, WARPS, S::GROUPS, plane * (S::CHUNKS * CHUNK_BYTES));
    sync_all(b);
}

/* ---- embedding ---- */

INLINE u32 load_byte(const uint8_t *p) { return load_constant(p); }
INLINE float load_half(const uint8_t *p) { return f32_of_f16(load_constant((const uint16_t *)p)); }

/* Element `i` of group `g` of one output of a unit with `groups` groups, by the format's formula. */
INLINE float unit_value(const uint8_t *unit, int form, int groups, int g, int output, int i)
{
    const int bits = form == IM__CUDA_8_HALF ? 8 : 4, bytes = bits == 8 ? 1024 : 512;
    const uint8_t *extra = unit + groups * bytes, *code = unit + g * bytes + output * 16 + (i & 15);
    if (form == IM__CUDA_8_HALF) return load_half(extra + (g * 32 + output) * 2) * (float)(int8_t)load_byte(code + (i >> 4) * 512);
    int low = (int)(load_byte(code) >> (i >> 4) * 4) & 15;
    if (form == IM__CUDA_4_HALF) return load_half(extra + (g * 32 + output) * 2) * (float)(low - 8);
    if (form == IM__CUDA_5_HALF) {
        int top = (int)(load_byte(extra + (g * 32 + output) * 4 + (i & 3)) >> (i >> 2)) & 1;
        return load_half(extra + groups * 128 + (g * 32 + output) * 2) * (float)((low | top << 4) - 16);
    }
    if (form == IM__CUDA_4_SUPER_MIN) {
        const uint8_t *kl = extra + 128 + (g * 32 + output) * 2;
        float s = load_half(extra + output * 4) * (float)load_byte(kl),
              m = load_half(extra + output * 4 + 2) * (float)load_byte(kl + 1);
        return s * (float)low + m;
    }
    /* IM__CUDA_6_SUPER_16 */
    int top = (int)(load_byte(extra + (g * 32 + output) * 8 + (i >> 4) * 4 + (i & 3)) >> (i >> 2 & 3) * 2) & 3;
    const uint8_t *super = extra + groups * 256;
    float s = load_half(super + output * 2) * (float)(int8_t)load_byte(super + 64 + (g * 2 + (i >> 4)) * 32 + output);
    return s * (float)((low | top << 4) - 32);
}

template <class S> INLINE void embed(block<S> &b, int token)
{
    const int id = fresh(b.me), lane = id & 31;
    const im__cuda_matrix &m = b.a.embed;
    const uint8_t *tile = m.data + (u64)(token >> 5) * m.tile_bytes;
    ROLL for (int g = id >> 5; g < S::GROUPS; g += WARPS)
    {
        int chunk = g >> 3;
        float v =
            unit_value(tile + chunk * m.unit_bytes, (int)m.form, chunk == S::CHUNKS - 1 ? S::LAST : 8, g & 7, token & 31, lane);
        sts_f(b.memory + S::O_ROW + (g * 32 + lane) * 4, b.a.embed_scale == 1.0f ? v : v * b.a.embed_scale);
    }
    sync_all(b);
}
