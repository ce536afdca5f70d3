/* SPDX-License-Identifier: Apache-2.0 */
#include "format/safetensors.h"

#include "base/bytes.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
} types[IM__ST_TYPES] = {
    [IM__ST_BOOL] = {"BOOL", 1},       [IM__ST_U8] = {"U8", 1},           [IM__ST_I8] = {"I8", 1},
    [IM__ST_F8_E5M2] = {"F8_E5M2", 1}, [IM__ST_F8_E4M3] = {"F8_E4M3", 1}, [IM__ST_F8_E8M0] = {"F8_E8M0", 1},
    [IM__ST_U16] = {"U16", 2},         [IM__ST_I16] = {"I16", 2},         [IM__ST_F16] = {"F16", 2},
    [IM__ST_BF16] = {"BF16", 2},       [IM__ST_U32] = {"U32", 4},         [IM__ST_I32] = {"I32", 4},
    [IM__ST_F32] = {"F32", 4},         [IM__ST_U64] = {"U64", 8},         [IM__ST_I64] = {"I64", 8},
    [IM__ST_F64] = {"F64", 8},         [IM__ST_C64] = {"C64", 8},
};

const char *im__st_type_name(im__st_type type) { return types[type].name; }

size_t im__st_type_bytes(im__st_type type) { return types[type].bytes; }

/* What is being read: everything that messages and bounds need. */
typedef struct reader {
    im__safetensors *s;
    const uint8_t *data; /* behind the header */
    size_t data_bytes;
    im__buf names;
    im_error *err;
} reader;

static im_status bad(const reader *r, const im__st_tensor *t, const char *what)
{
    return im__fail(r->err, IM_ERR_FORMAT, "%s: tensor %s %s; the file is damaged", r->s->path, t->name, what);
}

/* ---- one tensor ---- */

/* Names end up in messages, which are lines. */
static bool has_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20) return true;
    return false;
}

static im_status read_type(const reader *r, im__json entry, im__st_tensor *t)
{
    im__json v;
    char name[32] = "";
    if (im__json_member(entry, "dtype", &v) != 1 || im__json_kind_of(v) != IM__JSON_STRING) return bad(r, t, "has no type (dtype)");
    bool short_name = im__json_copy(v, name, sizeof name) && !has_control(name, strlen(name));
    for (int i = 0; short_name && i < IM__ST_TYPES; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        t->type = (im__st_type)i;
        return IM_OK;
    }
    return im__fail(r->err, IM_ERR_UNSUPPORTED, "%s: tensor %s has elements of type \"%s\", which is not known", r->s->path,
                    t->name, short_name ? name : "...");
}

static im_status read_shape(const reader *r, im__json entry, im__st_tensor *t)
{
    im__json list, v;
    if (im__json_member(entry, "shape", &list) != 1 || im__json_kind_of(list) != IM__JSON_ARRAY) return bad(r, t, "has no shape");
    for (size_t i = 0; i < IM__ST_MAX_DIMS; i++) t->dim[i] = 1;
    for (im__json_items i = im__json_items_of(list); im__json_next(&i, NULL, &v); t->n_dims++) {
        if (t->n_dims == IM__ST_MAX_DIMS) return bad(r, t, "has more than 8 dimensions");
        if (!im__json_u64(v, &t->dim[t->n_dims])) return bad(r, t, "has a dimension that is no size");
    }
    return IM_OK;
}

/* Bytes that type and shape need; false when they overflow. */
static bool needed(const im__st_tensor *t, size_t *bytes)
{
    size_t n = types[t->type].bytes;
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] > SIZE_MAX || !im__mul(n, (size_t)t->dim[i], &n)) return false;
    *bytes = n;
    return true;
}

static im_status read_place(const reader *r, im__json entry, im__st_tensor *t)
{
    im__json list, v;
    uint64_t at[2];
    size_t n = 0, bytes = 0;
    if (im__json_member(entry, "data_offsets", &list) != 1 || im__json_kind_of(list) != IM__JSON_ARRAY)
        return bad(r, t, "has no place in the file (data_offsets)");
    for (im__json_items i = im__json_items_of(list); im__json_next(&i, NULL, &v); n++)
        if (n == 2 || !im__json_u64(v, &at[n])) return bad(r, t, "has data_offsets that are not two sizes");
    if (n != 2) return bad(r, t, "has data_offsets that are not two sizes");
    if (at[0] > at[1]) return bad(r, t, "ends before it begins (data_offsets)");
    if (at[1] > r->data_bytes)
        return im__fail(r->err, IM_ERR_FORMAT,
                        "%s: tensor %s ends at byte %llu of the data, of which the file has %zu; it is cut short or damaged",
                        r->s->path, t->name, (unsigned long long)at[1], r->data_bytes);
    if (!needed(t, &bytes)) return bad(r, t, "has a shape whose size overflows");
    if (bytes != at[1] - at[0])
        return im__fail(r->err, IM_ERR_FORMAT, "%s: tensor %s has %llu bytes, but its type and shape need %zu; the file is damaged",
                        r->s->path, t->name, (unsigned long long)(at[1] - at[0]), bytes);
    t->data = r->data + at[0];
    t->bytes = bytes;
    return IM_OK;
}

/* Appends the name, terminated, and leaves its place in t->bytes: `names` may still move. */
static im_status keep_name(reader *r, im__json key, im__st_tensor *t)
{
    size_t at = r->names.len;
    im__json_text(key, &r->names);
    if (r->names.failed) return im__fail(r->err, IM_ERR_MEMORY, "out of memory");
    size_t n = r->names.len - at;
    if (n == 0 || n > IM__ST_MAX_NAME || has_control(r->names.data + at, n))
        return im__fail(r->err, IM_ERR_FORMAT, "%s: a tensor's name is empty, longer than %d bytes or holds a control character",
                        r->s->path, IM__ST_MAX_NAME);
    im__buf_append(&r->names, "", 1);
    t->bytes = at;
    return r->names.failed ? im__fail(r->err, IM_ERR_MEMORY, "out of memory") : IM_OK;
}

/* ---- all tensors ---- */

static bool is_metadata(im__json key) { return im__json_is(key, "__metadata__"); }

static im_status check_metadata(const reader *r, im__json map)
{
    im__json v;
    if (im__json_kind_of(map) != IM__JSON_OBJECT)
        return im__fail(r->err, IM_ERR_FORMAT, "%s: __metadata__ is %s, not an object", r->s->path, im__json_kind_name(map));
    for (im__json_items i = im__json_items_of(map); im__json_next(&i, NULL, &v);)
        if (im__json_kind_of(v) != IM__JSON_STRING)
            return im__fail(r->err, IM_ERR_FORMAT, "%s: __metadata__ holds %s; only text is allowed", r->s->path,
                            im__json_kind_name(v));
    return IM_OK;
}

static im_status count_tensors(reader *r, im__json root)
{
    im__json key, v;
    size_t n = 0, metadata = 0;
    for (im__json_items i = im__json_items_of(root); im__json_next(&i, &key, &v); n++) {
        if (!is_metadata(key)) continue;
        metadata++;
        IM__TRY(check_metadata(r, v));
    }
    if (metadata > 1) return im__fail(r->err, IM_ERR_FORMAT, "%s: __metadata__ is there twice", r->s->path);
    n -= metadata;
    if (n > IM__ST_MAX_TENSORS) return im__fail(r->err, IM_ERR_FORMAT, "%s: %zu tensors are too many", r->s->path, n);
    r->s->tensor = im__calloc(n, sizeof *r->s->tensor);
    return r->s->tensor == NULL ? im__fail(r->err, IM_ERR_MEMORY, "out of memory") : IM_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const im__st_tensor *)a)->name, ((const im__st_tensor *)b)->name);
}

static im_status read_names(reader *r, im__json root)
{
    im__json key, v;
    im__safetensors *s = r->s;
    for (im__json_items i = im__json_items_of(root); im__json_next(&i, &key, &v);)
        if (!is_metadata(key)) IM__TRY(keep_name(r, key, &s->tensor[s->tensor_count++]));
    s->names = r->names.data;
    r->names = (im__buf){0};
    for (size_t i = 0; i < s->tensor_count; i++) s->tensor[i].name = s->names + s->tensor[i].bytes;
    return IM_OK;
}

static im_status read_entries(reader *r, im__json root)
{
    im__json key, v;
    im__st_tensor *t = r->s->tensor;
    for (im__json_items i = im__json_items_of(root); im__json_next(&i, &key, &v);) {
        if (is_metadata(key)) continue;
        if (im__json_kind_of(v) != IM__JSON_OBJECT) return bad(r, t, "is described by something that is no object");
        IM__TRY(read_type(r, v, t));
        IM__TRY(read_shape(r, v, t));
        IM__TRY(read_place(r, v, t));
        t++;
    }
    qsort(r->s->tensor, r->s->tensor_count, sizeof *t, by_name);
    for (size_t i = 1; i < r->s->tensor_count; i++)
        if (by_name(&r->s->tensor[i - 1], &r->s->tensor[i]) == 0) return bad(r, &r->s->tensor[i], "is there twice");
    return IM_OK;
}

static int by_place(const void *a, const void *b)
{
    const im__st_tensor *x = *(const im__st_tensor *const *)a, *y = *(const im__st_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* In the order of their places each begins where the one before ends, the first at 0, and the last ends with the file. */
static im_status check_order(const reader *r, const im__st_tensor **sorted)
{
    const uint8_t *end = r->data;
    size_t n = r->s->tensor_count;
    for (size_t i = 0; i < n; i++) sorted[i] = &r->s->tensor[i];
    qsort(sorted, n, sizeof *sorted, by_place);
    for (size_t i = 0; i < n; end = sorted[i]->data + sorted[i]->bytes, i++) {
        if (sorted[i]->data < end) return bad(r, sorted[i], "shares bytes with another one");
        if (sorted[i]->data > end) return bad(r, sorted[i], "has a hole in front of it");
    }
    if (end == r->data + r->data_bytes) return IM_OK;
    return im__fail(r->err, IM_ERR_FORMAT, "%s: %zu bytes behind the last tensor belong to none; the file is damaged", r->s->path,
                    (size_t)(r->data + r->data_bytes - end));
}

static im_status check_places(const reader *r)
{
    const im__st_tensor **sorted = im__calloc(r->s->tensor_count, sizeof *sorted);
    if (sorted == NULL) return im__fail(r->err, IM_ERR_MEMORY, "out of memory");
    im_status status = check_order(r, sorted);
    im__free(sorted);
    return status;
}

/* ---- the file ---- */

static im_status read_header(reader *r, const uint8_t *data, size_t size)
{
    im__json root;
    const char *path = r->s->path;
    if (size < 8) /* data may be NULL */
        return im__fail(r->err, IM_ERR_FORMAT, "%s: has %zu bytes, a safetensors file at least 8; it is cut short", path, size);
    const char *text = (const char *)data + 8;
    uint64_t n = im__load_u64(data);
    if (n > IM__ST_MAX_HEADER || n > size - 8)
        return im__fail(r->err, IM_ERR_FORMAT,
                        "%s: a header of %llu bytes in a file of %zu; it is no safetensors file, cut short or damaged", path,
                        (unsigned long long)n, size);
    if (n == 0 || *text != '{') return im__fail(r->err, IM_ERR_FORMAT, "%s: the header does not begin with {", path);
    IM__TRY(im__json_check(text, (size_t)n, path, &root, r->err));
    r->data = data + 8 + n;
    r->data_bytes = size - 8 - (size_t)n;
    IM__TRY(count_tensors(r, root));
    IM__TRY(read_names(r, root));
    IM__TRY(read_entries(r, root));
    return check_places(r);
}

static im__safetensors *new_directory(const char *path)
{
    im__safetensors *s = im__calloc(1, sizeof *s);
    if (s != NULL) s->path = im__strdup(path, strlen(path));
    if (s != NULL && s->path != NULL) return s;
    im__free(s);
    return NULL;
}

static im_status parse(im__safetensors *s, const uint8_t *data, size_t size, im_error *err)
{
    reader r = {.s = s, .err = err};
    s->size = size;
    im_status status = read_header(&r, data, size);
    im__buf_free(&r.names);
    return status;
}

im_status im__safetensors_parse(im__safetensors **out, const void *data, size_t size, const char *name, im_error *err)
{
    *out = NULL;
    im__safetensors *s = new_directory(name);
    if (s == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = parse(s, data, size, err);
    if (status == IM_OK)
        *out = s;
    else
        im__safetensors_close(s);
    return status;
}

im_status im__safetensors_open(im__safetensors **out, const char *path, im_error *err)
{
    *out = NULL;
    im__safetensors *s = new_directory(path);
    if (s == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = im__file_map_open(&s->map, path, err);
    if (status == IM_OK) status = parse(s, s->map.data, s->map.size, err);
    if (status == IM_OK)
        *out = s;
    else
        im__safetensors_close(s);
    return status;
}

void im__safetensors_close(im__safetensors *s)
{
    if (s == NULL) return;
    im__file_map_close(&s->map);
    im__free(s->tensor);
    im__free(s->names);
    im__free(s->path);
    im__free(s);
}

const im__st_tensor *im__safetensors_find(const im__safetensors *s, const char *name)
{
    const im__st_tensor key = {.name = name};
    return s->tensor_count == 0 ? NULL : bsearch(&key, s->tensor, s->tensor_count, sizeof key, by_name);
}
