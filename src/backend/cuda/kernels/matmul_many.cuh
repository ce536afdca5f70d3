/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows with quantised weights on tensor cores (contract, section 2).
 *
 * One integer product of fragments is one group of 16 outputs and 8 rows. Its sums start at a number that makes their bits a float, 1.5 * 2^23 + sum, so that
 * the conversion is one step at full rate; then s d, and the fma into the chunk's sum. These three steps a result, not the tensor cores, are the bound.
 * A block goes through the inner dimension chunk by chunk, weights and rows coming asynchronously into shared memory some stages ahead. Where few blocks
 * would be, its warps take different chunks: then the chunk sums meet in shared memory and one warp adds them, in order.
 * Rows that are not there are copies of the last one, chunks that are not there take no part.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_MATMUL_MANY_CUH

#include "backend/cuda/kernels/matmul_many_weights.cuh"

/* A block's place. */
struct im__many_place {
    im__cuda_product product;
    uint32_t tile;      /* of outputs, 32 each: the first */
    uint32_t row, rows; /* the first row; all rows */
    uint32_t chunks;
};

/* Constants of an instance. */
template <int form_, int shape_> struct im__many_instance {
    static constexpr int form = form_;
    static constexpr im__many_shape shape = (im__many_shape)shape_;
    static constexpr im__many_sizes sizes = im__many_sizes_of(shape);
    static constexpr int mt = sizes.out_tiles, nt = sizes.row_tiles, wo = sizes.out_warps, wr = sizes.row_warps,
                         wk = sizes.chunk_warps;
    static constexpr int stages = sizes.stages;
    static constexpr bool has_min = im__many_has_min(form), by_16 = im__many_by_16(form);
    static constexpr int threads = 32 * wo * wr * wk, rows = 8 * nt * wr, outputs = 16 * mt * wo, tiles = outputs / 32;
    static constexpr int scale_stride = rows + 4; /* words; of a group */
    static constexpr int scale_bytes = 32 * scale_stride, q_bytes = IM__CUDA_UNIT * rows;
    static constexpr int weights_at = (int)im__many_act_bytes(form, shape), unit_bytes = (int)im__many_unit_bytes(form, 8);
    static constexpr int chunk_bytes = (int)im__many_chunk_bytes(form, shape), stage_bytes = chunk_bytes * wk;
    static constexpr int group_len = by_16 ? 16 : 32;
};

/* Row blocks run fastest, so that blocks which share weights run together. False: no such rows. */
__device__ __forceinline__ bool im__many_find(im__many_place &at, const im__cuda_products &p, uint32_t tile_outputs,
                                              uint32_t tile_rows)
{
    const uint32_t linear = blockIdx.y * gridDim.x + blockIdx.x, block = linear / gridDim.y;
    uint32_t i = 0;
    while (i + 1 < p.count && block >= p.first_block[i + 1]) i++;
    at.product = p.product[i];
    if (im__many_is_float(at.product.w.form)) at.product.wide = 0; /* float rows are whole */
    at.tile = (block - p.first_block[i]) * tile_outputs / IM__CUDA_TILE;
    at.rows = p.selected ? p.step->selected : p.step->rows;
    at.row = linear % gridDim.y * (at.product.wide ? tile_rows / 2 : tile_rows);
    at.chunks = (at.product.w.n_in + IM__CUDA_UNIT - 1) / IM__CUDA_UNIT;
    return at.row < at.rows;
}

/* The row of act that row r of the tile is. A warp's second half of rows are the rests of the first where the product is wide. */
template <class I> __device__ __forceinline__ uint32_t im__many_source(const im__many_place &at, uint32_t r)
{
    constexpr uint32_t warp = 8 * I::nt, middle = warp / 2;
    const bool wide = at.product.wide != 0;
    const uint32_t place = wide ? r / warp * middle + r % middle : r;
    return min(at.row + place, at.rows - 1) + (wide && r % warp >= middle ? at.product.act.rest_rows : 0);
}

/* What a thread fetches: pieces of 16 bytes of some rows, each piece's number the same, and where it is below 8 the group of that number. */
template <class I> struct im__many_fetcher {
    static constexpr uint32_t count = I::rows * 16 / I::threads;
    static_assert(count * I::threads == I::rows * 16, "threads share the rows evenly");
    uint32_t source[count];

    __device__ __forceinline__ void open(const im__many_place &at)
    {
#pragma unroll
        for (uint32_t i = 0; i < count; i++) source[i] = im__many_source<I>(at, threadIdx.x / 16 + i * (I::threads / 16));
    }

    /* Integers of a row lie as two halves of 128 bytes, [half][row][piece]; piece c at c ^ (row % 8), so that the eight lines of a block of a fragment
     * lie in different banks. */
    __device__ __forceinline__ void rows(const im__many_place &at, im__shared_at to, uint32_t chunk) const
    {
        const im__cuda_act &act = at.product.act;
        const uint32_t groups = min(8u, act.n / 32 - chunk * 8), c = threadIdx.x % 16, first = threadIdx.x / 16;
        const int8_t *q = act.q + chunk * IM__CUDA_UNIT + c * 16;
        const im__cuda_group *group = act.group + chunk * 8 + c;
        const im__shared_at line = to + c / 8 * (I::rows * 128), scale = to + I::q_bytes + c * (I::scale_stride * 4);
#pragma unroll
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t r = first + i * (I::threads / 16);
            if (c < groups * 2) im__copy_16(line + r * 128 + ((c ^ r) & 7) * 16, q + (size_t)source[i] * act.n);
            if (c >= groups) continue;
            const im__cuda_group *from = group + (size_t)source[i] * (act.n / 32);
            im__copy_4(scale + r * 4, &from->d);
            if (I::has_min) im__copy_4(scale + I::scale_bytes + r * 4, from->sum);
        }
    }
};

template <class I>
__device__ __forceinline__ void im__many_fetch_weights(const im__many_place &at, im__shared_at to, uint32_t chunk)
{
    const im__cuda_matrix &w = at.product.w;
    const uint32_t last_tile = (w.n_out - 1) / IM__CUDA_TILE;
    const uint32_t bytes = chunk + 1 < at.chunks ? w.unit_bytes : w.tile_bytes - chunk * w.unit_bytes;
#pragma unroll
    for (uint32_t t = 0; t < I::tiles; t++) {
        const uint8_t *from = w.data + (size_t)min(at.tile + t, last_tile) * w.tile_bytes + (size_t)chunk * w.unit_bytes;
        for (uint32_t i = threadIdx.x * 16; i < bytes; i += I::threads * 16) im__copy_16(to + t * I::unit_bytes + i, from + i);
    }
}

/* The weights, or the rows, of chunks round * wk .. of all warps. */
template <class I>
__device__ __forceinline__ void im__many_fetch_round_weights(const im__many_place &at, im__shared_at shared, uint32_t round)
{
    const im__shared_at stage = shared + round % I::stages * I::stage_bytes + I::weights_at;
#pragma unroll
    for (uint32_t k = 0; k < I::wk; k++)
        if (round * I::wk + k < at.chunks) im__many_fetch_weights<I>(at, stage + k * I::chunk_bytes, round * I::wk + k);
}
template <class I>
__device__ __forceinline__ void im__many_fetch_round_rows(const im__many_place &at, const im__many_fetcher<I> &f,
                                                          im__shared_at shared, uint32_t round)
{
    const im__shared_at stage = shared + round % I::stages * I::stage_bytes;
#pragma unroll
    for (uint32_t k = 0; k < I::wk; k++)
        if (round * I::wk + k < at.chunks) f.rows(at, stage + k * I::chunk_bytes, round * I::wk + k);
    im__copies_commit();
}

/* The first stages: weights, which no kernel writes, before what earlier kernels write. */
template <class I>
__device__ __forceinline__ void im__many_fetch_first(const im__many_place &at, const im__many_fetcher<I> &f, im__shared_at shared)
{
    for (uint32_t r = 0; r + 1 < I::stages; r++) im__many_fetch_round_weights<I>(at, shared, r);
    im__next_kernel_start();
    im__earlier_kernels_wait();
    for (uint32_t r = 0; r + 1 < I::stages; r++) im__many_fetch_round_rows<I>(at, f, shared, r);
}
template <class I>
__device__ __forceinline__ void im__many_fetch(const im__many_place &at, const im__many_fetcher<I> &f, im__shared_at shared,
                                               uint32_t round)
{
    im__many_fetch_round_weights<I>(at, shared, round);
    im__many_fetch_round_rows<I>(at, f, shared, round);
}

/* 1.5 * 2^23: sums of up to 2^22 in magnitude, added to its bits, are the float 1.5 * 2^23 + sum. */
enum { IM__MANY_START = 0x4B400000 };

/* The exact sum of integers as a float; taken 2^-up times, for nothing. */
template <int up> __device__ __forceinline__ float im__many_float(int c)
{
    const float v = __int_as_float(c);
    return up == 0 ? __fadd_rn(v, -12582912.0f) : __fmaf_rn(v, 1.0f / (1 << up), -12582912.0f / (1 << up));
}

/* Sums of the activations of 32 or 16 of group g of two neighbouring rows. */
struct im__many_sums {
    float x[2][2]; /* [half of the group, or all][row] */
};
template <bool by_16> __device__ __forceinline__ void im__many_read_sums(im__many_sums &sums, const uint32_t *at)
{
    const uint2 both = *(const uint2 *)at;
    const int first[2] = {(int16_t)both.x, (int16_t)both.y}, second[2] = {(int)both.x >> 16, (int)both.y >> 16};
    for (int r = 0; r < 2; r++) {
        sums.x[0][r] = (float)(by_16 ? first[r] : first[r] + second[r]);
        sums.x[1][r] = (float)second[r];
    }
}

/* One fragment's group: p = fma(s d, sum, p), and the minimum. s, m: of both outputs; d: of both rows. */
template <class I>
__device__ __forceinline__ void im__many_group(float (&p)[4], const int (&c)[4], const float (&s)[2], const float (&m)[2], float2 d,
                                               const float (&sum)[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float by = i % 2 ? d.y : d.x;
        p[i] = __fmaf_rn(__fmul_rn(s[i / 2], by), im__many_float<im__many_up<I::form>>(c[i]), p[i]);
        if (I::has_min) p[i] = __fmaf_rn(__fmul_rn(m[i / 2], by), sum[i % 2], p[i]);
    }
}

/* What a warp works with in one chunk: its weights (of one fragment row: tile and half of it), its rows. */
template <class I> struct im__many_chunk {
    const uint8_t *weights, *scales; /* of the first row of the warp, this lane's pair */
    im__shared_at line;              /* of this lane's part in the fragments of rows */
    int groups, first;               /* groups of 32; first output in the block's tiles */
};

template <class I>
__device__ __forceinline__ void im__many_multiply(float (&p)[I::mt][I::nt][4], const im__many_chunk<I> &at,
                                                  const im__many_scales<I::form> (&scales)[I::mt][2], int g, int lane)
{
    uint32_t a[I::mt][4];
    float s[2][I::mt][2], m[2][I::mt][2]; /* [half of the group, or all] */
#pragma unroll
    for (int i = 0; i < I::mt; i++) {
        const int output = at.first + 16 * i;
        im__many_fragment<I::form, true>(a[i], at.weights + output / 32 * I::unit_bytes, at.groups, g, output % 32, lane);
#pragma unroll
        for (int h = 0; h < (I::by_16 ? 2 : 1); h++)
            for (int o = 0; o < 2; o++) {
                m[h][i][o] = 0;
                scales[i][o].read(s[h][i][o], m[h][i][o], I::by_16 ? 2 * g + h : g);
            }
    }
    /* Pieces 2g and 2g + 1 of the lines, swizzled. */
    const im__shared_at line = at.line + g / 4 * (I::rows * 128) + ((2 * g + (lane >> 3 & 1)) ^ lane) % 8 * 16;
#pragma unroll
    for (int n = 0; n < I::nt; n += 2) {
        uint32_t b[4];
        im__load_blocks(b, line + n * 1024);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint8_t *of_rows = at.scales + (g * I::scale_stride + 8 * (n + j)) * 4;
            const float2 d = *(const float2 *)of_rows;
            im__many_sums sums = {};
            if (I::has_min) im__many_read_sums<I::by_16>(sums, (const uint32_t *)(of_rows + I::scale_bytes));
#pragma unroll
            for (int i = 0; i < I::mt; i++) {
                int c[4];
                if constexpr (I::by_16) {
                    im__mma_16(c, a[i][0], a[i][1], b[2 * j], IM__MANY_START);
                    im__many_group<I>(p[i][n + j], c, s[0][i], m[0][i], d, sums.x[0]);
                    im__mma_16(c, a[i][2], a[i][3], b[2 * j + 1], IM__MANY_START);
                    im__many_group<I>(p[i][n + j], c, s[1][i], m[1][i], d, sums.x[1]);
                } else {
                    const uint32_t pair[2] = {b[2 * j], b[2 * j + 1]};
                    im__mma_32(c, a[i], pair, IM__MANY_START);
                    im__many_group<I>(p[i][n + j], c, s[0][i], m[0][i], d, sums.x[0]);
                }
            }
        }
    }
}

/* p = the warp's sums of a chunk that lies at `stage`. */
template <class I>
__device__ __forceinline__ void im__many_sum(float (&p)[I::mt][I::nt][4], uint8_t *stage, int groups, int out_warp, int row_warp,
                                             int lane)
{
    const int row = row_warp * 8 * I::nt;
    im__many_chunk<I> at;
    at.weights = stage + I::weights_at;
    at.scales = stage + I::q_bytes + (row + lane % 4 * 2) * 4;
    at.line = im__shared_of(stage) + (row + (lane & 7) + (lane >> 4) * 8) * 128;
    at.groups = groups;
    at.first = out_warp * I::mt * 16;
    im__many_scales<I::form> scales[I::mt][2];
#pragma unroll
    for (int i = 0; i < I::mt; i++)
        for (int o = 0; o < 2; o++) {
            const int output = at.first + 16 * i;
            scales[i][o].open(at.weights + output / 32 * I::unit_bytes, groups, output % 32 + lane / 4 + 8 * o);
        }
#pragma unroll
    for (int i = 0; i < I::mt; i++)
#pragma unroll
        for (int n = 0; n < I::nt; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) p[i][n][e] = 0;
#pragma unroll(I::nt <= 4 ? 2 : 1)
    for (int g = 0; g < groups; g++) im__many_multiply<I>(p, at, scales, g, lane);
}

/* Element e of fragment i, n of a warp: its output, and its row counted from the warp's first. */
__device__ __forceinline__ uint32_t im__many_output(int i, int e, int lane) { return (uint32_t)(16 * i + 8 * (e / 2) + lane / 4); }
__device__ __forceinline__ uint32_t im__many_row(int n, int e, int lane) { return (uint32_t)(8 * n + 2 * (lane % 4) + e % 2); }

/* Writes what fragments n and n + nt / 2 hold: two rows, or one row and its rest. output, row: in the tile's own count. */
template <class I>
__device__ __forceinline__ void im__many_store(const im__many_place &at, uint32_t output, uint32_t warp_row, uint32_t in_warp,
                                               float y, float y2)
{
    const im__cuda_product &p = at.product;
    const uint32_t o = at.tile * IM__CUDA_TILE + output, middle = 4 * I::nt;
    if (o >= p.w.n_out) return;
    const uint32_t row = at.row + (p.wide ? warp_row / 2 : warp_row) + in_warp;
    if (p.wide) y = __fadd_rn(y, y2);
    if (p.bias) {
        y = __fadd_rn(y, p.bias[o]);
        y2 = __fadd_rn(y2, p.bias[o]);
    }
    if (row < at.rows) p.y[(size_t)row * p.w.n_out + o] = y;
    if (!p.wide && row + middle < at.rows) p.y[(size_t)(row + middle) * p.w.n_out + o] = y2;
}

__device__ __forceinline__ int im__many_groups(const im__many_place &at, uint32_t chunk)
{
    return (int)min(8u, at.product.w.n_in / 32 - chunk * 8);
}

/* Chunk after chunk; each warp keeps its totals. -0 + x is x for every x. */
template <class I> __device__ __forceinline__ void im__many_straight(const im__many_place &at, uint8_t *shared)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, out_warp = warp % I::wo, row_warp = warp / I::wo;
    float y[I::mt][I::nt][4], p[I::mt][I::nt][4];
#pragma unroll
    for (int i = 0; i < I::mt; i++)
#pragma unroll
        for (int n = 0; n < I::nt; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) y[i][n][e] = -0.0f;
    const im__shared_at to = im__shared_of(shared);
    im__many_fetcher<I> fetcher;
    fetcher.open(at);
    im__many_fetch_first<I>(at, fetcher, to);
    for (uint32_t r = 0; r < at.chunks; r++) {
        im__copies_wait<I::stages - 2>();
        __syncthreads();
        im__many_fetch<I>(at, fetcher, to, r + I::stages - 1);
        im__many_sum<I>(p, shared + r % I::stages * I::stage_bytes, im__many_groups(at, r), out_warp, row_warp, lane);
#pragma unroll
        for (int i = 0; i < I::mt; i++)
#pragma unroll
            for (int n = 0; n < I::nt; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) y[i][n][e] = __fadd_rn(y[i][n][e], p[i][n][e]);
    }
#pragma unroll
    for (int i = 0; i < I::mt; i++)
#pragma unroll
        for (int n = 0; n < I::nt / 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                im__many_store<I>(at, (uint32_t)(out_warp * I::mt * 16) + im__many_output(i, e, lane),
                                  (uint32_t)(row_warp * 8 * I::nt), im__many_row(n, e, lane), y[i][n][e], y[i][n + I::nt / 2][e]);
}

/* Warps side by side over chunks. Of the elements of a lane, counted [fragment of outputs][half of the fragments of rows][4], warp k adds every wk-th. */
template <class I> __device__ __forceinline__ void im__many_parallel(const im__many_place &at, uint8_t *shared)
{
    constexpr int elements = I::mt * I::nt * 2, share = elements / I::wk, side = I::wo * I::wr;
    static_assert(share * I::wk == elements && I::nt % 2 == 0, "each warp adds equally many");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, out_warp = warp % I::wo, row_warp = warp / I::wo % I::wr,
              k = warp / side;
    float *meeting = (float *)(shared + I::stages * I::stage_bytes) + warp % side * (2 * elements * 32) +
                     lane; /* [chunk][warp][element][lane] */
    float y[share][2];
#pragma unroll
    for (int j = 0; j < share; j++) y[j][0] = y[j][1] = -0.0f;
    const im__shared_at to = im__shared_of(shared);
    const uint32_t rounds = (at.chunks + I::wk - 1) / I::wk;
    im__many_fetcher<I> fetcher;
    fetcher.open(at);
    im__many_fetch_first<I>(at, fetcher, to);
    for (uint32_t r = 0; r < rounds; r++) {
        im__copies_wait<I::stages - 2>();
        __syncthreads();
        im__many_fetch<I>(at, fetcher, to, r + I::stages - 1);
        const uint32_t chunk = r * I::wk + (uint32_t)k, present = min((uint32_t)I::wk, at.chunks - r * I::wk);
        if ((uint32_t)k < present) {
            float p[I::mt][I::nt][4];
            im__many_sum<I>(p, shared + r % I::stages * I::stage_bytes + k * I::chunk_bytes, im__many_groups(at, chunk), out_warp,
                            row_warp, lane);
            float *mine = meeting + k * (side * 2 * elements * 32);
#pragma unroll
            for (int i = 0; i < I::mt; i++)
#pragma unroll
                for (int n = 0; n < I::nt; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) mine[((i * I::nt + n) * 4 + e) * 32] = p[i][n][e];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < share; j++) {
            const int e = j * I::wk + k, first = e / (I::nt * 2) * (I::nt * 4) + e % (I::nt * 2);
            for (uint32_t c = 0; c < present; c++) {
                const float *sum = meeting + c * (side * 2 * elements * 32) + first * 32;
                y[j][0] = __fadd_rn(y[j][0], sum[0]);
                y[j][1] = __fadd_rn(y[j][1], sum[I::nt * 2 * 32]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < share; j++) {
        const int e = j * I::wk + k, i = e / (I::nt * 2), n = e % (I::nt * 2) / 4;
        im__many_store<I>(at, (uint32_t)(out_warp * I::mt * 16) + im__many_output(i, e % 4, lane), (uint32_t)(row_warp * 8 * I::nt),
                          im__many_row(n, e % 4, lane), y[j][0], y[j][1]);
    }
}

template <class I> __device__ __forceinline__ void im__many(const im__cuda_products &products, uint8_t *shared)
{
    im__many_place at;
    if (!im__many_find(at, products, I::outputs, I::rows)) {
        im__earlier_kernels_wait();
        return;
    }
    if constexpr (I::wk == 1)
        im__many_straight<I>(at, shared);
    else
        im__many_parallel<I>(at, shared);
}

#endif
