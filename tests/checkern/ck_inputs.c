/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_inputs.h"

void *ck_in(ck_test *t, const char *name, size_t bytes, size_t align)
{
    return ck_block_new(&t->arena, name, CK_INPUT, CK_I8, bytes, bytes, align)->data;
}

void *ck_scratch(ck_test *t, const char *name, size_t bytes, size_t align)
{
    return ck_block_new(&t->arena, name, CK_SCRATCH, CK_I8, bytes, bytes, align)->data;
}

void *ck_out(ck_test *t, const char *name, ck_kind kind, size_t row, size_t bytes)
{
    return ck_block_new(&t->arena, name, CK_OUTPUT, kind, row, bytes, sizeof(float))->data;
}

void *ck_inout(ck_test *t, const char *name, ck_kind kind, size_t row, size_t bytes)
{
    return ck_block_new(&t->arena, name, CK_INOUT, kind, row, bytes, sizeof(float))->data;
}

const float *ck_in_floats(ck_test *t, const char *name, ck_flavour f, size_t n)
{
    float *x = ck_in(t, name, n * sizeof(float), sizeof(float));
    ck_floats(&t->rng, f, x, n);
    return x;
}

int32_t *ck_out_number(ck_test *t, const char *name) { return ck_out(t, name, CK_I32, 1, sizeof(int32_t)); }

ck_flavour ck_flavour_at(size_t i) { return (ck_flavour)(i % CK_FINITE); }
