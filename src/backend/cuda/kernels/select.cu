/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping the rows that want logits.
 */
#include "backend/cuda/abi.h"
#include "backend/cuda/kernels/num.cuh"
#include "backend/cuda/kernels/select.h"

/* A thread takes a column through all rows in rising order: row r is written after every row that wants it was read, because source[r] >= r rises. */
extern "C" __global__ void __launch_bounds__(IM__SELECT_THREADS)
    im_select(const float *src, float *dst, uint32_t width, const im__cuda_step *step)
{
    enum { AHEAD = 4 };
    uint32_t column = blockIdx.x * IM__SELECT_THREADS + threadIdx.x, rows = step->selected;
    im__next_kernel_start();
    im__earlier_kernels_wait();
    if (column >= width) return;
    for (uint32_t r = 0; r < rows; r += AHEAD) {
        float x[AHEAD];
        for (uint32_t k = 0; k < AHEAD; k++)
            if (r + k < rows) x[k] = src[(uint64_t)step->source[r + k] * width + column];
        for (uint32_t k = 0; k < AHEAD; k++)
            if (r + k < rows) dst[(uint64_t)(r + k) * width + column] = x[k];
    }
}
