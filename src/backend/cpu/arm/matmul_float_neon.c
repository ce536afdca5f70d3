/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights (F32, F16, BF16) and float rows, NEON. Layout: ../pack.h: a panel is [element][16 outputs], four registers for each
 * element. Lanes run across outputs; the chain over elements is in time.
 *
 * Delicate clause: p = fma(w, x, p), a new p for every 256 elements, y = p0, y = y + p1, ...; the bias last. A tile is 4 rows by 16 outputs:
 * 16 chains. One row is bound by memory.
 */
#include "backend/cpu/arm/codes_neon.h"
#include "backend/cpu/matmul_list.h"

enum { TILE = 4 };

/* Register j of one element. */
INLINE float32x4_t widened(uint32_t dtype, const uint8_t *panel, size_t k, size_t j)
{
    if (dtype == IM__F32) return vld1q_f32((const float *)(const void *)panel + k * IM__PANEL + 4 * j);
    const uint16_t *at = (const uint16_t *)(const void *)panel + k * IM__PANEL + 4 * j;
    if (dtype == IM__F16) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at), 16));
}

/* One chunk, `n` elements, of `height` rows against a panel. */
INLINE void run_chunk(uint32_t dtype, size_t height, const uint8_t *panel, size_t begin, size_t n, const float *x, size_t x_stride,
                      const im__target *t, float *y, size_t y_stride)
{
    float32x4_t p[TILE][REGISTERS];
    for (size_t r = 0; r < height; r++)
        for (size_t j = 0; j < REGISTERS; j++) p[r][j] = vdupq_n_f32(0);
    for (size_t k = begin; k < begin + n; k++) {
        UNROLL for (size_t j = 0; j < REGISTERS; j++)
        {
            const float32x4_t w = widened(dtype, panel, k, j);
            UNROLL for (size_t r = 0; r < height; r++) { p[r][j] = vfmaq_n_f32(p[r][j], w, x[r * x_stride + k]); }
        }
    }
    for (size_t r = 0; r < height; r++)
        for (size_t j = 0; j < REGISTERS; j++) im__put(t + j, y + r * y_stride + 4 * j, p[r][j]);
}

INLINE void run_tile(uint32_t dtype, size_t height, const uint8_t *panel, size_t n_in, const float *x, size_t x_stride,
                     const float *bias, size_t out, size_t out_end, float *y, size_t y_stride)
{
    for (size_t k = 0; k < n_in; k += IM__CHUNK) {
        const size_t n = n_in - k < IM__CHUNK ? n_in - k : IM__CHUNK;
        im__target t[REGISTERS];
        for (size_t j = 0; j < REGISTERS; j++) t[j] = im__target_of(bias, out, out_end, j, k == 0, k + n == n_in);
        run_chunk(dtype, height, panel, k, n, x, x_stride, t, y, y_stride);
    }
}

INLINE void run(uint32_t dtype, const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                size_t out_begin, size_t out_end)
{
    const size_t panel_bytes = im__float_panel_bytes(dtype, w->n_in);
    for (size_t out = out_begin; out < out_end; out += IM__PANEL) {
        const uint8_t *panel = (const uint8_t *)w->packed + out / IM__PANEL * panel_bytes;
        size_t r = 0;
        for (; r + TILE <= in->rows; r += TILE)
            run_tile(dtype, TILE, panel, w->n_in, in->x + r * in->x_stride, in->x_stride, bias, out, out_end,
                     y + r * y_stride + out, y_stride);
        for (; r < in->rows; r++)
            run_tile(dtype, 1, panel, w->n_in, in->x + r * in->x_stride, in->x_stride, bias, out, out_end, y + r * y_stride + out,
                     y_stride);
    }
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(dtype, w, in, bias, y, y_stride, out_begin, out_end);                                                                  \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, neon, IM__CPU_NEON, run_##name)

IM__FLOAT_TYPES(KERNEL)
