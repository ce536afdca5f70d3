/* SPDX-License-Identifier: Apache-2.0 */
#include "matmul_quant_amx.inc"

IM__GROUP_32_TYPES(KERNEL)
