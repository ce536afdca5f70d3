/* SPDX-License-Identifier: Apache-2.0 */
#include "num/dtype.h"

/* Block sizes as in docs/gguf.md and the format's reference packages. Numbers without an entry were withdrawn or never given. */
static const im__dtype_info types[IM__DTYPE_END] = {
    [IM__F32] = {"F32", 1, 4, 0, true},
    [IM__F16] = {"F16", 1, 2, 0, true},
    [IM__BF16] = {"BF16", 1, 2, 0, true},
    [IM__Q4_0] = {"Q4_0", 32, 18, 32, true},
    [IM__Q4_1] = {"Q4_1", 32, 20, 32, true},
    [IM__Q5_0] = {"Q5_0", 32, 22, 32, true},
    [IM__Q5_1] = {"Q5_1", 32, 24, 32, true},
    [IM__Q8_0] = {"Q8_0", 32, 34, 32, true},
    [IM__Q2_K] = {"Q2_K", 256, 84, 16, true},
    [IM__Q3_K] = {"Q3_K", 256, 110, 16, true},
    [IM__Q4_K] = {"Q4_K", 256, 144, 32, true},
    [IM__Q5_K] = {"Q5_K", 256, 176, 32, true},
    [IM__Q6_K] = {"Q6_K", 256, 210, 16, true},
    [IM__IQ4_NL] = {"IQ4_NL", 32, 18, 32, true},
    [IM__IQ4_XS] = {"IQ4_XS", 256, 136, 32, true},
    [IM__MXFP4] = {"MXFP4", 32, 17, 32, true},
    [IM__Q8_1] = {"Q8_1", 32, 40, 0, false},
    [IM__Q8_K] = {"Q8_K", 256, 292, 0, false},
    [IM__IQ2_XXS] = {"IQ2_XXS", 256, 66, 0, false},
    [IM__IQ2_XS] = {"IQ2_XS", 256, 74, 0, false},
    [IM__IQ2_S] = {"IQ2_S", 256, 82, 0, false},
    [IM__IQ3_XXS] = {"IQ3_XXS", 256, 98, 0, false},
    [IM__IQ3_S] = {"IQ3_S", 256, 110, 0, false},
    [IM__IQ1_S] = {"IQ1_S", 256, 50, 0, false},
    [IM__IQ1_M] = {"IQ1_M", 256, 56, 0, false},
    [IM__TQ1_0] = {"TQ1_0", 256, 54, 0, false},
    [IM__TQ2_0] = {"TQ2_0", 256, 66, 0, false},
    [IM__NVFP4] = {"NVFP4", 64, 36, 0, false},
    [IM__Q1_0] = {"Q1_0", 128, 18, 0, false},
    [IM__I8] = {"I8", 1, 1, 0, false},
    [IM__I16] = {"I16", 1, 2, 0, false},
    [IM__I32] = {"I32", 1, 4, 0, false},
    [IM__I64] = {"I64", 1, 8, 0, false},
    [IM__F64] = {"F64", 1, 8, 0, false},
    [IM__AFFINE2] = {"AFFINE2", 64, 20, 32, true},
    [IM__AFFINE3] = {"AFFINE3", 64, 28, 32, true},
    [IM__AFFINE4] = {"AFFINE4", 64, 36, 32, true},
    [IM__AFFINE5] = {"AFFINE5", 64, 44, 32, true},
    [IM__AFFINE6] = {"AFFINE6", 64, 52, 32, true},
    [IM__AFFINE8] = {"AFFINE8", 64, 68, 32, true},
    [IM__AFFINE2_F] = {"AFFINE2_F", 32, 16, 32, true},
    [IM__AFFINE3_F] = {"AFFINE3_F", 32, 20, 32, true},
    [IM__AFFINE4_F] = {"AFFINE4_F", 32, 24, 32, true},
    [IM__AFFINE5_F] = {"AFFINE5_F", 32, 28, 32, true},
    [IM__AFFINE6_F] = {"AFFINE6_F", 32, 32, 32, true},
    [IM__AFFINE8_F] = {"AFFINE8_F", 32, 40, 32, true},
};

const im__dtype_info *im__dtype_get(uint32_t dtype)
{
    static const im__dtype_info unknown = {0};
    return dtype < IM__DTYPE_END ? &types[dtype] : &unknown;
}

bool im__dtype_is_float(uint32_t dtype) { return dtype == IM__F32 || dtype == IM__F16 || dtype == IM__BF16; }

size_t im__dtype_row_bytes(uint32_t dtype, size_t n)
{
    const im__dtype_info *info = im__dtype_get(dtype);
    if (info->name == NULL || n % info->block_len != 0) return 0;
    size_t blocks = n / info->block_len;
    return blocks > SIZE_MAX / info->block_bytes ? 0 : blocks * info->block_bytes;
}
