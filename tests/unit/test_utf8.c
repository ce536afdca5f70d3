/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The definition in words of RFC 3629, kept apart from the table-driven code under test. */
static size_t encode_by_definition(uint32_t c, unsigned char *out)
{
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6) out[i] = (unsigned char)(0x80 + c % 64);
    out[0] = (unsigned char)(len == 1 ? c : (0xf00u >> len & 0xff & ~(0xffu >> len)) + c);
    return len;
}

static void every_scalar_value_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char got[4];
        unsigned char want[4];
        uint32_t back;
        size_t len = im__utf8_encode(c, got);
        if (c >= 0xd800 && c <= 0xdfff) {
            assert_int_equal(len, 0);
            continue;
        }
        size_t want_len = encode_by_definition(c, want);
        if (len != want_len || memcmp(got, want, len) != 0) fail_msg("U+%04X is encoded wrongly", (unsigned)c);
        if (im__utf8_decode(got, len, &back) != len || back != c) fail_msg("U+%04X does not come back", (unsigned)c);
        for (size_t cut = 0; cut < len; cut++) {
            if (im__utf8_decode(got, cut, &back) != 0) fail_msg("U+%04X is accepted when cut", (unsigned)c);
            if (im__utf8_incomplete_tail(got, cut) != cut) fail_msg("U+%04X: its first %zu bytes are no tail", (unsigned)c, cut);
        }
        assert_int_equal(im__utf8_incomplete_tail(got, len), 0);
    }
    char out[4];
    assert_int_equal(im__utf8_encode(0x110000, out), 0);
}

static void ill_formed_bytes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xfe",
        "\xff",
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x98(",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t code = 1;
        assert_int_equal(im__utf8_decode(bad[i], strlen(bad[i]), &code), 0);
        assert_int_equal(code, 0);
        assert_false(im__utf8_valid(bad[i], strlen(bad[i])));
        assert_int_equal(im__utf8_incomplete_tail(bad[i], strlen(bad[i])), 0);
    }
    uint32_t code;
    assert_int_equal(im__utf8_decode("", 0, &code), 0);
    assert_true(im__utf8_valid("", 0));
    assert_true(im__utf8_valid("a\0b", 3));
}

/* All strings of one and two bytes: decoding agrees with the definition. */
static void short_strings_by_enumeration(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second++) {
            char s[2] = {(char)first, (char)second};
            uint32_t code;
            size_t want = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 && (second & 0xc0) == 0x80 ? 2 : 0;
            assert_int_equal(im__utf8_decode(s, 2, &code), want);
            if (want == 2) assert_int_equal(code, (first & 0x1f) * 64 + (second & 0x3f));
        }
}

static void tail_is_what_may_still_be_completed(void **state)
{
    (void)state;
    assert_int_equal(im__utf8_incomplete_tail("abc\xf0\x9f\xab", 6), 3);
    assert_int_equal(im__utf8_incomplete_tail("abc\xe0\xa0", 5), 2);
    assert_int_equal(im__utf8_incomplete_tail("abc\xe0\x80", 5), 0); /* can never become a character */
    assert_int_equal(im__utf8_incomplete_tail("\xc3\xbc\xc3", 3), 1);
    assert_int_equal(im__utf8_incomplete_tail("\xed\xa0", 2), 0);
    assert_int_equal(im__utf8_incomplete_tail("\x80\x80\x80", 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_round_trips),
        cmocka_unit_test(ill_formed_bytes_are_refused),
        cmocka_unit_test(short_strings_by_enumeration),
        cmocka_unit_test(tail_is_what_may_still_be_completed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
