/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one row. A block of 64 keys of one query head is an item, or of two that share the keys where there are more items than blocks; items are dealt to
 * blocks from the last to the first (the last have the least to do with queries, keys and values). Keys and values go straight to registers, before the query is
 * there, and those of the block's next item are asked for meanwhile. Of an item travel, for each head, its 256 values, its maximum and its sum.
 *
 * Merging follows the contract: blocks in order inside spans of 16 blocks, spans in order. Few items: every block that has rows of the output product merges all
 * heads for itself. Many: a block merges 32 dimensions of a head, a warp a span, and sends them quantised.
 */
#pragma once

#include "decode_row.cuh"

enum { QUARTER = 64 /* dimensions of a head that a warp merges */, QUARTERS = HEAD_DIM / QUARTER };
enum { HEAD_GROUPS = HEAD_DIM / 32 };

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
/* Whether an item is one of two heads. */
template <class S> INLINE bool in_pairs(const sight &s)
{
    return S::AT_ONCE == 2 && S::HEADS * s.blocks > (ROUND_ITEMS != 0 ? (int)ROUND_ITEMS : (int)block_count());
}

/* ---- one item ---- */

/* An item is held as two numbers, the first of its H heads and the block of keys; what follows from them is worked out where it is needed, because registers are full
 * of keys and values. */
struct item {
    int head, block;
};

template <class S, int H> INLINE item item_of(const sight &s, int n)
{
    constexpr int ALL = S::HEADS / H;
    const int order = fresh(n) / ALL;
    return {(n - order * ALL) * H, s.first + order};
}

/* The block of the row itself; the row's place in it. */
template <class S> INLINE bool is_newest(const block<S> &b, const item &i) { return i.block == position_of(b) / PAGE; }
template <class S> INLINE int place_of(const block<S> &b) { return position_of(b) % PAGE; }
/* The head that stores key and value for those that share them. */
template <class S> INLINE bool writes(const block<S> &b, const item &i) { return is_newest(b, i) && i.head % S::SHARING == 0; }

/* Keys of the block that the row sees. */
template <class S> INLINE int first_key(const sight &s, const item &i) { return max(s.low - i.block * PAGE, 0); }
template <class S> INLINE int last_key(const block<S> &b, const item &i) { return is_newest(b, i) ? place_of(b) : PAGE - 1; }

template <class S> INLINE u32 page_of(const block<S> &b, const item &i)
{
    return load_shared_word(b.a.pages[layer_number(b, L_POOL)] + i.block);
}
/* Keys (field L_KEYS) or values (L_VALUES) of the block. */
template <class S> INLINE uint16_t *cached(const block<S> &b, const item &i, int field, u32 page)
{
    return (uint16_t *)layer_address(b, field) + page * layer_address(b, L_PAGE_STRIDE) +
           (u64)(i.head / S::SHARING) * HEAD_DIM * PAGE;
}
template <class S> INLINE uint16_t *cached(const block<S> &b, const item &i, int field)
{
    return cached(b, i, field, page_of(b, i));
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
enum {
    WARP_SOFTMAX = 4,
    WARP_VALUES = 8,
    WARP_QUERY = 12,
    WARP_KEY = 13,
    WARP_OWN = 14,
    WARP_SECOND_QUERY = 15,
    HALF_KEYS = PAGE / 2
};
/* Threads that meet when the query is there, when the scores are, and (beside one warp a head) when the weights are. */
CONSTANT int query_threads(int heads) { return (10 + heads) * 32; }
CONSTANT int weight_threads(int heads) { return (8 + heads) * 32; }
enum { SCORE_THREADS = 5 * 32 };

/* Head `h` of the item. */
template <class S, int H> INLINE void item_query(block<S> &b, const item &i, int h, int lane)
{
    float x[8];
    head_vector(b, x, qkv_at(b, (i.head + h) * HEAD_DIM), layer_vector(b, L_Q_NORM), lane);
    UNROLL for (int k = 0; k < 8; k++)
        sts_f(b.memory + S::O_QUERY + h * QUERY_BYTES + (lane + k * 32) * 4, x[k] * b.a.attention_scale);
    bar_sync(BAR_QUERY, query_threads(H));
}

/* The row's own key: its stored bits, widened, to O_KEY; and to its page. */
template <class S, int H> INLINE void item_key(block<S> &b, const item &i, int lane)
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
    bar_sync(BAR_QUERY, query_threads(H));
    if (!writes(b, i)) return;
    uint16_t *key = cached(b, i, L_KEYS) + lane * PAGE + place_of(b);
    UNROLL for (int k = 0; k < 8; k++) key[k * 32 * PAGE] = (uint16_t)f16_of_f32(lds_f(b.memory + S::O_KEY + (lane + k * 32) * 4));
    fence_device();
}

/* The score of the row's own key: a chunk of 64 dimensions on each of four lanes, for each head. */
template <class S, int H> INLINE void item_own_score(block<S> &b, int lane)
{
    bar_sync(BAR_QUERY, query_threads(H));
    if (lane < 4 * H) {
        const u32 q = b.memory + S::O_QUERY + lane * 256, k = b.memory + S::O_KEY + (lane & 3) * 256;
        float s = 0.0f;
        UNROLL for (int d = 0; d < 16; d++)
        {
            float4 x = lds_f4(q + d * 16), y = lds_f4(k + d * 16);
            s = fmaf(x.x, y.x, s);
            s = fmaf(x.y, y.y, s);
            s = fmaf(x.z, y.z, s);
            s = fmaf(x.w, y.w, s);
        }
        sts_f(b.memory + S::O_SCORES + (lane >> 2) * SCORE_BYTES + 4 * PAGE * 4 + (lane & 3) * 4, s);
    }
    bar_sync(BAR_SCORES, SCORE_THREADS);
}

/* Softmax of the block for head `h` of the item: one warp, keys lane and lane + 32. */
template <class S, int H> INLINE void item_weights(block<S> &b, const sight &s, const item &i, int h, int lane)
{
    float x[2], p[2];
    bool visible[2];
    float largest = -f32_of(0x7f800000);
    UNROLL for (int k = 0; k < 2; k++)
    {
        const int key = lane + 32 * k;
        const bool own = is_newest(b, i) && key == place_of(b);
        const u32 from = b.memory + S::O_SCORES + h * SCORE_BYTES + (own ? 4 * PAGE * 4 : key * 4), stride = own ? 4 : PAGE * 4;
        x[k] = ((lds_f(from) + lds_f(from + stride)) + lds_f(from + 2 * stride)) + lds_f(from + 3 * stride);
        visible[k] = key >= first_key<S>(s, i) && key <= last_key(b, i);
        if (visible[k] && x[k] > largest) largest = x[k];
    }
    int key = (int)bits_of(largest); /* the order of floats as an order of integers; its own inverse */
    key = warp_max(key ^ ((key >> 31) & 0x7fffffff));
    largest = f32_of((u32)(key ^ ((key >> 31) & 0x7fffffff)));
    UNROLL for (int k = 0; k < 2; k++)
    {
        p[k] = visible[k] ? contract_exp(x[k] - largest) : 0.0f;
        sts_f(b.memory + S::O_WEIGHTS + h * (PAGE * 4) + (lane + 32 * k) * 4, p[k]);
    }
    if (lane == 0) announce(b, C_ATTENTION);
    bar_sync(BAR_WEIGHTS, weight_threads(H));
    const float sum = warp_tree(p[0] + p[1]);
    if (lane == 0) {
        u64 *out = part_of_item(b, s, i) + h * IM__DECODE_PART_PACKETS + HEAD_DIM;
        send(out, largest, tag_of(b));
        send(out + 1, sum, tag_of(b));
    }
}

/* 32 steps of two chains a head, which share a factor: from `factors` in shared memory (`stride` from one head to the next), and the two halves of each word. */
template <int H> INLINE void two_chains(const u32 *w, u32 factors, int stride, float2 (&sum)[H])
{
    UNROLL for (int d = 0; d < 32; d += 4)
    {
        float4 x[H];
        UNROLL for (int h = 0; h < H; h++) x[h] = lds_f4(factors + h * stride + d * 4);
        UNROLL for (int j = 0; j < 4; j++)
        {
            const float2 two = f32_of_f16x2(w[d + j]);
            UNROLL for (int h = 0; h < H; h++)
            {
                const float e = j == 0 ? x[h].x : j == 1 ? x[h].y : j == 2 ? x[h].z : x[h].w;
                sum[h].x = fmaf(e, two.x, sum[h].x);
                sum[h].y = fmaf(e, two.y, sum[h].y);
            }
        }
    }
}

/* Two chains a head over 64 steps by two warps: the second half goes on from what the first leaves at `at`, `step` from one head to the next. Returns whether these are the
 * sums. */
template <int H>
INLINE bool two_halves(const u32 *w, u32 factors, int stride, u32 at, int step, int half, int bar, float2 (&sum)[H])
{
    UNROLL for (int h = 0; h < H; h++) sum[h] = make_float2(0.0f, 0.0f);
    if (half != 0) {
        bar_sync(bar, 64);
        UNROLL for (int h = 0; h < H; h++) sum[h] = lds_f2(at + h * step);
    }
    two_chains<H>(w, factors + half * 128, stride, sum);
    if (half == 0) {
        UNROLL for (int h = 0; h < H; h++) sts_f2(at + h * step, sum[h].x, sum[h].y);
        bar_sync(bar, 64);
    }
    return half != 0;
}

/* Scores: a lane has keys 2 lane and 2 lane + 1. The 256 threads ask for the lines of the block's next item. */
template <class S, int H> INLINE void item_scores(block<S> &b, const sight &s, const item &i, const item &next, int warp, int lane)
{
    const int chunk = warp % 4, half = warp / 4;
    const u32 page = page_of(b, i), next_page = next.block >= 0 ? page_of(b, next) : 0;
    const u32 *from = (const u32 *)(cached(b, i, L_KEYS, page) + (chunk * 64 + half * 32) * PAGE) + lane;
    const u32 scores = b.memory + S::O_SCORES + chunk * PAGE * 4 + lane * 8;
    u32 k[32];
    UNROLL for (int d = 0; d < 32; d++) k[d] = load_shared_word(from + d * (PAGE / 2));
    if (next.block >= 0) {
        prefetch_line(cached(b, next, L_KEYS, next_page) + (warp * 32 + lane) * PAGE);
        prefetch_line(cached(b, next, L_VALUES, next_page) + (warp * 32 + lane) * PAGE);
    }
    bar_sync(BAR_QUERY, query_threads(H));
    float2 sum[H];
    if (!two_halves<H>(k, b.memory + S::O_QUERY + chunk * 256, QUERY_BYTES, scores, SCORE_BYTES, half, BAR_TEAM + chunk, sum))
        return;
    UNROLL for (int h = 0; h < H; h++) sts_f2(scores + h * SCORE_BYTES, sum[h].x, sum[h].y);
    bar_sync(BAR_SCORES, SCORE_THREADS);
    if (warp - WARP_SOFTMAX < H) item_weights<S, H>(b, s, i, warp - WARP_SOFTMAX, lane);
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
template <class S, int H> INLINE void item_values(block<S> &b, const sight &s, const item &i, int warp, int lane)
{
    const int part = warp % 4, half = (warp - WARP_VALUES) / 4, d = part * 64 + lane * 2, base = half * HALF_KEYS;
    const uint16_t *from = cached(b, i, L_VALUES) + base * HEAD_DIM + d;
    if (warp >= WARP_QUERY) { /* these have no registers to spare while they do something else */
        if (lane < HALF_KEYS) prefetch_line(from - lane * 2 + lane * HEAD_DIM);
        if (warp == WARP_QUERY) item_query<S, H>(b, i, 0, lane);
        if (warp == WARP_KEY) item_key<S, H>(b, i, lane);
        if (warp == WARP_OWN) item_own_score<S, H>(b, lane);
        if (H == 2 && warp == WARP_SECOND_QUERY) item_query<S, H>(b, i, H - 1, lane);
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
    bar_sync(BAR_WEIGHTS, weight_threads(H));
    float2 sum[H];
    if (!two_halves<H>(v, b.memory + S::O_WEIGHTS, PAGE * 4, b.memory + S::O_BEGUN + d * 4, HEAD_DIM * 4, half, BAR_TEAM + 4 + part,
                       sum))
        return;
    UNROLL for (int h = 0; h < H; h++) packet_store4((uint4 *)(part_of_item(b, s, i) + h * IM__DECODE_PART_PACKETS + d),
                                                     bits_of(sum[h].x), tag_of(b), bits_of(sum[h].y), tag_of(b));
}

/* This block's items of a layer, of H heads each. */
template <class S, int H> INLINE void items_of(block<S> &b, const sight &s)
{
    const int items = S::HEADS / H * s.blocks;
    ROLL for (int n = (int)(block_count() - 1 - block_id()); n < items; n += (int)block_count())
    {
        const int after = n + (int)block_count();
        const item i = item_of<S, H>(s, n), next = after < items ? item_of<S, H>(s, after) : item{0, -1};
        const int id = fresh(b.me), lane = id & 31, warp = id >> 5;
        if (warp < WARP_VALUES)
            item_scores<S, H>(b, s, i, next, warp, lane);
        else
            item_values<S, H>(b, s, i, warp, lane);
        sync_all(b);
    }
}

template <class S> INLINE void attention(block<S> &b)
{
    const sight s = sight_of(b);
    if (in_pairs<S>(s))
        items_of<S, S::AT_ONCE>(b, s);
    else
        items_of<S, 1>(b, s);
    b.announced += (u32)(S::HEADS * s.blocks);
}

/* ---- merging ---- */

/* Of up to MOST parts that join a state in order, one a lane: what the state so far is multiplied with when the part joins, and what the part. `largest`: the state's
 * maximum, before and after. */
template <int MOST> INLINE void factors(float m, int count, int lane, float &largest, float &alpha, float &beta)
{
    float running = lane == 0 ? fmaxf(m, largest) : m;
    UNROLL for (int d = 1; d < MOST; d <<= 1)
    {
        const float before = shfl_up(running, d);
        if (lane >= d) running = fmaxf(running, before);
    }
    const float before = shfl_up(running, 1);
    alpha = contract_exp((lane == 0 ? largest : before) - running);
    beta = contract_exp(m - running);
    largest = shfl(running, count - 1);
}

/* A state of the merge: D dimensions of a head, the lane's and 32 on. */
template <int D> struct merged {
    float m, l, o[D];
};
template <int D> INLINE merged<D> nothing()
{
    merged<D> s;
    s.m = -f32_of(0x7f800000);
    s.l = 0.0f;
    UNROLL for (int k = 0; k < D; k++) s.o[k] = 0.0f;
    return s;
}

/* The part of lane `from` joins: its sum, and this lane's dimensions of it. */
template <int D> INLINE void join(merged<D> &s, float alpha, float beta, float sum, const float *o, int from)
{
    const float al = shfl(alpha, from), be = shfl(beta, from);
    s.l = fmaf(s.l, al, shfl(sum, from) * be);
    UNROLL for (int k = 0; k < D; k++) s.o[k] = fmaf(s.o[k], al, o[k] * be);
}

/* Blocks of one span, `count` from `part` on, from dimension `first` on; BATCH of them in flight. */
template <int D, int BATCH, class S> INLINE merged<D> merge_span(block<S> &b, const u64 *part, int first, int count, int lane)
{
    constexpr int STRIDE = S::HEADS * IM__DECODE_PART_PACKETS;
    const u64 *mine = part + first + lane, *sums = part + lane * STRIDE + HEAD_DIM;
    float m = -f32_of(0x7f800000), sum = 0.0f, alpha = 0.0f, beta = 0.0f;
    merged<D> s = nothing<D>();
    ROLL for (int at = 0; at < count; at += BATCH)
    {
        float x[BATCH][D];
        patience wait;
        bool all;
        do {
            all = true;
            UNROLL for (int k = 0; k < BATCH; k++) UNROLL for (int d = 0; d < D; d++) if (at + k < count) all &=
                got(packet_load(mine + (at + k) * STRIDE + d * 32), tag_of(b), x[k][d]);
            if (at == 0 && lane < count) {
                all &= got(packet_load(sums), tag_of(b), m);
                all &= got(packet_load(sums + 1), tag_of(b), sum);
            }
        } while (!all && !wait.ends(b, WAIT_PARTS));
        warp_sync();
        if (at == 0) factors<SPAN_BLOCKS>(m, count, lane, s.m, alpha, beta);
        UNROLL for (int k = 0; k < BATCH; k++) if (at + k < count) join<D>(s, alpha, beta, sum, x[k], at + k);
    }
    return s;
}

template <int D> INLINE void merge_into(merged<D> &all, const merged<D> &s)
{
    const float m = s.m > all.m ? s.m : all.m, alpha = contract_exp(all.m - m), beta = contract_exp(s.m - m);
    all.l = fmaf(all.l, alpha, s.l * beta);
    UNROLL for (int k = 0; k < D; k++) all.o[k] = fmaf(all.o[k], alpha, s.o[k] * beta);
    all.m = m;
}

template <int D> INLINE void divided(const merged<D> &all, float *out)
{
    const float rcp = exact_rcp(all.l);
    bool usual = in_range(all.l);
    UNROLL for (int k = 0; k < D; k++) usual &= in_range_or_zero(all.o[k]);
    UNROLL for (int k = 0; k < D; k++) out[k] = usual ? exact_div(all.o[k], all.l, rcp) : all.o[k] / all.l;
}

/* The blocks of span `n` that a row sees: the first, counted from the first of all, and the one behind the last. */
struct stretch {
    int begin, end;
};
INLINE stretch span_of(const sight &s, int n)
{
    const int begin = (s.first / SPAN_BLOCKS + n) * SPAN_BLOCKS - s.first;
    return {max(begin, 0), min(begin + SPAN_BLOCKS, s.blocks)};
}
INLINE int spans_of(const sight &s) { return (s.first + s.blocks - 1) / SPAN_BLOCKS - s.first / SPAN_BLOCKS + 1; }

/* One warp: dimensions quarter * 64 + lane and + 32 of a head, merged and divided. */
template <class S> INLINE void merge_quarter(block<S> &b, const sight &s, int head, int quarter, int lane, float *out)
{
    merged<2> all = nothing<2>();
    ROLL for (int n = 0; n < spans_of(s); n++)
    {
        const stretch t = span_of(s, n);
        merge_into(all, merge_span<2, 4>(b, part_of_item(b, t.begin * S::HEADS + head), quarter * QUARTER, t.end - t.begin, lane));
    }
    divided(all, out);
}

/* The whole block: dimensions group * 32 + lane of a head, a span a warp; then the first warp merges the spans and has the result. */
template <class S> INLINE float merge_group(block<S> &b, const sight &s, int head, int group)
{
    const int id = fresh(b.me), lane = id & 31, warp = id >> 5, spans = spans_of(s);
    const u32 values = b.memory + S::O_PARTS, sums = values + WARPS * 128;
    merged<1> all = nothing<1>();
    ROLL for (int at = 0; at < spans; at += WARPS)
    {
        if (at != 0) sync_all(b);
        if (at + warp < spans) {
            const stretch t = span_of(s, at + warp);
            const merged<1> x = merge_span<1, 8>(b, part_of_item(b, t.begin * S::HEADS + head), group * 32, t.end - t.begin, lane);
            sts_f(values + id * 4, x.o[0]);
            if (lane == 0) sts_f2(sums + warp * 8, x.m, x.l);
        }
        sync_all(b);
        if (warp != 0) continue;
        const int count = min(spans - at, (int)WARPS);
        const float2 ml = lds_f2(sums + min(lane, count - 1) * 8);
        float alpha, beta;
        factors<WARPS>(ml.x, count, lane, all.m, alpha, beta);
        UNROLL for (int k = 0; k < WARPS; k++)
        {
            const float o = lds_f(values + k * 128 + lane * 4);
            if (k < count) join<1>(all, alpha, beta, ml.y, &o, k);
        }
    }
    float y;
    divided(all, &y);
    return y;
}

/* Many items: this block's share of the merging, sent as quantised groups. */
template <class S> INLINE void merge_apart(block<S> &b)
{
    const sight s = sight_of(b);
    if (!merges_apart<S>(s)) return;
    ROLL for (int n = (int)(block_count() - 1 - block_id()); n < S::HEADS * HEAD_GROUPS; n += (int)block_count())
    {
        await_announced(b, C_ATTENTION, b.announced);
        const float x = merge_group(b, s, n / HEAD_GROUPS, n % HEAD_GROUPS);
        if (fresh(b.me) < 32)
            send_group(b, x, (uint4 *)b.a.merged + parity_of(b) * S::HEADS * 24, S::HEADS * HEAD_GROUPS, n, tag_of(b));
    }
}

/* The input of the output product, as quantised records: merged here, or received. */
template <class S> INLINE void merged_input(block<S> &b)
{
    const sight s = sight_of(b);
    await_announced(b, C_ATTENTION, b.announced);
    if (merges_apart<S>(s)) {
        receive_groups<S::OUT_FORM, S::OUT_FORM, S::HEADS * HEAD_GROUPS>(
            b, (const uint4 *)b.a.merged + parity_of(b) * S::HEADS * 24, tag_of(b));
        return;
    }
    const int id = fresh(b.me), lane = id & 31;
    ROLL for (int n = id >> 5; n < S::HEADS * QUARTERS; n += WARPS)
    {
        float x[2];
        merge_quarter(b, s, n / QUARTERS, n % QUARTERS, lane, x);
        store_groups<S::OUT_FORM, S::OUT_FORM, 2>(b, x, n * 2, 1, S::HEADS * HEAD_GROUPS, 0);
    }
    sync_all(b);
}
