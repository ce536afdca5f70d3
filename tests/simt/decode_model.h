/* SPDX-License-Identifier: Apache-2.0
 *
 * Random models of Gemma 3's shape, and their matrices as the GPU wants them, for tests of the persistent decoder. What runs out of memory aborts.
 */
#ifndef IRONMULE_TESTS_DECODE_MODEL_H
#define IRONMULE_TESTS_DECODE_MODEL_H

#include "backend/cuda/abi.h"
#include "ops/program.h"

typedef struct decode_dims {
    uint32_t width, heads, kv_heads, hidden, layers, vocab;
    uint32_t window, global_every; /* every n-th layer sees everything */
    uint32_t dtype, head_dtype;    /* of the head and the embedding */
    bool hollow;                   /* no weights */
    uint32_t values, out, down,
        down_too; /* types of values and the down product in odd layers, of attention's output, of the down product; 0: dtype, dtype, dtype, down */
} decode_dims;

void decode_program(im__program *p, const decode_dims *d, uint32_t seed);
void decode_program_clear(im__program *p);

/* Form and sizes of a matrix in units; data stays 0. */
im__cuda_matrix decode_matrix(const im__weight *w);
/* tile_bytes * tiles bytes at `to`. */
void decode_pack(const im__weight *w, const im__cuda_matrix *m, uint8_t *to);
size_t decode_packed_bytes(const im__cuda_matrix *m);

#endif
