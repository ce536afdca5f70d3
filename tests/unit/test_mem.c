/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void products_and_sums_are_checked(void **state)
{
    (void)state;
    size_t out = 42;
    assert_false(im__mul(SIZE_MAX, 2, &out));
    assert_false(im__mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(im__add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 42);
    assert_true(im__mul(SIZE_MAX / 2, 2, &out));
    assert_int_equal(out, SIZE_MAX - 1);
    assert_true(im__mul(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
    assert_true(im__mul(SIZE_MAX, 0, &out));
    assert_int_equal(out, 0);
    assert_true(im__add(SIZE_MAX - 1, 1, &out));
    assert_int_equal(out, SIZE_MAX);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX / 2; /* volatile: the compiler need not warn about what is done on purpose */
    char *kept = im__strdup("kept", 4);
    assert_null(im__calloc(huge, 4));
    assert_null(im__realloc(kept, huge, 4));
    assert_string_equal(kept, "kept");
    assert_null(im__strdup("x", SIZE_MAX));
    assert_null(im__aligned_alloc(SIZE_MAX - 8));
    im__free(kept);
}

static void empty_sizes_give_a_pointer(void **state)
{
    (void)state;
    void *a = im__calloc(0, 8), *b = im__calloc(8, 0), *c = im__realloc(NULL, 0, 0);
    assert_true(a != NULL && b != NULL && c != NULL && a != b);
    im__free(a);
    im__free(b);
    im__free(c);
    im__free(NULL);
}

static void aligned_memory_is_aligned_and_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 8u << 20, (9u << 20) + 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = im__aligned_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            if (p[k] != 0) fail_msg("byte %zu of %zu is not zero", k, sizes[i]);
        if (sizes[i] > 0) memset(p, 0xa5, sizes[i]);
        im__aligned_free(p, sizes[i]);
    }
    im__aligned_free(NULL, 12);
}

static void nth_allocation_fails_once(void **state)
{
    (void)state;
    im__alloc_fail_after(3);
    void *a = im__calloc(1, 1), *b = im__aligned_alloc(8), *c = im__calloc(1, 1), *d = im__calloc(1, 1);
    assert_true(a != NULL && b != NULL && d != NULL);
    assert_null(c);
    im__alloc_fail_after(1);
    assert_null(im__strdup("x", 1));
    im__alloc_fail_after(1);
    assert_null(im__realloc(NULL, 1, 1));
    im__alloc_fail_after(0);
    im__free(a);
    im__aligned_free(b, 8);
    im__free(d);
}

static void buffer_grows_and_stays_terminated(void **state)
{
    (void)state;
    im__buf b = {0};
    char want[5000];
    size_t n = 0;
    for (int i = 0; i < 1000; i++) {
        im__buf_append(&b, "abcde", (size_t)(i % 6));
        memcpy(want + n, "abcde", (size_t)(i % 6));
        n += (size_t)(i % 6);
        assert_int_equal(b.len, n);
        assert_int_equal(b.data[b.len], 0);
    }
    assert_memory_equal(b.data, want, n);
    im__buf_printf(&b, "%d-%s", 12, "x");
    assert_string_equal(b.data + n, "12-x");
    im__buf_puts(&b, "!");
    assert_string_equal(b.data + n, "12-x!");
    assert_false(b.failed);
    im__buf_free(&b);
    assert_null(b.data);
    assert_int_equal(b.len, 0);
}

static void failed_buffer_keeps_what_it_had(void **state)
{
    (void)state;
    im__buf b = {0};
    im__buf_puts(&b, "first");
    im__alloc_fail_after(1);
    for (int i = 0; i < 100; i++) im__buf_puts(&b, "0123456789");
    im__alloc_fail_after(0);
    assert_true(b.failed);
    size_t len = b.len;
    im__buf_puts(&b, "later");
    im__buf_printf(&b, "%s", "later");
    assert_int_equal(b.len, len);
    assert_memory_equal(b.data, "first", 5);
    im__buf_free(&b);
    im__buf empty = {0};
    im__buf_append(&empty, "x", SIZE_MAX);
    assert_true(empty.failed);
    im__buf_free(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_sums_are_checked),   cmocka_unit_test(impossible_sizes_give_null),
        cmocka_unit_test(empty_sizes_give_a_pointer),      cmocka_unit_test(aligned_memory_is_aligned_and_zero),
        cmocka_unit_test(nth_allocation_fails_once),       cmocka_unit_test(buffer_grows_and_stays_terminated),
        cmocka_unit_test(failed_buffer_keeps_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
