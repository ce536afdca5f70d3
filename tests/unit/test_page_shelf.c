/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages in the host's memory: what was put comes back, what has not been used for longest goes, and no more is held than the limit.
 */
#include "engine/page_shelf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 1000, NAMES = 300 };

/* Names that share buckets, and pairs that differ in one half only. */
static im__page_name name_of(uint32_t i) { return (im__page_name){(i / 2) * 64u, i % 2 + i / 2}; }

static void fill(char *bytes, uint32_t i, uint32_t version)
{
    for (uint32_t k = 0; k < BYTES; k++) bytes[k] = (char)(i * 31 + version * 7 + k);
}

static im__shelf *open_shelf(uint64_t limit)
{
    im__shelf *s = NULL;
    assert_int_equal(im__shelf_new(&s, limit, NULL), IM_OK);
    return s;
}

static bool put_since(im__shelf *s, im__pool_kind pool, uint32_t i, uint32_t version, uint64_t since)
{
    char bytes[BYTES];
    im__page_name name = name_of(i);
    fill(bytes, i + 1000 * (uint32_t)pool, version);
    return im__shelf_put(s, pool, &name, bytes, BYTES, since);
}

static bool put(im__shelf *s, im__pool_kind pool, uint32_t i, uint32_t version)
{
    return put_since(s, pool, i, version, UINT64_MAX);
}

static bool is_there(im__shelf *s, im__pool_kind pool, uint32_t i, uint32_t version)
{
    char bytes[BYTES];
    im__page_name name = name_of(i);
    const void *got = im__shelf_get(s, pool, &name, BYTES);
    assert_int_equal(got != NULL, im__shelf_has(s, pool, &name));
    assert_null(im__shelf_get(s, pool, &name, BYTES - 1));
    if (got == NULL) return false;
    fill(bytes, i + 1000 * (uint32_t)pool, version);
    assert_memory_equal(got, bytes, BYTES);
    return true;
}

static void all_comes_back(void **state)
{
    (void)state;
    im__shelf *s = open_shelf(1 << 30);
    assert_int_equal(im__shelf_bytes(s), 0);
    for (uint32_t i = 0; i < NAMES; i++)
        for (int k = 0; k < IM__POOLS; k++) assert_true(put(s, (im__pool_kind)k, i, 0));
    for (uint32_t i = 0; i < NAMES; i++)
        for (int k = 0; k < IM__POOLS; k++) assert_true(is_there(s, (im__pool_kind)k, i, 0));
    uint64_t full = im__shelf_bytes(s);
    assert_true(full >= 2 * NAMES * BYTES && full < 2 * NAMES * (BYTES + 100));
    assert_true(put(s, IM__POOL_FULL, 5, 1) && is_there(s, IM__POOL_FULL, 5, 1) && is_there(s, IM__POOL_WINDOW, 5, 0));
    assert_int_equal(im__shelf_bytes(s), full);
    im__page_name gone = name_of(7);
    im__shelf_drop(s, IM__POOL_FULL, &gone);
    im__shelf_drop(s, IM__POOL_FULL, &gone);
    assert_true(!is_there(s, IM__POOL_FULL, 7, 0) && is_there(s, IM__POOL_WINDOW, 7, 0) && is_there(s, IM__POOL_FULL, 6, 0));
    for (uint32_t i = 0; i < NAMES; i++)
        for (int k = 0; k < IM__POOLS; k++) {
            im__page_name name = name_of(i);
            im__shelf_drop(s, (im__pool_kind)k, &name);
        }
    assert_int_equal(im__shelf_bytes(s), 0);
    im__shelf_free(s);
}

static void the_oldest_goes(void **state)
{
    (void)state;
    const uint64_t limit = 10 * (BYTES + 100);
    im__shelf *s = open_shelf(limit);
    for (uint32_t i = 0; i < 10; i++) assert_true(put(s, IM__POOL_FULL, i, 0));
    im__page_name first = name_of(0), third = name_of(2), none = name_of(99);
    assert_true(im__shelf_touch(s, IM__POOL_FULL, &first) && im__shelf_touch(s, IM__POOL_FULL, &third));
    assert_false(im__shelf_touch(s, IM__POOL_FULL, &none) || im__shelf_touch(s, IM__POOL_WINDOW, &first));
    for (uint32_t i = 10; i < 18; i++) assert_true(put(s, IM__POOL_FULL, i, 0));
    assert_true(im__shelf_bytes(s) <= limit);
    for (uint32_t i = 0; i < 18; i++) assert_int_equal(is_there(s, IM__POOL_FULL, i, 0), i >= 10 || i == 0 || i == 2);
    for (uint32_t i = 100; i < 400; i++) assert_true(put(s, IM__POOL_WINDOW, i, 0) && im__shelf_bytes(s) <= limit);
    assert_true(is_there(s, IM__POOL_WINDOW, 399, 0) && !is_there(s, IM__POOL_FULL, 17, 0));
    im__shelf_free(s);
}

static void the_end_of_a_text_does_not_push_out_its_beginning(void **state)
{
    (void)state;
    im__shelf *s = open_shelf(4 * (BYTES + 100));
    for (uint32_t i = 0; i < 3; i++) assert_true(put(s, IM__POOL_FULL, 100 + i, 0));
    im__page_name known = name_of(101);
    uint64_t since = im__shelf_now(s);
    assert_true(im__shelf_touch(s, IM__POOL_FULL, &known)); /* which the text has, too */
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(put_since(s, IM__POOL_FULL, i, 0, since), i < 3);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(is_there(s, IM__POOL_FULL, i, 0), i < 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(is_there(s, IM__POOL_FULL, 100 + i, 0), i == 1);
    assert_true(put_since(s, IM__POOL_FULL, 50, 0, im__shelf_now(s)) && is_there(s, IM__POOL_FULL, 50, 0)); /* another text may */
    im__shelf_free(s);
}

static void what_is_larger_than_all_is_refused(void **state)
{
    (void)state;
    im__shelf *s = open_shelf(BYTES);
    assert_false(put(s, IM__POOL_FULL, 1, 0));
    assert_false(is_there(s, IM__POOL_FULL, 1, 0));
    assert_int_equal(im__shelf_bytes(s), 0);
    im__shelf_free(s);
    im__shelf_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_comes_back),
        cmocka_unit_test(the_oldest_goes),
        cmocka_unit_test(the_end_of_a_text_does_not_push_out_its_beginning),
        cmocka_unit_test(what_is_larger_than_all_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
