/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention kernels in the emulator against the plain C function: bits, sentinels, counters left as they were.
 */
#include "simt.h"
#include "simt_test.h"

#include "attention_cases.h"
#include "backend/cuda/kernels/attention.h"

#include <stdio.h>

#define FEW(how, each) extern "C" void im_attention_few_##how##_##each(const im__cuda_attention a);
#define MANY(head, queries) extern "C" void im_attention_many_##head##_##queries(const im__cuda_attention a);
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY

typedef void kernel(const im__cuda_attention a);

static kernel *few_kernel(const char *how, uint32_t each)
{
#define FEW(h, e)                                                                                                                  \
    if (strcmp(how, #h) == 0 && each == e) return im_attention_few_##h##_##e;
#define MANY(head, queries)
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY
    return NULL;
}

static kernel *many_kernel(uint32_t head, uint32_t queries)
{
#define FEW(h, e)
#define MANY(h, q)                                                                                                                 \
    if (head == h && queries == q) return im_attention_many_##h##_##q;
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY
    return NULL;
}

/* Blocks of memory at their own addresses; every row by im_attention_few when `every`. */
static im__cuda_attention bind(attention_case *c, uint32_t every)
{
    uint64_t address[CASE_BLOCKS];
    im__cuda_attention a;
    for (int i = 0; i < CASE_BLOCKS; i++) address[i] = (uint64_t)(uintptr_t)c->block[i];
    attention_case_bind(c, address, every, 0, &a);
    return a;
}

/* As for a device of so many processors. */
static uint32_t each_of(const attention_case *c, uint32_t processors, int staged)
{
    uint32_t rows = 0, most = 0;
    for (uint32_t s = 0; s < c->sequences; s++) {
        rows += c->rows[s];
        if (c->begin[s] + c->rows[s] > most) most = c->begin[s] + c->rows[s];
    }
    return im__attention_few_heads(c->heads, c->kv_heads, staged, rows, most, c->window, processors);
}

static void run_few(attention_case *c, uint32_t blocks, int staged, uint32_t every)
{
    const char *how = c->is_f32 ? "float" : staged ? "staged" : "half";
    uint32_t each = each_of(c, blocks, staged);
    kernel *k = few_kernel(how, each);
    assert_non_null(k);
    im__cuda_attention a = bind(c, every);
    simt_launch(dim3(blocks), dim3(im__attention_few_threads(c->head_dim)), im__attention_few_shared(c->head_dim, each, staged),
                [&] { k(a); });
}

static void run_many(attention_case *c, uint32_t queries)
{
    kernel *k = many_kernel(c->head_dim, queries);
    assert_non_null(k);
    im__cuda_attention a = bind(c, 0);
    uint32_t blocks = im__attention_many_blocks(c->count_tiles, c->heads, c->kv_heads, c->head_dim, queries);
    simt_launch(dim3(blocks), dim3(IM__ATTENTION_MANY_THREADS), im__attention_many_shared(c->head_dim, queries), [&] { k(a); });
}

static void check(const attention_case *c, const char *how, uint64_t at)
{
    char name[256];
    size_t wrong = attention_case_wrong(c, 1);
    const uint32_t *counter = (const uint32_t *)c->block[CASE_PARTIAL];
    for (uint32_t i = 0; i < IM__ATTENTION_COUNTERS; i++) wrong += counter[i] != 0;
    attention_case_name(c, name, sizeof name);
    if (wrong > 0) fail_msg("case %u, %s: %zu wrong: %s", (unsigned)at, how, wrong, name);
}

/* Room for the scratch of a grid of so many blocks; a quarter of the cases have too little, so that no row is split. */
static void give_scratch(attention_case *c, uint64_t at, uint32_t blocks, int staged)
{
    uint32_t rows = 0, most = 0, each = each_of(c, blocks, staged);
    for (uint32_t s = 0; s < c->sequences; s++) {
        rows += c->rows[s];
        if (c->begin[s] + c->rows[s] > most) most = c->begin[s] + c->rows[s];
    }
    if (at % 4 != 3)
        c->partial_floats = im__attention_partial_floats(rows, most, c->window, c->heads, c->kv_heads, c->head_dim, each, blocks);
}

static void rows_one_by_one(void **)
{
    static const uint32_t grids[] = {1, 7, 40, 132};
    for (uint64_t at = 0; at < 60; at++) {
        attention_case c;
        attention_case_draw(&c, at, 3000, 6);
        int staged = !c.is_f32 && at % 3 != 0;
        c.tiles = 0;
        uint32_t blocks = grids[at / 2 % 4];
        give_scratch(&c, at, blocks, staged);
        attention_case_make(&c);
        simt_order = (unsigned)at % 3;
        run_few(&c, blocks, staged, at % 2);
        check(&c, "few", at);
        attention_case_poison(&c);
        run_few(&c, blocks, staged, 1 - at % 2);
        check(&c, "few again", at);
        attention_case_clear(&c);
    }
    simt_order = 0;
}

static void tiles(void **)
{
    for (uint64_t at = 0, done = 0; done < 30; at++) {
        attention_case c;
        attention_case_draw(&c, 1000 + at, 1200, 40);
        if (!c.tiles || !im__attention_many_fits(c.heads, c.kv_heads, c.head_dim, c.is_f32)) continue;
        uint32_t queries = im__attention_many_queries(c.head_dim) >> done++ % 3;
        if (many_kernel(c.head_dim, queries) == NULL || queries < c.heads / c.kv_heads)
            queries = im__attention_many_queries(c.head_dim);
        give_scratch(&c, 0, 20, 1);
        attention_case_make(&c);
        simt_order = (unsigned)at % 3;
        run_many(&c, queries);
        run_few(&c, 20, 1, 0);
        check(&c, "many", at);
        attention_case_clear(&c);
    }
    simt_order = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_one_by_one), cmocka_unit_test(tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
