/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON reader: what it refuses, and what it finds in what it takes.
 */
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A checked copy without anything behind it, so that a sanitizer sees a read of one byte too many. */
static im__json good(const char *text, char **copy)
{
    im__json root;
    im_error err;
    size_t n = strlen(text);
    *copy = im__calloc(n, 1);
    assert_non_null(*copy);
    memcpy(*copy, text, n);
    if (im__json_check(*copy, n, "t", &root, &err) != IM_OK) fail_msg("%s: %s", text, err.message);
    return root;
}

static void refused(const char *text, size_t n, const char *why)
{
    im__json root;
    im_error err = {IM_OK, ""};
    char *copy = im__calloc(n + 1, 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    if (im__json_check(copy, n, "t", &root, &err) != IM_ERR_FORMAT) fail_msg("taken: %s", text);
    if (strstr(err.message, why) == NULL) fail_msg("%s: %s", text, err.message);
    assert_null(root.ptr);
    im__free(copy);
}

static void what_is_not_json(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "empty"},
        {"{", "string is missing"},
        {"[", "value is missing"},
        {"[1,]", "value is missing"},
        {"{\"a\":1,}", "string is missing"},
        {"{\"a\" 1}", "colon"},
        {"{1:2}", "string is missing"},
        {"[1 2]", "comma"},
        {"{]", "string is missing"},
        {"[}", "value is missing"},
        {"[1}", "comma"},
        {"{\"a\":1]", "comma"},
        {"1 1", "behind the end"},
        {"[] x", "behind the end"},
        {"01", "number"},
        {"-", "number"},
        {"+1", "number"},
        {".5", "number"},
        {"1.", "point"},
        {"1e", "exponent"},
        {"1e+", "exponent"},
        {"NaN", "number"},
        {"nul", "number"},
        {"True", "number"},
        {"\"", "without an end"},
        {"\"abcdefghijklmnop", "without an end"},
        {"\"\\", "escape"},
        {"\"\\x\"", "escape"},
        {"\"\\u12\"", "escape"},
        {"\"\\u12g4\"", "escape"},
        {"\"\\ud800\"", "escape"},
        {"\"\\ud800\\u0041\"", "escape"},
        {"\"\\udc00\"", "escape"},
        {"\"a\nb\"", "control"},
        {"\"abcdefg\x01\"", "control"},
        {"\"abcdefgh\xff\"", "UTF-8"},
        {"\"\xc3\"", "UTF-8"},
        {"\"\xed\xa0\x80\"", "UTF-8"},
        {"\xef\xbb\xbf{}", "number"},
        {"'a'", "number"},
        {"// x\n1", "number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i][0], strlen(bad[i][0]), bad[i][1]);
    refused("\"a\0b\"", 5, "control");
    refused("1\0", 2, "behind the end");
}

static void levels_are_bounded(void **state)
{
    (void)state;
    char text[400], *copy;
    for (int levels = 64; levels <= 65; levels++) {
        memset(text, '[', (size_t)levels);
        memset(text + levels, ']', (size_t)levels);
        text[2 * levels] = 0;
        if (levels == 65)
            refused(text, strlen(text), "64 levels");
        else
            assert_int_equal(im__json_kind_of(good(text, &copy)), IM__JSON_ARRAY);
    }
    im__free(copy);
}

static void members_and_elements(void **state)
{
    (void)state;
    char *copy;
    im__json key, v,
        root =
            good(" { \"a\" : [ 1 , {\"x\":\"]}\\\"\"} ,[],{}, -2.5e3, null ] , \"b\":true,\"c\":{\"a\":7},\"d\":false , \"b\":2} ",
                 &copy);
    assert_int_equal(im__json_member(root, "a", &v), 1);
    static const im__json_kind kinds[] = {IM__JSON_NUMBER, IM__JSON_OBJECT, IM__JSON_ARRAY,
                                          IM__JSON_OBJECT, IM__JSON_NUMBER, IM__JSON_NULL};
    static const size_t lengths[] = {1, 12, 2, 2, 6, 4};
    size_t n = 0;
    for (im__json_items i = im__json_items_of(v); im__json_next(&i, &key, &v); n++) {
        assert_true(n < 6 && im__json_kind_of(v) == kinds[n] && v.len == lengths[n] && key.ptr == NULL);
    }
    assert_int_equal(n, 6);
    assert_int_equal(im__json_member(root, "b", &v), 2);
    assert_int_equal(im__json_kind_of(v), IM__JSON_TRUE);
    assert_int_equal(im__json_member(root, "x", &v), 0);
    assert_int_equal(im__json_kind_of(v), IM__JSON_NONE);
    assert_int_equal(im__json_member(root, "c", &v), 1);
    assert_int_equal(im__json_member(v, "a", &v), 1);
    assert_int_equal(im__json_member(v, "a", &v), 0);
    n = 0;
    for (im__json_items i = im__json_items_of(root); im__json_next(&i, &key, &v); n++) assert_int_equal(key.len, 3);
    assert_int_equal(n, 5);
    im__free(copy);
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool whole;
        uint64_t u;
        double d;
    } cases[] = {
        {"0", true, 0, 0},
        {"18446744073709551615", true, UINT64_MAX, 0x1p64},
        {"18446744073709551616", false, 0, 0x1p64},
        {"99999999999999999999", false, 0, 1e20},
        {"-1", false, 0, -1},
        {"1.0", false, 0, 1},
        {"1e3", false, 0, 1000},
        {"9.999999974752427e-07", false, 0, 9.999999974752427e-07},
        {"1E400", false, 0, INFINITY},
        {"0.1", false, 0, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy;
        uint64_t u = 77;
        double d = 77;
        im__json v = good(cases[i].text, &copy);
        assert_int_equal(im__json_u64(v, &u), cases[i].whole);
        assert_true(u == (cases[i].whole ? cases[i].u : 77));
        assert_true(im__json_double(v, &d) && d == cases[i].d);
        im__free(copy);
    }
    char *copy;
    bool b;
    uint64_t u;
    double d;
    im__json v = good("\"1\"", &copy);
    assert_false(im__json_u64(v, &u) || im__json_double(v, &d) || im__json_bool(v, &b));
    im__free(copy);
}

static void strings(void **state)
{
    (void)state;
    char *copy, out[16];
    im__buf b = {0};
    im__json v = good("\"a\\n\\u00e9\\ud83d\\ude00\\\"\\\\ plain text that is long \xc3\xa9\"", &copy);
    assert_true(im__json_text(v, &b));
    assert_string_equal(b.data, "a\n\xc3\xa9\xf0\x9f\x98\x80\"\\ plain text that is long \xc3\xa9");
    assert_true(im__json_is(v, b.data));
    assert_false(im__json_is(v, "a\n") || im__json_is(v, "") || im__json_copy(v, out, sizeof out));
    im__buf_free(&b);
    im__free(copy);
    v = good("\"123456789abcdef\"", &copy);
    assert_true(im__json_copy(v, out, 16));
    assert_string_equal(out, "123456789abcdef");
    assert_false(im__json_copy(v, out, 15) || im__json_is(v, "123456789abcdefg") || im__json_is(v, "123456789abcde"));
    im__free(copy);
    v = good("\"a\\u0000b\"", &copy);
    assert_false(im__json_copy(v, out, 16) || im__json_is(v, "a"));
    assert_true(im__json_text(v, &b) && b.len == 3);
    im__buf_free(&b);
    im__free(copy);
}

static void order_of_strings(void **state)
{
    (void)state;
    static const char *const sorted[] = {"\"\"", "\"a\"", "\"a\\u0062\"", "\"abc\"", "\"b\"", "\"\\u00e9\""};
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++) {
            char *x, *y;
            int c = im__json_compare(good(sorted[i], &x), good(sorted[j], &y));
            assert_true(i < j ? c < 0 : i > j ? c > 0 : c == 0);
            im__free(x);
            im__free(y);
        }
}

static void entering_and_leaving(void **state)
{
    (void)state;
    char *copy;
    im__json key, v;
    im__json_items inside, deeper;
    im__json_items i = im__json_items_of(good("{\"a\": {\"x\": [1, {\"}\": 2}], \"y\": 3} , \"b\":[], \"c\": 4}", &copy));
    assert_true(im__json_is(im__json_key(&i), "a"));
    assert_true(im__json_enter(&i, &inside) && im__json_is(im__json_key(&inside), "x"));
    assert_true(im__json_enter(&inside, &deeper));
    assert_int_equal(im__json_key(&deeper).len, 0);
    assert_false(im__json_enter(&deeper, &(im__json_items){0}));
    assert_true(im__json_next(&deeper, NULL, &v) && *v.ptr == '1');
    im__json_leave(&inside, &deeper);
    assert_true(im__json_next(&inside, &key, &v) && im__json_is(key, "y") && *v.ptr == '3');
    assert_false(im__json_next(&inside, &key, &v) || im__json_enter(&inside, &deeper));
    im__json_leave(&i, &inside);
    assert_true(im__json_enter(&i, &inside));
    im__json_leave(&i, &inside);
    assert_false(im__json_enter(&i, &inside));
    assert_true(im__json_next(&i, &key, &v) && im__json_is(key, "c") && *v.ptr == '4');
    assert_int_equal(im__json_key(&i).len, 0);
    im__free(copy);
}

/* Runs of white space and strings of every length: what is read eight bytes at a time ends where it should. */
static void lengths(void **state)
{
    (void)state;
    for (int n = 0; n < 40; n++) {
        char text[400], *copy;
        im__json v;
        snprintf(text, sizeof text, "[%*s\"%.*s\\n\"%*s,%*s{\"k\":\"%.*s\"}%*s, 7 ]", n, "", n,
                 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", n, "", n, "", n,
                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789{}[]", n, "");
        im__json_items i = im__json_items_of(good(text, &copy));
        assert_true(im__json_next(&i, NULL, &v));
        assert_int_equal(v.len, n + 4);
        assert_true(im__json_next(&i, NULL, &v));
        assert_int_equal(v.len, n + 8);
        assert_true(im__json_next(&i, NULL, &v));
        assert_int_equal(v.len, 1);
        assert_false(im__json_next(&i, NULL, &v));
        im__free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_json),
        cmocka_unit_test(levels_are_bounded),
        cmocka_unit_test(members_and_elements),
        cmocka_unit_test(numbers),
        cmocka_unit_test(strings),
        cmocka_unit_test(order_of_strings),
        cmocka_unit_test(entering_and_leaving),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
