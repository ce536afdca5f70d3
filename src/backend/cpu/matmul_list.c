/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of matrix kernels in this build, and the choice among them. Order matters: of two kernels of the same level the first wins.
 */
#include "backend/cpu/matmul_list.h"

#define AVX2(name, dtype) &im__matmul_##name##_avx2,
#define AVXVNNI(name, dtype) &im__matmul_##name##_avxvnni,
#define AVX512(name, dtype) &im__matmul_##name##_avx512,
#define AMX(name, dtype) &im__matmul_##name##_amx,
#define NEON(name, dtype) &im__matmul_##name##_neon,
#define I8MM(name, dtype) &im__matmul_##name##_i8mm,

static const im__matmul_kernel *const kernels[] = {
#ifdef __x86_64__
    IM__PACKED_TYPES(AVX2) IM__FLOAT_TYPES(AVX2) IM__PACKED_TYPES(AVXVNNI) IM__PACKED_TYPES(AVX512) IM__FLOAT_TYPES(AVX512)
        IM__GROUP_32_TYPES(AMX) IM__AFFINE_TYPES(AVX2) IM__AFFINE_TYPES(AVXVNNI) IM__AFFINE_TYPES(AVX512) IM__AFFINE_TILE_TYPES(AMX)
#elif defined(__aarch64__)
    IM__PACKED_TYPES(NEON) IM__FLOAT_TYPES(NEON) IM__PACKED_TYPES(I8MM) IM__AFFINE_TYPES(NEON) IM__AFFINE_TYPES(I8MM)
#endif
            NULL,
};

const im__matmul_kernel *const *im__matmul_kernels(void) { return kernels; }

/* Levels of two architectures are never in one build, so the numbers alone order them. */
const im__matmul_kernel *im__matmul_pick(uint32_t dtype, size_t n_out, size_t n_in, im__cpu_level level)
{
    const im__matmul_kernel *best = NULL;
    for (const im__matmul_kernel *const *k = kernels; *k; k++) {
        if ((*k)->dtype != dtype || (*k)->level > level || (*k)->packed_bytes(n_out, n_in) == 0) continue;
        if ((!best || (*k)->level > best->level) && im__cpu_has((*k)->level)) best = *k;
    }
    return best;
}
