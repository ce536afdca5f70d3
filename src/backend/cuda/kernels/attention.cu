/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, row by row. The blocks of keys of all rows and KV heads stand in one line, [row][KV head, piece of its query heads][block of keys], and each block of
 * the grid takes an even share of it; what it does with a block of keys:
 *
 *     scores   warp = chunk of 64 elements of the head, lane = two keys; the chunk sums meet in shared memory
 *     weights  warp = query head, lane = keys j and j + 32
 *     values   thread = two elements of the head
 *
 * The order of merging is fixed by position, so the states of blocks are merged as they come only from a span's first block on. Where a share begins inside a span,
 * the states go to the scratch one by one; the last of the blocks of the grid that work at a span merges them behind what the first one has, and the last that
 * completes a span of a row merges the spans. Who is last changes nothing but who does it.
 */
#include "backend/cuda/kernels/attention.cuh"

#define PAGE IM__ATTENTION_PAGE
#define SPAN IM__ATTENTION_SPAN
#ifndef MERGE_COSTS
#define MERGE_COSTS 2 /* splitting a row takes as long as so many blocks of keys */
#endif

/* A thread's part of what has been seen of the keys so far, for G query heads. */
template <int G> struct state {
    float m[G], l[G];
    float2 o[G];
};

/* What is the same for all blocks of keys. */
struct few {
    uint32_t chunks, threads, pieces, heads_of_row; /* pieces of the heads of a KV head; KV heads times pieces */
    uint32_t sharing, q_stride, head_dim;
    uint32_t n;           /* rows to do */
    const uint32_t *list; /* which, or all */
    uint32_t share, odd;  /* units of each block of the grid; the first `odd` blocks take one more */
    bool split;           /* shares may begin and end inside a row */
    float *q, *sums, *ml; /* shared: [G][q_stride]; [chunk][G][64]; [G][2] */
    uint32_t *word;       /* shared: 16 words */
    void *keys, *values;  /* shared: a staged page */
    uint32_t *counter;    /* [row][heads_of_row][spans + 1] */
    float *scratch;
    uint32_t raw, span; /* in the scratch: [block of the grid][15] states; [row][heads_of_row][spans] states */
    uint32_t spans, state_floats;
};

/* A place in the line of units. */
struct place {
    uint32_t unit, i;         /* i: which of the rows to do */
    uint32_t head, kv, piece; /* of heads_of_row: piece of the query heads of the KV head kv */
    uint32_t block;
    im__seen sees;
    int32_t page;
};

IM__DEVICE uint32_t share_begin(const few &f, uint32_t at) { return f.share * at + (at < f.odd ? at : f.odd); }

/* Which block of the grid has the unit. */
static __device__ uint32_t share_of(const few &f, uint32_t unit)
{
    uint32_t larger = f.odd * (f.share + 1);
    return unit < larger ? unit / (f.share + 1) : f.odd + (unit - larger) / f.share;
}

IM__DEVICE uint32_t row_at(const few &f, uint32_t i) { return f.list != 0 ? f.list[i] : i; }

/* ---- the line of units ---------------------------------------------------------------------------------------------------------------- */

static __device__ void enter_row(const im__cuda_attention &a, const few &f, place *p, uint32_t i)
{
    p->i = i;
    p->sees = im__row_sees(a, row_at(f, i));
}

IM__DEVICE void look_up_page(place *p) { p->page = p->sees.table[p->block]; }

/* True: it is the first of the next row. */
IM__DEVICE bool next_head(const few &f, place *p)
{
    if (++p->piece == f.pieces) {
        p->piece = 0;
        p->kv++;
    }
    if (++p->head < f.heads_of_row) return false;
    p->head = p->kv = 0;
    return true;
}

/* The next unit; there must be one. */
IM__DEVICE void advance(const im__cuda_attention &a, const few &f, place *p)
{
    p->unit++;
    if (p->block++ == p->sees.last) {
        if (next_head(f, p)) enter_row(a, f, p, p->i + 1);
        p->block = p->sees.first;
    }
    look_up_page(p);
}

/* The blocks of row i, 0 beyond the rows. */
IM__DEVICE uint32_t blocks_of_row(const im__cuda_attention &a, const few &f, uint32_t i)
{
    if (i >= f.n) return 0;
    im__seen s = im__row_sees(a, row_at(f, i));
    return s.last - s.first + 1;
}

/* Over the lanes up to this one. */
IM__DEVICE uint32_t running_sum(uint32_t x)
{
    for (uint32_t by = 1; by < 32; by *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffff, x, by);
        if (threadIdx.x % 32 >= by) x += other;
    }
    return x;
}

/* Counts the blocks of all rows and the most of one. Each warp does it for itself: what takes longest is waiting for memory and for each other. */
static __device__ void count_blocks(const im__cuda_attention &a, const few &f, uint32_t *all, uint32_t *most)
{
    uint32_t sum = 0, largest = 0;
    for (uint32_t from = 0; from < f.n; from += 32) {
        uint32_t blocks = blocks_of_row(a, f, from + threadIdx.x % 32);
        sum += blocks;
        largest = blocks > largest ? blocks : largest;
    }
    for (int by = 16; by > 0; by /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, by);
        uint32_t other = __shfl_xor_sync(0xffffffff, largest, by);
        largest = other > largest ? other : largest;
    }
    *all = sum;
    *most = largest;
}

/* Finds the row of a unit, and which unit of its row that is. */
static __device__ uint32_t find_row(const im__cuda_attention &a, const few &f, uint32_t unit, uint32_t *of_row)
{
    uint32_t before = 0, from = 0;
    for (;; from += 32) {
        uint32_t blocks = blocks_of_row(a, f, from + threadIdx.x % 32), upto = running_sum(blocks);
        uint32_t here = __ballot_sync(0xffffffff, unit < (before + upto) * f.heads_of_row);
        if (here != 0) {
            int lane = __ffs((int)here) - 1;
            before += __shfl_sync(0xffffffff, upto - blocks, lane);
            *of_row = unit - before * f.heads_of_row;
            return from + (uint32_t)lane;
        }
        before += __shfl_sync(0xffffffff, upto, 31);
    }
}

/* Shares out the units and finds where the share of this block of the grid begins; *end is where it ends. False if it is empty. */
static __device__ bool find_share(const im__cuda_attention &a, few *f, place *p, uint32_t *end)
{
    uint32_t all, most, of_row;
    count_blocks(a, *f, &all, &most);
    uint32_t total = all * f->heads_of_row, grid = gridDim.x, waves = im__attention_ceil(f->n * f->heads_of_row, grid);
    f->share = total / grid;
    f->odd = total % grid;
    f->split = f->split && most * waves > f->share + MERGE_COSTS;
    uint32_t begin = share_begin(*f, blockIdx.x);
    *end = share_begin(*f, blockIdx.x + 1);
    if (begin == *end) return false;
    enter_row(a, *f, p, find_row(a, *f, begin, &of_row));
    uint32_t blocks = p->sees.last - p->sees.first + 1;
    p->unit = begin;
    p->head = of_row / blocks;
    p->kv = p->head / f->pieces;
    p->piece = p->head % f->pieces;
    p->block = p->sees.first + of_row % blocks;
    return true;
}

/* Whether the share goes on behind this unit. */
IM__DEVICE bool is_more(const few &f, const place &p, uint32_t end)
{
    return p.unit + 1 < end || (!f.split && p.block != p.sees.last);
}

/* Where rows are not split a share has the heads that begin in it, whole. */
static __device__ bool whole_heads(const im__cuda_attention &a, const few &f, place *p, uint32_t *end)
{
    uint32_t blocks = p->sees.last - p->sees.first + 1, done = p->block - p->sees.first;
    if (done > 0) {
        p->unit += blocks - done;
        if (p->unit >= *end) return false;
        p->block = p->sees.first;
        if (next_head(f, p)) {
            enter_row(a, f, p, p->i + 1);
            p->block = p->sees.first;
        }
    }
    return true;
}

/* ---- one block of keys ------------------------------------------------------------------------------------------------------------------ */

/* Which keys of its block a row sees: lo <= j < hi. */
struct visible {
    uint32_t lo, hi;
};

IM__DEVICE visible visible_of(const place &p)
{
    uint32_t at = p.block * PAGE, page = PAGE;
    return {p.sees.begin > at ? p.sees.begin - at : 0, p.sees.end - at < page ? p.sees.end - at : page};
}

/* Copies a head's keys, and the values that are seen, of a page into shared memory, without waiting. All threads call. */
template <typename T> IM__DEVICE void ask_for_keys(const few &f, const T *from, visible v)
{
#if IM__BULK
    if (threadIdx.x == 0) im__copy_bulk(f.keys, from, f.head_dim * PAGE * (uint32_t)sizeof(T), f.word);
    (void)v;
#else
    constexpr uint32_t piece = 16 / sizeof(T), pieces = PAGE / piece;
    uint32_t lo = v.lo / piece, hi = (v.hi + piece - 1) / piece;
    T *to = (T *)f.keys;
    for (uint32_t at = threadIdx.x; at < f.head_dim * pieces; at += f.threads)
        if (at % pieces >= lo && at % pieces < hi) im__copy_16(to + at * piece, from + at * piece);
    im__copy_commit();
#endif
}

template <typename T> IM__DEVICE void ask_for_values(const few &f, const T *from, visible v)
{
    constexpr uint32_t piece = 16 / sizeof(T);
    T *to = (T *)f.values;
    uint32_t begin = v.lo * f.head_dim / piece, end = (v.hi * f.head_dim + piece - 1) / piece;
#if IM__BULK
    if (threadIdx.x == 0) im__copy_bulk(to + begin * piece, from + begin * piece, (end - begin) * 16, f.word + 2);
#else
    for (uint32_t at = begin + threadIdx.x; at < end; at += f.threads) im__copy_16(to + at * piece, from + at * piece);
    im__copy_commit();
#endif
}

/* Waits for what was asked for before the last request, or the last where there was none since. */
IM__DEVICE void wait_for(const few &f, uint32_t gate, uint32_t turn, bool asked_since)
{
#if IM__BULK
    im__gate_wait(f.word + 2 * gate, turn);
    (void)asked_since;
#else
    (void)f, (void)gate, (void)turn;
    if (asked_since)
        im__copy_wait<1>();
    else
        im__copy_wait<0>();
#endif
}

template <typename T> IM__DEVICE const T *keys_at(const im__cuda_attention &a, const few &f, const place &p)
{
    uint64_t head = (uint64_t)p.kv * f.head_dim * PAGE;
    return (const T *)a.kv.pool + (uint64_t)p.page * a.kv.page_stride + a.kv.k_offset + head;
}

template <typename T> IM__DEVICE const T *values_at(const im__cuda_attention &a, const few &f, const place &p)
{
    uint64_t head = (uint64_t)p.kv * f.head_dim * PAGE;
    return (const T *)a.kv.pool + (uint64_t)p.page * a.kv.page_stride + a.kv.v_offset + head;
}

/* The first query head of a piece. */
IM__DEVICE uint32_t first_head(const few &f, const place &p, int heads) { return p.kv * f.sharing + p.piece * (uint32_t)heads; }

IM__DEVICE uint32_t heads_here(const few &f, const place &p, int heads)
{
    uint32_t left = f.sharing - p.piece * (uint32_t)heads;
    return left < (uint32_t)heads ? left : (uint32_t)heads;
}

/* All loads first: stores between them would make each wait for the one before. */
template <int G> IM__DEVICE void load_q(const im__cuda_attention &a, const few &f, const place &p)
{
    uint32_t here = heads_here(f, p, G), d = threadIdx.x * 2;
    const float *q = a.q + ((uint64_t)p.sees.r * a.heads + first_head(f, p, G)) * f.head_dim + d;
    if (d >= f.head_dim) return;
    float2 x[G];
#pragma unroll
    for (int g = 0; g < G; g++) x[g] = (uint32_t)g < here ? *(const float2 *)(q + g * f.head_dim) : make_float2(0.0f, 0.0f);
#pragma unroll
    for (int g = 0; g < G; g++) *(float2 *)(f.q + g * f.q_stride + d) = make_float2(x[g].x * a.scale, x[g].y * a.scale);
}

/* Four elements of the head: both keys of this lane, all query heads. */
template <int G, typename T> IM__DEVICE void scores_of_4(float2 (&s)[G], const float *q, uint32_t q_stride, const T *k)
{
    float2 key[4];
#pragma unroll
    for (int i = 0; i < 4; i++) key[i] = im__two(k + i * PAGE);
#pragma unroll
    for (int g = 0; g < G; g++) {
        float4 x = *(const float4 *)(q + g * q_stride);
        s[g].x = im__fma(x.x, key[0].x, s[g].x), s[g].y = im__fma(x.x, key[0].y, s[g].y);
        s[g].x = im__fma(x.y, key[1].x, s[g].x), s[g].y = im__fma(x.y, key[1].y, s[g].y);
        s[g].x = im__fma(x.z, key[2].x, s[g].x), s[g].y = im__fma(x.z, key[2].y, s[g].y);
        s[g].x = im__fma(x.w, key[3].x, s[g].x), s[g].y = im__fma(x.w, key[3].y, s[g].y);
    }
}

template <int G, typename T> IM__DEVICE void scores(const few &f, const T *keys)
{
    uint32_t lane = threadIdx.x % 32, chunk = threadIdx.x / 32, n = f.head_dim - chunk * 64;
    const T *k = keys + chunk * 64 * PAGE + lane * 2;
    const float *q = f.q + chunk * 64;
    float2 s[G];
#pragma unroll
    for (int g = 0; g < G; g++) s[g] = make_float2(0.0f, 0.0f);
    if (n >= 64) {
#pragma unroll
        for (uint32_t d = 0; d < 64; d += 4) scores_of_4<G>(s, q + d, f.q_stride, k + d * PAGE);
    } else {
        uint32_t d = 0;
#pragma unroll 1
        for (; d + 4 <= n; d += 4) scores_of_4<G>(s, q + d, f.q_stride, k + d * PAGE);
#pragma unroll 1
        for (; d < n; d++) {
            float2 key = im__two(k + d * PAGE);
#pragma unroll
            for (int g = 0; g < G; g++) {
                float x = q[g * f.q_stride + d];
                s[g].x = im__fma(x, key.x, s[g].x), s[g].y = im__fma(x, key.y, s[g].y);
            }
        }
    }
#pragma unroll
    for (int g = 0; g < G; g++) *(float2 *)(f.sums + (chunk * G + g) * PAGE + lane * 2) = s[g];
}

/* From the chunk sums the weights p, in the place of the first chunk's, and m and l. */
template <int G> IM__DEVICE void weights(const im__cuda_attention &a, const few &f, visible v)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t g = threadIdx.x / 32; g < (uint32_t)G; g += f.chunks) {
        float *sum = f.sums + g * PAGE + lane;
        float s[2] = {sum[0], sum[32]};
        for (uint32_t c = 1; c < f.chunks; c++) {
            s[0] = s[0] + sum[c * G * PAGE];
            s[1] = s[1] + sum[c * G * PAGE + 32];
        }
        bool seen[2] = {lane >= v.lo && lane < v.hi, lane + 32 >= v.lo && lane + 32 < v.hi};
        float m = -IM__INFINITY;
        for (int i = 0; i < 2; i++) {
            if (a.softcap != 0) s[i] = im__softcap(s[i], a.softcap);
            if (seen[i]) m = s[i] > m ? s[i] : m;
        }
        for (int by = 16; by > 0; by /= 2) {
            float other = __shfl_xor_sync(0xffffffff, m, by);
            m = other > m ? other : m;
        }
        for (int i = 0; i < 2; i++) s[i] = seen[i] ? im__exp(s[i] - m) : 0.0f;
        sum[0] = s[0];
        sum[32] = s[1];
        float l = s[0] + s[1]; /* the lane rule over 64: the upper 64 lanes hold +0 */
        for (int by = 16; by > 0; by /= 2) l = l + __shfl_xor_sync(0xffffffff, l, by);
        if (lane == 0) {
            f.ml[g * 2] = m;
            f.ml[g * 2 + 1] = l;
        }
    }
}

/* Four keys: both elements of this thread, all query heads. */
template <int G, typename T> IM__DEVICE void values_of_4(float2 (&o)[G], const float *p, const T *v, uint32_t head_dim)
{
    float2 x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = im__two(v + i * head_dim);
#pragma unroll
    for (int g = 0; g < G; g++) {
        float4 w = *(const float4 *)(p + g * PAGE);
        o[g].x = im__fma(w.x, x[0].x, o[g].x), o[g].y = im__fma(w.x, x[0].y, o[g].y);
        o[g].x = im__fma(w.y, x[1].x, o[g].x), o[g].y = im__fma(w.y, x[1].y, o[g].y);
        o[g].x = im__fma(w.z, x[2].x, o[g].x), o[g].y = im__fma(w.z, x[2].y, o[g].y);
        o[g].x = im__fma(w.w, x[3].x, o[g].x), o[g].y = im__fma(w.w, x[3].y, o[g].y);
    }
}

template <int G, typename T> IM__DEVICE void values_of_1(float2 (&o)[G], const float *p, const T *v)
{
    float2 x = im__two(v);
#pragma unroll
    for (int g = 0; g < G; g++) o[g].x = im__fma(p[g * PAGE], x.x, o[g].x), o[g].y = im__fma(p[g * PAGE], x.y, o[g].y);
}

template <int G, typename T> IM__DEVICE void values(const few &f, const T *from, visible seen, state<G> *block)
{
    const T *v = from + threadIdx.x * 2;
    const float *p = f.sums;
#pragma unroll
    for (int g = 0; g < G; g++) {
        block->m[g] = f.ml[g * 2];
        block->l[g] = f.ml[g * 2 + 1];
        block->o[g] = make_float2(0.0f, 0.0f);
    }
    if (threadIdx.x * 2 >= f.head_dim) return;
    if (seen.lo == 0 && seen.hi == PAGE) {
#pragma unroll
        for (uint32_t j = 0; j < PAGE; j += 4) values_of_4<G>(block->o, p + j, v + j * f.head_dim, f.head_dim);
        return;
    }
    uint32_t j = seen.lo;
#pragma unroll 1
    for (; j < seen.hi && j % 4 != 0; j++) values_of_1<G>(block->o, p + j, v + j * f.head_dim);
#pragma unroll 2
    for (; j + 4 <= seen.hi; j += 4) values_of_4<G>(block->o, p + j, v + j * f.head_dim, f.head_dim);
#pragma unroll 1
    for (; j < seen.hi; j++) values_of_1<G>(block->o, p + j, v + j * f.head_dim);
}

/* ---- states ----------------------------------------------------------------------------------------------------------------------------- */

template <int G> IM__DEVICE void nothing_seen(state<G> *s)
{
#pragma unroll
    for (int g = 0; g < G; g++) {
        s->m[g] = -IM__INFINITY;
        s->l[g] = 0.0f;
        s->o[g] = make_float2(0.0f, 0.0f);
    }
}

/* into = into and then b. */
template <int G> IM__DEVICE void merge(state<G> *into, const state<G> &b)
{
#pragma unroll
    for (int g = 0; g < G; g++) {
        float m = b.m[g] > into->m[g] ? b.m[g] : into->m[g];
        float alpha = im__exp(into->m[g] - m), beta = im__exp(b.m[g] - m);
        into->l[g] = im__fma(into->l[g], alpha, b.l[g] * beta);
        into->o[g].x = im__fma(into->o[g].x, alpha, b.o[g].x * beta);
        into->o[g].y = im__fma(into->o[g].y, alpha, b.o[g].y * beta);
        into->m[g] = m;
    }
}

template <int G> static __device__ void store_state(const few &f, float *to, const state<G> &s)
{
    if (threadIdx.x * 2 < f.head_dim)
#pragma unroll
        for (int g = 0; g < G; g++) *(float2 *)(to + g * f.head_dim + threadIdx.x * 2) = s.o[g];
    if (threadIdx.x == 0)
#pragma unroll
        for (int g = 0; g < G; g++) *(float2 *)(to + G * f.head_dim + g * 2) = make_float2(s.m[g], s.l[g]);
}

template <int G> static __device__ void load_state(const few &f, const float *from, state<G> *s)
{
    nothing_seen(s);
    if (threadIdx.x * 2 < f.head_dim)
#pragma unroll
        for (int g = 0; g < G; g++) s->o[g] = im__load_others(from + g * f.head_dim + threadIdx.x * 2);
#pragma unroll
    for (int g = 0; g < G; g++) {
        float2 ml = im__load_others(from + G * f.head_dim + g * 2);
        s->m[g] = ml.x;
        s->l[g] = ml.y;
    }
}

/* One factor pair of a merge for each lane: lane k merges the state with maximum m_k into what the lanes before it have merged into `start`. */
IM__DEVICE void factors(float start, float m, float *largest, float *alpha, float *beta)
{
    uint32_t lane = threadIdx.x % 32;
    float sofar = m > start ? m : start;
    for (uint32_t by = 1; by < 32; by *= 2) {
        float other = __shfl_up_sync(0xffffffff, sofar, by);
        if (lane >= by) sofar = other > sofar ? other : sofar;
    }
    float before = __shfl_up_sync(0xffffffff, sofar, 1);
    if (lane == 0) before = start;
    *largest = sofar;
    *alpha = im__exp(before - sofar);
    *beta = im__exp(m - sofar);
}

/* As many of the states to merge are loaded together as registers allow. */
template <int G> static constexpr uint32_t at_once = G == 4 ? 2 : G == 3 ? 4 : 16 / G;

template <int G> IM__DEVICE void load_values(const few &f, float2 (&o)[at_once<G>][G], uint32_t at, uint32_t from, uint32_t n)
{
    bool mine = threadIdx.x * 2 < f.head_dim;
#pragma unroll
    for (uint32_t i = 0; i < at_once<G>; i++) {
        uint32_t k = from + i < n ? from + i : 0;
        const float *state = f.scratch + __shfl_sync(0xffffffff, at, (int)k) + threadIdx.x * 2;
#pragma unroll
        for (int g = 0; g < G; g++)
            if (mine) o[i][g] = im__load_others(state + g * f.head_dim);
    }
}

/* Merges n <= 32 states behind `into`, in order. In each warp, lane k knows where in the scratch state k is. */
template <int G> static __device__ void merge_stored(const few &f, state<G> *into, uint32_t at, uint32_t n)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float2 o[at_once<G>][G];
    load_values(f, o, at, 0, n);
    __syncthreads();
#pragma unroll
    for (int g = 0; g < G; g++) {
        if (g % f.chunks != warp) continue;
        float2 ml = make_float2(-IM__INFINITY, 0.0f);
        if (lane < n) ml = im__load_others(f.scratch + at + G * f.head_dim + g * 2);
        float4 x;
        x.w = ml.y;
        factors(into->m[g], ml.x, &x.x, &x.y, &x.z);
        *(float4 *)(f.sums + (g * 32 + lane) * 4) = x;
    }
    __syncthreads();
    for (uint32_t from = 0; from < n; from += at_once<G>) {
        if (from > 0) load_values(f, o, at, from, n);
#pragma unroll
        for (uint32_t i = 0; i < at_once<G>; i++) {
            if (from + i >= n) break;
#pragma unroll
            for (int g = 0; g < G; g++) {
                float4 x = *(const float4 *)(f.sums + (g * 32 + from + i) * 4);
                into->m[g] = x.x;
                into->l[g] = im__fma(into->l[g], x.y, x.w * x.z);
                into->o[g].x = im__fma(into->o[g].x, x.y, o[i][g].x * x.z);
                into->o[g].y = im__fma(into->o[g].y, x.y, o[i][g].y * x.z);
            }
        }
    }
}

/* ---- pieces that meet ------------------------------------------------------------------------------------------------------------------- */

IM__DEVICE uint32_t raw_at(const few &f, uint32_t block, uint32_t i) { return f.raw + (block * (SPAN - 1) + i) * f.state_floats; }

IM__DEVICE uint32_t head_at(const few &f, const place &p) { return p.i * f.heads_of_row + p.head; }

IM__DEVICE uint32_t span_at(const few &f, const place &p, uint32_t span)
{
    return f.span + (head_at(f, p) * f.spans + span) * f.state_floats;
}

/* Says that this block's states are stored. True in all threads of the block that is the last of `all`; it may read what the others stored. */
static __device__ bool last_of(const few &f, uint32_t *counter, uint32_t all)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        im__fence_grid();
        bool last = atomicAdd(counter, 1u) == all - 1;
        if (last) *counter = 0;
        f.word[8] = last;
        im__fence_grid();
    }
    __syncthreads();
    return f.word[8] != 0;
}

template <int G> static __device__ void put_out(const im__cuda_attention &a, const few &f, const place &p, const state<G> &s)
{
    if (threadIdx.x * 2 >= f.head_dim) return;
    uint32_t here = heads_here(f, p, G);
    float *out = a.out + ((uint64_t)p.sees.r * a.heads + first_head(f, p, G)) * f.head_dim + threadIdx.x * 2;
#pragma unroll
    for (int g = 0; g < G; g++)
        if ((uint32_t)g < here) *(float2 *)(out + g * f.head_dim) = make_float2(s.o[g].x / s.l[g], s.o[g].y / s.l[g]);
}

/* The span that `p` is in is known, and others of its row are elsewhere: the last of them merges all. */
template <int G> static __device__ void finish_span(const im__cuda_attention &a, const few &f, const place &p, const state<G> &s)
{
    uint32_t zeroth = p.sees.first / SPAN, spans = p.sees.last / SPAN - zeroth + 1, lane = threadIdx.x % 32;
    state<G> all;
    if (spans == 1) {
        nothing_seen(&all);
        merge(&all, s);
        put_out(a, f, p, all);
        return;
    }
    store_state(f, f.scratch + span_at(f, p, p.block / SPAN - zeroth), s);
    if (!last_of(f, f.counter + head_at(f, p) * (f.spans + 1) + f.spans, spans)) return;
    nothing_seen(&all);
    for (uint32_t from = 0; from < spans; from += 32) {
        uint32_t n = spans - from < 32 ? spans - from : 32;
        merge_stored(f, &all, span_at(f, p, from + (lane < n ? lane : 0)), n);
    }
    put_out(a, f, p, all);
}

/* A part of the span that `p` is in is stored: the last of those who have parts merges them and goes on with the span. */
template <int G> static __device__ void finish_part(const im__cuda_attention &a, const few &f, const place &p)
{
    uint32_t zeroth = p.sees.first / SPAN, span = p.block / SPAN, begin = span * SPAN, end = begin + SPAN, lane = threadIdx.x % 32;
    if (begin < p.sees.first) begin = p.sees.first;
    if (end > p.sees.last + 1) end = p.sees.last + 1;
    uint32_t first = p.unit - (p.block - begin), last = first + (end - begin) - 1; /* units */
    uint32_t owner = share_of(f, first), other = share_of(f, last), merged = share_begin(f, owner + 1) - first;
    if (!last_of(f, f.counter + head_at(f, p) * (f.spans + 1) + span - zeroth, other - owner + 1)) return;

    state<G> s;
    load_state(f, f.scratch + span_at(f, p, span - zeroth), &s);
    uint32_t n = end - begin - merged, unit = first + merged + (lane < n ? lane : 0), share = share_of(f, unit);
    merge_stored(f, &s, raw_at(f, share, unit - share_begin(f, share)), n);
    finish_span(a, f, p, s);
}

/* ---- the kernel --------------------------------------------------------------------------------------------------------------------------- */

template <int G> static __device__ void set_up(const im__cuda_attention &a, few *f, uint8_t *shared, uint32_t element)
{
    const im__cuda_step &step = *a.step;
    f->head_dim = a.kv.head_dim;
    f->chunks = (f->head_dim + 63) / 64;
    f->threads = f->chunks * 32;
    f->sharing = a.heads / a.kv.kv_heads;
    f->pieces = (f->sharing + G - 1) / G;
    f->heads_of_row = a.kv.kv_heads * f->pieces;
    f->q_stride = (f->head_dim + 3) / 4 * 4;
    f->n = a.every ? (a.selected ? step.selected : step.rows) : (a.selected ? step.selected_singles : step.singles);
    f->list = a.every ? 0 : a.selected ? step.selected_single : step.single;

    f->keys = shared;
    f->values = shared + element * f->head_dim * PAGE;
    f->q = (float *)(shared + 2 * element * f->head_dim * PAGE);
    f->sums = f->q + G * f->q_stride;
    f->ml = f->sums + (f->chunks * G * 64 < G * 128 ? G * 128 : f->chunks * G * 64);
    f->word = (uint32_t *)(f->ml + 2 * G);

    f->spans = im__attention_spans(step.most_keys, a.window);
    f->state_floats = G * (f->head_dim + 2);
    f->scratch = a.partial;
    f->counter = (uint32_t *)a.partial;
    f->raw = IM__ATTENTION_COUNTERS;
    f->span = f->raw + gridDim.x * (SPAN - 1) * f->state_floats;
    uint64_t rows_heads = (uint64_t)f->n * f->heads_of_row;
    f->split = f->n <= IM__ATTENTION_SPLIT_ROWS && rows_heads * (f->spans + 1) <= IM__ATTENTION_COUNTERS &&
               f->span + rows_heads * f->spans * f->state_floats <= a.partial_floats;
}

template <int G, typename T, bool STAGED> IM__DEVICE void attend(const im__cuda_attention &a)
{
    IM__DYNAMIC(uint8_t, shared);
    few f;
    place now, next;
    uint32_t end;
    im__next_kernel_start();
    set_up<G>(a, &f, shared, STAGED ? sizeof(T) : 0);
    if (f.n == 0 || !find_share(a, &f, &now, &end) || (!f.split && !whole_heads(a, f, &now, &end))) {
        im__earlier_kernels_wait();
        return;
    }
    look_up_page(&now);
    if (STAGED && IM__BULK) {
        if (threadIdx.x == 0) im__gate_make(f.word), im__gate_make(f.word + 2);
        __syncthreads();
    }

    /* What earlier steps have stored need not wait for the kernel that stores this step's keys. */
    bool old = !a.every && !a.selected && (now.block + 1) * PAGE + IM__ATTENTION_TILE_PAYS <= now.sees.end;
    if (!old) im__earlier_kernels_wait();
    if (STAGED) {
        ask_for_keys(f, keys_at<T>(a, f, now), visible_of(now));
        ask_for_values(f, values_at<T>(a, f, now), visible_of(now));
    }
    if (old) im__earlier_kernels_wait();
    load_q<G>(a, f, now);
    uint32_t begin = now.unit;
    bool first_of_row = now.block == now.sees.first,
         first_of_span = first_of_row || now.block % SPAN == 0; /* all from there on is here */
    state<G> all, span, block;
    nothing_seen(&all);
    nothing_seen(&span);
    bool more = is_more(f, now, end);
    next = now;
    if (more) advance(a, f, &next);
    for (uint32_t turn = 0;; turn ^= 1) {
        bool last_of_row = now.block == now.sees.last, last_of_span = last_of_row || now.block % SPAN == SPAN - 1;
        visible v = visible_of(now);
        if (STAGED) wait_for(f, 0, turn, true);
        __syncthreads();
        scores<G>(f, STAGED ? (const T *)f.keys : keys_at<T>(a, f, now));
        __syncthreads();
        if (STAGED && more) ask_for_keys(f, keys_at<T>(a, f, next), visible_of(next));
        weights<G>(a, f, v);
        if (STAGED) wait_for(f, 1, turn, more);
        __syncthreads();
        values<G>(f, STAGED ? (const T *)f.values : values_at<T>(a, f, now), v, &block);
        __syncthreads();
        if (STAGED && more) ask_for_values(f, values_at<T>(a, f, next), visible_of(next));
        if (next.head != now.head || next.i != now.i) load_q<G>(a, f, next);

        bool here = first_of_row && (!f.split || now.unit + (now.sees.last - now.block) < end); /* the whole row */
        if (first_of_span)
            merge(&span, block);
        else
            store_state(f, f.scratch + raw_at(f, blockIdx.x, now.unit - begin), block);
        if (last_of_span && here) {
            merge(&all, span);
            if (last_of_row) put_out(a, f, now, all);
        } else if (last_of_span && first_of_span) {
            finish_span(a, f, now, span);
        } else if (last_of_span || !more) {
            if (first_of_span) store_state(f, f.scratch + span_at(f, now, now.block / SPAN - now.sees.first / SPAN), span);
            finish_part<G>(a, f, now);
        }

        if (!more) break;
        if (last_of_span) {
            nothing_seen(&span);
            first_of_span = true;
        }
        if (last_of_row) {
            nothing_seen(&all);
            first_of_row = true;
        }
        now = next;
        more = is_more(f, now, end);
        if (more) advance(a, f, &next);
    }
}

typedef im__half_bits in_half, in_staged;
typedef float in_float;
enum { copies_half = false, copies_staged = true, copies_float = false };

/* At most 256 threads, for heads of 512; registers for three blocks of 128, for heads of 256. */
#define FEW(how, heads)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(384)                                                                              \
        im_attention_few_##how##_##heads(const __grid_constant__ im__cuda_attention a)                                             \
    {                                                                                                                              \
        attend<heads, in_##how, copies_##how>(a);                                                                                  \
    }
#define MANY(head, queries)
#include "backend/cuda/kernels/attention_kernels.inc"
