/* SPDX-License-Identifier: Apache-2.0 */
#include "matmul_quant_amx.inc"

IM__AFFINE_TILE_TYPES(KERNEL)
