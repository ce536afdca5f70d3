/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of many rows in the emulator against the plain C function: bits and sentinels, for every form and shape of tile.
 */
#include "simt.h"
#include "simt_test.h"

#include "backend/cuda/kernels/matmul_many.h"
#include "many_cases.h"

extern "C" {
#include "../checkern/ck_values.h"
#include "num/dtype.h"
}

#include <stdio.h>

typedef void kernel(const im__cuda_products products);

#define SHAPE(form, name) extern "C" void im_matmul_many_##form##_##name(const im__cuda_products products);
#define FORM(form, number) IM__MANY_EACH_SHAPE(SHAPE, form) IM__MANY_90_EACH_SHAPE(SHAPE, form)
IM__MANY_FORMS(FORM)
#undef SHAPE
#undef FORM
#define FORM(form, number) extern "C" void im_matmul_many_##form(const im__cuda_products products);
IM__MANY_FLOAT_FORMS(FORM)
#undef FORM

static kernel *find(uint32_t form, int shape)
{
#define SHAPE(f, name)                                                                                                             \
    if (shape == IM__MANY_##name) return im_matmul_many_##f##_##name;
#define FORM(f, number)                                                                                                            \
    if (form == number) {                                                                                                          \
        IM__MANY_EACH_SHAPE(SHAPE, f)                                                                                              \
        IM__MANY_90_EACH_SHAPE(SHAPE, f)                                                                                           \
    }
    IM__MANY_FORMS(FORM)
#undef SHAPE
#undef FORM
#define FORM(f, number)                                                                                                            \
    if (form == number) return im_matmul_many_##f;
    IM__MANY_FLOAT_FORMS(FORM)
#undef FORM
    return NULL;
}

/* The case is made; runs it with a grid for `grid_rows` rows. */
static void run(many_case *c, int shape, uint32_t grid_rows)
{
    im__cuda_products p;
    uint64_t address[MANY_BLOCKS];
    for (size_t i = 0; i < MANY_BLOCKS; i++) address[i] = (uint64_t)(uintptr_t)c->block[i];
    many_case_bind(c, address, &p);
    const im__many_launch l = im__many_launch_of(c->form, shape);
    bool wide = false;
    for (uint32_t i = 0; i < p.count; i++) {
        p.first_block[i + 1] = p.first_block[i] + im__many_blocks(&l, c->n_out[i]);
        wide = wide || c->wide[i];
    }
    dim3 grid(p.first_block[p.count], im__many_row_blocks(&l, grid_rows, wide));
    kernel *k = find(c->form, shape);
    assert_non_null(k);
    simt_launch(grid, dim3(l.threads), l.shared, [&] { k(p); });
    size_t wrong = many_case_wrong(c);
    if (wrong == 0) return;
    char name[200];
    many_case_name(c, name, sizeof name);
    print_error("%zu wrong: shape %s, order %u: %s\n", wrong, l.name, simt_order, name);
    fail();
}

static void check(many_case c, int shape, uint32_t grid_rows)
{
    many_case_make(&c);
    run(&c, shape, grid_rows);
    many_case_clear(&c);
}

/* Rows of a product: whole blocks of the type, the last unit shorter, as few chunks as there are or more than warps take at once. */
static uint32_t width(uint32_t dtype, uint32_t blocks)
{
    const uint32_t len = im__dtype_get(dtype)->block_len;
    return len == 256 ? (blocks + 1) / 2 * 256 : blocks * 128 + (len == 64 ? 64 : 32) * (blocks % 3);
}

static void each_form_and_shape(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (const uint32_t *dtype = many_dtypes; *dtype != UINT32_MAX; dtype++)
        for (int s = 0; s < IM__MANY_ALL_SHAPES; s++, seed++) {
            if (im__dtype_is_float(*dtype) && s > 0) break;
            many_case c = {};
            c.dtype = *dtype, c.n_in = width(*dtype, 3 + seed % 3), c.rows = 5 + seed % 7, c.max_rows = c.rows + seed % 3;
            c.products = 1 + seed % 2, c.n_out[0] = 33 + seed % 8, c.n_out[1] = 20;
            c.wide[0] = seed % 3 == 0, c.wide[1] = 1, c.bias[0] = seed % 2, c.selected = seed % 5 == 0;
            c.weight_flavour = CK_PLAIN, c.act_flavour = CK_PLAIN, c.seed = seed;
            simt_order = seed % 4;
            check(c, s, c.rows);
        }
    simt_order = 0;
}

static void hostile_values(void **state)
{
    (void)state;
    uint32_t seed = 100;
    for (const uint32_t *dtype = many_dtypes; *dtype != UINT32_MAX; dtype++)
        for (uint32_t f = 0; f <= CK_NONFINITE; f += 2, seed++) {
            many_case c = {};
            c.dtype = *dtype, c.n_in = width(*dtype, 2), c.rows = 6, c.max_rows = 8;
            c.products = 1, c.n_out[0] = 32, c.wide[0] = seed % 2, c.bias[0] = 1;
            c.weight_flavour = seed % CK_FINITE, c.act_flavour = f, c.seed = seed;
            check(c, IM__MANY_16s, c.rows);
        }
}

/* More rows than a tile, ends of tiles, grids made for more rows, more chunks than warps. */
static void borders(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 8, 16, 17, 33};
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int s = 0; s < IM__MANY_ALL_SHAPES; s++) {
            many_case c = {};
            c.dtype = i % 2 ? IM__Q6_K : IM__Q4_0, c.n_in = i % 2 ? 512 : 256 * (i == 2 ? 9 : 1) + 96, c.rows = rows[i],
            c.max_rows = 40;
            c.products = 2, c.n_out[0] = 32, c.n_out[1] = 40, c.wide[1] = i == 4, c.weight_flavour = CK_WIDE,
            c.act_flavour = CK_CANCEL;
            c.seed = 200 + i;
            check(c, s, i % 2 ? 40 : c.rows);
        }
}

/* Float weights of a wide product are not taken twice; more rows than a tile. */
static void float_rows(void **state)
{
    (void)state;
    many_case c = {};
    c.dtype = IM__F16, c.n_in = 96, c.rows = 70, c.max_rows = 70, c.products = 1, c.n_out[0] = 70, c.wide[0] = 1, c.seed = 300;
    check(c, IM__MANY_16s, c.rows);
}

/* The choice is a usable shape: small tiles where there are few rows, large ones where there are many. */
static void the_choice(void **state)
{
    (void)state;
    bool usable[IM__MANY_ALL_SHAPES] = {};
    im__cuda_products p = {};
    p.count = 1, p.product[0].w.n_in = 2560, p.product[0].w.n_out = 10240;
    assert_int_equal(im__many_choose(usable, &p, 8, 132), -1);
    for (bool &u : usable) u = true;
    int few = im__many_choose(usable, &p, 8, 132), many = im__many_choose(usable, &p, 2048, 132);
    assert_true(im__many_launch_of(IM__CUDA_4_HALF, few).rows < im__many_launch_of(IM__CUDA_4_HALF, many).rows);
    assert_int_equal(im__many_launch_of(IM__CUDA_4_HALF, many).rows, 128);
    for (int s = IM__MANY_SHAPE_COUNT; s < IM__MANY_ALL_SHAPES; s++) usable[s] = false;
    assert_int_equal(im__many_choose(usable, &p, 2048, 132), IM__MANY_128);
    p.product[0].w.form = IM__CUDA_F16;
    assert_int_equal(im__many_choose(usable, &p, 2048, 132), 0);
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(each_form_and_shape), cmocka_unit_test(hostile_values), cmocka_unit_test(borders),
                                cmocka_unit_test(float_rows), cmocka_unit_test(the_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
