/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plain C functions promise beside their bits (those are judged in test_contract.py): what is not finite, what is invisible, and
 * that rows do not see each other. Runs for every level of this machine.
 */
#include "backend/cpu/kernels.h"
#include "num/dtype.h"
#include "num/half.h"
#include "num/real.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static im__ops ops;

static float noise(void)
{
    static uint32_t seed = 7;
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-30f;
}

static bool same(const float *a, const float *b, size_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

/* ---- quantising ---- */

static uint64_t act_memory[512];

static im__act one_row(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = noise();
    return im__act_carve(act_memory, 1, n);
}

static void a_group_that_is_not_finite_is_nan(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 4; b++)
        for (size_t at = 0; at < 96; at++) {
            float x[96];
            im__act act = one_row(x, 96);
            x[at] = bad[b];
            ops.quantise(&act, 0, x);
            for (size_t g = 0; g < 3; g++) assert_true((isnan(act.d[g]) != 0) == (g == at / 32));
            for (size_t i = at / 32 * 32; i < at / 32 * 32 + 32; i++) assert_int_equal(act.q[i], 0);
            assert_true(act.sum[at / 32 * 2] == 0 && act.sum[at / 32 * 2 + 1] == 0);
        }
}

static void small_and_large_groups(void **state)
{
    (void)state;
    float x[96];
    im__act act = one_row(x, 96);
    for (size_t i = 0; i < 32; i++) x[i] = i % 2 ? 0x1.fffffep-65f : -0.0f; /* just below 2^-64 */
    for (size_t i = 32; i < 64; i++) x[i] = i % 2 ? 0x1p-64f : -0x1p-64f;
    for (size_t i = 64; i < 96; i++) x[i] = i % 2 ? 0x1.fffffep+127f : -0x1.fffffep+127f;
    ops.quantise(&act, 0, x);
    assert_true(act.d[0] == 0 && act.d[1] == 0x1p-64f / 127 && act.d[2] == 0x1.fffffep+127f / 127);
    for (size_t i = 0; i < 96; i++) assert_int_equal(act.q[i], i < 32 ? 0 : i % 2 ? 127 : -127);
}

static void a_nan_activation_reaches_the_output(void **state)
{
    (void)state;
    float x[64], y[16];
    im__act act = one_row(x, 64);
    x[40] = NAN;
    ops.quantise(&act, 0, x);
    static uint8_t data[16 * 68]; /* Q8_0 of zeros: even a weight of 0 hides no NaN */
    im__weight w = {.dtype = IM__Q8_0, .n_in = 64, .n_out = 16, .data = data, .row_bytes = 68};
    im__matmul_c(&w, &(im__matmul_in){.act = &act, .rows = 1}, NULL, y, 16, 0, 16);
    for (size_t o = 0; o < 16; o++) assert_true(isnan(y[o]));
}

/* ---- choice ---- */

static void argmax_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    static float x[300];
    for (size_t n = 1; n <= 300; n += n < 70 ? 1 : 23) {
        for (size_t i = 0; i < n; i++) x[i] = -1.0f - (float)(i % 3);
        x[n / 2] = x[n - 1] = 5.0f;
        assert_int_equal(ops.argmax(x, n), n / 2);
        x[n - 1] = NAN;
        assert_int_equal(ops.argmax(x, n), -1);
        for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
        assert_int_equal(ops.argmax(x, n), 0);
        x[0] = -0.0f, x[n - 1] = 0.0f; /* equal */
        assert_int_equal(ops.argmax(x, n), 0);
    }
}

/* ---- the cache ---- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 24, PAGES = 3, HALF = KV_HEADS * DIM * IM__PAGE, WIDTH = HEADS * DIM };

static uint16_t halves[PAGES * 2 * HALF];
static float floats[PAGES * 2 * HALF];
static const int32_t table[PAGES] = {2, 0, 1};
static const im__kv_view views[IM__KV_TYPES] = {
    [IM__KV_F16] = {.type = IM__KV_F16, .base = halves, .page_stride = 2 * HALF, .v_offset = HALF, .table = table},
    [IM__KV_F32] = {.type = IM__KV_F32, .base = floats, .page_stride = 2 * HALF, .v_offset = HALF, .table = table},
};
static im__kv_view view; /* the one under test */

static float cached(size_t at) { return view.type == IM__KV_F32 ? floats[at] : im__f32_of_f16(halves[at]); }

static void fill_cache(int32_t positions)
{
    float k[KV_HEADS * DIM], v[KV_HEADS * DIM];
    for (size_t i = 0; i < PAGES * 2 * HALF; i++) halves[i] = 0x7e00, floats[i] = NAN; /* left behind by somebody */
    for (int32_t p = 0; p < positions; p++) {
        for (size_t i = 0; i < KV_HEADS * DIM; i++) k[i] = noise(), v[i] = noise();
        assert_int_equal(ops.kv_store(&view, KV_HEADS, DIM, p, k, v), 0);
    }
}

static void stored_values_are_clamped_and_counted(void **state)
{
    (void)state;
    float k[KV_HEADS * DIM] = {65504.0f, 65504.01f, -1e30f, INFINITY, -INFINITY, NAN, 0x1p-24f, 0x1p-26f},
                       v[KV_HEADS * DIM] = {-65519.0f};
    assert_int_equal(ops.kv_store(&views[IM__KV_F16], KV_HEADS, DIM, 70, k, v), 5);
    const uint16_t *key = halves + 6, *value = halves + HALF + 6 * DIM; /* position 70: page 0, slot 6 */
    const uint16_t expected[] = {0x7bff, 0x7bff, 0xfbff, 0x7bff, 0xfbff, 0, 1, 0};
    for (size_t d = 0; d < 8; d++)
        if (d != 5) assert_int_equal(key[d * IM__PAGE], expected[d]);
    assert_true(isnan(im__f32_of_f16(key[5 * IM__PAGE])));
    assert_int_equal(value[0], 0xfbff);
}

/* In binary32 nothing is clamped or rounded, and nobody else's slot is touched. */
static void stored_floats_stay_as_they_are(void **state)
{
    (void)state;
    float k[KV_HEADS * DIM], v[KV_HEADS * DIM];
    const float hard[] = {65504.01f, -1e30f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0.0f, 0x1.fffffep-1f};
    view = views[IM__KV_F32];
    fill_cache(0);
    for (size_t i = 0; i < KV_HEADS * DIM; i++) k[i] = hard[i % 8], v[i] = hard[(i + 3) % 8];
    assert_int_equal(ops.kv_store(&view, KV_HEADS, DIM, 70, k, v), 0);
    size_t changed = 0;
    for (size_t h = 0; h < KV_HEADS; h++)
        for (size_t d = 0; d < DIM; d++) {
            size_t key = (h * DIM + d) * IM__PAGE + 6, value = HALF + (h * IM__PAGE + 6) * DIM + d;
            assert_memory_equal(&floats[key], &k[h * DIM + d], sizeof(float));
            assert_memory_equal(&floats[value], &v[h * DIM + d], sizeof(float));
        }
    for (size_t i = 0; i < PAGES * 2 * HALF; i++) changed += !isnan(floats[i]);
    assert_int_equal(changed, 2 * KV_HEADS * DIM * 7 / 8);
}

static im__attention three_rows(const float *q, float *out, const int32_t *position)
{
    return (im__attention){.kv = view,
                           .heads = HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .scale = 0.3f,
                           .q = q,
                           .q_stride = WIDTH,
                           .out = out,
                           .out_stride = WIDTH,
                           .position = position};
}

/* All rows at once, one by one, and in another order: the same bits; invisible slots are full of NaN. */
static void rows_of_attention_are_alone(void **state)
{
    view = *(const im__kv_view *)*state;
    static float q[5 * WIDTH], together[5 * WIDTH], alone[5 * WIDTH], scratch[65536];
    const int32_t position[] = {3, 63, 64, 70, 129};
    assert_true(im__attention_scratch(HEADS, KV_HEADS, DIM) < 65536);
    fill_cache(130);
    for (size_t i = 0; i < 5 * WIDTH; i++) q[i] = noise();
    for (uint32_t window = 0; window < 100; window += 33) {
        im__attention a = three_rows(q, together, position);
        a.window = window;
        ops.attention(&a, 0, 5, 0, KV_HEADS, scratch);
        a.out = alone;
        for (size_t r = 5; r-- > 0;)
            for (size_t h = 0; h < KV_HEADS; h++) ops.attention(&a, r, r + 1, h, h + 1, scratch);
        assert_true(same(together, alone, 5 * WIDTH));
        for (size_t i = 0; i < 5 * WIDTH; i++) assert_true(isfinite(alone[i]) && fabsf(alone[i]) <= 2);
    }
}

/* The newest key is NaN: its own row is NaN, the rows before it are as they were. */
static void a_nan_key_stays_with_those_who_see_it(void **state)
{
    view = *(const im__kv_view *)*state;
    static float q[2 * WIDTH], before[2 * WIDTH], after[2 * WIDTH], scratch[65536], nan[KV_HEADS * DIM];
    const int32_t position[] = {99, 100};
    fill_cache(101);
    for (size_t i = 0; i < 2 * WIDTH; i++) q[i] = noise();
    im__attention a = three_rows(q, before, position);
    ops.attention(&a, 0, 2, 0, KV_HEADS, scratch);
    for (size_t i = 0; i < KV_HEADS * DIM; i++) nan[i] = NAN;
    ops.kv_store(&view, KV_HEADS, DIM, 100, nan, nan);
    a.out = after;
    ops.attention(&a, 0, 2, 0, KV_HEADS, scratch);
    assert_true(same(before, after, WIDTH));
    for (size_t i = 0; i < WIDTH; i++) assert_true(isfinite(after[i]) && isnan(after[WIDTH + i]));
}

/* A window of one sees one key: the answer is its value. */
static void one_key_gives_its_value(void **state)
{
    view = *(const im__kv_view *)*state;
    static float q[WIDTH], out[WIDTH], scratch[65536];
    const int32_t position[] = {77};
    fill_cache(78);
    im__attention a = three_rows(q, out, position);
    a.window = 1;
    ops.attention(&a, 0, 1, 0, KV_HEADS, scratch);
    for (size_t h = 0; h < HEADS; h++)
        for (size_t d = 0; d < DIM; d++)
            assert_true(out[h * DIM + d] == cached(HALF + (h / 2 * IM__PAGE + 77 % IM__PAGE) * DIM + d));
}

/* ---- embedding, memory ---- */

static void embedding_is_scaled(void **state)
{
    (void)state;
    const float rows[2][4] = {{1, 2, 3, 4}, {5, -6, 0.1f, 7}};
    im__weight w = {.dtype = IM__F32, .n_in = 4, .n_out = 2, .data = rows, .row_bytes = 16};
    float x[4];
    im__embed_row(&w, 1, 1.0f, x);
    assert_true(same(x, rows[1], 4));
    im__embed_row(&w, 1, 0.7f, x);
    for (size_t i = 0; i < 4; i++) assert_true(x[i] == rows[1][i] * 0.7f);
}

static void carved_rows_do_not_overlap(void **state)
{
    (void)state;
    static _Alignas(64) uint8_t block[32768];
    for (size_t rows = 1; rows < 40; rows += 13)
        for (size_t n = 32; n < 700; n += 96) {
            im__act a = im__act_carve(block, rows, n);
            size_t d = (size_t)((uint8_t *)a.d - block), sum = (size_t)((uint8_t *)a.sum - block);
            assert_true(a.n == n && a.q == (int8_t *)block && d % 64 == 0 && sum % 64 == 0);
            assert_true(d >= rows * n && sum >= d + rows * n / 32 * 4);
            assert_true(im__act_bytes(rows, n) >= sum + rows * n / 16 * 2 && im__act_bytes(rows, n) <= sizeof block);
        }
}

/* ---- levels ---- */

static void levels_have_names(void **state)
{
    (void)state;
    for (int level = 0; level < IM__CPU_LEVELS; level++) {
        im__cpu_level found;
        assert_true(im__cpu_level_parse(im__cpu_level_name((im__cpu_level)level), &found));
        assert_int_equal(found, level);
    }
    im__cpu_level untouched = IM__CPU_AVX2;
    assert_false(im__cpu_level_parse("sse9", &untouched));
    assert_int_equal(untouched, IM__CPU_AVX2);
    assert_true(im__cpu_has(IM__CPU_C) && im__cpu_has(im__cpu_best()));
}

/* The state of a test is the view of one type of cache. */
#define OF_TYPE(test, type) cmocka_unit_test_prestate(test, (void *)&views[type])
#define OF_EACH_TYPE(test) OF_TYPE(test, IM__KV_F16), OF_TYPE(test, IM__KV_F32)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_is_not_finite_is_nan),
        cmocka_unit_test(small_and_large_groups),
        cmocka_unit_test(a_nan_activation_reaches_the_output),
        cmocka_unit_test(argmax_takes_the_lowest_of_equals),
        cmocka_unit_test(stored_values_are_clamped_and_counted),
        cmocka_unit_test(stored_floats_stay_as_they_are),
        OF_EACH_TYPE(rows_of_attention_are_alone),
        OF_EACH_TYPE(a_nan_key_stays_with_those_who_see_it),
        OF_EACH_TYPE(one_key_gives_its_value),
        cmocka_unit_test(embedding_is_scaled),
        cmocka_unit_test(carved_rows_do_not_overlap),
        cmocka_unit_test(levels_have_names),
    };
    int failed = 0;
    for (int level = 0; level < IM__CPU_LEVELS; level++) {
        if (!im__cpu_has((im__cpu_level)level)) continue;
        print_message("level %s\n", im__cpu_level_name((im__cpu_level)level));
        im__ops_c(&ops);
        im__ops_cpu(&ops, (im__cpu_level)level);
        failed += cmocka_run_group_tests_name(im__cpu_level_name((im__cpu_level)level), tests, NULL, NULL);
    }
    return failed;
}
