/* SPDX-License-Identifier: Apache-2.0 */
#include "simt.h"

#include "backend/cuda/kernels/matmul_many.cu"
#undef KERNEL
#undef FORM
#include "backend/cuda/kernels/matmul_many_90.cu"
