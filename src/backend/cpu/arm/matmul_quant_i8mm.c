/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/arm/matmul_quant_i8mm.inc"

IM__PACKED_TYPES(KERNEL)
