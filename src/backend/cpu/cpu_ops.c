/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels.h"
#include "backend/cpu/ops_levels.h"

void im__ops_cpu(im__ops *ops, im__cpu_level level)
{
#if defined(__x86_64__)
    if (level >= IM__CPU_AVX2) im__ops_avx2(ops);
    if (level >= IM__CPU_AVX512) im__ops_avx512(ops);
#elif defined(__aarch64__)
    if (level >= IM__CPU_NEON) im__ops_neon(ops);
#else
    (void)ops;
    (void)level;
#endif
}
