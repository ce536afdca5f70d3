/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_select, for the host and the kernel.
 *
 *     im_select(const float *src, float *dst, uint32_t width, const im__cuda_step *step)
 *         row r of dst = row source[r] of src, for all selected rows; src may be dst. Grid im__select_blocks(width), IM__SELECT_THREADS threads
 *
 * May be a dependent launch (programmatic stream serialisation).
 */
#ifndef IRONMULE_CUDA_SELECT_H
#define IRONMULE_CUDA_SELECT_H

#include <stdint.h>

enum { IM__SELECT_THREADS = 128 };

static inline uint32_t im__select_blocks(uint32_t width) { return (width + IM__SELECT_THREADS - 1) / IM__SELECT_THREADS; }

#endif
