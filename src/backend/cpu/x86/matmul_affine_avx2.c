/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised weights and quantised rows, AVX2 with FMA and F16C, the types of MLX: matmul_quant_256.inc with vpmaddubsw and vpmaddwd.
 */
#include "matmul_quant_256.inc"

IM__AFFINE_TYPES(KERNEL)
