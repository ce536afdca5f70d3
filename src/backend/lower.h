/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as backends run it: operations grouped into phases between which workers wait for each other, with the rows' quantisation made explicit.
 *
 *   rows        operations that treat each row by itself, one behind the other on the same thread (units: some rows)
 *   matmul      products that do not read each other's results (units: blocks of outputs)
 *   attention   one attention operation (units: tiles of rows x KV heads)
 *   select      keeps only the rows that want logits (one unit)
 */
#ifndef IRONMULE_BACKEND_CPU_LOWER_H
#define IRONMULE_BACKEND_CPU_LOWER_H

#include "ops/program.h"

typedef enum im__phase_kind { IM__PHASE_ROWS, IM__PHASE_MATMUL, IM__PHASE_ATTENTION, IM__PHASE_SELECT } im__phase_kind;

/* An operation of the program, or (op NULL) the quantisation of `value`, with 16 bits when wide. */
typedef struct im__action {
    const im__op *op;
    int value;
    bool wide;
} im__action;

typedef struct im__phase {
    im__phase_kind kind;
    size_t first, count; /* actions */
    bool selected;       /* after SELECT: only rows that want logits */
} im__phase;

typedef struct im__lowered {
    im__phase *phase;
    size_t phase_count;
    im__action *action;
    size_t action_count;
    uint8_t *planes; /* [value_count] rows of quantised form that a row of the value needs: 0 (never quantised), 1, or 2 (wide) */
} im__lowered;

/* The program must outlive the result. */
im_status im__lower(const im__program *p, im__lowered *out, im_error *err);
void im__lowered_clear(im__lowered *l);

#endif
