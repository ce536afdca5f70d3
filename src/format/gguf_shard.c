/* SPDX-License-Identifier: Apache-2.0 */
#include "format/gguf_shard.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "num/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 24
#define MIN_KV_BYTES (8 + 1 + 4 + 1)             /* key length, key, type, value */
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8) /* name length, name, dims, one dim, type, offset */
#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT 8

/* A place in the file; everything before `at` has been accepted. */
typedef struct cursor {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    im_error *err;
} cursor;

/* A tensor's bytes relative to the start of the data section. */
typedef struct span {
    uint64_t offset;
    size_t bytes, id;
} span;

static size_t left(const cursor *c) { return c->size - c->at; }

static im_status cut(const cursor *c, const char *what)
{
    return im__fail(c->err, IM_ERR_FORMAT, "%s: the file ends after %zu bytes, inside %s at byte %zu; it is cut short or damaged",
                    c->path, c->size, what, c->at);
}

/* The next n bytes; NULL when the file has fewer. */
static const uint8_t *take(cursor *c, size_t n)
{
    if (n > left(c)) return NULL;
    c->at += n;
    return c->data + c->at - n;
}

static im_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p = take(c, 4);
    if (p == NULL) return cut(c, what);
    *out = im__load_u32(p);
    return IM_OK;
}

static im_status take_u64(cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p = take(c, 8);
    if (p == NULL) return cut(c, what);
    *out = im__load_u64(p);
    return IM_OK;
}

static im_status take_string(cursor *c, const char *what, im__gguf_string *out)
{
    uint64_t len = 0;
    IM__TRY(take_u64(c, what, &len));
    const uint8_t *p = len > SIZE_MAX ? NULL : take(c, (size_t)len);
    if (p == NULL) return cut(c, what);
    *out = (im__gguf_string){(const char *)p, (size_t)len};
    return IM_OK;
}

const char *im__gguf_show(im__gguf_string name, char out[IM__GGUF_SHOWN])
{
    size_t n = name.len > 64 ? 64 : name.len;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)name.ptr[i] < 0x20 ? '?' : name.ptr[i];
    memcpy(out + n, name.len > n ? "..." : "", name.len > n ? 4 : 1);
    return out;
}

/* A key or tensor name: 1 to `max` bytes of UTF-8 without a zero, so that it can be compared with C strings. */
static im_status take_name(cursor *c, const char *what, size_t max, im__gguf_string *out)
{
    char shown[IM__GGUF_SHOWN];
    size_t at = c->at;
    IM__TRY(take_string(c, what, out));
    if (out->len == 0) return im__fail(c->err, IM_ERR_FORMAT, "%s: %s at byte %zu is empty", c->path, what, at);
    if (out->len > max)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: %s '%s' has %zu bytes, the format allows %zu", c->path, what,
                        im__gguf_show(*out, shown), out->len, max);
    const char *fault = memchr(out->ptr, 0, out->len) != NULL ? "holds a zero byte"
                        : !im__utf8_valid(out->ptr, out->len) ? "is not UTF-8"
                                                              : NULL;
    if (fault != NULL)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: %s '%s' at byte %zu %s", c->path, what, im__gguf_show(*out, shown), at, fault);
    return IM_OK;
}

/* ---- values ---- */

size_t im__gguf_scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [IM__GGUF_U8] = 1,  [IM__GGUF_I8] = 1,   [IM__GGUF_U16] = 2, [IM__GGUF_I16] = 2, [IM__GGUF_U32] = 4, [IM__GGUF_I32] = 4,
        [IM__GGUF_F32] = 4, [IM__GGUF_BOOL] = 1, [IM__GGUF_U64] = 8, [IM__GGUF_I64] = 8, [IM__GGUF_F64] = 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

const char *im__gguf_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

bool im__gguf_integer(im__gguf_type type, const uint8_t *data, int64_t *out)
{
    uint64_t u;
    switch (type) {
    case IM__GGUF_U8: *out = data[0]; return true;
    case IM__GGUF_I8: *out = (int8_t)data[0]; return true;
    case IM__GGUF_U16: *out = im__load_u16(data); return true;
    case IM__GGUF_I16: *out = (int16_t)im__load_u16(data); return true;
    case IM__GGUF_U32: *out = im__load_u32(data); return true;
    case IM__GGUF_I32: *out = (int32_t)im__load_u32(data); return true;
    case IM__GGUF_I64: *out = (int64_t)im__load_u64(data); return true;
    case IM__GGUF_U64:
        u = im__load_u64(data);
        *out = u > INT64_MAX ? INT64_MAX : (int64_t)u;
        return true;
    default: return false;
    }
}

static im_status bad_value(const cursor *c, const im__gguf_kv *kv, const char *fault)
{
    char shown[IM__GGUF_SHOWN];
    return im__fail(c->err, IM_ERR_FORMAT, "%s: key '%s': %s", c->path, im__gguf_show(kv->key, shown), fault);
}

static im_status check_bools(const cursor *c, const im__gguf_kv *kv, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kv->data[i] > 1) return bad_value(c, kv, "a boolean is neither 0 nor 1");
    return IM_OK;
}

static im_status take_array_strings(cursor *c, const im__gguf_kv *kv)
{
    const uint8_t *p = kv->data, *end = c->data + c->size;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (end - p < 8 || im__load_u64(p) > (uint64_t)(end - p - 8))
            return bad_value(c, kv, "its strings reach past the end of the file");
        p += 8 + im__load_u64(p);
    }
    c->at = (size_t)(p - c->data);
    return IM_OK;
}

static im_status take_array(cursor *c, im__gguf_kv *kv)
{
    uint32_t item = 0;
    IM__TRY(take_u32(c, "an array", &item));
    IM__TRY(take_u64(c, "an array", &kv->count));
    kv->item = (im__gguf_type)item;
    kv->data = c->data + c->at;
    if (item == IM__GGUF_ARRAY) return bad_value(c, kv, "arrays of arrays are not supported");
    if (item > IM__GGUF_F64) return bad_value(c, kv, "unknown element type");
    size_t each = item == IM__GGUF_STRING ? 8 : im__gguf_scalar_bytes(item);
    if (kv->count > left(c) / each) return bad_value(c, kv, "the array holds more elements than the file has bytes for");
    if (item == IM__GGUF_STRING) return take_array_strings(c, kv);
    c->at += (size_t)kv->count * each;
    return item == IM__GGUF_BOOL ? check_bools(c, kv, (size_t)kv->count) : IM_OK;
}

static im_status take_value(cursor *c, im__gguf_kv *kv)
{
    uint32_t type = 0;
    im__gguf_string text;
    IM__TRY(take_u32(c, "a key's type", &type));
    if (type > IM__GGUF_F64) return bad_value(c, kv, "unknown value type");
    kv->type = (im__gguf_type)type;
    kv->data = c->data + c->at;
    if (type == IM__GGUF_ARRAY) return take_array(c, kv);
    if (type == IM__GGUF_STRING) return take_string(c, "a string value", &text);
    if (take(c, im__gguf_scalar_bytes(type)) == NULL) return cut(c, "a value");
    return type == IM__GGUF_BOOL ? check_bools(c, kv, 1) : IM_OK;
}

/* ---- header ---- */

static im_status check_count(const cursor *c, const char *what, uint64_t count, uint64_t max, size_t min_bytes)
{
    if (count > left(c) / min_bytes)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: the header claims %" PRIu64 " %s, but only %zu bytes follow", c->path, count,
                        what, left(c));
    if (count > max)
        return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: %" PRIu64 " %s, at most %" PRIu64 " are supported", c->path, count, what,
                        max);
    return IM_OK;
}

static im_status check_version(const cursor *c, uint32_t version)
{
    if (version == 2 || version == 3) return IM_OK;
    if ((version & 0xffff) == 0 && version != 0)
        return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: a big-endian GGUF file; convert it to little-endian", c->path);
    return im__fail(c->err, IM_ERR_UNSUPPORTED, "%s: GGUF version %" PRIu32 ", supported are 2 and 3", c->path, version);
}

static im_status take_header(cursor *c, im__gguf_shard *s)
{
    uint64_t tensors = 0, keys = 0;
    if (c->size == 0) return im__fail(c->err, IM_ERR_FORMAT, "%s: the file is empty", c->path);
    if (c->size < 4 || memcmp(c->data, "GGUF", 4) != 0)
        return im__fail(c->err, IM_ERR_FORMAT, "%s: not a GGUF file (it does not begin with 'GGUF')", c->path);
    if (c->size < HEADER_BYTES) return cut(c, "the header");
    c->at = 4;
    IM__TRY(take_u32(c, "the header", &s->version));
    IM__TRY(check_version(c, s->version));
    IM__TRY(take_u64(c, "the header", &tensors));
    IM__TRY(take_u64(c, "the header", &keys));
    IM__TRY(check_count(c, "keys", keys, IM__GGUF_MAX_KEYS, MIN_KV_BYTES));
    IM__TRY(check_count(c, "tensors", tensors, IM__GGUF_MAX_TENSORS, MIN_TENSOR_BYTES));
    s->kv_count = (size_t)keys;
    s->tensor_count = (size_t)tensors;
    return IM_OK;
}

static im_status no_memory(const cursor *c) { return im__fail(c->err, IM_ERR_MEMORY, "%s: no memory for the directory", c->path); }

static im_status take_alignment(cursor *c, im__gguf_shard *s, const im__gguf_kv *kv)
{
    int64_t value;
    if (!im__gguf_integer(kv->type, kv->data, &value)) return bad_value(c, kv, "must be an integer");
    if (value < MIN_ALIGNMENT || value > UINT32_MAX || (value & (value - 1)) != 0)
        return bad_value(c, kv, "must be a power of two and at least 8");
    s->alignment = (uint32_t)value;
    return IM_OK;
}

static im_status take_keys(cursor *c, im__gguf_shard *s)
{
    static const char alignment[] = "general.alignment";
    s->kv = im__calloc(s->kv_count, sizeof *s->kv);
    if (s->kv == NULL) return no_memory(c);
    s->alignment = DEFAULT_ALIGNMENT;
    for (size_t i = 0; i < s->kv_count; i++) {
        im__gguf_kv *kv = &s->kv[i];
        IM__TRY(take_name(c, "a key", UINT16_MAX, &kv->key));
        IM__TRY(take_value(c, kv));
        if (kv->key.len == sizeof alignment - 1 && memcmp(kv->key.ptr, alignment, kv->key.len) == 0)
            IM__TRY(take_alignment(c, s, kv));
    }
    return IM_OK;
}

/* ---- tensors ---- */

static im_status bad_tensor(const cursor *c, const im__gguf_tensor *t, im_status status, const char *format, ...) IM__PRINTF(4, 5);
static im_status bad_tensor(const cursor *c, const im__gguf_tensor *t, im_status status, const char *format, ...)
{
    char shown[IM__GGUF_SHOWN], fault[256];
    va_list args;
    va_start(args, format);
    vsnprintf(fault, sizeof fault, format, args);
    va_end(args);
    return im__fail(c->err, status, "%s: tensor '%s': %s", c->path, im__gguf_show(t->name, shown), fault);
}

static im_status take_dims(cursor *c, im__gguf_tensor *t)
{
    IM__TRY(take_u32(c, "the tensor directory", &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > IM__GGUF_MAX_DIMS)
        return bad_tensor(c, t, IM_ERR_FORMAT, "%" PRIu32 " dimensions, the format allows 1 to %d", t->n_dims, IM__GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < IM__GGUF_MAX_DIMS; i++) {
        t->dim[i] = 1;
        if (i < t->n_dims) IM__TRY(take_u64(c, "the tensor directory", &t->dim[i]));
        if (t->dim[i] == 0) return bad_tensor(c, t, IM_ERR_FORMAT, "dimension %" PRIu32 " is 0", i);
    }
    return IM_OK;
}

/* Storage size from type and dims. */
static im_status measure(const cursor *c, im__gguf_tensor *t)
{
    const im__dtype_info *info = im__dtype_get(t->dtype);
    if (info->name == NULL || t->dtype >= IM__GGUF_DTYPES)
        return bad_tensor(c, t, IM_ERR_UNSUPPORTED, "type %" PRIu32 " is not known", t->dtype);
    if (t->dim[0] % info->block_len != 0)
        return bad_tensor(c, t, IM_ERR_FORMAT, "a row of %" PRIu64 " elements is no multiple of the %u in a block of type %s",
                          t->dim[0], (unsigned)info->block_len, info->name);
    bool fits = t->dim[0] <= SIZE_MAX;
    t->bytes = fits ? im__dtype_row_bytes(t->dtype, (size_t)t->dim[0]) : 0;
    fits = fits && t->bytes != 0;
    for (int i = 1; i < IM__GGUF_MAX_DIMS && fits; i++)
        fits = t->dim[i] <= SIZE_MAX && im__mul(t->bytes, (size_t)t->dim[i], &t->bytes);
    if (!fits) return bad_tensor(c, t, IM_ERR_FORMAT, "its dimensions overflow");
    return IM_OK;
}

static im_status take_tensor(cursor *c, im__gguf_tensor *t, uint32_t alignment, span *where)
{
    IM__TRY(take_name(c, "a tensor name", IM__GGUF_MAX_NAME, &t->name));
    IM__TRY(take_dims(c, t));
    IM__TRY(take_u32(c, "the tensor directory", &t->dtype));
    IM__TRY(take_u64(c, "the tensor directory", &where->offset));
    IM__TRY(measure(c, t));
    where->bytes = t->bytes;
    if (where->offset % alignment != 0)
        return bad_tensor(c, t, IM_ERR_FORMAT, "offset %" PRIu64 " is no multiple of the alignment %" PRIu32, where->offset,
                          alignment);
    return IM_OK;
}

static int by_offset(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Turns offsets into pointers: inside the file, and no two tensors over the same bytes. */
static im_status place_tensors(const cursor *c, im__gguf_shard *s, span *spans)
{
    char shown[IM__GGUF_SHOWN];
    size_t start;
    if (s->tensor_count == 0) return IM_OK;
    if (!im__add(c->at, s->alignment - 1, &start)) return cut(c, "the tensor data");
    start -= start % s->alignment;
    size_t room = start < c->size ? c->size - start : 0;
    qsort(spans, s->tensor_count, sizeof *spans, by_offset);
    for (size_t i = 0; i < s->tensor_count; i++) {
        const span *w = &spans[i], *before = i == 0 ? NULL : w - 1;
        im__gguf_tensor *t = &s->tensor[w->id];
        if (w->bytes > room || w->offset > room - w->bytes)
            return bad_tensor(c, t, IM_ERR_FORMAT,
                              "its %zu bytes at offset %" PRIu64 " reach past the end of the file; it is cut short or damaged",
                              w->bytes, w->offset);
        if (before != NULL && w->offset < before->offset + before->bytes)
            return bad_tensor(c, t, IM_ERR_FORMAT, "its bytes overlap those of tensor '%s'",
                              im__gguf_show(s->tensor[before->id].name, shown));
        t->data = c->data + start + w->offset;
    }
    return IM_OK;
}

static im_status take_directory(cursor *c, im__gguf_shard *s, span *spans)
{
    for (size_t i = 0; i < s->tensor_count; i++) {
        spans[i].id = i;
        IM__TRY(take_tensor(c, &s->tensor[i], s->alignment, &spans[i]));
    }
    return place_tensors(c, s, spans);
}

im_status im__gguf_shard_parse(im__gguf_shard *s, const uint8_t *data, size_t size, im_error *err)
{
    cursor c = {s->path, data, size, 0, err};
    IM__TRY(take_header(&c, s));
    IM__TRY(take_keys(&c, s));
    s->tensor = im__calloc(s->tensor_count, sizeof *s->tensor);
    span *spans = im__calloc(s->tensor_count, sizeof *spans);
    im_status status = s->tensor == NULL || spans == NULL ? no_memory(&c) : take_directory(&c, s, spans);
    im__free(spans);
    return status;
}

void im__gguf_shard_free(im__gguf_shard *s)
{
    im__free(s->kv);
    im__free(s->tensor);
    s->kv = NULL;
    s->tensor = NULL;
}
