/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks that families are made of.
 */
#ifndef CK_INPUTS_H
#define CK_INPUTS_H

#include "checkern.h"

/* Guarded blocks; `row` is the distance of rows in elements, for reports. */
void *ck_in(ck_test *t, const char *name, size_t bytes, size_t align);
void *ck_scratch(ck_test *t, const char *name, size_t bytes, size_t align);
void *ck_out(ck_test *t, const char *name, ck_kind kind, size_t row, size_t bytes);
void *ck_inout(ck_test *t, const char *name, ck_kind kind, size_t row, size_t bytes);

/* An input of n floats of a flavour. */
const float *ck_in_floats(ck_test *t, const char *name, ck_flavour f, size_t n);

/* A result that is a number rather than memory: the function under test stores it here. */
int32_t *ck_out_number(ck_test *t, const char *name);

/* The i-th of the finite flavours, round and round. */
ck_flavour ck_flavour_at(size_t i);

#endif
