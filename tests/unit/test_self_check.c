/* SPDX-License-Identifier: Apache-2.0
 *
 * A wrong kernel is found by the self-check, turned down by name, and the next level serves; the answer keeps its bits.
 */
#include "backend/cpu/admit.h"
#include "backend/cpu/self_check.h"
#include "engine_fixture.h"
#include "num/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- every kernel and operation can be found wrong -------------------------------------------------------------------------------------- */

static im__matmul_fn *honest;

/* One bit of one output, in the last row, in the first or the last column. */
static void last_bit(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride, size_t begin,
                     size_t end)
{
    uint32_t bits;
    honest(w, in, bias, y, y_stride, begin, end);
    float *at = y + (in->rows - 1) * y_stride + end - 1;
    memcpy(&bits, at, sizeof bits);
    bits ^= 1;
    memcpy(at, &bits, sizeof bits);
}

/* Right for one row, wrong for a tile. */
static void wrong_tile(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride, size_t begin,
                       size_t end)
{
    honest(w, in, bias, y, y_stride, begin, end);
    if (in->rows > 1) y[y_stride] = -y[y_stride];
}

static void no_pack(const im__weight *w, void *packed, size_t begin, size_t end)
{
    (void)w;
    (void)packed;
    (void)begin;
    (void)end;
}

static bool passes(const im__matmul_kernel *k)
{
    bool good;
    assert_int_equal(im__matmul_self_check(k, &good, NULL), IM_OK);
    return good;
}

static void kernels(void **state)
{
    (void)state;
    size_t count = 0;
    for (const im__matmul_kernel *const *k = im__matmul_kernels(); *k != NULL; k++) {
        if (!im__cpu_has((*k)->level)) continue;
        im__matmul_kernel wrong = **k;
        honest = wrong.run;
        assert_true(passes(&wrong));
        wrong.run = last_bit;
        assert_false(passes(&wrong));
        wrong.run = wrong_tile;
        assert_false(passes(&wrong));
        wrong = **k;
        wrong.pack = no_pack;
        assert_false(passes(&wrong));
        count++;
    }
    if (im__cpu_best() == IM__CPU_C) skip();
    assert_true(count > 0);
}

/* An operation that leaves its output as it was. */
static void no_add(float *y, const float *x, size_t n) { (void)y, (void)x, (void)n; }
static void no_scale(float *y, const float *x, size_t n, float by) { (void)y, (void)x, (void)n, (void)by; }
static void no_softcap(float *y, size_t n, float cap) { (void)y, (void)n, (void)cap; }
static void no_glu(float *y, const float *gate, const float *up, size_t n, im__glu kind)
{
    (void)y, (void)gate, (void)up, (void)n, (void)kind;
}
static void no_quantise(const im__act *act, size_t row, const float *x) { (void)act, (void)row, (void)x; }
static void no_norm(float *y, const float *x, const float *w, size_t n, size_t count, float eps)
{
    (void)y, (void)x, (void)w, (void)n, (void)count, (void)eps;
}
static int32_t first_id(const float *x, size_t n) { return (void)x, (void)n, 0; }
static size_t no_store(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k, const float *v)
{
    return (void)kv, (void)kv_heads, (void)head_dim, (void)position, (void)k, (void)v, 0;
}
static im__ops plain;
static void only_halves(float *x, size_t heads, size_t head_dim, size_t rot_dim, const float *cosine, const float *sine,
                        bool adjacent)
{
    (void)adjacent;
    plain.rope(x, heads, head_dim, rot_dim, cosine, sine, false);
}
static void no_window(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end, float *scratch)
{
    im__attention all = *a;
    all.window = 0;
    plain.attention(&all, row_begin, row_end, kv_begin, kv_end, scratch);
}

static void expect_wrong(im__ops ops, const char *name)
{
    const char *wrong = NULL;
    assert_int_equal(im__ops_self_check(&ops, &wrong, NULL), IM_OK);
    assert_non_null(wrong);
    assert_string_equal(wrong, name);
}

static void operations(void **state)
{
    (void)state;
    const char *wrong;
    im__ops_c(&plain);
    im__ops o = plain;
    assert_int_equal(im__ops_self_check(&o, &wrong, NULL), IM_OK);
    assert_null(wrong);
    o = plain, o.add = no_add, expect_wrong(o, "add");
    o = plain, o.scale = no_scale, expect_wrong(o, "scale");
    o = plain, o.softcap = no_softcap, expect_wrong(o, "softcap");
    o = plain, o.glu = no_glu, expect_wrong(o, "glu");
    o = plain, o.quantise = no_quantise, expect_wrong(o, "quantise");
    o = plain, o.rms_norm = no_norm, expect_wrong(o, "rms_norm");
    o = plain, o.argmax = first_id, expect_wrong(o, "argmax");
    o = plain, o.kv_store = no_store, expect_wrong(o, "kv_store");
    o = plain, o.rope = only_halves, expect_wrong(o, "rope");
    o = plain, o.attention = no_window, expect_wrong(o, "attention");
}

/* ---- the engine goes on without it --------------------------------------------------------------------------------------------------------- */

static void kernels_line(const char *planted, char *line, size_t size, uint64_t *hash)
{
    im_engine_options o = sized(2, 32, 64, 1);
    im_engine_info info;
    im__admit_plant(planted);
    im_engine *e = open_tiny(&o);
    im_engine_get_info(e, &info);
    snprintf(line, size, "%s", info.kernels);
    *hash = generate_hash(e, 20, 1, 4, 0);
    im_engine_close(e);
    im__admit_plant(NULL);
}

static size_t times(const char *line, const char *word)
{
    size_t n = 0;
    for (const char *at = line; (at = strstr(at, word)) != NULL; at++) n++;
    return n;
}

static void a_wrong_kernel_is_replaced(void **state)
{
    (void)state;
    char line[1024], name[64], lower[64];
    uint64_t want, hash;
    im__cpu_level best = im__cpu_best();
    if (best == IM__CPU_C) skip();
    kernels_line(NULL, line, sizeof line, &want);
    const im__matmul_kernel *k = im__matmul_pick(IM__Q8_0, 64, 64, best);
    const im__matmul_kernel *next = im__matmul_pick(IM__Q8_0, 64, 64, (im__cpu_level)(k->level - 1));
    assert_non_null(strstr(line, k->name));
    assert_null(strstr(line, "rejected"));
    snprintf(name, sizeof name, "rejected by the self-check: %s", k->name);
    snprintf(lower, sizeof lower, "Q8_0 %s", next == NULL ? "plain C" : next->name);
    kernels_line(k->name, line, sizeof line, &hash);
    if (strstr(line, name) == NULL || strstr(line, lower) == NULL) fail_msg("%s", line);
    assert_int_equal(times(line, k->name), 1); /* named once, not for every matrix */
    assert_true(hash == want);
}

static void a_wrong_operation_is_replaced(void **state)
{
    (void)state;
    char line[1024], name[64];
    uint64_t want, hash;
    if (im__cpu_best() == IM__CPU_C) skip();
    kernels_line(NULL, line, sizeof line, &want);
    for (const char *const *level = im_cpu_levels() + 1; *level != NULL; level++) {
        snprintf(name, sizeof name, "ops_%s", *level);
        kernels_line(name, line, sizeof line, &hash);
        bool used = level[1] == NULL; /* lower levels are not asked when the best one passes */
        if ((strstr(line, "operation rejected by the self-check: add") != NULL) != used) fail_msg("%s: %s", name, line);
        assert_true(hash == want);
    }
}

static void the_check_on_request(void **state)
{
    (void)state;
    size_t checked = 0;
    for (const char *const *level = im_cpu_levels(); *level != NULL; level++) {
        assert_int_equal(im_cpu_self_check(*level, &checked, NULL), IM_OK);
        assert_true(checked >= 1);
    }
    assert_int_equal(im_cpu_self_check("mmx", &checked, NULL), IM_ERR_ARGUMENT);
    assert_int_equal(im_cpu_self_check(NULL, NULL, NULL), IM_ERR_ARGUMENT);
    for (int level = 0; level < IM__CPU_LEVELS; level++)
        if (!im__cpu_has((im__cpu_level)level))
            assert_int_equal(im_cpu_self_check(im__cpu_level_name((im__cpu_level)level), NULL, NULL), IM_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels),
        cmocka_unit_test(operations),
        cmocka_unit_test(a_wrong_kernel_is_replaced),
        cmocka_unit_test(a_wrong_operation_is_replaced),
        cmocka_unit_test(the_check_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
