/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of matmul_many.h for compute capability 9.0: one instance for each form and shape.
 */
#include "backend/cuda/kernels/matmul_many_90.cuh"

#ifdef __CUDACC__
#define SKIP(p) ((1024 - im__shared_of(p) % 1024) % 1024)
#else
#define SKIP(p) ((1024 - (uintptr_t)(p) % 1024) % 1024)
#endif

#define KERNEL(text, form, name)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(im__many_90_threads(IM__MANY_##name), 1)                                          \
        im_matmul_many_##text##_##name(const __grid_constant__ im__cuda_products products)                                         \
    {                                                                                                                              \
        IM__DYNAMIC(uint8_t, shared);                                                                                              \
        im__many_90_product<im__many_90<form, IM__MANY_##name>>(products, shared, (uint32_t)SKIP(shared));                         \
    }

#define FORM(text, form)                                                                                                           \
    KERNEL(text, form, g16)                                                                                                        \
    KERNEL(text, form, g32)                                                                                                        \
    KERNEL(text, form, g64)                                                                                                        \
    KERNEL(text, form, g128)
#ifdef IM__MANY_FEW_FORMS
FORM(4_half, IM__CUDA_4_HALF)
FORM(4_super_min, IM__CUDA_4_SUPER_MIN)
FORM(6_super_16, IM__CUDA_6_SUPER_16)
#else
IM__MANY_FORMS(FORM)
#endif
