/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with FMA and F16C, all types: matmul_quant_256.inc with vpmaddubsw and vpmaddwd.
 */
#include "matmul_quant_256.inc"

IM__PACKED_TYPES(KERNEL)
