/* SPDX-License-Identifier: Apache-2.0
 *
 * A few milliseconds of proof before a kernel is used: each one computes a small case and must return the bits of the plain C function. Compilers, machines
 * and their emulators can be wrong; the harness of the tests cannot see the user's machine, this can.
 */
#ifndef IRONMULE_BACKEND_CPU_SELF_CHECK_H
#define IRONMULE_BACKEND_CPU_SELF_CHECK_H

#include "backend/cpu/kernels.h"

/* True when the kernel returns the reference's bits for one row and for a tile. Also true for a shape that it does not serve. False when memory runs out. */
bool im__matmul_self_check(const im__matmul_kernel *k);

/* NULL when every operation of the table returns the reference's bits, else the name of one that does not. */
const char *im__ops_self_check(const im__ops *ops);

#endif
