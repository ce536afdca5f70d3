/* SPDX-License-Identifier: Apache-2.0 */
#include "matmul_quant_512.inc"

IM__PACKED_TYPES(KERNEL)
