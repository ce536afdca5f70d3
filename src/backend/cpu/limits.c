/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/limits.h"

im__burst_fn *im__burst_of(im__cpu_level level)
{
#if defined(__x86_64__)
    if (level == IM__CPU_AVX2) return im__burst_avx2;
    if (level == IM__CPU_AVXVNNI) return im__burst_avxvnni;
    if (level == IM__CPU_AVX512) return im__burst_avx512;
    if (level == IM__CPU_AMX) return im__burst_amx;
#elif defined(__aarch64__)
    if (level == IM__CPU_NEON || level == IM__CPU_I8MM) return im__burst_neon;
#endif
    (void)level;
    return NULL;
}
