/* SPDX-License-Identifier: Apache-2.0
 *
 * One function for each instruction-set level: it overwrites the entries of the table for which that level has a kernel. Defined in
 * x86/ops_avx2.c, x86/ops_avx512.c and arm/ops_neon.c; present only in builds for that architecture.
 */
#ifndef IRONMULE_BACKEND_CPU_OPS_LEVELS_H
#define IRONMULE_BACKEND_CPU_OPS_LEVELS_H

#include "ops/ops.h"

void im__ops_avx2(im__ops *ops);
void im__ops_avx512(im__ops *ops);
void im__ops_neon(im__ops *ops);

#endif
