/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernels may be used on this machine. The self-check is asked once for each kernel in a process; its verdicts are kept. Any thread may ask.
 */
#ifndef IRONMULE_BACKEND_CPU_ADMIT_H
#define IRONMULE_BACKEND_CPU_ADMIT_H

#include "backend/cpu/kernels.h"
#include "base/error.h"

/* *good: the kernel returns the reference's bits here. Error: IM_ERR_MEMORY. */
im_status im__admit_matmul(const im__matmul_kernel *k, bool *good, im_error *err);

/* Fills `ops` with the operations of the best level up to `level` that passes; *wrong names the operation for which a higher one was turned down, NULL: none.
 * Error: IM_ERR_MEMORY. */
im_status im__admit_ops(im__ops *ops, im__cpu_level level, const char **wrong, im_error *err);

/* Fault injection for tests: from now on the kernel of this name computes one bit wrong, and with "ops_avx2" the addition of that level does. NULL: none.
 * Verdicts are asked anew. */
void im__admit_plant(const char *name);

#endif
