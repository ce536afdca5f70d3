/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_argmax, for the host and the kernel.
 *
 *     im_argmax(const float *logits, uint32_t vocab, uint32_t rows, int32_t *out)
 *         out[r] = the lowest index among the largest of row r's logits; -1 when one of them is NaN, or vocab is 0. At most IM__ARGMAX_ROWS rows. Grid
 *         im__argmax_blocks(vocab) x rows, IM__ARGMAX_THREADS threads. One launch at a time of a loaded module
 *
 * May be a dependent launch (programmatic stream serialisation).
 */
#ifndef IRONMULE_CUDA_ARGMAX_H
#define IRONMULE_CUDA_ARGMAX_H

#include <stdint.h>

enum { IM__ARGMAX_THREADS = 512, IM__ARGMAX_ROWS = 1024, IM__ARGMAX_SHARE = 8192 /* logits of a block */ };

static inline uint32_t im__argmax_blocks(uint32_t vocab)
{
    return vocab == 0 ? 1 : (vocab + IM__ARGMAX_SHARE - 1) / IM__ARGMAX_SHARE;
}

#endif
