/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed reads on files made here, every cut of a real file, and exhausted memory at every allocation.
 */
#include "base/mem.h"
#include "format/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY IM_TEST_DATA "/zoo/arch-tiny.gguf"

/* ---- writing a file of keys; tests run on little-endian machines ---- */

static im__buf file;
static uint64_t keys;

static void put(const void *data, size_t n) { im__buf_append(&file, data, n); }
static void put_u32(uint32_t v) { put(&v, 4); }
static void put_u64(uint64_t v) { put(&v, 8); }

static void put_string(const char *s)
{
    put_u64(strlen(s));
    put(s, strlen(s));
}

static void begin(void)
{
    file = (im__buf){0};
    keys = 0;
    put("GGUF", 4);
    put_u32(3);
    put_u64(0);
    put_u64(0);
}

static void key(const char *name, im__gguf_type type, const void *value, size_t bytes)
{
    put_string(name);
    put_u32(type);
    put(value, bytes);
    keys++;
}

static void array_key(const char *name, im__gguf_type item, uint64_t count, const void *values, size_t bytes)
{
    put_string(name);
    put_u32(IM__GGUF_ARRAY);
    put_u32(item);
    put_u64(count);
    put(values, bytes);
    keys++;
}

static im__gguf *finish(void)
{
    im__gguf *g;
    im_error err = {0};
    memcpy(file.data + 16, &keys, 8);
    if (im__gguf_parse(&g, file.data, file.len, "made", &err) != IM_OK) fail_msg("%s", err.message);
    return g;
}

static void done(im__gguf *g)
{
    im__gguf_close(g);
    im__buf_free(&file);
}

#define KEY(name, type, ctype, value) key(name, type, &(ctype){value}, sizeof(ctype))

static im__gguf *numbers(void)
{
    begin();
    KEY("u8", IM__GGUF_U8, uint8_t, 255);
    KEY("i8", IM__GGUF_I8, int8_t, -1);
    KEY("u16", IM__GGUF_U16, uint16_t, 65535);
    KEY("i16", IM__GGUF_I16, int16_t, -2);
    KEY("u32", IM__GGUF_U32, uint32_t, UINT32_MAX);
    KEY("i32", IM__GGUF_I32, int32_t, 7);
    KEY("u64", IM__GGUF_U64, uint64_t, 9);
    KEY("u64 large", IM__GGUF_U64, uint64_t, UINT64_MAX);
    KEY("i64", IM__GGUF_I64, int64_t, -1);
    KEY("i64 fits", IM__GGUF_I64, int64_t, UINT32_MAX);
    KEY("i64 large", IM__GGUF_I64, int64_t, (int64_t)UINT32_MAX + 1);
    KEY("f32", IM__GGUF_F32, float, 1.5f);
    KEY("f64", IM__GGUF_F64, double, 0.1);
    KEY("f64 large", IM__GGUF_F64, double, 1e300);
    KEY("nan", IM__GGUF_F32, float, NAN);
    KEY("yes", IM__GGUF_BOOL, uint8_t, 1);
    KEY("no", IM__GGUF_BOOL, uint8_t, 0);
    key("text", IM__GGUF_STRING, "\x03\0\0\0\0\0\0\0a\0b", 11);
    return finish();
}

/* The call fails with FORMAT and its message holds both words. */
static void refused(im_status status, const im_error *err, const char *word, const char *other)
{
    assert_int_equal(status, IM_ERR_FORMAT);
    assert_int_equal(err->status, IM_ERR_FORMAT);
    assert_non_null(strstr(err->message, "made"));
    if (strstr(err->message, word) == NULL || strstr(err->message, other) == NULL)
        fail_msg("%s: not %s, %s", err->message, word, other);
}

static void integers_convert_when_they_fit(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } good[] = {{"u8", 255}, {"u16", 65535}, {"u32", UINT32_MAX}, {"i32", 7}, {"u64", 9}, {"i64 fits", UINT32_MAX}};
    static const char *const bad[][2] = {{"i8", "range"},  {"i16", "range"},       {"u64 large", "range"},
                                         {"i64", "range"}, {"i64 large", "range"}, {"f32", "f32"},
                                         {"f64", "f64"},   {"yes", "bool"},        {"text", "string"}};
    im__gguf *g = numbers();
    im_error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint32_t out = 1;
        assert_int_equal(im__gguf_get_u32(g, good[i].key, true, &out, NULL), IM_OK);
        assert_int_equal(out, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t out = 42;
        refused(im__gguf_get_u32(g, bad[i][0], false, &out, &err), &err, bad[i][0], bad[i][1]);
        assert_int_equal(out, 42);
    }
    done(g);
}

static void floats_take_every_number(void **state)
{
    (void)state;
    im__gguf *g = numbers();
    im_error err;
    float out = 0;
    assert_int_equal(im__gguf_get_f32(g, "f32", true, &out, NULL), IM_OK);
    assert_true(out == 1.5f);
    assert_int_equal(im__gguf_get_f32(g, "f64", true, &out, NULL), IM_OK);
    assert_true(out == 0.1f);
    assert_int_equal(im__gguf_get_f32(g, "i16", true, &out, NULL), IM_OK);
    assert_true(out == -2.0f);
    assert_int_equal(im__gguf_get_f32(g, "nan", true, &out, NULL), IM_OK);
    assert_true(isnan(out));
    out = 3;
    refused(im__gguf_get_f32(g, "f64 large", true, &out, &err), &err, "f64 large", "large");
    refused(im__gguf_get_f32(g, "text", true, &out, &err), &err, "string", "number");
    refused(im__gguf_get_f32(g, "yes", true, &out, &err), &err, "bool", "number");
    assert_true(out == 3.0f);
    done(g);
}

static void text_and_truth(void **state)
{
    (void)state;
    im__gguf *g = numbers();
    im_error err;
    im__gguf_string s = {"kept", 4};
    bool flag = false;
    assert_int_equal(im__gguf_get_string(g, "text", true, &s, NULL), IM_OK);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.ptr, "a\0b", 3);
    refused(im__gguf_get_string(g, "u8", true, &s, &err), &err, "u8", "string");
    assert_int_equal(im__gguf_get_bool(g, "yes", true, &flag, NULL), IM_OK);
    assert_true(flag);
    assert_int_equal(im__gguf_get_bool(g, "no", true, &flag, NULL), IM_OK);
    assert_false(flag);
    refused(im__gguf_get_bool(g, "u8", true, &flag, &err), &err, "u8", "boolean");
    done(g);
}

static void an_absent_key_keeps_the_default(void **state)
{
    (void)state;
    im__gguf *g = numbers();
    im_error err;
    uint32_t u = 5;
    float f = 6;
    bool b = true;
    im__gguf_string s = {"default", 7};
    assert_int_equal(im__gguf_get_u32(g, "absent", false, &u, NULL), IM_OK);
    assert_int_equal(im__gguf_get_f32(g, "u", false, &f, NULL), IM_OK); /* a prefix of other keys */
    assert_int_equal(im__gguf_get_bool(g, "u88", false, &b, NULL), IM_OK);
    assert_int_equal(im__gguf_get_string(g, "", false, &s, NULL), IM_OK);
    assert_int_equal(u, 5);
    assert_true(f == 6.0f && b);
    assert_string_equal(s.ptr, "default");
    refused(im__gguf_get_u32(g, "absent", true, &u, &err), &err, "absent", "missing");
    refused(im__gguf_get_f32(g, "absent", true, &f, &err), &err, "absent", "missing");
    refused(im__gguf_get_bool(g, "absent", true, &b, &err), &err, "absent", "missing");
    refused(im__gguf_get_string(g, "absent", true, &s, &err), &err, "absent", "missing");
    assert_null(im__gguf_find(g, "absent"));
    assert_null(im__gguf_find_tensor(g, "absent"));
    done(g);
}

static im__gguf *arrays(void)
{
    begin();
    array_key("texts", IM__GGUF_STRING, 3, "\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0bc", 27);
    array_key("floats", IM__GGUF_F32, 2, (float[]){1.5f, -2.5f}, 8);
    array_key("doubles", IM__GGUF_F64, 3, (double[]){0.1, 1e300, -1e300}, 24);
    array_key("small", IM__GGUF_I8, 3, (int8_t[]){-1, 0, 127}, 3);
    array_key("wide", IM__GGUF_U32, 2, (uint32_t[]){1, 0x80000000}, 8);
    array_key("none", IM__GGUF_I32, 0, "", 0);
    array_key("flags", IM__GGUF_BOOL, 2, "\0\1", 2);
    KEY("scalar", IM__GGUF_U32, uint32_t, 12);
    return finish();
}

static void arrays_are_copied(void **state)
{
    (void)state;
    im__gguf *g = arrays();
    im__gguf_string *s;
    float *f;
    int32_t *n;
    size_t count;
    assert_int_equal(im__gguf_get_strings(g, "texts", &s, &count, NULL), IM_OK);
    assert_int_equal(count, 3);
    assert_true(s[0].len == 1 && s[1].len == 0 && s[2].len == 2);
    assert_memory_equal(s[2].ptr, "bc", 2);
    im__free(s);
    assert_int_equal(im__gguf_get_f32s(g, "floats", &f, &count, NULL), IM_OK);
    assert_true(count == 2 && f[0] == 1.5f && f[1] == -2.5f);
    im__free(f);
    assert_int_equal(im__gguf_get_f32s(g, "doubles", &f, &count, NULL), IM_OK);
    assert_true(count == 3 && f[0] == 0.1f && isinf(f[1]) && f[2] == -INFINITY);
    im__free(f);
    assert_int_equal(im__gguf_get_i32s(g, "small", &n, &count, NULL), IM_OK);
    assert_true(count == 3 && n[0] == -1 && n[2] == 127);
    im__free(n);
    assert_int_equal(im__gguf_get_i32s(g, "scalar", &n, &count, NULL), IM_OK);
    assert_true(count == 1 && n[0] == 12);
    im__free(n);
    assert_int_equal(im__gguf_get_f32s(g, "scalar", &f, &count, NULL), IM_OK);
    assert_true(count == 1 && f[0] == 12.0f);
    im__free(f);
    assert_int_equal(im__gguf_get_i32s(g, "none", &n, &count, NULL), IM_OK);
    assert_true(count == 0 && n != NULL);
    im__free(n);
    done(g);
}

static void arrays_of_the_wrong_kind_are_refused(void **state)
{
    (void)state;
    im__gguf *g = arrays();
    im__gguf_string *s;
    float *f;
    int32_t *n;
    size_t count = 9;
    im_error err;
    assert_int_equal(im__gguf_get_strings(g, "absent", &s, &count, NULL), IM_OK);
    assert_true(s == NULL && count == 0);
    assert_int_equal(im__gguf_get_f32s(g, "absent", &f, &count, NULL), IM_OK);
    assert_true(f == NULL && count == 0);
    assert_int_equal(im__gguf_get_i32s(g, "absent", &n, &count, NULL), IM_OK);
    assert_true(n == NULL && count == 0);
    refused(im__gguf_get_strings(g, "small", &s, &count, &err), &err, "i8", "strings");
    refused(im__gguf_get_strings(g, "scalar", &s, &count, &err), &err, "u32", "strings");
    refused(im__gguf_get_f32s(g, "texts", &f, &count, &err), &err, "string", "numbers");
    refused(im__gguf_get_f32s(g, "flags", &f, &count, &err), &err, "bool", "numbers");
    refused(im__gguf_get_i32s(g, "floats", &n, &count, &err), &err, "f32", "integers");
    refused(im__gguf_get_i32s(g, "wide", &n, &count, &err), &err, "wide", "range");
    assert_true(n == NULL && count == 0);
    done(g);
}

/* An array may be larger than any vocabulary and still be in the file; copying it would cost many times its size. */
static void arrays_beyond_reason_are_not_copied(void **state)
{
    (void)state;
    int32_t *n;
    size_t count;
    im_error err;
    begin();
    char *zeros = calloc(IM__GGUF_MAX_ITEMS + 1, 1);
    assert_non_null(zeros);
    array_key("huge", IM__GGUF_U8, IM__GGUF_MAX_ITEMS + 1, zeros, IM__GGUF_MAX_ITEMS + 1);
    free(zeros);
    im__gguf *g = finish();
    refused(im__gguf_get_i32s(g, "huge", &n, &count, &err), &err, "huge", "elements");
    done(g);
}

/* ---- a whole model ---- */

static void a_model_is_described_truly(void **state)
{
    (void)state;
    im__gguf *g;
    uint32_t layers = 0;
    im__gguf_string *tokens;
    size_t count;
    assert_int_equal(im__gguf_open(&g, TINY, NULL), IM_OK);
    assert_int_equal(g->version, 3);
    assert_int_equal(g->alignment, 32);
    assert_int_equal(g->shard_count, 1);
    assert_int_equal(g->kv_count, 26);
    assert_int_equal(g->tensor_count, 21);
    assert_int_equal(im__gguf_get_u32(g, "llama.block_count", true, &layers, NULL), IM_OK);
    assert_int_equal(layers, 2);
    const im__gguf_tensor *t = im__gguf_find_tensor(g, "blk.0.attn_q.weight");
    assert_non_null(t);
    assert_true(t->dtype == 8 && t->n_dims == 2 && t->dim[0] == 64 && t->dim[1] == 64 && t->dim[2] == 1 && t->dim[3] == 1);
    assert_true(t->bytes == 4352 && t->shard == 0 && t->data > g->map[0].data &&
                t->data + t->bytes <= g->map[0].data + g->map[0].size);
    assert_int_equal(im__gguf_get_strings(g, "tokenizer.ggml.tokens", &tokens, &count, NULL), IM_OK);
    assert_int_equal(count, im__gguf_find_tensor(g, "token_embd.weight")->dim[1]);
    im__free(tokens);
    for (size_t i = 0; i < g->kv_count; i++) {
        char *name = im__strdup(g->kv[i].key.ptr, g->kv[i].key.len);
        assert_ptr_equal(im__gguf_find(g, name), &g->kv[i]);
        im__free(name);
    }
    im__gguf_close(g);
}

/* Parses the first n bytes, copied to a block of exactly that size. */
static im_status parse_cut(const uint8_t *data, size_t n, im_error *err)
{
    im__gguf *g;
    uint8_t *part = malloc(n > 0 ? n : 1);
    assert_non_null(part);
    if (n > 0) memcpy(part, data, n);
    im_status status = im__gguf_parse(&g, part, n, "cut.gguf", err);
    assert_true((status == IM_OK) == (g != NULL));
    im__gguf_close(g);
    free(part);
    return status;
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    im__file_map map;
    im__gguf *g;
    assert_int_equal(im__file_map_open(&map, TINY, NULL), IM_OK);
    assert_int_equal(im__gguf_parse(&g, map.data, map.size, "whole", NULL), IM_OK);
    const im__gguf_tensor *last = &g->tensor[g->tensor_count - 1];
    size_t header = (size_t)(g->tensor[0].data - map.data), end = (size_t)(last->data + last->bytes - map.data);
    assert_true(header > 10000 && end > header);
    for (size_t n = 0; n < end; n += n < header ? 1 : n + 997 < end || n + 1 == end ? 997 : end - 1 - n) {
        im_error err = {0};
        assert_int_equal(parse_cut(map.data, n, &err), IM_ERR_FORMAT);
        assert_int_equal(strncmp(err.message, "cut.gguf: ", 10), 0);
    }
    assert_int_equal(parse_cut(map.data, end, NULL), IM_OK);
    im__gguf_close(g);
    im__file_map_close(&map);
}

static void exhausted_memory_is_an_error(void **state)
{
    (void)state;
    im__gguf *g;
    int failures = 0;
    for (int opened = 0; !opened; failures++) {
        im_error err = {0};
        im__alloc_fail_after(failures + 1);
        im_status status = im__gguf_open(&g, TINY, &err);
        opened = status == IM_OK;
        if (!opened) {
            assert_int_equal(status, IM_ERR_MEMORY);
            assert_null(g);
            assert_non_null(strstr(err.message, TINY));
        }
        im__alloc_fail_after(0);
        if (opened) im__gguf_close(g);
    }
    assert_true(failures > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_convert_when_they_fit),
        cmocka_unit_test(floats_take_every_number),
        cmocka_unit_test(text_and_truth),
        cmocka_unit_test(an_absent_key_keeps_the_default),
        cmocka_unit_test(arrays_are_copied),
        cmocka_unit_test(arrays_of_the_wrong_kind_are_refused),
        cmocka_unit_test(arrays_beyond_reason_are_not_copied),
        cmocka_unit_test(a_model_is_described_truly),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(exhausted_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
