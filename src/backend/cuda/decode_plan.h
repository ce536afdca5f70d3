/* SPDX-License-Identifier: Apache-2.0
 *
 * What the persistent decoder (kernels/decode.h) is told about a model, computed without a device: whether a program has the shape it serves, which block computes
 * which tiles, and the list of weight units that each block reads for one token.
 */
#ifndef IRONMULE_BACKEND_CUDA_DECODE_PLAN_H
#define IRONMULE_BACKEND_CUDA_DECODE_PLAN_H

#include "backend/cuda/kernels/decode.h"
#include "base/error.h"
#include "ops/program.h"

#include <stddef.h>

/* One of the kernels. */
typedef struct im__decode_shape {
    const char *kernel; /* its name in the fat binary */
    uint32_t width, heads, kv_heads, hidden;
    im__cuda_form form;           /* of queries, keys, gate and up; of values where it is not the next one */
    im__cuda_form values, out;    /* of values in some layers; of attention's output */
    im__cuda_form down, down_too; /* of the down product: each layer has one of them */
    im__cuda_form head;
} im__decode_shape;

/* Indices into a program. */
typedef struct im__decode_layer_parts {
    int q, k, v, out, gate, up, down;                                       /* matrices */
    int attn_norm, q_norm, k_norm, post_attn_norm, ffn_norm, post_ffn_norm; /* vectors */
    int cache;                                                              /* im__program.kv */
    uint32_t rope;                                                          /* 0 or 1: entry of im__decode_model.rope */
    uint32_t other;                                                         /* im__decode_layer.other */
} im__decode_layer_parts;

typedef struct im__decode_model {
    const im__decode_shape *shape;
    im__decode_layer_parts *layer; /* [layers], owned */
    uint32_t layers, vocab;
    int embed, head, final_norm;
    int rope[2]; /* of the program; the second may be IM__NONE */
    float embed_scale, eps, attention_scale;
} im__decode_model;

/* Fills *out if the program is one that a kernel serves; else IM_ERR_UNSUPPORTED, with what stands in the way. `shapes`: the kernels there are. */
im_status im__decode_match(im__decode_model *out, const im__program *p, const im__decode_shape *shapes, size_t count,
                           im_error *err);
void im__decode_model_clear(im__decode_model *m);

/* The kernels of decode_shapes.inc. */
const im__decode_shape *im__decode_shapes(size_t *count);

/* The matrices of a layer on the device. */
typedef struct im__decode_weights {
    im__cuda_matrix q, k, v, out, gate, up, down;
} im__decode_weights;

typedef struct im__decode_plan {
    im__decode_share *share; /* [blocks], owned */
    uint64_t *unit;          /* [units], owned */
    size_t units;
    uint32_t blocks; /* of the grid: at most what was asked for */
    uint32_t announcers[IM__DECODE_PARTS];
} im__decode_plan;

/* Deals the work of a token to `blocks` blocks. Fails when a block's share does not fit into its shared memory (few blocks, wide model). */
im_status im__decode_plan_make(im__decode_plan *out, const im__decode_shape *shape, const im__decode_weights *layer,
                               uint32_t layers, const im__cuda_matrix *head, uint32_t blocks, im_error *err);
void im__decode_plan_clear(im__decode_plan *p);

#endif
