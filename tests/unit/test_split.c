/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes, scales and biases in arrays of their own against samples that mlx made (tools/make-mlx-samples).
 */
#include "base/bytes.h"
#include "base/file_map.h"
#include "num/group.h"
#include "num/half.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct sample {
    uint32_t bits, group, scale_dtype, rows, n;
    const uint8_t *codes, *scale, *bias, *values; /* values: float32, unaligned */
} sample;

static im__file_map samples;

static int open_samples(void **state)
{
    (void)state;
    return im__file_map_open(&samples, IM_TEST_DATA "/num/mlx_samples.bin", NULL) == IM_OK ? 0 : -1;
}

static int close_samples(void **state)
{
    (void)state;
    im__file_map_close(&samples);
    return 0;
}

/* Walks over the samples; *at starts at 0. */
static int next_sample(size_t *at, sample *s)
{
    if (*at == samples.size) return 0;
    const uint8_t *p = samples.data + *at;
    *s = (sample){.bits = im__load_u32(p), .group = im__load_u32(p + 4), .scale_dtype = im__load_u32(p + 8)};
    s->rows = im__load_u32(p + 12), s->n = im__load_u32(p + 16), s->codes = p + 20;
    size_t scales = s->rows * s->n / s->group * (s->bits == 0 ? 1 : s->scale_dtype == IM__F32 ? 4 : 2);
    s->scale = s->codes + s->rows * s->n * (s->bits == 0 ? 4 : s->bits) / 8;
    s->bias = s->bits == 0 ? NULL : s->scale + scales;
    s->values = s->scale + (s->bits == 0 ? 1 : 2) * scales;
    *at = (size_t)(s->values - samples.data) + (size_t)4 * s->rows * s->n;
    assert_true(*at <= samples.size);
    return 1;
}

static im__weight weight_of(const sample *s)
{
    im__weight w = {
        .dtype = s->bits == 0 ? IM__MXFP4 : im__split_dtype(s->bits, s->group, s->scale_dtype), .n_in = s->n, .n_out = s->rows};
    assert_int_not_equal(w.dtype, IM__DTYPE_END);
    assert_true(im__dtype_get(w.dtype)->runs && s->group % im__dtype_get(w.dtype)->block_len == 0);
    w.data = s->codes;
    w.row_bytes = im__split_row_bytes(w.dtype, s->n);
    w.split = (im__split){s->scale, s->bias, s->scale_dtype, s->group};
    return w;
}

/* MXFP4's code of -0 is 0 here, as it is in a GGUF file. */
static bool is_the_same(const sample *s, float value, uint32_t expected)
{
    return im__bits_of_f32(value) == expected || (s->bits == 0 && expected == 0x80000000 && im__bits_of_f32(value) == 0);
}

static void values_equal_those_of_mlx_bit_for_bit(void **state)
{
    (void)state;
    sample s;
    int count = 0;
    float row[256];
    for (size_t at = 0; next_sample(&at, &s); count++) {
        im__weight w = weight_of(&s);
        for (size_t i = 0; i < s.rows * s.n; i++) {
            uint32_t expected = im__load_u32(s.values + 4 * i);
            if (i % s.n == 0) im__embed_row(&w, i / s.n, 1, row);
            if (!is_the_same(&s, row[i % s.n], expected))
                fail_msg("%u bits, groups of %u, scales of type %u, row %zu, element %zu: %a, expected bits %08x", s.bits, s.group,
                         s.scale_dtype, i / s.n, i % s.n, (double)row[i % s.n], expected);
        }
    }
    assert_int_equal(count, 6 * 3 * 3 + 1);
}

/* A block is the same whatever is read with it; the room is exact, so that a sanitizer sees a byte too many. */
static void blocks_may_be_read_one_by_one(void **state)
{
    (void)state;
    sample s;
    for (size_t at = 0; next_sample(&at, &s);) {
        im__weight w = weight_of(&s);
        const size_t bytes = im__dtype_get(w.dtype)->block_bytes, blocks = s.n / im__dtype_get(w.dtype)->block_len;
        uint8_t all[IM__JOINED_BYTES], *one = malloc(bytes);
        assert_non_null(one);
        im__split_join(&w.split, w.dtype, w.n_in, im__weight_row(&w, 1), 1, 0, blocks, all);
        for (size_t b = 0; b < blocks; b++) {
            im__split_join(&w.split, w.dtype, w.n_in, im__weight_row(&w, 1), 1, b, 1, one);
            assert_memory_equal(one, all + b * bytes, bytes);
        }
        free(one);
    }
}

/* What a product reads: integers of the last group of a row, taken from the stream of bits once more. */
static void groups_hold_the_codes(void **state)
{
    (void)state;
    sample s;
    for (size_t at = 0; next_sample(&at, &s);) {
        im__weight w = weight_of(&s);
        uint8_t room[IM__JOINED_BYTES];
        if (s.bits == 0) continue;
        im__group g;
        im__group_read(w.dtype, im__weight_blocks(&w, 0, 0, s.n / im__dtype_get(w.dtype)->block_len, room), s.n / 32 - 1, &g);
        const uint32_t offset = s.bits == 8 ? 128 : 0;
        for (size_t i = 0; i < 32; i++) {
            size_t bit = (s.n - 32 + i) * s.bits;
            uint32_t two = s.codes[bit / 8] | (bit / 8 + 1 < s.n * s.bits / 8 ? (uint32_t)s.codes[bit / 8 + 1] << 8 : 0);
            assert_int_equal(g.w[i], (int32_t)(two >> bit % 8 & ((1u << s.bits) - 1)) - (int32_t)offset);
        }
    }
}

/* Rows 2i and 2i + 1 of a head lie as rows i and i + half of it. */
static void heads_in_halves(void **state)
{
    (void)state;
    uint8_t data[12] = {0};
    const im__weight w = {.dtype = IM__F16, .n_in = 1, .n_out = 6, .data = data, .row_bytes = 2, .halves = 6};
    static const size_t stored[] = {0, 3, 1, 4, 2, 5};
    for (size_t i = 0; i < 6; i++) assert_ptr_equal(im__weight_row(&w, i), data + 2 * stored[i]);
}

static void types_of_codes(void **state)
{
    (void)state;
    assert_int_equal(im__split_dtype(4, 64, IM__BF16), IM__AFFINE4);
    assert_int_equal(im__split_dtype(4, 32, IM__BF16), IM__AFFINE4_F);
    assert_int_equal(im__split_dtype(4, 64, IM__F16), IM__Q4_1);
    assert_int_equal(im__split_dtype(5, 128, IM__F16), IM__Q5_1);
    assert_int_equal(im__split_dtype(8, 128, IM__F16), IM__AFFINE8_F);
    static const uint32_t none[][3] = {{7, 64, IM__F32}, {0, 64, IM__F32},  {1, 64, IM__F32},
                                       {4, 16, IM__F32}, {4, 256, IM__F32}, {4, 64, IM__I8}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(im__split_dtype(none[i][0], none[i][1], none[i][2]), IM__DTYPE_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_equal_those_of_mlx_bit_for_bit),
        cmocka_unit_test(blocks_may_be_read_one_by_one),
        cmocka_unit_test(groups_hold_the_codes),
        cmocka_unit_test(heads_in_halves),
        cmocka_unit_test(types_of_codes),
    };
    return cmocka_run_group_tests(tests, open_samples, close_samples);
}
