/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows with quantised weights by warp groups of compute capability 9.0: as in matmul_many.cuh, but a group of 32 of 64 outputs and all rows of
 * the tile is one asynchronous product, under which another group of warps does its three float steps a result. One group of warps fetches, into a ring of
 * chunks. Where groups take different chunks, their sums are added in order: each takes its turn at the totals in shared memory.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_90_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_90_CUH

#include "backend/cuda/kernels/matmul_many.cuh"
#include "backend/cuda/kernels/ptx_wgmma.cuh"

template <int form_, int shape_> struct im__many_90 {
    static constexpr int form = form_, shape = shape_;
    static constexpr im__many_90_sizes sizes = im__many_90_sizes_of(shape);
    static constexpr int nt = sizes.row_tiles, wo = sizes.out_groups, wk = sizes.chunk_groups, rows = 8 * nt, outputs = 64 * wo;
    static constexpr bool has_min = im__many_has_min(form), by_16 = im__many_by_16(form);
    static constexpr int q_bytes = IM__CUDA_UNIT * rows, scale_bytes = 32 * rows,
                         weights_at = (int)im__many_90_weights_at(form, shape);
    static constexpr int unit_bytes = (int)im__many_unit_bytes(form, 8), slot_bytes = (int)im__many_90_slot_bytes(form, shape);
    static constexpr int slots = (int)im__many_90_slots(form, shape);
    static constexpr int groups = wo * wk; /* of warps that multiply */
    static constexpr int part = nt / 2;    /* of the rows: one half is multiplied while the other is added */
};

struct im__many_90_barriers {
    im__barrier full[IM__MANY_90_MOST_SLOTS], empty[IM__MANY_90_MOST_SLOTS], turn[8];
};

/* Where scales of row r lie: those of a lane's four columns in two neighbouring fragments side by side. */
__device__ __forceinline__ uint32_t im__many_90_scale(uint32_t r) { return r / 16 * 16 + r % 8 / 2 * 4 + r / 8 % 2 * 2 + r % 2; }

/* ---- fetching --------------------------------------------------------------------------------------------------------------------------- */

template <class I>
__device__ __forceinline__ void im__many_90_weights(const im__many_place &at, uint8_t *slot, uint32_t chunk, im__barrier *full)
{
    const im__cuda_matrix &w = at.product.w;
    const uint32_t last_tile = (w.n_out - 1) / IM__CUDA_TILE;
    const uint32_t bytes = chunk + 1 < at.chunks ? w.unit_bytes : w.tile_bytes - chunk * w.unit_bytes;
    im__barrier_expect(full, bytes * (I::outputs / 32));
#pragma unroll
    for (uint32_t t = 0; t < I::outputs / 32; t++) {
        const uint8_t *from = w.data + (size_t)min(at.tile + t, last_tile) * w.tile_bytes + (size_t)chunk * w.unit_bytes;
        im__copy_counted(im__shared_of(slot) + I::weights_at + t * I::unit_bytes, from, bytes, full);
    }
}

/* The rows' part of a thread: piece tid % 16 of every eighth row, and where that is below 8 the group of that number. */
template <class I> struct im__many_90_fetcher {
    uint32_t source[I::nt];

    __device__ __forceinline__ void open(const im__many_place &at, uint32_t tid)
    {
#pragma unroll
        for (uint32_t i = 0; i < I::nt; i++) source[i] = im__many_source<I>(at, tid / 16 + 8 * i);
    }

    __device__ __forceinline__ void rows(const im__many_place &at, uint8_t *slot, uint32_t chunk, uint32_t tid,
                                         im__barrier *full) const
    {
        const im__cuda_act &act = at.product.act;
        const uint32_t groups = min(8u, act.n / 32 - chunk * 8), c = tid % 16, first = tid / 16;
        const int8_t *q = act.q + chunk * IM__CUDA_UNIT + c * 16;
        const im__cuda_group *group = act.group + chunk * 8 + c;
        const im__shared_at line = im__shared_of(slot) + c / 8 * (I::rows * 128) + first * 128 + ((c ^ first) & 7) * 16;
        const im__shared_at scale = im__shared_of(slot) + I::q_bytes + c * (I::rows * 4);
        if (c < groups * 2) {
#pragma unroll
            for (uint32_t i = 0; i < I::nt; i++) im__copy_16(line + i * 1024, q + (size_t)im__fresh(source[i]) * act.n);
        }
        if (c < groups) {
#pragma unroll
            for (uint32_t i = 0; i < I::nt; i++)
                im__copy_4(scale + im__many_90_scale(first + 8 * i) * 4, &group[(size_t)im__fresh(source[i]) * (act.n / 32)].d);
        }
        im__barrier_arrive_copied(full);
        if (I::has_min) {
            if (c < groups) sums(group, act.n / 32, (float *)(slot + I::q_bytes + I::scale_bytes), c, first);
            im__barrier_arrive(full);
        }
    }

    /* Sums of the activations as floats, [group of 32, or two of 16][row]. */
    __device__ __forceinline__ void sums(const im__cuda_group *group, uint32_t stride, float *to, uint32_t c, uint32_t first) const
    {
#pragma unroll
        for (uint32_t i = 0; i < I::nt; i++) {
            const im__cuda_group *from = group + (size_t)im__fresh(source[i]) * stride;
            const uint32_t place = im__many_90_scale(first + 8 * i);
            const int a = from->sum[0], b = from->sum[1];
            if (I::by_16) {
                to[2 * c * I::rows + place] = (float)a;
                to[(2 * c + 1) * I::rows + place] = (float)b;
            } else {
                to[c * I::rows + place] = (float)(a + b);
            }
        }
    }
};

template <class I>
__device__ __forceinline__ void im__many_90_fetch(const im__many_place &at, uint8_t *slots, im__many_90_barriers &b, uint32_t tid)
{
    if (tid == 0)
        for (uint32_t c = 0; c < min(at.chunks, (uint32_t)I::slots); c++)
            im__many_90_weights<I>(at, slots + c * I::slot_bytes, c, &b.full[c]);
    im__many_90_fetcher<I> fetcher;
    fetcher.open(at, tid);
    im__next_kernel_start();
    im__earlier_kernels_wait();
    uint32_t s = 0, turn = 1; /* the parity of the slot's last phase */
    for (uint32_t c = 0; c < at.chunks; c++) {
        if (c >= I::slots) {
            im__barrier_wait(&b.empty[s], turn);
            if (tid == 0) im__many_90_weights<I>(at, slots + s * I::slot_bytes, c, &b.full[s]);
        }
        fetcher.rows(at, slots + s * I::slot_bytes, c, tid, &b.full[s]);
        if (++s < I::slots) continue;
        s = 0;
        turn ^= 1;
    }
}

/* ---- multiplying ------------------------------------------------------------------------------------------------------------------------ */

/* What a lane's warp works with in a chunk. */
template <class I> struct im__many_90_chunk {
    const uint8_t *unit;
    const float *scale; /* of this lane's columns */
    im__shared_at lines;
    int groups, output; /* in the unit: of 16 */
};

template <int n> __device__ __forceinline__ void im__many_90_read(float (&to)[4], const float *from)
{
    if constexpr (n == 4) {
        const float4 v = *(const float4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const float2 v = *(const float2 *)from;
        to[0] = v.x, to[1] = v.y;
    }
}

/* p = fma(s d, sum, p) and the minimum, for the rows of half h. k: which group of 16 or 32. */
template <class I>
__device__ __forceinline__ void im__many_90_add(float (&p)[I::part * 4], const int (&c)[I::part * 4],
                                                const im__many_90_chunk<I> &at, const float (&s)[2], const float (&m)[2], int k,
                                                int h)
{
    const float *scale = at.scale + (I::by_16 ? k / 2 : k) * I::rows, *sums = at.scale + I::scale_bytes / 4 + k * I::rows;
    float d[4], q[4] = {0, 0, 0, 0}; /* of the columns of two fragments, or of one */
#pragma unroll
    for (int j = 0; j < I::part; j++) {
        if (I::part == 1 || j % 2 == 0) {
            im__many_90_read<I::part == 1 ? 2 : 4>(d, scale + 8 * (h * I::part + j) / 16 * 16 + (I::part == 1 ? h * 2 : 0));
            if (I::has_min)
                im__many_90_read<I::part == 1 ? 2 : 4>(q, sums + 8 * (h * I::part + j) / 16 * 16 + (I::part == 1 ? h * 2 : 0));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int e = 4 * j + i, column = (I::part == 1 ? 0 : j % 2 * 2) + i % 2;
            p[e] = __fmaf_rn(__fmul_rn(s[i / 2], d[column]), (float)c[e], p[e]);
            if (I::has_min) p[e] = __fmaf_rn(__fmul_rn(m[i / 2], d[column]), q[column], p[e]);
        }
    }
}

/* Step t is group t of 32 or of 16, whose other half is zero. */
template <class I>
__device__ __forceinline__ void im__many_90_prepare(uint32_t (&a)[4], const im__many_90_chunk<I> &at, int t, int lane)
{
    im__many_fragment<I::form, false>(a, at.unit, at.groups, I::by_16 ? t / 2 : t, at.output, lane);
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = !I::by_16 || i / 2 == t % 2 ? a[i] : 0;
}

/* Half h of the rows begins to be multiplied. */
template <class I>
__device__ __forceinline__ void im__many_90_begin(int (&c)[I::part * 4], const uint32_t (&a)[4], const im__many_90_chunk<I> &at,
                                                  int t, int h)
{
    const int g = I::by_16 ? t / 2 : t;
    im__group_begin();
    im__group_multiply(c, a[0], a[1], a[2], a[3], at.lines + g / 4 * (I::rows * 128) + h * (I::part * 1024), g % 4 * 32);
    im__group_commit();
}

/* `count` steps from t on, of which each begins while the one before is added. The compiler wants to see all of them in one piece. */
template <class I, int count>
__device__ __forceinline__ void im__many_90_steps(float (&p)[2][I::part * 4], int (&c)[2][I::part * 4],
                                                  const im__many_90_chunk<I> &at, const im__many_scales<I::form> (&scales)[2],
                                                  int t, int lane)
{
    uint32_t a[2][4];
    im__many_90_prepare<I>(a[0], at, t, lane);
    im__many_90_begin<I>(c[0], a[0], at, t, 0);
    im__many_90_begin<I>(c[1], a[0], at, t, 1);
#pragma unroll
    for (int i = 0; i < count; i++) {
        const bool more = i + 1 < count;
        if (more) im__many_90_prepare<I>(a[(i + 1) % 2], at, t + i + 1, lane);
        float s[2], m[2] = {0, 0};
        scales[0].read(s[0], m[0], t + i);
        scales[1].read(s[1], m[1], t + i);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (more || h == 0)
                im__group_wait<1>(c[h]);
            else
                im__group_wait<0>(c[h]);
            im__many_90_add<I>(p[h], c[h], at, s, m, t + i, h);
            im__group_hold(c[h]);
            if (more) im__many_90_begin<I>(c[h], a[(i + 1) % 2], at, t + i + 1, h);
        }
    }
}

/* p = the group's sums of the chunk in `slot`. */
template <class I>
__device__ __forceinline__ void im__many_90_sum(float (&p)[2][I::part * 4], int (&c)[2][I::part * 4], uint8_t *slot, int groups,
                                                int out_group, int tid)
{
    const int lane = tid % 32, output = out_group * 64 + tid / 32 * 16, steps = I::by_16 ? 2 * groups : groups;
    im__written_for_groups();
    im__many_90_chunk<I> at;
    at.unit = slot + I::weights_at + output / 32 * I::unit_bytes;
    at.scale = (const float *)(slot + I::q_bytes) + lane % 4 * 4;
    at.lines = im__shared_of(slot);
    at.groups = groups;
    at.output = output % 32;
    im__many_scales<I::form> scales[2];
    scales[0].open(at.unit, groups, at.output + lane / 4);
    scales[1].open(at.unit, groups, at.output + lane / 4 + 8);
#pragma unroll
    for (int i = 0; i < I::nt * 4; i++) p[i / (I::part * 4)][i % (I::part * 4)] = 0;
    int t = 0;
#pragma unroll 1
    for (; t + 8 <= steps; t += 8) im__many_90_steps<I, 8>(p, c, at, scales, t, lane);
#pragma unroll 1
    for (; t < steps; t++) im__many_90_steps<I, 1>(p, c, at, scales, t, lane);
}

template <class I>
__device__ __forceinline__ void im__many_90_store(const im__many_place &at, const float (&y)[2][I::part * 4], int out_group,
                                                  int tid)
{
    const int lane = tid % 32;
    const uint32_t output = (uint32_t)(out_group * 64 + tid / 32 * 16);
#pragma unroll
    for (int n = 0; n < I::nt / 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            im__many_store<I>(at, output + im__many_output(0, e, lane), 0, im__many_row(n, e, lane), y[0][4 * n + e],
                              y[1][4 * n + e]);
}

/* Groups that share all chunks: totals in registers. */
template <class I>
__device__ __forceinline__ void im__many_90_straight(const im__many_place &at, uint8_t *slots, im__many_90_barriers &b, int group,
                                                     int tid)
{
    float y[2][I::part * 4], p[2][I::part * 4];
    int c[2][I::part * 4];
#pragma unroll
    for (int i = 0; i < I::nt * 4; i++) {
        y[i / (I::part * 4)][i % (I::part * 4)] = -0.0f;
        c[i / (I::part * 4)][i % (I::part * 4)] = 0;
    }
    for (uint32_t k = 0; k < at.chunks; k++) {
        const uint32_t s = k % I::slots;
        im__barrier_wait(&b.full[s], k / I::slots & 1);
        im__many_90_sum<I>(p, c, slots + s * I::slot_bytes, im__many_groups(at, k), group, tid);
        im__barrier_arrive(&b.empty[s]);
#pragma unroll
        for (int i = 0; i < I::nt * 4; i++) {
            float &total = y[i / (I::part * 4)][i % (I::part * 4)];
            total = __fadd_rn(total, p[i / (I::part * 4)][i % (I::part * 4)]);
        }
    }
    im__many_90_store<I>(at, y, group, tid);
}

/* Groups of different chunks: each adds its sums to the totals in its turn; the last has the result. totals: [element][thread]. */
template <class I>
__device__ __forceinline__ void im__many_90_turns(const im__many_place &at, uint8_t *slots, float *totals, im__many_90_barriers &b,
                                                  int group, int tid)
{
    const int out_group = group % I::wo, place = group / I::wo;
    float p[2][I::part * 4];
    int c[2][I::part * 4];
    float *mine = totals + out_group * (I::nt * 4 * 128) + tid;
#pragma unroll
    for (int i = 0; i < I::nt * 4; i++) c[i / (I::part * 4)][i % (I::part * 4)] = 0;
    uint32_t round = 0;
    for (uint32_t k = (uint32_t)place; k < at.chunks; k += I::wk, round++) {
        const uint32_t s = k % I::slots;
        im__barrier_wait(&b.full[s], k / I::slots & 1);
        im__many_90_sum<I>(p, c, slots + s * I::slot_bytes, im__many_groups(at, k), out_group, tid);
        im__barrier_arrive(&b.empty[s]);
        if (k > 0) {
            im__barrier_wait(&b.turn[group], (place > 0 ? round : round - 1) & 1);
#pragma unroll
            for (int i = 0; i < I::nt * 4; i++) {
                float &sum = p[i / (I::part * 4)][i % (I::part * 4)];
                sum = __fadd_rn(mine[i * 128], sum);
            }
        }
        if (k + 1 == at.chunks) {
            im__many_90_store<I>(at, p, out_group, tid);
            return;
        }
#pragma unroll
        for (int i = 0; i < I::nt * 4; i++) mine[i * 128] = p[i / (I::part * 4)][i % (I::part * 4)];
        im__barrier_arrive(&b.turn[out_group + (place + 1) % I::wk * I::wo]);
    }
}

/* Registers of a thread: of those that multiply, of those that fetch; together what the block starts with. */
IM__MANY_FN int im__many_90_start_registers(int groups) { return groups == 2 ? 168 : groups == 3 ? 128 : 96; }
IM__MANY_FN int im__many_90_registers(int groups) { return groups == 2 ? 224 : groups == 3 ? 152 : 104; }
enum { IM__MANY_90_FETCHER = 56 };

template <class I>
__device__ __forceinline__ void im__many_90_product(const im__cuda_products &products, uint8_t *dynamic, uint32_t skip)
{
    im__many_place at;
    uint8_t *slots = dynamic + skip, *totals = slots + I::slots * I::slot_bytes;
    im__many_90_barriers &b = *(im__many_90_barriers *)(totals + im__many_90_total_bytes(I::shape));
    const bool some = im__many_find(at, products, I::outputs, I::rows);
    const int group = threadIdx.x / 128, tid = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < I::slots; i++) {
            im__barrier_init(&b.full[i], I::has_min ? 256 : 128);
            im__barrier_init(&b.empty[i], 128 * I::wo);
        }
        for (int i = 0; i < I::groups; i++) im__barrier_init(&b.turn[i], 128);
        im__barriers_made();
    }
    __syncthreads();
    if (!some) {
        im__earlier_kernels_wait();
        return;
    }
    if (group == I::groups) {
        im__fewer_registers<IM__MANY_90_FETCHER>();
        im__many_90_fetch<I>(at, slots, b, (uint32_t)tid);
    } else {
        im__more_registers<im__many_90_registers(I::groups)>();
        if constexpr (I::wk == 1)
            im__many_90_straight<I>(at, slots, b, group, tid);
        else
            im__many_90_turns<I>(at, slots, (float *)totals, b, group, tid);
    }
}

#endif
