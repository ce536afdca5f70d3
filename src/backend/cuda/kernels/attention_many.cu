/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, tiles of rows of one sequence. A block of the grid takes QUERIES queries (rows times the heads that share a KV head) through all blocks of keys that one
 * of them sees. The contract's chains leave no use for tensor cores, so the limit is the rate of fma, and what else a thread does is kept away from them by
 * register tiles: TQ queries by 8 keys of one chunk of the head for scores, TQ queries by TD elements for values.
 *
 *     q        [element][query], scaled            keys     [element][64], values [64][element], as stored
 *     sums     [chunk][query][64]                  weights  [64][query], -0 for a key that the query does not see
 *
 * Keys that no query sees are zeros in `values`. A key that some see adds +-0 to those who do not, which changes nothing, unless it is not finite: blocks where that
 * can matter are looked through, and then take a loop that leaves such keys out.
 */
#include "backend/cuda/kernels/attention.cuh"

#define PAGE IM__ATTENTION_PAGE
#define SPAN IM__ATTENTION_SPAN
#define THREADS IM__ATTENTION_MANY_THREADS

/* How the work of a block of keys is spread over the threads; HEAD and QUERIES decide it. */
template <int HEAD, int QUERIES> struct shape {
    static constexpr int chunks = (HEAD + 63) / 64;
    static constexpr int split = HEAD % 64 == 0 ? chunks : 1; /* groups of threads that have a chunk each, or one that has all */
    static constexpr int tk = HEAD % 64 == 0 ? 8 : 4;         /* keys of a thread in scores */
    static constexpr int tqs = QUERIES * PAGE * split / (THREADS * tk);
    static constexpr int td = HEAD == 96 ? 6 : HEAD == 80 ? 10 : 8; /* elements of a thread in values */
    static constexpr int tq = QUERIES * HEAD / (THREADS * td);
    static constexpr int each = THREADS / QUERIES; /* threads of a query in weights */
    static constexpr int sums_stride = PAGE + (each > 4 ? each : 4);
    static constexpr int weights_stride = QUERIES + (each == 1 ? 0 : each <= 8 ? 32 / each : 4);
    /* Tiles of 8 by 8: keys and values are widened once, in shared memory, so that a step is 64 fma and four loads; smaller tiles would wait for the loads. A
     * thread's eight keys or elements are then two fours 32 apart, so that eight threads read 128 bytes in one go. */
    static constexpr bool wide = HEAD % 64 == 0 && tq == 8;
    static constexpr int floats = split * QUERIES * sums_stride > HEAD *PAGE || !wide ? split * QUERIES * sums_stride : HEAD * PAGE;
    static __device__ constexpr int at(int c)
    {
        return wide ? c % 4 + c / 4 * 32 : c;
    } /* a thread's c-th key or element behind its first */
};

/* What a query sees, and how far it is. */
struct query {
    uint32_t begin, end;
};

enum { SEEN = 1, EARLIER = 2, FINAL = 4 };

template <int HEAD, int QUERIES> struct memory {
    typedef shape<HEAD, QUERIES> S;
    float q[HEAD * QUERIES];
    im__half_bits keys[HEAD * PAGE], values[PAGE * HEAD];
    float sums[S::floats]; /* wide: the keys and then the values too */
    float weights[PAGE * S::weights_stride];
    float4 block[QUERIES]; /* merging a block into the span: alpha, beta, whether */
    float4 span[QUERIES];  /* merging the span into all: alpha, beta, SEEN | EARLIER | FINAL, l */
    query sees[QUERIES];
    uint32_t bad, pad[3];
};

/* The tile that a block of the grid works at. */
struct tile {
    uint32_t begin, rows, sharing, queries; /* rows; queries in use */
    uint32_t kv_head;
    uint32_t first_key, end_key;    /* seen by some query */
    uint32_t most_begin, least_end; /* seen by all: most_begin .. least_end - 1 */
    const int32_t *table;
};

template <int N> IM__DEVICE void load_floats(float *to, const float *from)
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 x = *(const float4 *)(from + i);
            to[i] = x.x, to[i + 1] = x.y, to[i + 2] = x.z, to[i + 3] = x.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            float2 x = *(const float2 *)(from + i);
            to[i] = x.x, to[i + 1] = x.y;
        }
    }
}

template <int N> IM__DEVICE void load_halves(float *to, const im__half_bits *from)
{
    uint32_t word[N / 2];
    if constexpr (N % 8 == 0) {
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            uint4 x = ((const uint4 *)from)[i];
            word[4 * i] = x.x, word[4 * i + 1] = x.y, word[4 * i + 2] = x.z, word[4 * i + 3] = x.w;
        }
    } else if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            uint2 x = ((const uint2 *)from)[i];
            word[2 * i] = x.x, word[2 * i + 1] = x.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N / 2; i++) word[i] = ((const uint32_t *)from)[i];
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        to[2 * i] = im__widen(word[i] & 0xffff);
        to[2 * i + 1] = im__widen(word[i] >> 16);
    }
}

/* The widened page. */
template <int HEAD, int QUERIES> IM__DEVICE void widen(memory<HEAD, QUERIES> *s, const im__half_bits *from)
{
#pragma unroll 4
    for (uint32_t at = threadIdx.x * 8; at < HEAD * PAGE; at += THREADS * 8) {
        float x[8];
        load_halves<8>(x, from + at);
        *(float4 *)(s->sums + at) = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)(s->sums + at + 4) = make_float4(x[4], x[5], x[6], x[7]);
    }
}

/* A thread's N keys or elements from `at` on: of the widened page, or as stored. */
template <class S, int N> IM__DEVICE void load_part(float *to, const float *wide, const im__half_bits *stored, uint32_t at)
{
    if constexpr (S::wide) {
        load_floats<4>(to, wide + at);
        load_floats<4>(to + 4, wide + at + 32);
    } else {
        load_halves<N>(to, stored + at);
    }
}

/* ---- set up ------------------------------------------------------------------------------------------------------------------------------- */

IM__DEVICE uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
IM__DEVICE uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Tiles of the host are cut into parts of as many rows as the kernel has queries for. Late ones first: they see most keys. */
template <int QUERIES> static __device__ bool find_tile(const im__cuda_attention &a, tile *t)
{
    const im__cuda_step &step = *a.step;
    t->sharing = a.heads / a.kv.kv_heads;
    uint32_t rows = QUERIES / t->sharing,
             parts = im__attention_ceil(im__attention_tile_rows(a.heads, a.kv.kv_heads, a.kv.head_dim), rows);
    uint32_t tiles = a.selected ? step.selected_tiles : step.tiles, at = blockIdx.x / a.kv.kv_heads;
    t->kv_head = blockIdx.x % a.kv.kv_heads;
    if (at >= tiles * parts) return false;
    at = tiles * parts - 1 - at;
    im__cuda_tile whole = (a.selected ? step.selected_tile : step.tile)[at / parts];
    t->begin = whole.begin + at % parts * rows;
    if (t->begin >= whole.end) return false;
    t->rows = least(rows, whole.end - t->begin);
    t->queries = t->rows * t->sharing;
    return true;
}

/* Turned, so that a thread's queries are neighbours. All loads first: stores between them would make each wait for the one before. */
template <int HEAD, int QUERIES> static __device__ void load_q(const im__cuda_attention &a, memory<HEAD, QUERIES> *s, const tile &t)
{
    constexpr int step = THREADS / QUERIES * 4, n = (HEAD + step - 1) / step;
    uint32_t q = threadIdx.x % QUERIES, first = threadIdx.x / QUERIES * 4;
    const float *from = a.q + ((uint64_t)(t.begin + q / t.sharing) * a.heads + t.kv_head * t.sharing + q % t.sharing) * HEAD;
    float x[n][4];
#pragma unroll
    for (int i = 0; i < n; i++) {
        uint32_t d = first + i * step;
        x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0.0f;
        if (q < t.queries && d < (uint32_t)HEAD) load_floats<4>(x[i], from + d);
    }
#pragma unroll
    for (int i = 0; i < n; i++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (first + i * step < (uint32_t)HEAD) s->q[(first + i * step + c) * QUERIES + q] = x[i][c] * a.scale;
}

template <int HEAD, int QUERIES> static __device__ void set_up(const im__cuda_attention &a, memory<HEAD, QUERIES> *s, tile *t)
{
    for (uint32_t i = threadIdx.x; i < (uint32_t)QUERIES; i += THREADS) {
        query sees = {0, 0};
        if (i < t->queries) {
            im__seen row = im__row_sees(a, t->begin + i / t->sharing);
            sees.begin = row.begin;
            sees.end = row.end;
        }
        s->sees[i] = sees;
    }
    load_q(a, s, *t);
    t->table = im__row_sees(a, t->begin).table;
    __syncthreads();
    t->first_key = t->least_end = 0xffffffff;
    t->end_key = t->most_begin = 0;
    for (uint32_t i = threadIdx.x % 32; i < t->queries; i += 32) {
        t->first_key = least(t->first_key, s->sees[i].begin);
        t->most_begin = most(t->most_begin, s->sees[i].begin);
        t->end_key = most(t->end_key, s->sees[i].end);
        t->least_end = least(t->least_end, s->sees[i].end);
    }
    for (int by = 16; by > 0; by /= 2) {
        t->first_key = least(t->first_key, __shfl_xor_sync(0xffffffff, t->first_key, by));
        t->most_begin = most(t->most_begin, __shfl_xor_sync(0xffffffff, t->most_begin, by));
        t->end_key = most(t->end_key, __shfl_xor_sync(0xffffffff, t->end_key, by));
        t->least_end = least(t->least_end, __shfl_xor_sync(0xffffffff, t->least_end, by));
    }
}

template <int HEAD>
static __device__ void ask_for_keys(const im__cuda_attention &a, const tile &t, im__half_bits *to, uint32_t block)
{
    const im__half_bits *from =
        (const im__half_bits *)a.kv.pool + (uint64_t)t.table[block] * a.kv.page_stride + a.kv.k_offset + t.kv_head * HEAD * PAGE;
    for (uint32_t at = threadIdx.x * 8; at < HEAD * PAGE; at += THREADS * 8) im__copy_16(to + at, from + at);
    im__copy_commit();
}

template <int HEAD>
static __device__ void ask_for_values(const im__cuda_attention &a, const tile &t, im__half_bits *to, uint32_t block)
{
    const im__half_bits *from =
        (const im__half_bits *)a.kv.pool + (uint64_t)t.table[block] * a.kv.page_stride + a.kv.v_offset + t.kv_head * HEAD * PAGE;
    for (uint32_t at = threadIdx.x * 8; at < HEAD * PAGE; at += THREADS * 8) {
        uint32_t key = block * PAGE + at / HEAD;
        if (key >= t.first_key && key < t.end_key)
            im__copy_16(to + at, from + at);
        else
            *(uint4 *)(to + at) = make_uint4(0, 0, 0, 0);
    }
    im__copy_commit();
}

/* ---- one block of keys ------------------------------------------------------------------------------------------------------------------ */

template <int HEAD, int QUERIES> IM__DEVICE void scores(memory<HEAD, QUERIES> *s)
{
    typedef shape<HEAD, QUERIES> S;
    constexpr int tq = S::tqs, tk = S::tk, group = THREADS / S::split, key_groups = PAGE / tk;
    uint32_t part = threadIdx.x / group, i = threadIdx.x % group, key = i % key_groups * (S::wide ? 4 : tk),
             q = i / key_groups * tq;
    float y[tq][tk];
#pragma unroll
    for (int chunk = 0; chunk < S::chunks / S::split; chunk++) {
        float p[tq][tk];
#pragma unroll
        for (int b = 0; b < tq; b++)
#pragma unroll
            for (int c = 0; c < tk; c++) p[b][c] = 0.0f;
        constexpr int last = HEAD - (S::chunks - 1) * 64;
        int begin = (S::split == 1 ? chunk : (int)part) * 64, n = chunk == S::chunks - 1 ? last : 64;
        const float *from_q = s->q + begin * QUERIES + q;
        uint32_t from_k = begin * PAGE + key;
#pragma unroll 4
        for (int d = 0; d < n; d++) {
            float x[tq], k[tk];
            load_floats<tq>(x, from_q + d * QUERIES);
            load_part<S, tk>(k, s->sums, s->keys, from_k + d * PAGE);
#pragma unroll
            for (int b = 0; b < tq; b++)
#pragma unroll
                for (int c = 0; c < tk; c++) p[b][c] = im__fma(x[b], k[c], p[b][c]);
        }
#pragma unroll
        for (int b = 0; b < tq; b++)
#pragma unroll
            for (int c = 0; c < tk; c++) y[b][c] = chunk == 0 ? p[b][c] : y[b][c] + p[b][c];
    }
    if (S::wide) __syncthreads(); /* the sums take the place of the keys */
#pragma unroll
    for (int b = 0; b < tq; b++)
#pragma unroll
        for (int c = 0; c < tk; c += 4)
            *(float4 *)(s->sums + (part * QUERIES + q + b) * S::sums_stride + key + S::at(c)) =
                make_float4(y[b][c], y[b][c + 1], y[b][c + 2], y[b][c + 3]);
}

/* What a thread of `weights` keeps of its query from block to block. */
struct so_far {
    float m, l;         /* of the span */
    float all_m, all_l; /* of the spans before */
};

/* The lane rule over x[0 .. N), a power of two. */
template <int N> IM__DEVICE float folded(float *x)
{
    if constexpr (N > 1) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) x[i] = x[i] + x[i + N / 2];
        return folded<N / 2>(x);
    }
    return x[0];
}

/* Thread i of a query's `each` has keys i, i + each, i + 2 each ... */
template <int HEAD, int QUERIES>
IM__DEVICE void weights(const im__cuda_attention &a, memory<HEAD, QUERIES> *s, uint32_t block, bool end_of_span, so_far *f)
{
    typedef shape<HEAD, QUERIES> S;
    constexpr int each = S::each, n = PAGE / each;
    uint32_t q = threadIdx.x / each, i = threadIdx.x % each, base = block * PAGE;
    query sees = s->sees[q];
    float x[n], m = -IM__INFINITY;
    if constexpr (each == 1 && S::split == 1)
        load_floats<n>(x, s->sums + q * S::sums_stride);
    else
#pragma unroll
        for (int k = 0; k < n; k++) {
            const float *sum = s->sums + q * S::sums_stride + i + k * each;
            x[k] = sum[0];
#pragma unroll
            for (int c = 1; c < S::split; c++) x[k] = x[k] + sum[c * QUERIES * S::sums_stride];
        }
    if (a.softcap != 0)
#pragma unroll
        for (int k = 0; k < n; k++) x[k] = im__softcap(x[k], a.softcap);
#pragma unroll
    for (int k = 0; k < n; k++) {
        uint32_t key = base + i + k * each;
        if (key >= sees.begin && key < sees.end) m = x[k] > m ? x[k] : m;
    }
    for (int by = each / 2; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffff, m, by);
        m = other > m ? other : m;
    }
#pragma unroll
    for (int k = 0; k < n; k++) {
        uint32_t key = base + i + k * each;
        bool seen = key >= sees.begin && key < sees.end;
        x[k] = seen ? im__exp(x[k] - m) : 0.0f;
        s->weights[(i + k * each) * S::weights_stride + q] = seen ? x[k] : -0.0f;
    }
    float l = folded<n>(x);
    for (int by = each / 2; by > 0; by /= 2) l = l + __shfl_xor_sync(0xffffffff, l, by);

    bool some = sees.begin < base + PAGE && sees.end > base;
    float largest = m > f->m ? m : f->m, alpha = im__exp(f->m - largest), beta = im__exp(m - largest);
    if (some) {
        f->l = im__fma(f->l, alpha, l * beta);
        f->m = largest;
    }
    if (i == 0) s->block[q] = make_float4(alpha, beta, some ? 1.0f : 0.0f, 0.0f);
    if (!end_of_span) return;

    uint32_t span_begin = block / SPAN * SPAN * PAGE, span_end = span_begin + SPAN * PAGE;
    bool span_seen = sees.begin < span_end && sees.end > span_begin;
    largest = f->m > f->all_m ? f->m : f->all_m, alpha = im__exp(f->all_m - largest), beta = im__exp(f->m - largest);
    if (span_seen) {
        f->all_l = im__fma(f->all_l, alpha, f->l * beta);
        f->all_m = largest;
    }
    int how = span_seen ? SEEN | (sees.begin < span_begin ? EARLIER : 0) | (sees.end <= span_end ? FINAL : 0) : 0;
    if (i == 0) s->span[q] = make_float4(alpha, beta, (float)how, f->all_l);
    f->m = -IM__INFINITY;
    f->l = 0.0f;
}

/* A non-finite value among those of the block. */
template <int HEAD> static __device__ bool look_through(const im__half_bits *values)
{
    bool bad = false;
    for (uint32_t at = threadIdx.x * 2; at < HEAD * PAGE; at += THREADS * 2) {
        uint32_t two = *(const uint32_t *)(values + at);
        bad = bad || (two & 0x7c00) == 0x7c00 || (two & 0x7c000000) == 0x7c000000;
    }
    return bad;
}

template <int HEAD, int QUERIES, bool LEAVE_OUT>
IM__DEVICE void values(const memory<HEAD, QUERIES> *s, uint32_t q, uint32_t d,
                       float (&o)[shape<HEAD, QUERIES>::tq][shape<HEAD, QUERIES>::td])
{
    typedef shape<HEAD, QUERIES> S;
#pragma unroll
    for (int b = 0; b < S::tq; b++)
#pragma unroll
        for (int c = 0; c < S::td; c++) o[b][c] = 0.0f;
#pragma unroll(LEAVE_OUT ? 1 : 4)
    for (int j = 0; j < PAGE; j++) {
        float w[S::tq], v[S::td];
        load_floats<S::tq>(w, s->weights + j * S::weights_stride + q);
        load_part<S, S::td>(v, s->sums, s->values, j * HEAD + d);
#pragma unroll
        for (int b = 0; b < S::tq; b++) {
            if (LEAVE_OUT && im__bits(w[b]) == 0x80000000) continue;
#pragma unroll
            for (int c = 0; c < S::td; c++) o[b][c] = im__fma(w[b], v[c], o[b][c]);
        }
    }
}

/* ---- the kernel --------------------------------------------------------------------------------------------------------------------------- */

/* The span's values of this thread's tile into those of the spans before, which wait in `out`. */
template <class S>
IM__DEVICE void merge_span(const im__cuda_attention &a, const tile &t, const float4 *factors, uint32_t q, uint32_t d,
                           float (&span)[S::tq][S::td])
{
#pragma unroll
    for (int b = 0; b < S::tq; b++) {
        float4 x = factors[q + b];
        int how = (int)x.z;
        uint32_t row = t.begin + (q + b) / t.sharing, head = t.kv_head * t.sharing + (q + b) % t.sharing;
        if (how & SEEN) {
            float *out = a.out + ((uint64_t)row * a.heads + head) * a.kv.head_dim + d;
#pragma unroll
            for (int c = 0; c < S::td; c += 2) {
                float2 o = how & EARLIER ? *(const float2 *)(out + S::at(c)) : make_float2(0.0f, 0.0f);
                o.x = im__fma(o.x, x.x, span[b][c] * x.y);
                o.y = im__fma(o.y, x.x, span[b][c + 1] * x.y);
                if (how & FINAL) o = make_float2(o.x / x.w, o.y / x.w);
                *(float2 *)(out + S::at(c)) = o;
            }
        }
#pragma unroll
        for (int c = 0; c < S::td; c++) span[b][c] = 0.0f;
    }
}

template <int HEAD, int QUERIES> IM__DEVICE void attend(const im__cuda_attention &a)
{
    typedef shape<HEAD, QUERIES> S;
    static_assert(sizeof(memory<HEAD, QUERIES>) == im__attention_many_shared(HEAD, QUERIES), "what the host asks for");
    IM__DYNAMIC(uint8_t, shared);
    memory<HEAD, QUERIES> *s = (memory<HEAD, QUERIES> *)shared;
    tile t;
    im__next_kernel_start();
    im__earlier_kernels_wait();
    if (!find_tile<QUERIES>(a, &t)) return;
    set_up(a, s, &t);
    uint32_t first = t.first_key / PAGE, last = (t.end_key - 1) / PAGE;
    ask_for_keys<HEAD>(a, t, s->keys, first);
    ask_for_values<HEAD>(a, t, s->values, first);

    /* Eight threads side by side have neighbouring elements, the four eights of a warp neighbouring queries. */
    constexpr int warps_along = HEAD / S::td / 8;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t d = warp % warps_along * 8 * S::td + lane % 8 * (S::wide ? 4 : S::td), q = (warp / warps_along * 4 + lane / 8) * S::tq;
    float span[S::tq][S::td];
#pragma unroll
    for (int b = 0; b < S::tq; b++)
#pragma unroll
        for (int c = 0; c < S::td; c++) span[b][c] = 0.0f;
    so_far f = {-IM__INFINITY, 0.0f, -IM__INFINITY, 0.0f};

    for (uint32_t block = first; block <= last; block++) {
        bool more = block < last, end_of_span = !more || block % SPAN == SPAN - 1;
        im__copy_wait<1>();
        __syncthreads();
        if (threadIdx.x == 0) s->bad = 0;
        if (S::wide) {
            widen(s, s->keys);
            __syncthreads();
            if (more) ask_for_keys<HEAD>(a, t, s->keys, block + 1);
        }
        scores(s);
        __syncthreads();
        if (!S::wide && more) ask_for_keys<HEAD>(a, t, s->keys, block + 1);
        weights(a, s, block, end_of_span, &f);
        if (more)
            im__copy_wait<1>();
        else
            im__copy_wait<0>();
        __syncthreads();

        uint32_t base = block * PAGE;
        bool same = t.most_begin <= most(base, t.first_key) && t.least_end >= least(base + PAGE, t.end_key); /* all see the same */
        if (!same && look_through<HEAD>(s->values)) s->bad = 1;
        if (S::wide) widen(s, s->values);
        if (S::wide || !same) __syncthreads();
        if (S::wide && more) ask_for_values<HEAD>(a, t, s->values, block + 1);
        float o[S::tq][S::td];
        if (same || s->bad == 0)
            values<HEAD, QUERIES, false>(s, q, d, o);
        else
            values<HEAD, QUERIES, true>(s, q, d, o);
#pragma unroll
        for (int b = 0; b < S::tq; b++) {
            float4 x = s->block[q + b];
#pragma unroll
            for (int c = 0; c < S::td; c++) span[b][c] = x.z != 0 ? im__fma(span[b][c], x.x, o[b][c] * x.y) : span[b][c];
        }
        if (end_of_span) merge_span<S>(a, t, s->span, q, d, span);
        if (S::wide) continue;
        __syncthreads();
        if (more) ask_for_values<HEAD>(a, t, s->values, block + 1);
    }
}

#define KERNEL(head, queries)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                       \
        im_attention_many_##head##_##queries(const __grid_constant__ im__cuda_attention a)                                         \
    {                                                                                                                              \
        attend<head, queries>(a);                                                                                                  \
    }

#define FEW(how, heads)
#define MANY KERNEL
#include "backend/cuda/kernels/attention_kernels.inc"
