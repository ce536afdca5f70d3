/* SPDX-License-Identifier: Apache-2.0 */
#include "format/gguf_shard.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "num/half.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static im_status bad_key(const im__gguf *g, const char *key, im_error *err, const char *fault)
{
    return im__fail(err, IM_ERR_FORMAT, "%s: key '%s' %s", g->path[0], key, fault);
}

static im_status wrong_type(const im__gguf *g, const im__gguf_kv *kv, const char *key, const char *expected, im_error *err)
{
    bool array = kv->type == IM__GGUF_ARRAY;
    return im__fail(err, IM_ERR_FORMAT, "%s: key '%s' is %s%s, expected %s", g->path[0], key, array ? "an array of " : "of type ",
                    im__gguf_type_name(array ? kv->item : kv->type), expected);
}

/* IM_OK with *kv NULL when an optional key is absent. */
static im_status look_up(const im__gguf *g, const char *key, bool required, const im__gguf_kv **kv, im_error *err)
{
    *kv = im__gguf_find(g, key);
    return *kv == NULL && required ? bad_key(g, key, err, "is missing") : IM_OK;
}

/* Any number as a double: exact but for 64-bit integers beyond 2^53, which no caller's range reaches unrounded. */
static bool number(im__gguf_type type, const uint8_t *data, double *out)
{
    int64_t integer;
    if (type == IM__GGUF_F32) {
        *out = (double)im__f32_of_bits(im__load_u32(data));
    } else if (type == IM__GGUF_F64) {
        uint64_t bits = im__load_u64(data);
        memcpy(out, &bits, sizeof *out);
    } else if (im__gguf_integer(type, data, &integer)) {
        *out = (double)integer;
    } else {
        return false;
    }
    return true;
}

im_status im__gguf_get_u32(const im__gguf *g, const char *key, bool required, uint32_t *out, im_error *err)
{
    const im__gguf_kv *kv;
    int64_t value;
    IM__TRY(look_up(g, key, required, &kv, err));
    if (kv == NULL) return IM_OK;
    if (!im__gguf_integer(kv->type, kv->data, &value)) return wrong_type(g, kv, key, "an integer", err);
    if (value < 0 || value > UINT32_MAX) return bad_key(g, key, err, "is out of range (0 to 4294967295)");
    *out = (uint32_t)value;
    return IM_OK;
}

im_status im__gguf_get_f32(const im__gguf *g, const char *key, bool required, float *out, im_error *err)
{
    const im__gguf_kv *kv;
    double value;
    IM__TRY(look_up(g, key, required, &kv, err));
    if (kv == NULL) return IM_OK;
    if (!number(kv->type, kv->data, &value)) return wrong_type(g, kv, key, "a number", err);
    if (isfinite(value) && fabs(value) > (double)FLT_MAX) return bad_key(g, key, err, "is too large for a 32-bit float");
    *out = (float)value;
    return IM_OK;
}

im_status im__gguf_get_bool(const im__gguf *g, const char *key, bool required, bool *out, im_error *err)
{
    const im__gguf_kv *kv;
    IM__TRY(look_up(g, key, required, &kv, err));
    if (kv == NULL) return IM_OK;
    if (kv->type != IM__GGUF_BOOL) return wrong_type(g, kv, key, "a boolean", err);
    *out = kv->data[0] != 0;
    return IM_OK;
}

im_status im__gguf_get_string(const im__gguf *g, const char *key, bool required, im__gguf_string *out, im_error *err)
{
    const im__gguf_kv *kv;
    IM__TRY(look_up(g, key, required, &kv, err));
    if (kv == NULL) return IM_OK;
    if (kv->type != IM__GGUF_STRING) return wrong_type(g, kv, key, "a string", err);
    *out = (im__gguf_string){(const char *)kv->data + 8, (size_t)im__load_u64(kv->data)};
    return IM_OK;
}

/* New array for the elements of `kv`; NULL with *count 0 when kv is NULL. */
static im_status new_array(const im__gguf *g, const im__gguf_kv *kv, const char *key, size_t each, void **out, size_t *count,
                           im_error *err)
{
    *out = NULL;
    *count = 0;
    if (kv == NULL) return IM_OK;
    size_t n = kv->type == IM__GGUF_ARRAY ? (size_t)kv->count : 1;
    if (n > IM__GGUF_MAX_ITEMS) return bad_key(g, key, err, "has more elements than any vocabulary known");
    *out = im__calloc(n, each);
    if (*out == NULL) return im__fail(err, IM_ERR_MEMORY, "%s: no memory for key '%s'", g->path[0], key);
    *count = n;
    return IM_OK;
}

im_status im__gguf_get_strings(const im__gguf *g, const char *key, im__gguf_string **out, size_t *count, im_error *err)
{
    const im__gguf_kv *kv = im__gguf_find(g, key);
    void *array;
    *out = NULL;
    *count = 0;
    if (kv != NULL && (kv->type != IM__GGUF_ARRAY || kv->item != IM__GGUF_STRING))
        return wrong_type(g, kv, key, "an array of strings", err);
    IM__TRY(new_array(g, kv, key, sizeof **out, &array, count, err));
    *out = array;
    const uint8_t *p = kv == NULL ? NULL : kv->data;
    for (size_t i = 0; i < *count; i++) {
        (*out)[i] = (im__gguf_string){(const char *)p + 8, (size_t)im__load_u64(p)};
        p += 8 + (*out)[i].len;
    }
    return IM_OK;
}

static im__gguf_type item_type(const im__gguf_kv *kv) { return kv->type == IM__GGUF_ARRAY ? kv->item : kv->type; }

im_status im__gguf_get_f32s(const im__gguf *g, const char *key, float **out, size_t *count, im_error *err)
{
    const im__gguf_kv *kv = im__gguf_find(g, key);
    void *array;
    double value;
    *out = NULL;
    *count = 0;
    if (kv != NULL && (item_type(kv) == IM__GGUF_STRING || item_type(kv) == IM__GGUF_BOOL))
        return wrong_type(g, kv, key, "an array of numbers", err);
    IM__TRY(new_array(g, kv, key, sizeof **out, &array, count, err));
    *out = array;
    for (size_t i = 0; i < *count; i++) {
        number(item_type(kv), kv->data + i * im__gguf_scalar_bytes(item_type(kv)), &value);
        if (isfinite(value) && fabs(value) > (double)FLT_MAX) value = value < 0 ? -INFINITY : INFINITY;
        (*out)[i] = (float)value;
    }
    return IM_OK;
}

static bool is_integer(im__gguf_type type)
{
    return type != IM__GGUF_F32 && type != IM__GGUF_F64 && type != IM__GGUF_BOOL && type != IM__GGUF_STRING;
}

im_status im__gguf_get_i32s(const im__gguf *g, const char *key, int32_t **out, size_t *count, im_error *err)
{
    const im__gguf_kv *kv = im__gguf_find(g, key);
    void *array;
    int64_t value;
    *out = NULL;
    *count = 0;
    if (kv != NULL && !is_integer(item_type(kv))) return wrong_type(g, kv, key, "an array of integers", err);
    IM__TRY(new_array(g, kv, key, sizeof **out, &array, count, err));
    int32_t *numbers = array;
    for (size_t i = 0; i < *count; i++) {
        im__gguf_integer(item_type(kv), kv->data + i * im__gguf_scalar_bytes(item_type(kv)), &value);
        if (value < INT32_MIN || value > INT32_MAX) {
            im__free(numbers);
            *count = 0;
            return bad_key(g, key, err, "holds a number outside the 32-bit range");
        }
        numbers[i] = (int32_t)value;
    }
    *out = numbers;
    return IM_OK;
}
