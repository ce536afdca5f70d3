/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/arm/matmul_quant_neon.inc"

IM__AFFINE_TYPES(KERNEL)
