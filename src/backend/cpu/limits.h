/* SPDX-License-Identifier: Apache-2.0
 *
 * What the integer units of this CPU can do at most: loops of nothing but the instructions that products are made of, on registers. A benchmark divides by
 * them.
 */
#ifndef IRONMULE_BACKEND_CPU_LIMITS_H
#define IRONMULE_BACKEND_CPU_LIMITS_H

#include "backend/cpu/kernels.h"

/* Runs about a million instructions and returns the multiplications and additions done (two for each product of 8-bit numbers). *sink takes the sums, so that no
 * compiler leaves the loop out. */
typedef uint64_t im__burst_fn(uint32_t *sink);

/* Products of 8-bit codes, each summed in 32 bits at once. NULL: no such loop for this level. */
im__burst_fn *im__burst_of(im__cpu_level level);

im__burst_fn im__burst_avx2, im__burst_avxvnni, im__burst_avx512, im__burst_amx, im__burst_neon;

#endif
