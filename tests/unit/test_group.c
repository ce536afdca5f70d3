/* SPDX-License-Identifier: Apache-2.0
 *
 * Block layouts and de-quantisation against samples that the formats' reference package made (tools/make-dequant-samples).
 */
#include "base/bytes.h"
#include "base/file_map.h"
#include "num/group.h"
#include "num/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct sample {
    uint32_t type, elements, bytes;
    const uint8_t *blocks, *values; /* values: float32, unaligned */
} sample;

static im__file_map samples;

static int open_samples(void **state)
{
    (void)state;
    return im__file_map_open(&samples, IM_TEST_DATA "/num/dequant_samples.bin", NULL) == IM_OK ? 0 : -1;
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
    *s = (sample){im__load_u32(p), im__load_u32(p + 4), im__load_u32(p + 8), p + 12, NULL};
    s->values = s->blocks + s->bytes;
    *at += 12 + (size_t)s->bytes + 4 * (size_t)s->elements;
    assert_true(*at <= samples.size);
    return 1;
}

static void values_equal_the_reference_bit_for_bit(void **state)
{
    (void)state;
    sample s;
    int types = 0;
    for (size_t at = 0; next_sample(&at, &s); types++) {
        float *values = malloc(4 * (size_t)s.elements);
        assert_non_null(values);
        assert_int_equal(im__dtype_row_bytes(s.type, s.elements), s.bytes);
        im__dequantise_row(s.type, s.blocks, values, s.elements);
        for (size_t i = 0; i < s.elements; i++)
            if (im__bits_of_f32(values[i]) != im__load_u32(s.values + 4 * i))
                fail_msg("%s element %zu: %a, expected bits %08x", im__dtype_get(s.type)->name, i, (double)values[i],
                         (unsigned)im__load_u32(s.values + 4 * i));
        free(values);
    }
    assert_int_equal(types, 16);
}

static int is_super(uint32_t type) { return (type >= IM__Q2_K && type <= IM__Q6_K) || type == IM__IQ4_XS; }

/* What the contract needs of a group: scale and minimum are the exact products, the integers are small, the value follows from them. */
static void check_group(const sample *s, size_t index)
{
    const im__dtype_info *info = im__dtype_get(s->type);
    im__group g;
    im__group_read(s->type, s->blocks, index, &g);
    for (size_t i = 0; i < info->group_len; i++) {
        float expected = im__f32_of_bits(im__load_u32(s->values + 4 * (index * info->group_len + i)));
        float product = g.s * (float)g.w[i], sum = product + g.m;
        assert_true(im__dtype_has_min(s->type) ? sum == expected : product == expected);
    }
    for (size_t i = info->group_len; i < 32; i++) assert_int_equal(g.w[i], 0);
    if (!im__dtype_has_min(s->type)) assert_int_equal(im__bits_of_f32(g.m), 0);
    if (is_super(s->type)) {
        im__super super;
        size_t groups = info->block_len / info->group_len, k = index % groups;
        im__super_read(s->type, s->blocks + index / groups * info->block_bytes, &super);
        assert_true((double)g.s == (double)im__f32_of_f16(super.d) * super.scale[k]);
        assert_true((double)g.m == -((double)im__f32_of_f16(super.dmin) * super.min[k]));
    }
}

static void groups_give_the_same_values_with_exact_scales(void **state)
{
    (void)state;
    sample s;
    for (size_t at = 0; next_sample(&at, &s);) {
        if (im__dtype_is_float(s.type)) continue;
        for (size_t i = 0; i < s.elements / im__dtype_get(s.type)->group_len; i++) check_group(&s, i);
    }
}

/* A row may start at any address. The copy is exact, so that a sanitizer sees a read of one byte too many. */
static void rows_need_no_alignment(void **state)
{
    (void)state;
    sample s;
    for (size_t at = 0; next_sample(&at, &s);) {
        uint8_t *copy = malloc(s.bytes + 1);
        float *values = malloc(4 * (size_t)s.elements);
        assert_true(copy != NULL && values != NULL);
        for (size_t i = 0; i < s.bytes; i++) copy[i + 1] = s.blocks[i];
        im__dequantise_row(s.type, copy + 1, values, s.elements);
        for (size_t i = 0; i < s.elements; i++) assert_int_equal(im__bits_of_f32(values[i]), im__load_u32(s.values + 4 * i));
        free(values);
        free(copy);
    }
}

static void rows_are_measured_with_care(void **state)
{
    (void)state;
    assert_int_equal(im__dtype_row_bytes(IM__Q4_K, 512), 288);
    assert_int_equal(im__dtype_row_bytes(IM__Q4_K, 511), 0);
    assert_int_equal(im__dtype_row_bytes(IM__F32, 3), 12);
    assert_int_equal(im__dtype_row_bytes(IM__F32, SIZE_MAX / 4 + 1), 0);
    assert_int_equal(im__dtype_row_bytes(IM__MXFP4, SIZE_MAX - 31), (SIZE_MAX - 31) / 32 * 17);
    assert_int_equal(im__dtype_row_bytes(4, 32), 0);
    assert_int_equal(im__dtype_row_bytes(UINT32_MAX, 32), 0);
}

static void types_are_known_by_name(void **state)
{
    (void)state;
    static const uint32_t run[] = {IM__F32,       IM__F16,       IM__BF16,      IM__Q4_0,     IM__Q4_1,      IM__Q5_0,
                                   IM__Q5_1,      IM__Q8_0,      IM__Q2_K,      IM__Q3_K,     IM__Q4_K,      IM__Q5_K,
                                   IM__Q6_K,      IM__IQ4_NL,    IM__IQ4_XS,    IM__MXFP4,    IM__AFFINE2,   IM__AFFINE3,
                                   IM__AFFINE4,   IM__AFFINE5,   IM__AFFINE6,   IM__AFFINE8,  IM__AFFINE2_F, IM__AFFINE3_F,
                                   IM__AFFINE4_F, IM__AFFINE5_F, IM__AFFINE6_F, IM__AFFINE8_F};
    size_t running = 0, named = 0;
    for (uint32_t t = 0; t < 300; t++) {
        const im__dtype_info *info = im__dtype_get(t);
        running += info->runs;
        named += info->name != NULL;
        assert_true(info->name != NULL || !info->runs);
        assert_true(!info->runs || (info->group_len == 0) == im__dtype_is_float(t));
    }
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) assert_true(im__dtype_get(run[i])->runs);
    assert_int_equal(running, sizeof run / sizeof *run);
    assert_int_equal(named, 46);
    assert_string_equal(im__dtype_get(IM__IQ1_M)->name, "IQ1_M");
    assert_null(im__dtype_get(36)->name);
    assert_null(im__dtype_get(UINT32_MAX)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_equal_the_reference_bit_for_bit),
        cmocka_unit_test(groups_give_the_same_values_with_exact_scales),
        cmocka_unit_test(rows_need_no_alignment),
        cmocka_unit_test(rows_are_measured_with_care),
        cmocka_unit_test(types_are_known_by_name),
    };
    return cmocka_run_group_tests(tests, open_samples, close_samples);
}
