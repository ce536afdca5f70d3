/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: a good file, every way in which a header can lie, shards and their index.
 */
#include "base/mem.h"
#include "format/st_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 1 << 16 };

/* Length of the header as said, the header, n bytes of data: 0, 1, 2 ... */
static size_t make(uint8_t *out, uint64_t said, const char *header, size_t n)
{
    size_t text = strlen(header);
    assert_true(8 + text + n <= MOST);
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(said >> (8 * i));
    memcpy(out + 8, header, text);
    for (size_t i = 0; i < n; i++) out[8 + text + i] = (uint8_t)i;
    return 8 + text + n;
}

static size_t file(uint8_t *out, const char *header, size_t n) { return make(out, strlen(header), header, n); }

static void parsed_is(const uint8_t *data, size_t size, im_status expected, const char *word)
{
    im__safetensors *s;
    im_error err = {IM_OK, ""};
    assert_int_equal(im__safetensors_parse(&s, data, size, "a file", &err), expected);
    assert_true((s != NULL) == (expected == IM_OK));
    im__safetensors_close(s);
    if (expected == IM_OK) return;
    assert_int_equal(strncmp(err.message, "a file: ", 8), 0);
    if (strstr(err.message, word) == NULL) fail_msg("\"%s\" is not in \"%s\"", word, err.message);
}

/* ---- one file ---- */

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                           "\"none\":{\"dtype\":\"U8\",\"shape\":[5,0],\"data_offsets\":[28,28]},"
                           "\"one\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[28,36]}}";

static void a_good_file(void **state)
{
    (void)state;
    uint8_t data[MOST];
    im__safetensors *s;
    im_error err;
    size_t size = file(data, good, 36);
    const uint8_t *values = data + size - 36;
    assert_int_equal(im__safetensors_parse(&s, data, size, "a file", &err), IM_OK);
    assert_int_equal(s->tensor_count, 4);
    assert_string_equal(s->tensor[0].name, "a");
    assert_string_equal(s->tensor[3].name, "one");
    const im__st_tensor *b = im__safetensors_find(s, "b"), *one = im__safetensors_find(s, "one");
    assert_true(b->type == IM__ST_F32 && b->n_dims == 2 && b->dim[0] == 2 && b->dim[1] == 3 && b->dim[2] == 1);
    assert_true(b->data == values + 4 && b->bytes == 24);
    assert_true(one->n_dims == 0 && one->bytes == 8 && one->data == values + 28);
    assert_int_equal(im__safetensors_find(s, "none")->bytes, 0);
    assert_null(im__safetensors_find(s, "__metadata__"));
    assert_null(im__safetensors_find(s, "c"));
    im__safetensors_close(s);
    im__safetensors_close(NULL);
}

static void room_behind_the_header(void **state)
{
    (void)state;
    uint8_t data[MOST];
    parsed_is(data, file(data, "{}", 0), IM_OK, "");
    parsed_is(data, file(data, "{}      ", 0), IM_OK, "");
    parsed_is(data, file(data, "{\"\\u0061\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}} ", 1), IM_OK, "");
}

static void all_types(void **state)
{
    (void)state;
    const size_t bytes[IM__ST_TYPES] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8};
    uint8_t data[MOST];
    char header[200];
    for (int i = 0; i < IM__ST_TYPES; i++) {
        assert_int_equal(im__st_type_bytes((im__st_type)i), bytes[i]);
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                 im__st_type_name((im__st_type)i), 3 * bytes[i]);
        parsed_is(data, file(data, header, 3 * bytes[i]), IM_OK, "");
        parsed_is(data, file(data, header, 3 * bytes[i] - 1), IM_ERR_FORMAT, "cut short");
    }
}

static void lying_lengths(void **state)
{
    (void)state;
    uint8_t data[MOST];
    size_t size = file(data, good, 36);
    for (size_t n = 0; n < size; n++) parsed_is(data, n, IM_ERR_FORMAT, "");
    const uint64_t said[] = {0,         1, sizeof good - 2, sizeof good, size - 7, 100u << 20, (100u << 20) + 1, UINT64_MAX - 7,
                             UINT64_MAX};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) parsed_is(data, make(data, said[i], good, 36), IM_ERR_FORMAT, "");
    parsed_is(data, file(data, good, 37), IM_ERR_FORMAT, "1 bytes behind the last tensor");
}

#define ONE(description) "{\"x\":" description "}"
#define X(dtype, shape, place) ONE("{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" place "}")

static void lying_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        im_status status;
        const char *word;
    } lies[] = {
        {" {}", IM_ERR_FORMAT, "begin with {"},
        {"[]", IM_ERR_FORMAT, "begin with {"},
        {"{} x", IM_ERR_FORMAT, ""},
        {"{\"x\"}", IM_ERR_FORMAT, ""},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", IM_ERR_FORMAT, ""},
        {ONE("7"), IM_ERR_FORMAT, "no object"},
        {ONE("{}"), IM_ERR_FORMAT, "no type"},
        {ONE("{\"dtype\":\"U8\",\"data_offsets\":[0,4]}"), IM_ERR_FORMAT, "no shape"},
        {ONE("{\"dtype\":\"U8\",\"shape\":[4]}"), IM_ERR_FORMAT, "data_offsets"},
        {ONE("{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"), IM_ERR_FORMAT, ""},
        {X("8", "[4]", "[0,4]"), IM_ERR_FORMAT, "no type"},
        {X("\"U9\"", "[4]", "[0,4]"), IM_ERR_UNSUPPORTED, "U9"},
        {X("\"U\\n8\"", "[4]", "[0,4]"), IM_ERR_UNSUPPORTED, "type \"...\""},
        {"{\"a\\nb\":7}", IM_ERR_FORMAT, "control character"},
        {X("\"u8\"", "[4]", "[0,4]"), IM_ERR_UNSUPPORTED, "u8"},
        {X("\"U8\\u0000\"", "[4]", "[0,4]"), IM_ERR_UNSUPPORTED, "x"},
        {X("\"an endless name of a type that there cannot be at all\"", "[4]", "[0,4]"), IM_ERR_UNSUPPORTED, "..."},
        {X("\"U8\"", "4", "[0,4]"), IM_ERR_FORMAT, "no shape"},
        {X("\"U8\"", "[-4]", "[0,4]"), IM_ERR_FORMAT, "no size"},
        {X("\"U8\"", "[4.5]", "[0,4]"), IM_ERR_FORMAT, "no size"},
        {X("\"U8\"", "[\"4\"]", "[0,4]"), IM_ERR_FORMAT, "no size"},
        {X("\"U8\"", "[18446744073709551616]", "[0,4]"), IM_ERR_FORMAT, "no size"},
        {X("\"U8\"", "[1,1,1,1,1,1,1,1,4]", "[0,4]"), IM_ERR_FORMAT, "8 dimensions"},
        {X("\"U8\"", "[4294967296,4294967296]", "[0,4]"), IM_ERR_FORMAT, "overflows"},
        {X("\"F32\"", "[4611686018427387905]", "[0,4]"), IM_ERR_FORMAT, "overflows"},
        {X("\"U8\"", "[3]", "[0,4]"), IM_ERR_FORMAT, "need 3"},
        {X("\"U8\"", "[5]", "[0,4]"), IM_ERR_FORMAT, "need 5"},
        {X("\"U8\"", "[]", "[0,4]"), IM_ERR_FORMAT, "need 1"},
        {X("\"F32\"", "[4]", "[0,4]"), IM_ERR_FORMAT, "need 16"},
        {X("\"U8\"", "[4]", "{}"), IM_ERR_FORMAT, "data_offsets"},
        {X("\"U8\"", "[4]", "[0]"), IM_ERR_FORMAT, "two sizes"},
        {X("\"U8\"", "[4]", "[0,2,4]"), IM_ERR_FORMAT, "two sizes"},
        {X("\"U8\"", "[4]", "[0,-4]"), IM_ERR_FORMAT, "two sizes"},
        {X("\"U8\"", "[4]", "[4,0]"), IM_ERR_FORMAT, "before it begins"},
        {X("\"U8\"", "[5]", "[0,5]"), IM_ERR_FORMAT, "cut short"},
        {X("\"U8\"", "[4]", "[18446744073709551612,18446744073709551615]"), IM_ERR_FORMAT, "cut short"},
        {X("\"U8\"", "[3]", "[1,4]"), IM_ERR_FORMAT, "hole"},
        {X("\"U8\"", "[3]", "[0,3]"), IM_ERR_FORMAT, "belong to none"},
        {"{\"__metadata__\":[]}", IM_ERR_FORMAT, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", IM_ERR_FORMAT, "only text"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", IM_ERR_FORMAT, "__metadata__"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", IM_ERR_FORMAT, "empty"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", IM_ERR_FORMAT, "control character"},
    };
    uint8_t data[MOST];
    parsed_is(data, file(data, X("\"U8\"", "[4]", "[0,4]"), 4), IM_OK, "");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        parsed_is(data, file(data, lies[i].header, 4), lies[i].status, lies[i].word);
}

static void two_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *second, *a, *b, *word;
    } cases[] = {
        {"y", "[0,2]", "[2,4]", NULL},     {"y", "[2,4]", "[0,2]", NULL},          {"y", "[0,2]", "[1,3]", "shares bytes"},
        {"y", "[0,2]", "[0,2]", "shares"}, {"y", "[1,3]", "[2,4]", "hole"},        {"y", "[2,4]", "[2,4]", "hole"},
        {"x", "[0,2]", "[2,4]", "twice"},  {"\\u0078", "[0,2]", "[2,4]", "twice"},
    };
    uint8_t data[MOST];
    char header[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":%s},\"%s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_"
                 "offsets\":%s}}",
                 cases[i].a, cases[i].second, cases[i].b);
        parsed_is(data, file(data, header, 4), cases[i].word == NULL ? IM_OK : IM_ERR_FORMAT, cases[i].word);
    }
}

static void long_names(void **state)
{
    (void)state;
    uint8_t data[MOST];
    char header[600], name[300];
    for (int n = 255; n < 258; n++) {
        memset(name, 'n', sizeof name);
        name[n] = 0;
        snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
        parsed_is(data, file(data, header, 1), n <= 256 ? IM_OK : IM_ERR_FORMAT, "longer");
    }
}

static void deep_headers(void **state)
{
    (void)state;
    uint8_t data[MOST];
    static char header[60000];
    memset(header, '[', sizeof header - 1);
    memcpy(header, "{\"x\":", 5);
    parsed_is(data, file(data, header, 4), IM_ERR_FORMAT, "");
}

/* ---- folders ---- */

typedef struct folder {
    char path[64];
} folder;

static int open_folder(void **state)
{
    folder *f = calloc(1, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/im-st-XXXXXX");
    *state = f;
    return mkdtemp(f->path) == NULL;
}

static const char *const names[] = {"model.safetensors", "model-1.safetensors", "model-2.safetensors",
                                    "model.safetensors.index.json", "config.json"};

static int remove_folder(void **state)
{
    folder *f = *state;
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
    }
    int left = rmdir(f->path);
    free(f);
    return left;
}

static void write_file(const folder *f, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    fclose(out);
}

static void write_shard(const folder *f, const char *name, const char *tensor)
{
    uint8_t data[MOST];
    char header[200];
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    write_file(f, name, data, file(data, header, 4));
}

static void write_index(const folder *f, const char *text) { write_file(f, "model.safetensors.index.json", text, strlen(text)); }

static void opened_is(const folder *f, im_status expected, const char *word)
{
    im__st_folder *got;
    im_error err = {IM_OK, ""};
    assert_int_equal(im__st_folder_open(&got, f->path, &err), expected);
    assert_true((got != NULL) == (expected == IM_OK));
    im__st_folder_close(got);
    if (expected == IM_OK) return;
    assert_non_null(strstr(err.message, f->path));
    if (strstr(err.message, word) == NULL) fail_msg("\"%s\" is not in \"%s\"", word, err.message);
}

static void single(void **state)
{
    const folder *f = *state;
    im__st_folder *got;
    im_error err;
    assert_false(im__st_folder_is_one(f->path));
    opened_is(f, IM_ERR_IO, "model.safetensors");
    write_shard(f, "model.safetensors", "x");
    assert_true(im__st_folder_is_one(f->path));
    assert_int_equal(im__st_folder_open(&got, f->path, &err), IM_OK);
    assert_true(got->count == 1 && got->shard_count == 1 && im__st_folder_find(got, "y") == NULL);
    assert_ptr_equal(im__st_folder_find(got, "x")->shard, got->shard[0]);
    im__st_folder_close(got);
}

static void shards(void **state)
{
    const folder *f = *state;
    im__st_folder *got;
    im_error err;
    const char *index = "{\"weight_map\":{\"y\":\"model-2.safetensors\",\"x\":\"model-1.safetensors\"}}";
    write_index(f, index);
    opened_is(f, IM_ERR_IO, "model-1.safetensors, model-2.safetensors");
    write_shard(f, "model-2.safetensors", "y");
    opened_is(f, IM_ERR_IO, "missing are model-1.safetensors,");
    write_shard(f, "model-1.safetensors", "x");
    assert_int_equal(im__st_folder_open(&got, f->path, &err), IM_OK);
    assert_true(got->count == 2 && got->shard_count == 2);
    assert_string_equal(im__st_folder_find(got, "y")->tensor->name, "y");
    assert_non_null(strstr(im__st_folder_find(got, "y")->shard->path, "model-2."));
    im__st_folder_close(got);
    write_shard(f, "model-2.safetensors", "x");
    opened_is(f, IM_ERR_FORMAT, "y is not there");
    write_index(f, "{\"weight_map\":{\"x\":\"model-1.safetensors\",\"x\":\"model-2.safetensors\"}}");
    opened_is(f, IM_ERR_FORMAT, "x is in");
}

static void lying_indexes(void **state)
{
    const folder *f = *state;
    static const char *const lies[][2] = {
        {"", ""},
        {"[]", "weight_map"},
        {"{}", "weight_map"},
        {"{\"weight_map\":{}}", "0 tensors"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{\"x\":1}}", "weight_map"},
        {"{\"weight_map\":{\"x\":\"\"}}", "no file"},
        {"{\"weight_map\":{\"x\":\"..\"}}", "no file"},
        {"{\"weight_map\":{\"x\":\"../model-1.safetensors\"}}", "no file"},
        {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", "no file"},
        {"{\"weight_map\":{\"x\":\"a/model-1.safetensors\"}}", "no file"},
        {"{\"weight_map\":{\"x\":\"model-1.safetensors\\u0000\"}}", "no file"},
        {"{\"weight_map\":{\"y\":\"model-1.safetensors\"}}", "y is not there"},
        {"{\"weight_map\":{\"x\\u0000\":\"model-1.safetensors\"}}", "no tensor"},
    };
    write_shard(f, "model-1.safetensors", "x");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        write_index(f, lies[i][0]);
        opened_is(f, IM_ERR_FORMAT, lies[i][1]);
    }
    write_index(f, "{\"weight_map\":{\"x\":\"model-1.safetensors\"}}");
    opened_is(f, IM_OK, "");
}

static void not_whole(void **state)
{
    const folder *f = *state;
    im_error err = {IM_OK, ""};
    assert_int_equal(im__st_folder_explain(f->path, &err), IM_OK);
    write_file(f, "config.json", "{}", 2);
    assert_int_equal(im__st_folder_explain(f->path, &err), IM_ERR_IO);
    assert_true(strstr(err.message, f->path) != NULL &&
                strstr(err.message, "neither model.safetensors nor model.safetensors.index.json"));
    write_shard(f, "model-2.safetensors", "x");
    write_shard(f, "model-1.safetensors", "y");
    assert_int_equal(im__st_folder_explain(f->path, &err), IM_ERR_IO);
    assert_true(strstr(err.message, "2 safetensors files (model-1.safetensors)") != NULL &&
                strstr(err.message, "model.safetensors.index.json") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file),
        cmocka_unit_test(room_behind_the_header),
        cmocka_unit_test(all_types),
        cmocka_unit_test(lying_lengths),
        cmocka_unit_test(lying_headers),
        cmocka_unit_test(two_tensors),
        cmocka_unit_test(long_names),
        cmocka_unit_test(deep_headers),
        cmocka_unit_test_setup_teardown(single, open_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shards, open_folder, remove_folder),
        cmocka_unit_test_setup_teardown(lying_indexes, open_folder, remove_folder),
        cmocka_unit_test_setup_teardown(not_whole, open_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
