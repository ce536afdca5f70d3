/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_rows, for the host and the kernel.
 *
 *     im_rows(const im__cuda_action *list, uint32_t count, const im__cuda_step *step, uint32_t selected)
 *         grid: x at least as many blocks as rows (blocks beyond the step's rows do nothing), y im__rows_parts(list, count, x); IM__ROWS_THREADS threads, no
 *         dynamic shared memory
 *
 * Runs the actions one behind the other on each row of the step, or (selected) on those that want logits. May be a dependent launch (programmatic stream
 * serialisation).
 */
#ifndef IRONMULE_CUDA_ROWS_H
#define IRONMULE_CUDA_ROWS_H

#include "backend/cuda/abi.h"

enum {
    IM__ROWS_THREADS = 512, /* four teams of the lane rule's 128 */
    IM__ROWS_SLOT = 5376 /* floats of a row that are kept in shared memory from one action to the next; wider rows are read back */
};

/* Blocks that share a row: more than one where every action treats each element (for QUANTISE each group) by itself, on rows of one width. */
static inline uint32_t im__rows_parts(const im__cuda_action *list, uint32_t count, uint32_t rows)
{
    const uint32_t share = 1024, blocks = 512;
    for (uint32_t k = 0; k < count; k++) switch (list[k].kind) {
        case IM__CUDA_EMBED:
        case IM__CUDA_GLU_SILU:
        case IM__CUDA_GLU_GELU:
        case IM__CUDA_ADD:
        case IM__CUDA_SCALE:
        case IM__CUDA_SOFTCAP:
        case IM__CUDA_QUANTISE:
            if (list[k].width == list[0].width) break;
            return 1;
        default: return 1;
        }
    uint32_t parts = count == 0 ? 1 : (list[0].width + share - 1) / share, most = rows == 0 ? blocks : (blocks + rows - 1) / rows;
    return parts < most ? parts : most;
}

#endif
