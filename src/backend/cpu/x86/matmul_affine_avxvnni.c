/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with VNNI, the types of MLX: matmul_quant_256.inc with vpdpbusd.
 */
#include "matmul_quant_256.inc"

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(im__form_of(dtype), w, in, bias, y, y_stride, out_begin, out_end);                                                     \
    }                                                                                                                              \
    IM__MATMUL_KERNEL(name, dtype, avxvnni, IM__CPU_AVXVNNI, run_##name)

IM__AFFINE_TYPES(KERNEL)
