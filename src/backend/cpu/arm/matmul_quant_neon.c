/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, NEON with dotprod, all types. Layout and lanes: ../pack.h, codes_neon.h; the rest:
 * matmul_quant.inc.
 *
 * A tile of 4 rows goes over half a panel (8 outputs) at a time: 8 chains p, the 8 registers of a record's 4 rows, and the sums fit the 32
 * registers. A group of 32 takes 8 sdot and 3 float operations (5 with a minimum) for 4 outputs of a row.
 */
#include "backend/cpu/arm/codes_neon.h"
#include "backend/cpu/matmul_list.h"

enum { TILE = 4, PANELS = 4 };

typedef struct tile_rows {
    int8_t q[TILE][IM__CHUNK];
} tile_rows;

INLINE void gather_q(tile_rows *to, size_t r, const int8_t *from, size_t n) { memcpy(to->q[r], from, n); }

INLINE void arrange(const int8x16_t w[QUADS], int8x16_t *to)
{
    for (int q = 0; q < QUADS; q++) to[q] = w[q];
}

#include "backend/cpu/arm/matmul_quant.inc"

/* Registers `first` and first + 1 of the panel, all of the chunk; `height` is constant, n <= height rows exist. */
INLINE void run_half(im__form f, size_t height, size_t n, size_t first, const chunk *c, const rows *a, size_t records,
                     const im__target *t, float *y, size_t stride)
{
    const size_t per_record = IM__RECORD / f.group;
    float32x4_t p[TILE][2];
    for (size_t r = 0; r < height; r++) p[r][0] = p[r][1] = vdupq_n_f32(0);
    for (size_t i = 0; i < records; i++)
        for (size_t h = 0; h < per_record; h++) {
            const size_t g = i * per_record + h;
            UNROLL for (size_t r = 0; r < height; r++)
            {
                const int8x16_t q = vld1q_s8(a->q.q[r] + 32 * i + 16 * h), high = vld1q_s8(a->q.q[r] + 32 * i + 16);
                UNROLL for (size_t j = 0; j < 2; j++)
                {
                    const int8x16_t *w = c->line[i][first + j] + 4 * h;
                    int32x4_t isum = im__dot_quads(vdupq_n_s32(a->start[r][g]), w, q);
                    if (per_record == 1) isum = im__dot_quads(isum, w + 4, high);
                    p[r][j] = im__step(f, p[r][j], c->s[g][first + j], c->m[g][first + j], a->d[r][i], isum, a->sum[r][g]);
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
        else if (n == 2)
            run_half(f, 2, n, first, c, a, records, t, y, stride);
        else
            run_half(f, 1, n, first, c, a, records, t, y, stride);
    }
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, neon, IM__CPU_NEON, run_##name)

IM__PACKED_TYPES(KERNEL)
