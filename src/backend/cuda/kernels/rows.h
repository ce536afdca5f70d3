/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching im_rows, for the host and the kernel.
 *
 *     im_rows(const im__cuda_action *list, uint32_t count, const im__cuda_step *step, uint32_t selected)
 *         grid: at least as many blocks as rows (blocks beyond the step's rows do nothing); IM__ROWS_THREADS threads, no dynamic shared memory
 *
 * Runs the actions one behind the other on each row of the step, or (selected) on those that want logits. May be a dependent launch (programmatic stream
 * serialisation).
 */
#ifndef IRONMULE_CUDA_ROWS_H
#define IRONMULE_CUDA_ROWS_H

enum {
    IM__ROWS_THREADS = 512, /* four teams of the lane rule's 128 */
    IM__ROWS_SLOT = 5376 /* floats of a row that are kept in shared memory from one action to the next; wider rows are read back */
};

#endif
