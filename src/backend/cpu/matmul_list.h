/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels as the files that define them name them: im__matmul_<type>_<level>. Only matmul_list.c and those files need this.
 */
#ifndef IRONMULE_BACKEND_CPU_MATMUL_LIST_H
#define IRONMULE_BACKEND_CPU_MATMUL_LIST_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/pack.h"

/* X(lower-case name, dtype) for each quantised type with a packed form. */
#define IM__PACKED_TYPES(X) IM__GROUP_32_TYPES(X) IM__GROUP_16_TYPES(X)
#define IM__GROUP_32_TYPES(X)                                                                                                      \
    X(q4_0, IM__Q4_0)                                                                                                              \
    X(q4_1, IM__Q4_1)                                                                                                              \
    X(q5_0, IM__Q5_0)                                                                                                              \
    X(q5_1, IM__Q5_1)                                                                                                              \
    X(q8_0, IM__Q8_0)                                                                                                              \
    X(q4_k, IM__Q4_K)                                                                                                              \
    X(q5_k, IM__Q5_K)                                                                                                              \
    X(iq4_nl, IM__IQ4_NL)                                                                                                          \
    X(iq4_xs, IM__IQ4_XS)                                                                                                          \
    X(mxfp4, IM__MXFP4)
#define IM__GROUP_16_TYPES(X)                                                                                                      \
    X(q2_k, IM__Q2_K)                                                                                                              \
    X(q3_k, IM__Q3_K)                                                                                                              \
    X(q6_k, IM__Q6_K)

/* The types of MLX, in files of their own (matmul_affine_*.c). Tiles serve those that are usual. */
#define IM__AFFINE_TYPES(X)                                                                                                        \
    IM__AFFINE_TILE_TYPES(X)                                                                                                       \
    X(affine2, IM__AFFINE2)                                                                                                        \
    X(affine3, IM__AFFINE3)                                                                                                        \
    X(affine5, IM__AFFINE5)                                                                                                        \
    X(affine6, IM__AFFINE6)                                                                                                        \
    X(affine2_f, IM__AFFINE2_F)                                                                                                    \
    X(affine3_f, IM__AFFINE3_F)                                                                                                    \
    X(affine5_f, IM__AFFINE5_F)                                                                                                    \
    X(affine6_f, IM__AFFINE6_F)
#define IM__AFFINE_TILE_TYPES(X)                                                                                                   \
    X(affine4, IM__AFFINE4)                                                                                                        \
    X(affine8, IM__AFFINE8)                                                                                                        \
    X(affine4_f, IM__AFFINE4_F)                                                                                                    \
    X(affine8_f, IM__AFFINE8_F)

#define IM__FLOAT_TYPES(X)                                                                                                         \
    X(f32, IM__F32)                                                                                                                \
    X(f16, IM__F16)                                                                                                                \
    X(bf16, IM__BF16)

/* Defines the kernel `im__matmul_<name>_<isa>` from the function `run_<name>`. */
#define IM__MATMUL_KERNEL(name_, dtype_, isa, level_, run_)                                                                        \
    static size_t packed_bytes_##name_(size_t n_out, size_t n_in) { return im__packed_bytes(dtype_, n_out, n_in); }                \
    const im__matmul_kernel im__matmul_##name_##_##isa = {                                                                         \
        .name = "matmul_" #name_ "_" #isa,                                                                                         \
        .dtype = dtype_,                                                                                                           \
        .level = level_,                                                                                                           \
        .packed_bytes = packed_bytes_##name_,                                                                                      \
        .pack = im__pack,                                                                                                          \
        .run = run_,                                                                                                               \
    };

#define IM__DECLARE_AVX2(name, dtype) extern const im__matmul_kernel im__matmul_##name##_avx2;
#define IM__DECLARE_AVXVNNI(name, dtype) extern const im__matmul_kernel im__matmul_##name##_avxvnni;
#define IM__DECLARE_AVX512(name, dtype) extern const im__matmul_kernel im__matmul_##name##_avx512;
#define IM__DECLARE_AMX(name, dtype) extern const im__matmul_kernel im__matmul_##name##_amx;
#define IM__DECLARE_NEON(name, dtype) extern const im__matmul_kernel im__matmul_##name##_neon;
#define IM__DECLARE_I8MM(name, dtype) extern const im__matmul_kernel im__matmul_##name##_i8mm;

IM__PACKED_TYPES(IM__DECLARE_AVX2)
IM__PACKED_TYPES(IM__DECLARE_AVXVNNI)
IM__PACKED_TYPES(IM__DECLARE_AVX512)
IM__GROUP_32_TYPES(IM__DECLARE_AMX)
IM__PACKED_TYPES(IM__DECLARE_NEON)
IM__PACKED_TYPES(IM__DECLARE_I8MM)
IM__AFFINE_TYPES(IM__DECLARE_AVX2)
IM__AFFINE_TYPES(IM__DECLARE_AVXVNNI)
IM__AFFINE_TYPES(IM__DECLARE_AVX512)
IM__AFFINE_TILE_TYPES(IM__DECLARE_AMX)
IM__AFFINE_TYPES(IM__DECLARE_NEON)
IM__AFFINE_TYPES(IM__DECLARE_I8MM)
IM__FLOAT_TYPES(IM__DECLARE_AVX2)
IM__FLOAT_TYPES(IM__DECLARE_AVX512)
IM__FLOAT_TYPES(IM__DECLARE_NEON)

#endif
