/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void returns_status_and_message(void **state)
{
    (void)state;
    im_error err = {0};
    assert_int_equal(im__fail(&err, IM_ERR_FORMAT, "%s: %d keys", "model.gguf", 7), IM_ERR_FORMAT);
    assert_int_equal(err.status, IM_ERR_FORMAT);
    assert_string_equal(err.message, "model.gguf: 7 keys");
}

static void no_error_struct_is_fine(void **state)
{
    (void)state;
    assert_int_equal(im__fail(NULL, IM_ERR_IO, "%s", "nobody listens"), IM_ERR_IO);
}

static void hostile_bytes_are_spelled_out(void **state)
{
    (void)state;
    im_error err;
    im__fail(&err, IM_ERR_FORMAT, "%s", "a\x1b[2J\xff\xc0\xaf \xed\xa0\x80 \x7f gr\xc3\xbc\xc3\x9f");
    assert_string_equal(err.message, "a\\x1b[2J\\xff\\xc0\\xaf \\xed\\xa0\\x80 \\x7f gr\xc3\xbc\xc3\x9f");
    im__fail(&err, IM_ERR_FORMAT, "%s",
             "\xc2\x9b"
             "2J\xc2\xa0");
    assert_string_equal(err.message, "\\xc2\\x9b2J\xc2\xa0"); /* U+009B begins a sequence as ESC [ does */
}

static void long_message_is_cut_at_a_character(void **state)
{
    (void)state;
    char text[3 * IM_ERROR_MESSAGE_MAX];
    for (size_t shift = 0; shift < 4; shift++) {
        im_error err;
        size_t n = 0;
        for (size_t i = 0; i < shift; i++) text[n++] = 'x';
        while (n + 4 < sizeof text) {
            memcpy(text + n, "\xf0\x9f\xab\x8f", 4);
            n += 4;
        }
        text[n] = 0;
        im__fail(&err, IM_ERR_IO, "%s", text);
        size_t len = strlen(err.message);
        assert_true(len < IM_ERROR_MESSAGE_MAX && len > IM_ERROR_MESSAGE_MAX - 12);
        assert_true(im__utf8_valid(err.message, len));
        assert_string_equal(err.message + len - 3, "...");
    }
}

static void message_of_the_longest_size_is_not_cut(void **state)
{
    (void)state;
    char text[IM_ERROR_MESSAGE_MAX];
    im_error err;
    memset(text, 'y', sizeof text);
    text[IM_ERROR_MESSAGE_MAX - 4] = 0;
    im__fail(&err, IM_ERR_IO, "%s", text);
    assert_string_equal(err.message, text);
}

static im_status try_it(im_status inner, int *went_on)
{
    IM__TRY(inner);
    *went_on = 1;
    return IM_OK;
}

static void try_returns_early(void **state)
{
    (void)state;
    int went_on = 0;
    assert_int_equal(try_it(IM_ERR_MEMORY, &went_on), IM_ERR_MEMORY);
    assert_int_equal(went_on, 0);
    assert_int_equal(try_it(IM_OK, &went_on), IM_OK);
    assert_int_equal(went_on, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_status_and_message),
        cmocka_unit_test(no_error_struct_is_fine),
        cmocka_unit_test(hostile_bytes_are_spelled_out),
        cmocka_unit_test(long_message_is_cut_at_a_character),
        cmocka_unit_test(message_of_the_longest_size_is_not_cut),
        cmocka_unit_test(try_returns_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
