/* SPDX-License-Identifier: Apache-2.0
 *
 * Random attention steps, hostile ones too, and what the plain C function makes of them: for the emulator's test and for the device's program. Positions that no
 * row can see hold NaN, pages that none can see are not there, pages lie in shuffled order, and the results lie between sentinels.
 *
 * How to use: fill in the shape, attention_case_make, give the kernels the blocks of memory (or copies) by attention_case_bind, run, bring the block
 * CASE_OUT back, attention_case_wrong; attention_case_clear.
 */
#ifndef IRONMULE_TEST_ATTENTION_CASES_H
#define IRONMULE_TEST_ATTENTION_CASES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CASE_SEQUENCES = 160, CASE_BAND = 64 };

enum {
    CASE_POOL,
    CASE_ROW,
    CASE_SOURCE,
    CASE_TILE,
    CASE_SELECTED_TILE,
    CASE_SINGLE,
    CASE_SELECTED_SINGLE,
    CASE_PAGES,
    CASE_Q,
    CASE_OUT,
    CASE_PARTIAL,
    CASE_STEP,
    CASE_BLOCKS
};

typedef struct attention_case {
    /* the shape */
    uint32_t heads, kv_heads, head_dim, window, is_f32;
    uint32_t selected; /* only some rows, as after SELECT */
    uint32_t tiles;    /* make tiles where they pay */
    uint32_t hostile;  /* NaN and infinities among keys, values and queries that are seen */
    float scale, softcap;
    uint32_t sequences, begin[CASE_SEQUENCES], rows[CASE_SEQUENCES]; /* of each: first position, rows */
    uint64_t partial_floats, seed;
    uint32_t layers; /* of the pool: copies of the keys and values, for timing; 0: one */
    uint32_t cheap;  /* no random numbers: for timing, wrong results */
    /* what was made */
    void *block[CASE_BLOCKS];
    size_t bytes[CASE_BLOCKS];
    uint32_t all, used; /* rows of the step, rows that attention takes */
    uint64_t page_stride;
    uint32_t count_tiles, count_singles, most_keys;
} attention_case;

void attention_case_make(attention_case *c);
void attention_case_clear(attention_case *c);

/* Fills in the header (block CASE_STEP) and the parameters, an im__cuda_attention, with the addresses where kernels find the blocks. */
void attention_case_bind(attention_case *c, const uint64_t address[CASE_BLOCKS], uint32_t every, uint32_t layer, void *parameters);

/* Forgets the results of an earlier run. */
void attention_case_poison(attention_case *c);

/* How many of every `stride`-th row's results and of the sentinels are not what they should be. */
size_t attention_case_wrong(const attention_case *c, uint32_t stride);

/* The shape in words. */
void attention_case_name(const attention_case *c, char *text, size_t size);

/* Case `at` of a fixed random series that covers shapes, borders and hostile values; small: of at most so many query-key products. */
void attention_case_draw(attention_case *c, uint64_t at, uint32_t most_position, uint32_t most_rows);

#ifdef __cplusplus
}
#endif

#endif
