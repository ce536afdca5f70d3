/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with VNNI, all types: matmul_quant_256.inc with vpdpbusd.
 */
#include "matmul_quant_256.inc"

IM__PACKED_TYPES(KERNEL)
