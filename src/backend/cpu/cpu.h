/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend's own state: shared by cpu.c (opening, memory) and cpu_run.c (steps).
 */
#ifndef IRONMULE_BACKEND_CPU_CPU_H
#define IRONMULE_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/weights.h"
#include "backend/lower.h"

#define IM__MOST_OUTPUTS 512 /* of one unit of a product */

/* The rows that a phase works on: all rows of the step, or after SELECT those that want logits. */
typedef struct im__row_set {
    size_t rows;
    const im__row **row; /* [rows] */
    uint32_t *source;    /* [rows] place in the step: row of the rotation tables */
    int32_t *position;   /* [rows] */
    struct im__tile {    /* neighbouring rows of one sequence that attention takes together */
        uint32_t begin, end;
    } * tile;
    size_t tiles;
} im__row_set;

typedef struct im__cpu {
    im__backend base;
    const im__program *p;
    im__backend_options options;
    im__cpu_level level;
    const char *wrong_op; /* an operation whose kernel failed the self-check, so that a lower level serves all; NULL: none */
    im__ops ops;
    im__team *team;
    im__weights weights;
    im__lowered lowered;
    im__buf description;

    /* caches */
    void *pool[IM__POOLS];
    size_t pool_bytes[IM__POOLS], all_pools_bytes, page_bytes[IM__POOLS];
    size_t *layer_offset; /* [kv_count] of the layer's keys in a page of its pool, in bytes */

    /* workspace, all of it carved out of one block */
    void *block;
    size_t block_bytes;
    float **value;          /* [value_count] rows of `width` floats; NULL for the logits, which go to the caller */
    im__act *act;           /* [value_count] where quantised; of a wide one the rests stand in rows behind those of the row set */
    float **cosine, **sine; /* [rope_count] [max_rows][rot_dim / 2] */
    float *scratch;         /* [threads] x scratch_floats: of attention, wide products and rests */
    size_t scratch_floats;
    uint32_t *units; /* [phase_count + 1] */
    im__row_set all, selected;

    atomic_uint_fast64_t clamped;
    const im__step *step; /* while a step runs */
} im__cpu;

im_status im__cpu_run(im__backend *b, const im__step *step, im_error *err);

#endif
