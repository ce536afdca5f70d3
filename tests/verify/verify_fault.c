/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the program compute wrongly in one place, when the environment asks for it:
 *
 *     IM_FAULT="8 397 17"     products of exactly 8 rows with a matrix of 397 outputs have the last bit of output 17 flipped, in every row
 *
 * The linker lets the choice of a kernel pass through here (--wrap), so the kernels themselves and the rest of the program are those that users run. Plain C is left alone, and
 * so are the shapes of the self-check.
 */
#include "backend/cpu/kernels.h"
#include "num/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernel that was picked last for each type: engines are open one after the other. */
static struct {
    const im__matmul_kernel *real;
    im__matmul_kernel faulty;
} served[IM__DTYPE_END];
static size_t fault_rows, fault_n_out, fault_output;

const im__matmul_kernel *__real_im__matmul_pick(uint32_t dtype, size_t n_out, size_t n_in, im__cpu_level level);
const im__matmul_kernel *__wrap_im__matmul_pick(uint32_t dtype, size_t n_out, size_t n_in, im__cpu_level level);

__attribute__((constructor)) static void start(void)
{
    const char *fault = getenv("IM_FAULT");
    if (fault != NULL && sscanf(fault, "%zu %zu %zu", &fault_rows, &fault_n_out, &fault_output) != 3) abort();
}

static void flip(float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

static void run(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride, size_t begin,
                size_t end)
{
    served[w->dtype].real->run(w, in, bias, y, y_stride, begin, end);
    if (w->n_out != fault_n_out || in->rows != fault_rows || fault_output < begin || fault_output >= end) return;
    for (size_t r = 0; r < in->rows; r++) flip(y + r * y_stride + fault_output);
}

const im__matmul_kernel *__wrap_im__matmul_pick(uint32_t dtype, size_t n_out, size_t n_in, im__cpu_level level)
{
    const im__matmul_kernel *real = __real_im__matmul_pick(dtype, n_out, n_in, level);
    if (real == NULL || fault_rows == 0 || n_out != fault_n_out) return real;
    served[dtype].real = real;
    served[dtype].faulty = *real;
    served[dtype].faulty.run = run;
    return &served[dtype].faulty;
}
