/* SPDX-License-Identifier: Apache-2.0
 *
 * Random products of many rows, hostile ones too, and what the plain C function makes of them: for the emulator's test and for the device's program. The results
 * lie between sentinels, rows that the step does not have hold rubbish.
 *
 * How to use: fill in the shape, many_case_make; give the kernels the blocks of memory (or copies) by many_case_bind; run; bring MANY_Y back,
 * many_case_wrong; many_case_clear.
 */
#ifndef IRONMULE_TEST_MANY_CASES_H
#define IRONMULE_TEST_MANY_CASES_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of memory; weights, biases and results of product i at + i. */
enum {
    MANY_STEP,
    MANY_Q,
    MANY_GROUP,
    MANY_X,
    MANY_WEIGHTS,
    MANY_BIAS = MANY_WEIGHTS + 4,
    MANY_Y = MANY_BIAS + 4,
    MANY_BLOCKS = MANY_Y + 4
};

typedef struct many_case {
    uint32_t dtype, n_in, rows, max_rows;
    uint32_t products, n_out[4], wide[4], bias[4];
    uint32_t selected;                    /* the rows are those that want logits */
    uint32_t weight_flavour, act_flavour; /* ck_flavour */
    uint32_t reference_rows;              /* only the first and last of them are computed and judged; 0: all */
    uint64_t seed;
    /* what was made */
    uint32_t form;
    void *block[MANY_BLOCKS];
    size_t bytes[MANY_BLOCKS];
    float *expected[4];
    uint32_t unit_bytes, tile_bytes[4];
} many_case;

void many_case_make(many_case *c);
void many_case_clear(many_case *c);

/* Fills in the header (block MANY_STEP) and the products (an im__cuda_products, all but first_block), with the addresses where kernels find the blocks. */
void many_case_bind(many_case *c, const uint64_t address[MANY_BLOCKS], void *products);

/* Forgets the results of an earlier run. */
void many_case_poison(many_case *c);

/* How many results and sentinels are not what they should be. */
size_t many_case_wrong(const many_case *c);

/* Types that run, for tests to go through: NULL-terminated by 0xffffffff. */
extern const uint32_t many_dtypes[];
void many_case_name(const many_case *c, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
