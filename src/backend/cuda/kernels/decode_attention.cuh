/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one row. A block of 64 keys of one query head is an item; items are dealt to blocks from the last to the first (the last have the least to do with
 * queries, keys and values). Keys and values go straight to registers, before the query is there. Of an item travel its 256 values, its maximum and its sum.
 *
 * Merging follows the contract: blocks in order inside spans of 16 blocks, spans in order. Few items: every block that has rows of the output product merges all
 * heads for itself. Many: one warp merges 64 dimensions of a head and sends them quantised.
 */
#pragma once

#include "decode_row.cuh"

enum { FEW_ITEMS = 16, QUARTER = 64 /* dimensions of a head that a warp merges */, QUARTERS = HEAD_DIM / QUARTER };

/* The blocks of keys that a layer sees. */
struct sight {
    int first, blocks, low; /* block, blocks, first visible position */
};

template <class S> INLINE sight sight_of(const block<S> &b)
{
    sight s;
    const int window = (int)layer_number(b, L_WINDOW);
    s.low = window != 0 && position_of(b) >= window ? position_of(b) + 1 - window : 0;
    s.first = s.low / PAGE;
    s.blocks = position_of(b) / PAGE - s.first + 1;
    return s;
}

template <class S> INLINE bool merges_apart(const sight &s) { return S::HEADS * s.blocks > FEW_ITEMS; }

/* ---- one item ---- */

/* An item is held as two numbers; what follows from them is worked out where it is needed, because registers are full of keys and values. */
struct item {
    int head, block;
};

template <class S> INLINE item item_of(const sight &s, int n)
{
    const int order = fresh(n) / S::HEADS;
    return {n - order * S::HEADS, s.first + order};
}

/* The block of the row itself; the row's place in it. */
template <class S> INLINE bool is_newest(const block<S> &b, const item &i) { return i.block == position_of(b) / PAGE; }
template <class S> INLINE int place_of(const block<S> &b) { return position_of(b) % PAGE; }
/* The head that stores key and value for those that share them. */
template <class S> INLINE bool writes(const block<S> &b, const item &i) { return is_newest(b, i) && i.head % S::SHARING == 0; }

/* Keys of the block that the row sees. */
template <class S> INLINE int first_key(const sight &s, const item &i) { return max(s.low - i.block * PAGE, 0); }
template <class S> INLINE int last_key(const block<S> &b, const item &i) { return is_newest(b, i) ? place_of(b) : PAGE - 1; }

/* Keys (field L_KEYS) or values (L_VALUES) of the block. */
template <class S> INLINE uint16_t *cached(const block<S> &b, const item &i, int field)
{
    const u64 page = (u32)load_shared_word(b.a.pages[layer_number(b, L_POOL)] + i.block);
    return (uint16_t *)layer_address(b, field) + page * layer_address(b, L_PAGE_STRIDE) +
           (u64)(i.head / S::SHARING) * HEAD_DIM * PAGE;
}

/* Queries, keys and values of the row, from element `at` on. */
template <class S> INLINE u64 *qkv_at(const block<S> &b, int at)
{
    return b.a.qkv + parity_of(b) * (S::QUERIES + 2 * S::KEYS) + at;
}
/* What an item sends. */
template <class S> INLINE u64 *part_of_item(const block<S> &b, int n)
{
    return b.a.part + ((u64)(u32)parity_of(b) * b.a.most_items + (u32)n) * IM__DECODE_PART_PACKETS;
}
template <class S> INLINE u64 *part_of_item(const block<S> &b, const sight &s, const item &i)
{
    return part_of_item(b, (i.block - s.first) * S::HEADS + i.head);
}
template <class S> INLINE const float *rope_of(const block<S> &b)
{
    return b.a.rope + ((u64)b.token * 2 + layer_number(b, L_ROPE)) * HEAD_DIM;
}

/* A value as the cache stores it. */
INLINE u32 stored_half(float x, bool &clamped)
{
    const float largest = 65504.0f;
    clamped = x > largest || x < -largest;
    return f16_of_f32(clamped ? (x > 0 ? largest : -largest) : x);
}

/* Receives, normalises and turns one head's vector; a lane has elements lane + 32 k. */
template <class S> INLINE void head_vector(block<S> &b, float *x, const u64 *from, const float *norm, int lane)
{
    const float *rope = rope_of(b);
    float w[8];
    float2 turn[4];
    UNROLL for (int k = 0; k < 8; k++) w[k] = load_constant(norm + k * 32 + lane);
    UNROLL for (int k = 0; k < 4; k++) turn[k] = load_constant((const float2 *)rope + k * 32 + lane);
    receive<8>(b, from + lane, 32, tag_of(b), x);
    const float factor = norm_factor<HEAD_DIM>(head_sum_squares(x), b.a.eps);
    UNROLL for (int k = 0; k < 8; k++) x[k] = (x[k] * factor) * w[k];
    UNROLL for (int k = 0; k < 4; k++)
    {
        float x0 = x[k], x1 = x[k + 4];
        x[k] = fmaf(x0, turn[k].x, -(x1 * turn[k].y));
        x[k + 4] = fmaf(x0, turn[k].y, x1 * turn[k].x);
    }
}

/* Who does what in an item. Warps 0..7 have scores, 8..15 values: 32 dimensions of a chunk (32 keys) a warp, the second four go on where the first four end.
 * Beside that one warp each makes the query, the row's own key and its score, and the softmax. */
enum { WARP_SOFTMAX = 4, WARP_VALUES = 8, WARP_QUERY = 12, WARP_KEY = 13, WARP_OWN = 14, HALF_KEYS = PAGE / 2 };
enum { QUERY_THREADS = 11 * 32, SCORE_THREADS = 5 * 32, WEIGHT_THREADS = 9 * 32 };

template <class S> INLINE void item_query(block<S> &b, const item &i, int lane)
{
    float x[8];
    head_vector(b, x, qkv_at(b, i.head * HEAD_DIM), layer_vector(b, L_Q_NORM), lane);
    UNROLL for (int k = 0; k < 8; k++) sts_f(b.memory + S::O_QUERY + (lane + k * 32) * 4, x[k] * b.a.attention_scale);
    bar_sync(BAR_QUERY, QUERY_THREADS);
}

/* The row's own key: its stored bits, widened, to O_KEY; and to its page. */
template <class S> INLINE void item_key(block<S> &b, const item &i, int lane)
{
    if (is_newest(b, i)) {
        float x[8];
        int clamps = 0;
        head_vector(b, x, qkv_at(b, S::QUERIES + i.head / S::SHARING * HEAD_DIM), layer_vector(b, L_K_NORM), lane);
        UNROLL for (int k = 0; k < 8; k++)
        {
            bool clamped;
            x[k] = f32_of_f16(stored_half(x[k], clamped));
            clamps += clamped;
            sts_f(b.memory + S::O_KEY + (lane + k * 32) * 4, x[k]);
        }
        if (clamps != 0 && writes(b, i)) add64(b.a.clamped, (unsigned long long)clamps);
    }
    bar_sync(BAR_QUERY, QUERY_THREADS);
    if (!writes(b, i)) return;
    uint16_t *key = cached(b, i, L_KEYS) + lane * PAGE + place_of(b);
    UNROLL for (int k = 0; k < 8; k++) key[k * 32 * PAGE] = (uint16_t)f16_of_f32(lds_f(b.memory + S::O_KEY + (lane + k * 32) * 4));
    fence_device();
}

/* The score of the row's own key: a chunk of 64 dimensions on each of four lanes. */
template <class S> INLINE void item_own_score(block<S> &b, int lane)
{
    bar_sync(BAR_QUERY, QUERY_THREADS);
    if (lane < 4) {
        const u32 q = b.memory + S::O_QUERY + lane * 256, k = b.memory + S::O_KEY + lane * 256;
        float s = 0.0f;
        UNROLL for (int d = 0; d < 16; d++)
        {
            float4 x = lds_f4(q + d * 16), y = lds_f4(k + d * 16);
            s = fmaf(x.x, y.x, s);
            s = fmaf(x.y, y.y, s);
            s = fmaf(x.z, y.z, s);
            s = fmaf(x.w, y.w, s);
        }
        sts_f(b.memory + S::O_SCORES + 4 * PAGE * 4 + lane * 4, s);
    }
    bar_sync(BAR_SCORES, SCORE_THREADS);
}

/* Softmax of the block: one warp, keys lane and lane + 32. */
template <class S> INLINE void item_weights(block<S> &b, const sight &s, const item &i, int lane)
{
    float x[2], p[2];
    bool visible[2];
    float largest = -f32_of(0x7f800000);
    UNROLL for (int h = 0; h < 2; h++)
    {
        const int key = lane + 32 * h;
        const bool own = is_newest(b, i) && key == place_of(b);
        const u32 from = b.memory + S::O_SCORES + (own ? 4 * PAGE * 4 : key * 4), stride = own ? 4 : PAGE * 4;
        x[h] = ((lds_f(from) + lds_f(from + stride)) + lds_f(from + 2 * stride)) + lds_f(from + 3 * stride);
        visible[h] = key >= first_key<S>(s, i) && key <= last_key(b, i);
        if (visible[h] && x[h] > largest) largest = x[h];
    }
    int key = (int)bits_of(largest); /* the order of floats as an order of integers; its own inverse */
    key = warp_max(key ^ ((key >> 31) & 0x7fffffff));
    largest = f32_of((u32)(key ^ ((key >> 31) & 0x7fffffff)));
    UNROLL for (int h = 0; h < 2; h++)
    {
        p[h] = visible[h] ? contract_exp(x[h] - largest) : 0.0f;
        sts_f(b.memory + S::O_WEIGHTS + (lane + 32 * h) * 4, p[h]);
    }
    if (lane == 0) announce(b, C_ATTENTION);
    bar_sync(BAR_WEIGHTS, WEIGHT_THREADS);
    const float sum = warp_tree(p[0] + p[1]);
    if (lane == 0) {
        u64 *out = part_of_item(b, s, i) + HEAD_DIM;
        send(out, largest, tag_of(b));
        send(out + 1, sum, tag_of(b));
    }
}

/* 32 steps of two chains that share one factor: from `factors` in shared memory, and the two halves of each word. */
INLINE void two_chains(const u32 *w, u32 factors, float &a, float &b)
{
    UNROLL for (int d = 0; d < 32; d += 4)
    {
        const float4 x = lds_f4(factors + d * 4);
        const float e[4] = {x.x, x.y, x.z, x.w};
        UNROLL for (int j = 0; j < 4; j++)
        {
            float2 two = f32_of_f16x2(w[d + j]);
            a = fmaf(e[j], two.x, a);
            b = fmaf(e[j], two.y, b);
        }
    }
}

/* Two chains over 64 steps by two warps: the second half goes on from what the first leaves at `at`. Returns whether these are the sums. */
INLINE bool two_halves(const u32 *w, u32 factors, u32 at, int half, int bar, float &a, float &b)
{
    a = b = 0.0f;
    if (half != 0) {
        bar_sync(bar, 64);
        const float2 begun = lds_f2(at);
        a = begun.x;
        b = begun.y;
    }
    two_chains(w, factors + half * 128, a, b);
    if (half == 0) {
        sts_f2(at, a, b);
        bar_sync(bar, 64);
    }
    return half != 0;
}

/* Scores: a lane has keys 2 lane and 2 lane + 1. */
template <class S> INLINE void item_scores(block<S> &b, const sight &s, const item &i, int warp, int lane)
{
    const int chunk = warp % 4, half = warp / 4;
    const u32 *from = (const u32 *)(cached(b, i, L_KEYS) + (chunk * 64 + half * 32) * PAGE) + lane;
    const u32 scores = b.memory + S::O_SCORES + chunk * PAGE * 4 + lane * 8;
    u32 k[32];
    UNROLL for (int d = 0; d < 32; d++) k[d] = load_shared_word(from + d * (PAGE / 2));
    bar_sync(BAR_QUERY, QUERY_THREADS);
    float s0, s1;
    if (!two_halves(k, b.memory + S::O_QUERY + chunk * 256, scores, half, BAR_TEAM + chunk, s0, s1)) return;
    sts_f2(scores, s0, s1);
    bar_sync(BAR_SCORES, SCORE_THREADS);
    if (warp == WARP_SOFTMAX) item_weights(b, s, i, lane);
}

/* The row's own value joins the cache: dimensions d and d + 1; their bits. */
template <class S> INLINE u32 item_own_value(block<S> &b, const item &i, int d)
{
    float x[2];
    bool clamped[2];
    receive<2>(b, qkv_at(b, S::QUERIES + S::KEYS + i.head / S::SHARING * HEAD_DIM + d), 1, tag_of(b), x);
    const u32 own = stored_half(x[0], clamped[0]) | stored_half(x[1], clamped[1]) << 16;
    if (writes(b, i)) {
        *(u32 *)(cached(b, i, L_VALUES) + place_of(b) * HEAD_DIM + d) = own;
        if (clamped[0] || clamped[1]) add64(b.a.clamped, (unsigned long long)((int)clamped[0] + (int)clamped[1]));
        fence_device();
    }
    return own;
}

/* Values: a thread has dimensions d and d + 1. */
template <class S> INLINE void item_values(block<S> &b, const sight &s, const item &i, int warp, int lane)
{
    const int part = warp % 4, half = (warp - WARP_VALUES) / 4, d = part * 64 + lane * 2, base = half * HALF_KEYS;
    const uint16_t *from = cached(b, i, L_VALUES) + base * HEAD_DIM + d;
    if (warp >= WARP_QUERY) { /* these have no registers to spare while they do something else */
        if (lane < HALF_KEYS) prefetch_line(from - lane * 2 + lane * HEAD_DIM);
        if (warp == WARP_QUERY) item_query(b, i, lane);
        if (warp == WARP_KEY) item_key(b, i, lane);
        if (warp == WARP_OWN) item_own_score(b, lane);
    }
    u32 v[HALF_KEYS];
    UNROLL for (int j = 0; j < HALF_KEYS; j++) v[j] = load_shared_word(from + j * HEAD_DIM);
    if (is_newest(b, i) && place_of(b) / HALF_KEYS == half) {
        const u32 own = item_own_value(b, i, d);
        const int at = place_of(b) - base;
        UNROLL for (int j = 0; j < HALF_KEYS; j++) v[j] = j == at ? own : v[j];
    }
    const int first = first_key<S>(s, i) - base, last = last_key(b, i) - base;
    if (first > 0 || last < HALF_KEYS - 1) /* an invisible value may be anything: 0 * 0 changes no sum */
        UNROLL for (int j = 0; j < HALF_KEYS; j++) v[j] = j >= first && j <= last ? v[j] : 0;
    bar_sync(BAR_WEIGHTS, WEIGHT_THREADS);
    float o0, o1;
    if (two_halves(v, b.memory + S::O_WEIGHTS, b.memory + S::O_BEGUN + d * 4, half, BAR_TEAM + 4 + part, o0, o1))
        packet_store4((uint4 *)(part_of_item(b, s, i) + d), bits_of(o0), tag_of(b), bits_of(o1), tag_of(b));
}

/* This block's items of a layer. */
template <class S> INLINE void attention(block<S> &b)
{
    const sight s = sight_of(b);
    const int items = S::HEADS * s.blocks;
    ROLL for (int n = (int)(block_count() - 1 - block_id()); n < items; n += (int)block_count())
    {
        const item i = item_of<S>(s, n);
        const int id = fresh(b.me), lane = id & 31, warp = id >> 5;
        if (warp < WARP_VALUES)
            item_scores(b, s, i, warp, lane);
        else
            item_values(b, s, i, warp, lane);
        sync_all(b);
    }
    b.announced += (u32)items;
}

/* ---- merging ---- */

/* Of up to 16 blocks, one a lane: what the state so far is multiplied with when the block joins, and what the block. The running maximum at the end. */
INLINE void factors(float m, int count, int lane, float &alpha, float &beta, float &largest)
{
    float running = m;
    UNROLL for (int d = 1; d < SPAN_BLOCKS; d <<= 1)
    {
        float before = shfl_up(running, d);
        if (lane >= d) running = fmaxf(running, before);
    }
    alpha = contract_exp(shfl_up(running, 1) - running);
    beta = contract_exp(m - running);
    if (lane == 0) alpha = 0.0f, beta = contract_exp(m - m); /* the empty state: exp(-inf) = 0 */
    largest = shfl(running, count - 1);
}

/* A state of the merge: two dimensions of a head. */
struct merged {
    float m, l, o[2];
};

/* Blocks of one span, `count` from `part` on; BATCH of them in flight. */
template <int BATCH, class S> INLINE merged merge_span(block<S> &b, const u64 *part, int quarter, int count, int lane)
{
    constexpr int STRIDE = S::HEADS * IM__DECODE_PART_PACKETS;
    const u64 *mine = part + quarter * QUARTER + lane, *sums = part + lane * STRIDE + HEAD_DIM;
    float m = -f32_of(0x7f800000), sum = 0.0f, alpha = 0.0f, beta = 0.0f;
    merged s = {0.0f, 0.0f, {0.0f, 0.0f}};
    ROLL for (int at = 0; at < count; at += BATCH)
    {
        float x[BATCH], y[BATCH];
        patience wait;
        bool all;
        do {
            all = true;
            UNROLL for (int k = 0; k < BATCH; k++) if (at + k < count)
            {
                all &= got(packet_load(mine + (at + k) * STRIDE), tag_of(b), x[k]);
                all &= got(packet_load(mine + (at + k) * STRIDE + 32), tag_of(b), y[k]);
            }
            if (at == 0 && lane < count) {
                all &= got(packet_load(sums), tag_of(b), m);
                all &= got(packet_load(sums + 1), tag_of(b), sum);
            }
        } while (!all && !wait.ends(b, WAIT_PARTS));
        warp_sync();
        if (at == 0) factors(m, count, lane, alpha, beta, s.m);
        UNROLL for (int k = 0; k < BATCH; k++)
        {
            const float al = shfl(alpha, (at + k) & 31), be = shfl(beta, (at + k) & 31), l = shfl(sum, (at + k) & 31);
            if (at + k >= count) continue;
            s.l = fmaf(s.l, al, l * be);
            s.o[0] = fmaf(s.o[0], al, x[k] * be);
            s.o[1] = fmaf(s.o[1], al, y[k] * be);
        }
    }
    return s;
}

INLINE void merge_into(merged &all, const merged &s)
{
    const float m = s.m > all.m ? s.m : all.m, alpha = contract_exp(all.m - m), beta = contract_exp(s.m - m);
    all.l = fmaf(all.l, alpha, s.l * beta);
    all.o[0] = fmaf(all.o[0], alpha, s.o[0] * beta);
    all.o[1] = fmaf(all.o[1], alpha, s.o[1] * beta);
    all.m = m;
}

/* Dimensions quarter * 64 + lane and + 32 of a head, merged and divided. */
template <int BATCH, class S> INLINE void merge(block<S> &b, const sight &s, int head, int quarter, int lane, float *out)
{
    const u64 *part = part_of_item(b, head);
    const int end = s.first + s.blocks;
    merged all = {-f32_of(0x7f800000), 0.0f, {0.0f, 0.0f}};
    ROLL for (int at = s.first; at < end;)
    {
        const int next = min((at / SPAN_BLOCKS + 1) * SPAN_BLOCKS, end);
        merge_into(all,
                   merge_span<BATCH>(b, part + (u64)(at - s.first) * S::HEADS * IM__DECODE_PART_PACKETS, quarter, next - at, lane));
        at = next;
    }
    const float rcp = exact_rcp(all.l);
    const bool usual = in_range(all.l) && in_range_or_zero(all.o[0]) && in_range_or_zero(all.o[1]);
    UNROLL for (int k = 0; k < 2; k++) out[k] = usual ? exact_div(all.o[k], all.l, rcp) : all.o[k] / all.l;
}

/* Many items: this block's share of the merging, sent as quantised groups. */
template <class S> INLINE void merge_apart(block<S> &b)
{
    const sight s = sight_of(b);
    if (!merges_apart<S>(s)) return;
    const int id = fresh(b.me), lane = id & 31;
    if (id >= 32) return;
    ROLL for (int n = (int)(block_count() - 1 - block_id()); n < S::HEADS * QUARTERS; n += (int)block_count())
    {
        float x[2];
        patience wait;
        if (lane == 0)
            while ((int)(counter_load(b.a.counter + C_ATTENTION * IM__DECODE_COUNTER_STRIDE) - b.announced) < 0)
                if (wait.ends(b, WAIT_HINT)) break;
        warp_sync();
        merge<8>(b, s, n / QUARTERS, n % QUARTERS, lane, x);
        UNROLL for (int k = 0; k < 2; k++)
            send_group(b, x[k], (uint4 *)b.a.merged + parity_of(b) * S::HEADS * 24, S::HEADS * 8, n * 2 + k, tag_of(b));
    }
}

/* The input of the output product, as quantised records: merged here, or received. */
template <class S> INLINE void merged_input(block<S> &b)
{
    const sight s = sight_of(b);
    await_announced(b, C_ATTENTION, b.announced);
    if (merges_apart<S>(s)) {
        receive_groups<S::FORM, S::HEADS * 8>(b, (const uint4 *)b.a.merged + parity_of(b) * S::HEADS * 24, tag_of(b));
        return;
    }
    const int id = fresh(b.me), lane = id & 31;
    ROLL for (int n = id >> 5; n < S::HEADS * QUARTERS; n += WARPS)
    {
        float x[2];
        merge<4>(b, s, n / QUARTERS, n % QUARTERS, lane, x);
        store_groups<S::FORM, 2>(b, x, n * 2, 1, S::HEADS * 8, 0);
    }
    sync_all(b);
}
