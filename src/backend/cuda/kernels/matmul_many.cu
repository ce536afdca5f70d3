/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of matmul_many.h: one instance for each form and shape.
 */
#include "backend/cuda/kernels/matmul_many.cuh"
#include "backend/cuda/kernels/matmul_many_float.cuh"

#define KERNEL(text, form, name)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(im__many_threads(IM__MANY_##name), im__many_sizes_of(IM__MANY_##name).blocks)     \
        im_matmul_many_##text##_##name(const __grid_constant__ im__cuda_products products)                                         \
    {                                                                                                                              \
        IM__DYNAMIC(uint8_t, shared);                                                                                              \
        im__many<im__many_instance<form, IM__MANY_##name>>(products, shared);                                                      \
    }

#define FORM(text, form)                                                                                                           \
    KERNEL(text, form, 16s)                                                                                                        \
    KERNEL(text, form, 16)                                                                                                         \
    KERNEL(text, form, 16e)                                                                                                        \
    KERNEL(text, form, 64)                                                                                                         \
    KERNEL(text, form, 128)
IM__MANY_FORMS(FORM)
IM__MANY_FLOAT_FORMS(FLOAT_KERNEL)
