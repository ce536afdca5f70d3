/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel of the CUDA backend, emulated, for the fake driver.
 */
#ifndef IRONMULE_TESTS_EMULATED_KERNELS_H
#define IRONMULE_TESTS_EMULATED_KERNELS_H

#include "fake_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

const fake_kernel *emulated_kernels(size_t *count);

#ifdef __cplusplus
}
#endif

#endif
