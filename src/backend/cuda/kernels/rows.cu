/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on single rows: a block takes a row through a list of actions. What an action writes stays in shared memory, beside the copy in device memory, for
 * the actions after it; quantisation is done on the way out of the action that makes its values. So a list costs about one trip to memory, not one an action.
 */
#include "backend/cuda/abi.h"
#include "backend/cuda/kernels/num.cuh"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/weights.cuh"

namespace
{

enum { THREADS = IM__ROWS_THREADS, TEAM = IM__LANES, TEAMS = THREADS / TEAM, SLOTS = 2, LISTED = 12, PAGE = 64 };

struct shared_rows {
    float slot[SLOTS][IM__ROWS_SLOT];
    float lane[TEAMS][TEAM];
    im__cuda_action list[LISTED];
};

/* A row on its way through the list. */
struct walk {
    shared_rows *s;
    const im__cuda_step *step;
    uint32_t r, origin;         /* row of the values; of the step */
    const float *held0, *held1; /* rows in device memory that the slots are copies of */
    uint32_t last;              /* slot written last */
    uint32_t part, parts;       /* of the row: which is this block's, of how many */
};

/* ---- where values are ---- */

__device__ __forceinline__ const float *source(const walk &w, const float *value, uint32_t width)
{
    const float *row = value + (uint64_t)w.r * width;
    return w.held0 == row ? w.s->slot[0] : w.held1 == row ? w.s->slot[1] : row;
}

/* A row that an action writes: in device memory, and in a slot unless it is too wide (slot == row). */
struct target {
    float *row, *slot;
};

/* The slot may hold a row that the same action reads: each thread reads what it overwrites. */
__device__ __forceinline__ target target_of(walk &w, float *value, uint32_t width)
{
    target t = {value + (uint64_t)w.r * width, NULL};
    t.slot = t.row;
    bool fits = width <= IM__ROWS_SLOT;
    uint32_t i = w.held0 == t.row ? 0 : w.held1 == t.row ? 1 : 1 - w.last;
    if (i == 0)
        w.held0 = fits ? t.row : w.held0 == t.row ? NULL : w.held0;
    else
        w.held1 = fits ? t.row : w.held1 == t.row ? NULL : w.held1;
    if (!fits) return t;
    w.last = i;
    t.slot = w.s->slot[i];
    return t;
}

/* ---- quantisation ---- */

/* Of the eight threads that hold a group. */
__device__ __forceinline__ uint32_t my_eight(void) { return 0xffu << (threadIdx.x & 24); }

/* Four neighbours of plane `plane` of act's row; v becomes what their quantisation loses. */
__device__ __forceinline__ void quantise_plane(const im__cuda_act &act, uint64_t plane, uint32_t i, float v[4])
{
    uint32_t mask = my_eight(), most = 0, q = 0;
    for (int k = 0; k < 4; k++) most = max(most, im__bits(v[k]) & 0x7fffffff);
    for (int by = 1; by < 8; by *= 2) most = max(most, __shfl_xor_sync(mask, most, by));
    im__group_scale scale = im__scale_of(most);
    for (int k = 0; k < 4; k++) q |= im__quantised(v[k], scale.factor) << 8 * k;
    int sum = im__dot4(q, 0x01010101, 0);
    sum += __shfl_xor_sync(mask, sum, 1);
    sum += __shfl_xor_sync(mask, sum, 2);
    int other = __shfl_xor_sync(mask, sum, 4);
    ((uint32_t *)(act.q + plane * act.n))[i] = q;
    if (i % 8 == 0)
        *(uint2 *)&act.group[plane * (act.n / 32) + i / 8] =
            make_uint2(im__bits(scale.d), ((uint32_t)sum & 0xffff) | (uint32_t)other << 16);
    for (int k = 0; k < 4; k++) v[k] = v[k] - scale.d * (float)(int)(int8_t)(q >> 8 * k);
}

/* Where quantised rows go; q == NULL: nowhere. */
struct outlet {
    im__cuda_act act;
    bool wide;
};

__device__ __forceinline__ outlet outlet_of(const im__cuda_action &a)
{
    outlet o = {a.act, a.wide != 0};
    if (a.kind != IM__CUDA_QUANTISE) o.act.q = NULL;
    return o;
}

__device__ __forceinline__ void quantise_four(const walk &w, const outlet &o, uint32_t i, float4 x)
{
    float v[4] = {x.x, x.y, x.z, x.w};
    uint64_t plane = w.r;
#pragma unroll 1
    for (uint32_t planes = o.wide ? 2 : 1; planes > 0; planes--, plane += o.act.rest_rows) quantise_plane(o.act, plane, i, v);
}

/* ---- element by element: four at a time where rows are made of fours ---- */

/* What of `n` elements (or fours of them) is this block's: eights, so that no group of the quantisation is divided. The same for every action on rows of one
 * width, so that a thread finds in a later action what it wrote itself. */
struct share {
    uint32_t begin, end;
};

__device__ __forceinline__ share share_of(const walk &w, uint32_t n)
{
    if (w.parts == 1) return {0, n};
    uint32_t each = ((n + w.parts - 1) / w.parts + 7) / 8 * 8, begin = min(w.part * each, n);
    return {begin, min(begin + each, n)};
}

__device__ __forceinline__ void put_one(const target &t, uint32_t i, float x)
{
    t.row[i] = x;
    if (t.slot != t.row) t.slot[i] = x;
}

__device__ __forceinline__ void put_four(const target &t, uint32_t i, float4 x)
{
    ((float4 *)t.row)[i] = x;
    if (t.slot != t.row) ((float4 *)t.slot)[i] = x;
}

template <class Fn> __device__ __forceinline__ float4 of_each(float4 x, float4 y, Fn f)
{
    return make_float4(f(x.x, y.x), f(x.y, y.y), f(x.z, y.z), f(x.w, y.w));
}

/* Elements e .. e + n - 1 of the row's token. */
__device__ __forceinline__ float4 embedded(const walk &w, const im__cuda_action &a, uint32_t e, uint32_t n)
{
    uint32_t token = (uint32_t)w.step->row[w.origin].token;
    float4 x = make_float4(0, 0, 0, 0);
    switch (a.matrix.form) {
#define CASE(form)                                                                                                                 \
    case form: x = im__values_at<form>(a.matrix, token, e); break;
        CASE(IM__CUDA_4_HALF)
        CASE(IM__CUDA_4_HALF_MIN)
        CASE(IM__CUDA_5_HALF)
        CASE(IM__CUDA_5_HALF_MIN)
        CASE(IM__CUDA_8_HALF)
        CASE(IM__CUDA_4_SUPER_MIN_16)
        CASE(IM__CUDA_4_SUPER_16)
        CASE(IM__CUDA_4_SUPER_MIN)
        CASE(IM__CUDA_5_SUPER_MIN)
        CASE(IM__CUDA_6_SUPER_16)
        CASE(IM__CUDA_8_SUPER)
        CASE(IM__CUDA_8_FLOAT)
        CASE(IM__CUDA_4_BF16_MIN)
        CASE(IM__CUDA_8_BF16_MIN)
#undef CASE
    default:
        x.x = im__float_at(a.matrix, token, e);
        if (n == 4) {
            x.y = im__float_at(a.matrix, token, e + 1);
            x.z = im__float_at(a.matrix, token, e + 2);
            x.w = im__float_at(a.matrix, token, e + 3);
        }
        break;
    }
    float by = a.by;
    return make_float4(x.x * by, x.y * by, x.z * by, x.w * by);
}

/* What most actions need to know of themselves, read at once and before anything is written. */
struct brief {
    uint32_t kind, width, n;
    float by;
    float *dst;
    const float *src, *src2, *vector;
};

__device__ __forceinline__ brief brief_of(const im__cuda_action &a)
{
    return {a.kind, a.width, a.n, a.by, a.dst, a.src, a.src2, a.vector};
}

/* One text for all actions that make each element from the same one of two rows: x and y are four neighbours (or one and zeros). a: the whole action, for the
 * embedding. */
__device__ __forceinline__ float4 made(const walk &w, const brief &b, const im__cuda_action &a, float4 x, float4 y, float factor,
                                       uint32_t e, uint32_t n)
{
    float by = b.by;
    switch (b.kind) {
    case IM__CUDA_EMBED: return embedded(w, a, e, n);
    case IM__CUDA_NORM: return of_each(x, y, [=](float v, float weight) { return (v * factor) * weight; });
    case IM__CUDA_GLU_SILU: return of_each(x, y, [](float gate, float up) { return im__silu(gate) * up; });
    case IM__CUDA_GLU_GELU: return of_each(x, y, [](float gate, float up) { return im__gelu(gate) * up; });
    case IM__CUDA_ADD: return of_each(x, y, [](float old, float more) { return old + more; });
    case IM__CUDA_SCALE: return of_each(x, x, [=](float v, float) { return v * by; });
    case IM__CUDA_SOFTCAP: return of_each(x, x, [=](float v, float) { return im__softcap(v, by); });
    default: return x;
    }
}

/* x, y: the rows that it reads, or NULL. t.row == NULL: nothing is written but what `o` says. */
__device__ __forceinline__ void make_row(const walk &w, const brief &b, const im__cuda_action &a, const target &t, const float *x,
                                         const float *y, float factor, const outlet &o)
{
    const float4 none = make_float4(0, 0, 0, 0);
    bool fours = b.width % 4 == 0;
    share mine = share_of(w, fours ? b.width / 4 : b.width);
#pragma unroll 1
    for (uint32_t i = mine.begin + threadIdx.x; i < mine.end; i += THREADS) {
        float4 u = none, v = none;
        if (fours) {
            if (x != NULL) u = ((const float4 *)x)[i];
            if (y != NULL) v = ((const float4 *)y)[i];
        } else {
            if (x != NULL) u.x = x[i];
            if (y != NULL) v.x = y[i];
        }
        float4 z = made(w, b, a, u, v, factor, fours ? 4 * i : i, fours ? 4 : 1);
        if (t.row != NULL) {
            if (fours)
                put_four(t, i, z);
            else
                put_one(t, i, z.x);
        }
        if (o.act.q != NULL) quantise_four(w, o, i, z);
    }
}

/* ---- norms ---- */

/* Sixteen elements are on their way at a time: a trip to the second cache takes half a microsecond. */
__device__ __forceinline__ float lane_squares(const float *x, uint32_t n, uint32_t lane)
{
    enum { AHEAD = 16 };
    float a = 0;
    for (uint32_t i = lane; i < n; i += AHEAD * IM__LANES) {
        float v[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) v[k] = i + k * IM__LANES < n ? x[i + k * IM__LANES] : 0.0f;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) a = im__fma(v[k], v[k], a);
    }
    return a;
}

__device__ __forceinline__ float total(const float *lane)
{
    uint32_t l = threadIdx.x % 32;
    return im__lanes_total(lane[l], lane[l + 32], lane[l + 64], lane[l + 96]);
}

/* Of a whole row: the first team adds up, all need it. */
__device__ __forceinline__ float factor_of(const walk &w, const brief &b, const float *x)
{
    if (threadIdx.x < TEAM) w.s->lane[0][threadIdx.x] = lane_squares(x, b.n, threadIdx.x);
    __syncthreads();
    return im__norm_factor(total(w.s->lane[0]), (float)b.n, b.by);
}

/* Heads: each team takes its own. */
__device__ __forceinline__ void norm_heads(const walk &w, const brief &b, const target &t, const float *x)
{
    uint32_t team = threadIdx.x / TEAM, l = threadIdx.x % TEAM;
    for (uint32_t h = team; h < b.width / b.n; h += TEAMS) {
        uint32_t begin = h * b.n;
        w.s->lane[team][l] = lane_squares(x + begin, b.n, l);
        im__bar_sync(1 + team, TEAM);
        float factor = im__norm_factor(total(w.s->lane[team]), (float)b.n, b.by);
        const float *weight = b.vector;
        for (uint32_t i = l; i < b.n; i += TEAM) put_one(t, begin + i, (x[begin + i] * factor) * weight[i]);
        im__bar_sync(1 + team, TEAM);
    }
}

/* ---- the other actions ---- */

__device__ __forceinline__ void rope(const walk &w, const im__cuda_action &a)
{
    uint32_t pairs = a.rot_dim / 2;
    float *row = a.dst + (uint64_t)w.r * a.width, *slot = (float *)source(w, a.dst, a.width);
    const float *cosine = a.cosine + (uint64_t)w.origin * pairs, *sine = a.sine + (uint64_t)w.origin * pairs;
    uint32_t head = threadIdx.x / pairs * a.head_dim, i = threadIdx.x % pairs;
    for (uint32_t k = threadIdx.x; k < a.heads * pairs; k += THREADS) {
        uint32_t first = head + (a.adjacent ? 2 * i : i), second = head + (a.adjacent ? 2 * i + 1 : i + pairs);
        float x0 = slot[first], x1 = slot[second], c = cosine[i], s = sine[i];
        float y0 = im__fma(x0, c, -(x1 * s)), y1 = im__fma(x0, s, x1 * c);
        row[first] = y0, row[second] = y1;
        if (slot != row) slot[first] = y0, slot[second] = y1;
        for (i += THREADS; i >= pairs; i -= pairs) head += a.head_dim;
    }
}

__device__ __forceinline__ void rope_table(const walk &w, const im__cuda_action &a)
{
    uint32_t pairs = a.rot_dim / 2;
    int64_t position = w.step->row[w.origin].position;
    for (uint32_t i = threadIdx.x; i < pairs; i += THREADS) {
        uint64_t at = (uint64_t)w.origin * pairs + i;
        im__rope_turn(position, a.frequency[i], &a.cosine[at], &a.sine[at]);
    }
}

/* In binary16; values beyond its range are stored as the largest and counted, NaN stays. */
__device__ __forceinline__ uint16_t stored(float x, uint32_t &clamped)
{
    const float largest = 65504.0f;
    if (x > largest || x < -largest) {
        clamped++;
        x = x > 0 ? largest : -largest;
    }
    return (uint16_t)im__half(x);
}

__device__ __forceinline__ void kv_store(const walk &w, const im__cuda_action &a)
{
    const im__cuda_kv &kv = a.kv;
    const im__cuda_row &row = w.step->row[w.origin];
    uint32_t position = (uint32_t)row.position, in_page = position % PAGE, width = kv.kv_heads * kv.head_dim, clamped = 0;
    uint64_t page = (uint64_t)w.step->pages[row.table[kv.which] + position / PAGE] * kv.page_stride;
    const float *key = source(w, a.src, width), *value = source(w, a.src2, width);
    for (uint32_t i = threadIdx.x; i < width; i += THREADS) {
        uint64_t k = page + kv.k_offset + (uint64_t)i * PAGE + in_page;
        uint64_t v = page + kv.v_offset + (uint64_t)(i / kv.head_dim * PAGE + in_page) * kv.head_dim + i % kv.head_dim;
        if (kv.is_f32) {
            ((float *)kv.pool)[k] = key[i];
            ((float *)kv.pool)[v] = value[i];
        } else {
            ((uint16_t *)kv.pool)[k] = stored(key[i], clamped);
            ((uint16_t *)kv.pool)[v] = stored(value[i], clamped);
        }
    }
    if (clamped > 0) atomicAdd(kv.clamped, (unsigned long long)clamped);
}

/* ---- the list ---- */

/* Whether it gives each thread whole fours of a row, which it can quantise on the way out. */
__device__ __forceinline__ bool gives_fours(const brief &b)
{
    if (b.kind == IM__CUDA_NORM) return b.n == b.width;
    return b.kind == IM__CUDA_EMBED || b.kind == IM__CUDA_GLU_SILU || b.kind == IM__CUDA_GLU_GELU || b.kind == IM__CUDA_ADD ||
           b.kind == IM__CUDA_SCALE;
}

__device__ __forceinline__ void produce(walk &w, const brief &b, const im__cuda_action &a, const outlet &o)
{
    const float *x = b.src == NULL ? NULL : source(w, b.src, b.width), *y = b.src2 == NULL ? NULL : source(w, b.src2, b.width);
    float factor = 0;
    target t = {NULL, NULL};
    if (b.kind == IM__CUDA_ADD) y = x;
    if (b.kind == IM__CUDA_ADD || b.kind == IM__CUDA_SOFTCAP) x = source(w, b.dst, b.width);
    if (b.kind != IM__CUDA_QUANTISE) t = target_of(w, b.dst, b.width);
    if (b.kind == IM__CUDA_NORM) {
        if (b.n != b.width) {
            norm_heads(w, b, t, x);
            return;
        }
        y = b.vector;
        factor = factor_of(w, b, x);
    }
    make_row(w, b, a, t, x, y, factor, o);
}

/* The quantisation behind an action that can do it on the way out is done with it. */
__device__ __forceinline__ void act_on_list(walk &w, const im__cuda_action *list, uint32_t count)
{
#pragma unroll 1
    for (uint32_t k = 0; k < count; k++) {
        const im__cuda_action &a = list[k], &next = list[min(k + 1, count - 1)];
        const brief b = brief_of(a), then = brief_of(next);
        bool both = k + 1 < count && then.kind == IM__CUDA_QUANTISE && then.src == b.dst && then.width == b.width && gives_fours(b);
        const outlet o = outlet_of(both ? next : a);
        switch (b.kind) {
        case IM__CUDA_ROPE: rope(w, a); break;
        case IM__CUDA_ROPE_TABLE: rope_table(w, a); break;
        case IM__CUDA_KV_STORE: kv_store(w, a); break;
        default: produce(w, b, a, o); break;
        }
        __syncthreads();
        k += both;
    }
}

__device__ __forceinline__ void load_list(shared_rows &s, const im__cuda_action *list, uint32_t count)
{
    const uint32_t *from = (const uint32_t *)list;
    uint32_t *to = (uint32_t *)s.list;
    for (uint32_t i = threadIdx.x; i < count * (sizeof(im__cuda_action) / 4); i += THREADS) to[i] = from[i];
}

} // namespace

/* Blocks that a multiprocessor holds at a time: many rows want many threads. */
#if __CUDA_ARCH__ >= 800
#define IM__ROWS_HELD 3
#else
#define IM__ROWS_HELD 2
#endif

extern "C" __global__ void __launch_bounds__(IM__ROWS_THREADS, IM__ROWS_HELD)
    im_rows(const im__cuda_action *list, uint32_t count, const im__cuda_step *step, uint32_t selected)
{
    IM__SHARED(shared_rows, s);
    uint32_t r = blockIdx.x, rows = selected ? step->selected : step->rows, part = min(count, (uint32_t)LISTED);
    walk w = {&s, step, r, 0, NULL, NULL, 0, blockIdx.y, gridDim.y};
    load_list(s, list, part);
    if (r < rows) w.origin = selected ? step->source[r] : r;
    __syncthreads();
    im__next_kernel_start();
    im__earlier_kernels_wait();
    if (r >= rows) return;
    for (uint32_t done = 0; done < count; done += LISTED) {
        part = min(count - done, (uint32_t)LISTED);
        if (done > 0) {
            load_list(s, list + done, part);
            __syncthreads();
        }
        act_on_list(w, s.list, part);
    }
}
