/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, NEON with int8 matrix multiply, all types. Layout: ../pack.h, codes_neon.h; the rest:
 * matmul_quant.inc.
 *
 * smmla multiplies two outputs by two rows, 8 elements each. Two lines zipped by 32 bits give registers of 2 outputs x 8 elements (a chunk is
 * unpacked so), two rows zipped by 64 bits the other factor. A sum holds output 0 row 0, output 0 row 1, output 1 row 0, output 1 row 1; two of
 * them unzipped give four outputs of each row. A tile of 4 rows goes over half a panel (8 outputs) at a time. One row alone uses sdot.
 */
#include "backend/cpu/arm/codes_neon.h"
#include "backend/cpu/matmul_list.h"

enum { TILE = 4, PANELS = 4, BLOCK = 8 };

typedef struct tile_rows {
    int8_t q[TILE / 2][IM__CHUNK / BLOCK][2 * BLOCK]; /* two rows side by side */
} tile_rows;

INLINE void gather_q(tile_rows *to, size_t r, const int8_t *from, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++) memcpy(to->q[r / 2][b] + r % 2 * BLOCK, from + b * BLOCK, BLOCK);
}

INLINE int8x16_t zip(int8x16_t a, int8x16_t b, int high)
{
    int32x4_t x = vreinterpretq_s32_s8(a), y = vreinterpretq_s32_s8(b);
    return vreinterpretq_s8_s32(high ? vzip2q_s32(x, y) : vzip1q_s32(x, y));
}

/* Block b of elements: outputs 0 and 1 of the register in to[2b], outputs 2 and 3 in to[2b + 1]. */
INLINE void arrange(const int8x16_t w[QUADS], int8x16_t *to)
{
    for (int q = 0; q < QUADS; q++) to[q] = zip(w[q / 2 * 2], w[q / 2 * 2 + 1], q % 2);
}

#include "backend/cpu/arm/matmul_quant.inc"

/* Four outputs of two rows, group g. */
INLINE void pair_sums(im__form f, const int8x16_t *w, const int8_t (*q)[2 * BLOCK], int32_t start0, int32_t start1,
                      int32x4_t isum[2])
{
    int32x4_t low = vzip1q_s32(vdupq_n_s32(start0), vdupq_n_s32(start1)), high = low;
    for (int b = 0; b < f.group / BLOCK; b++) {
        const int8x16_t v = vld1q_s8(q[b]);
        low = vmmlaq_s32(low, w[2 * b], v);
        high = vmmlaq_s32(high, w[2 * b + 1], v);
    }
    isum[0] = vuzp1q_s32(low, high);
    isum[1] = vuzp2q_s32(low, high);
}

/* Registers `first` and first + 1 of the panel, all of the chunk; `height` is constant and even, n <= height rows exist. */
INLINE void run_half(im__form f, size_t height, size_t n, size_t first, const chunk *c, const rows *a, size_t records,
                     const im__target *t, float *y, size_t stride)
{
    const size_t per_record = IM__RECORD / f.group, blocks = f.group / BLOCK;
    float32x4_t p[TILE][2];
    for (size_t r = 0; r < height; r++) p[r][0] = p[r][1] = vdupq_n_f32(0);
    for (size_t g = 0; g < records * per_record; g++) {
        UNROLL for (size_t j = 0; j < 2; j++)
        {
            const size_t i = g / per_record, h = g % per_record;
            const int8x16_t *w = c->line[i][first + j] + 4 * h;
            UNROLL for (size_t r = 0; r < height; r += 2)
            {
                int32x4_t isum[2];
                pair_sums(f, w, a->q.q[r / 2] + g * blocks, a->start[r][g], a->start[r + 1][g], isum);
                for (size_t k = 0; k < 2; k++)
                    p[r + k][j] =
                        im__step(f, p[r + k][j], c->s[g][first + j], c->m[g][first + j], a->d[r + k][i], isum[k], a->sum[r + k][g]);
            }
        }
    }
    for (size_t r = 0; r < height; r++)
        for (size_t j = 0; j < 2 && r < n; j++) im__put(t + first + j, y + r * stride + 4 * (first + j), p[r][j]);
}

INLINE void run_tile(im__form f, size_t n, const chunk *c, const rows *a, size_t records, const im__target *t, float *y,
                     size_t stride)
{
    for (size_t first = 0; first < REGISTERS; first += 2) {
        if (n > 2)
            run_half(f, 4, n, first, c, a, records, t, y, stride);
        else
            run_half(f, 2, n, first, c, a, records, t, y, stride);
    }
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, i8mm, IM__CPU_I8MM, run_##name)

IM__PACKED_TYPES(KERNEL)
