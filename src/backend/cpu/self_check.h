/* SPDX-License-Identifier: Apache-2.0
 *
 * A few milliseconds of proof before a kernel is used: each one computes a small case and must return the bits of the plain C function. Compilers, machines
 * and their emulators can be wrong; the harness of the tests cannot see the user's machine, this can.
 */
#ifndef IRONMULE_BACKEND_CPU_SELF_CHECK_H
#define IRONMULE_BACKEND_CPU_SELF_CHECK_H

#include "backend/cpu/kernels.h"
#include "base/error.h"

/* *good: the kernel returns the reference's bits for one row, for a few and for many; also true when it does not serve the shape of the case. Error: IM_ERR_MEMORY. */
im_status im__matmul_self_check(const im__matmul_kernel *k, bool *good, im_error *err);

/* *wrong: NULL when every operation of the table returns the reference's bits, else the name of one that does not. Error: IM_ERR_MEMORY. */
im_status im__ops_self_check(const im__ops *ops, const char **wrong, im_error *err);

#endif
