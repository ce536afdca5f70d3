/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of the CUDA backend, taken apart as abi.h describes them, against the groups that the one reader of the file's blocks gives.
 */
#include "backend/cuda/layout.h"
#include "base/bytes.h"
#include "num/group.h"
#include "num/half.h"
#include "num/real.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t quantised[] = {IM__Q4_0,  IM__Q4_1,    IM__Q5_0,    IM__Q5_1,    IM__Q8_0,   IM__Q2_K,
                                     IM__Q3_K,  IM__Q4_K,    IM__Q5_K,    IM__Q6_K,    IM__IQ4_NL, IM__IQ4_XS,
                                     IM__MXFP4, IM__AFFINE2, IM__AFFINE3, IM__AFFINE4, IM__AFFINE8};

static uint32_t seed = 1;
static uint8_t noise(void)
{
    seed = seed * 1664525 + 1013904223;
    return (uint8_t)(seed >> 24);
}

static im__weight make(uint32_t dtype, size_t n_out, size_t n_in)
{
    im__weight w = {.dtype = dtype, .n_in = n_in, .n_out = n_out, .row_bytes = im__dtype_row_bytes(dtype, n_in)};
    uint8_t *bytes = malloc(w.row_bytes * n_out);
    assert_non_null(bytes);
    for (size_t i = 0; i < w.row_bytes * n_out; i++) bytes[i] = noise();
    w.data = bytes;
    return w;
}

/* ---- a unit, read by the text of abi.h ------------------------------------------------------------------------------------------------ */

typedef struct unit {
    const uint8_t *bytes;
    im__cuda_form_info form;
    uint32_t elements;
} unit;

static unit unit_of(const im__cuda_layout *l, const uint8_t *packed, size_t output, size_t element)
{
    size_t index = element / 256;
    uint32_t rest = (uint32_t)(l->n_in - index * 256);
    return (unit){packed + output / 32 * l->tile_bytes + index * l->unit_bytes, im__cuda_form_get(l->form),
                  rest < 256 ? rest : 256};
}

static int code_at(const unit *u, size_t output, size_t element)
{
    size_t group = element / 32, e = element % 32;
    if (u->form.bits == 8) return (int8_t)u->bytes[((group * 2 + e / 16) * 32 + output) * 16 + e % 16];
    uint8_t byte = u->bytes[(group * 32 + output) * 16 + e % 16];
    int code = e < 16 ? byte & 15 : byte >> 4;
    const uint8_t *top = u->bytes + u->elements / 32 * 512;
    if (u->form.bits == 5) code |= (top[(group * 32 + output) * 4 + e % 4] >> e / 4 & 1) << 4;
    if (u->form.bits == 6) code |= (top[(group * 32 + output) * 8 + e / 16 * 4 + e % 4] >> e % 16 / 4 * 2 & 3) << 4;
    return code;
}

static float half_at(const uint8_t *p) { return im__f32_of_f16(im__load_u16(p)); }

static float bf16_at(const uint8_t *p) { return im__f32_of_bf16(im__load_u16(p)); }

static void scale_at(const unit *u, size_t output, size_t group, float *s, float *m)
{
    const uint8_t *p = u->bytes + u->elements / 32 * u->form.bits * 128, *k;
    *m = 0;
    switch (u->form.scales) {
    case IM__CUDA_HALF: *s = half_at(p + (group * 32 + output) * 2); break;
    case IM__CUDA_HALF_MIN:
        *s = half_at(p + (group * 32 + output) * 4);
        *m = half_at(p + (group * 32 + output) * 4 + 2);
        break;
    case IM__CUDA_BF16_MIN:
        *s = bf16_at(p + (group * 32 + output) * 4);
        *m = bf16_at(p + (group * 32 + output) * 4 + 2);
        if (u->form.bits == 8) *m = im__fma(128, *s, *m);
        break;
    case IM__CUDA_FLOAT: *s = im__f32_of_bits(im__load_u32(p + (group * 32 + output) * 4)); break;
    case IM__CUDA_SUPER: *s = half_at(p + output * 2) * (float)(int8_t)p[64 + group * 32 + output]; break;
    case IM__CUDA_SUPER_MIN:
        k = p + 128 + (group * 32 + output) * 2;
        *s = half_at(p + output * 4) * (float)k[0];
        *m = half_at(p + output * 4 + 2) * (float)k[1];
        break;
    default: fail();
    }
}

static bool same(float a, float b) { return a == b ? im__bits_of_f32(a) == im__bits_of_f32(b) || a == 0 : a != a && b != b; }

static void check_group(const im__weight *w, const im__cuda_layout *l, const uint8_t *packed, size_t output, size_t index)
{
    im__group g;
    float s, m;
    size_t length = im__dtype_get(w->dtype)->group_len;
    im__group_read(w->dtype, (const uint8_t *)w->data + output * w->row_bytes, index, &g);
    unit u = unit_of(l, packed, output, index * length);
    assert_int_equal(u.form.group, length);
    scale_at(&u, output % 32, index * length % 256 / length, &s, &m);
    if (!same(s, g.s) || !same(m, g.m))
        fail_msg("%s output %zu group %zu: %a %a, expected %a %a", im__dtype_get(w->dtype)->name, output, index, (double)s,
                 (double)m, (double)g.s, (double)g.m);
    for (size_t i = 0; i < length; i++)
        if (code_at(&u, output % 32, (index * length + i) % 256) - u.form.offset != g.w[i])
            fail_msg("%s output %zu element %zu", im__dtype_get(w->dtype)->name, output, index * length + i);
}

static void check_matrix(uint32_t dtype, size_t n_out, size_t n_in)
{
    im__weight w = make(dtype, n_out, n_in);
    im__cuda_layout l;
    assert_true(im__cuda_layout_of(dtype, n_out, n_in, &l));
    assert_int_equal(l.unit_bytes % 16, 0);
    assert_int_equal(l.last_bytes % 16, 0);
    uint8_t *packed = malloc(l.bytes);
    assert_non_null(packed);
    memset(packed, 0xa5, l.bytes); /* every byte is written */
    for (uint32_t t = 0; t < l.tiles; t++) im__cuda_pack(&w, &l, t, t + 1, packed + (size_t)t * l.tile_bytes);
    for (size_t o = 0; o < n_out; o++)
        for (size_t g = 0; g < n_in / im__dtype_get(dtype)->group_len; g++) check_group(&w, &l, packed, o, g);
    for (size_t o = n_out; o < (size_t)l.tiles * 32; o++)
        for (size_t e = 0; e < n_in; e++) {
            float s, m;
            unit u = unit_of(&l, packed, o, e);
            scale_at(&u, o % 32, e % 256 / u.form.group, &s, &m);
            assert_int_equal(code_at(&u, o % 32, e % 256), 0);
            assert_true(im__bits_of_f32(s) == 0 && im__bits_of_f32(m) == 0);
        }
    free(packed);
    free((void *)w.data);
}

static void every_type_keeps_codes_and_scales(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        size_t block = im__dtype_get(quantised[i])->block_len;
        check_matrix(quantised[i], 64, 512);
        check_matrix(quantised[i], 37, 256);
        if (block == 32) check_matrix(quantised[i], 33, 576); /* a short unit at the end of a tile */
        if (block == 32) check_matrix(quantised[i], 5, 32);
        if (block == 64) check_matrix(quantised[i], 33, 576);
        if (block == 64) check_matrix(quantised[i], 5, 64);
    }
}

static void check_floats(uint32_t dtype, size_t n_out, size_t n_in)
{
    im__weight w = make(dtype, n_out, n_in);
    im__cuda_layout l;
    assert_true(im__cuda_layout_of(dtype, n_out, n_in, &l));
    uint8_t *packed = malloc(l.bytes);
    assert_non_null(packed);
    memset(packed, 0xa5, l.bytes);
    im__cuda_pack(&w, &l, 0, l.tiles, packed);
    size_t size = dtype == IM__F32 ? 4 : 2, each = 16 / size;
    for (size_t o = 0; o < (size_t)l.tiles * 32; o++)
        for (size_t e = 0; e < n_in; e++) {
            const uint8_t *at = packed + o / 32 * l.tile_bytes + e / 256 * l.unit_bytes;
            at += (e % 256 / each * 32 + o % 32) * 16 + e % each * size;
            const uint8_t zero[4] = {0}, *expected = o < n_out ? (const uint8_t *)w.data + o * w.row_bytes + e * size : zero;
            assert_memory_equal(at, expected, size);
        }
    free(packed);
    free((void *)w.data);
}

static void floats_stand_in_pieces_of_16_bytes(void **state)
{
    (void)state;
    const uint32_t types[] = {IM__F32, IM__F16, IM__BF16};
    for (size_t i = 0; i < 3; i++) {
        check_floats(types[i], 64, 512);
        check_floats(types[i], 33, 300);
        check_floats(types[i], 3, 7);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    im__cuda_layout l;
    assert_false(im__cuda_layout_of(IM__Q4_K, 32, 128, &l));
    assert_false(im__cuda_layout_of(IM__Q4_0, 32, 40, &l));
    assert_false(im__cuda_layout_of(IM__Q4_0, 0, 32, &l));
    assert_false(im__cuda_layout_of(IM__Q4_0, 32, 0, &l));
    assert_false(im__cuda_layout_of(IM__Q4_0, 32, (size_t)1 << 40, &l));
    assert_false(im__cuda_layout_of(IM__Q4_0, (size_t)1 << 40, 32, &l));
    assert_false(im__cuda_layout_of(IM__IQ1_S, 32, 256, &l));
    assert_false(im__cuda_layout_of(IM__DTYPE_END, 32, 256, &l));
    assert_false(im__cuda_layout_of(IM__AFFINE5, 32, 256, &l));
    assert_false(im__cuda_layout_of(IM__AFFINE6, 32, 256, &l));
    for (uint32_t dtype = IM__AFFINE2_F; dtype <= IM__AFFINE8_F; dtype++) assert_false(im__cuda_layout_of(dtype, 32, 256, &l));
    assert_false(im__cuda_layout_of(IM__AFFINE4, 32, 96, &l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_keeps_codes_and_scales),
        cmocka_unit_test(floats_stand_in_pieces_of_16_bytes),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
