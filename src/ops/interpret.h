/* SPDX-License-Identifier: Apache-2.0
 *
 * The meaning of a program: its list executed in order, one row at a time, with the plain C functions and the weights as the file has them. No threads, no
 * phases, no packing: slow, and what every backend is compared with.
 */
#ifndef IRONMULE_OPS_INTERPRET_H
#define IRONMULE_OPS_INTERPRET_H

#include "ops/program.h"

/* One sequence with its cache. For one thread at a time. */
typedef struct im__interpreter im__interpreter;

/* For a program that im__program_check has passed and that outlives the result; `positions` that the sequence may have. *out is the caller's. */
im_status im__interpreter_new(im__interpreter **out, const im__program *p, uint32_t positions, im_error *err);
void im__interpreter_free(im__interpreter *i); /* NULL allowed */

/* The row at the next position: `token`, below the vocabulary. logits: [vocab], or NULL for a row that wants none. */
void im__interpret(im__interpreter *i, int32_t token, float *logits);

#endif
