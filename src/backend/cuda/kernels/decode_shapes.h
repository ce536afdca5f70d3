/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder's instances, for kernels and host: DECODER(name, width, heads, kv_heads, hidden, form of the layers, form of the head). No include guard:
 * the includer defines DECODER.
 */
DECODER(1b_4, 1152, 4, 1, 6912, IM__CUDA_4_HALF, IM__CUDA_4_HALF)
DECODER(1b_5, 1152, 4, 1, 6912, IM__CUDA_5_HALF, IM__CUDA_5_HALF)
DECODER(4b_4, 2560, 8, 4, 10240, IM__CUDA_4_HALF, IM__CUDA_4_HALF)
DECODER(4b_4_k, 2560, 8, 4, 10240, IM__CUDA_4_SUPER_MIN, IM__CUDA_4_SUPER_MIN)
DECODER(12b_4, 3840, 16, 8, 15360, IM__CUDA_4_HALF, IM__CUDA_4_HALF)
DECODER(12b_4_k, 3840, 16, 8, 15360, IM__CUDA_4_SUPER_MIN, IM__CUDA_4_SUPER_MIN)
