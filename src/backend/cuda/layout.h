/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices in the units of abi.h: sizes, and packing on the host.
 */
#ifndef IRONMULE_CUDA_LAYOUT_H
#define IRONMULE_CUDA_LAYOUT_H

#include "backend/cuda/abi.h"
#include "ops/ops.h"

typedef struct im__cuda_layout {
    im__cuda_form form;
    uint32_t dtype;
    uint32_t n_in, n_out, units, tiles; /* units of a tile */
    uint32_t unit_bytes, last_bytes;    /* of the last unit of a tile */
    uint32_t tile_bytes;
    size_t bytes; /* of the matrix */
} im__cuda_layout;

/* false: a type that does not run, a row that is no whole number of blocks, or a size that 32 bits a tile (64 a matrix) cannot count. */
bool im__cuda_layout_of(uint32_t dtype, size_t n_out, size_t n_in, im__cuda_layout *out);

/* Writes every byte of tiles begin .. end - 1 of w->data to `to`, where tile `begin` starts. Any number of threads may pack disjoint ranges. */
void im__cuda_pack(const im__weight *w, const im__cuda_layout *l, uint32_t begin, uint32_t end, uint8_t *to);

/* What the forms are made of, for those who take units apart. */
typedef enum im__cuda_scales {
    IM__CUDA_HALF,
    IM__CUDA_HALF_MIN,
    IM__CUDA_FLOAT,
    IM__CUDA_BF16_MIN,
    IM__CUDA_SUPER,
    IM__CUDA_SUPER_MIN,
    IM__CUDA_NO_SCALES
} im__cuda_scales;

typedef struct im__cuda_form_info {
    uint8_t bits;   /* of a code; of a float form, of an element */
    uint8_t group;  /* elements under one scale; 0 of a float form */
    uint8_t offset; /* value = s (code - offset) + m */
    im__cuda_scales scales;
} im__cuda_form_info;

im__cuda_form_info im__cuda_form_get(im__cuda_form form);

/* "4_half" ...: as kernels are named. */
const char *im__cuda_form_name(im__cuda_form form);

#endif
