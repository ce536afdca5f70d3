/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder's kernels: one a shape and forms, so that every width is a constant. Hopper and later (bulk copies, barriers in shared memory).
 */
#include "decode_step.cuh"

#define DECODER(name, ...)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(IM__DECODE_THREADS, 1)                                                            \
        im_decode_##name(const __grid_constant__ im__decode_args a)                                                                \
    {                                                                                                                              \
        decode<shape<__VA_ARGS__>>(a);                                                                                             \
    }
#include "decode_shapes.inc"
