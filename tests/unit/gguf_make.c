/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf_make.h"

#include "num/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ALIGNMENT = 32 };

static void put_u32(im__buf *b, uint32_t v) { im__buf_append(b, &v, sizeof v); }
static void put_u64(im__buf *b, uint64_t v) { im__buf_append(b, &v, sizeof v); }

static void put_string(im__buf *b, const char *s)
{
    put_u64(b, strlen(s));
    im__buf_puts(b, s);
}

static im__buf *begin_key(gguf_make *m, const char *key, im__gguf_type type)
{
    put_string(&m->keys, key);
    put_u32(&m->keys, (uint32_t)type);
    m->key_count++;
    return &m->keys;
}

static im__buf *begin_array(gguf_make *m, const char *key, im__gguf_type item, size_t n)
{
    im__buf *b = begin_key(m, key, IM__GGUF_ARRAY);
    put_u32(b, (uint32_t)item);
    put_u64(b, n);
    return b;
}

void make_u32(gguf_make *m, const char *key, uint32_t value) { put_u32(begin_key(m, key, IM__GGUF_U32), value); }
void make_i32(gguf_make *m, const char *key, int32_t value) { im__buf_append(begin_key(m, key, IM__GGUF_I32), &value, 4); }
void make_f32(gguf_make *m, const char *key, float value) { im__buf_append(begin_key(m, key, IM__GGUF_F32), &value, 4); }
void make_bool(gguf_make *m, const char *key, bool value)
{
    im__buf_append(begin_key(m, key, IM__GGUF_BOOL), value ? "\1" : "\0", 1);
}
void make_string(gguf_make *m, const char *key, const char *value) { put_string(begin_key(m, key, IM__GGUF_STRING), value); }

void make_u32s(gguf_make *m, const char *key, const uint32_t *values, size_t n)
{
    im__buf_append(begin_array(m, key, IM__GGUF_U32, n), values, n * sizeof *values);
}

void make_f32s(gguf_make *m, const char *key, const float *values, size_t n)
{
    im__buf_append(begin_array(m, key, IM__GGUF_F32, n), values, n * sizeof *values);
}

void make_strings(gguf_make *m, const char *key, const char *const *values, size_t n)
{
    im__buf *b = begin_array(m, key, IM__GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_string(b, values[i]);
}

static void pad(im__buf *b)
{
    static const char zeros[ALIGNMENT];
    im__buf_append(b, zeros, (ALIGNMENT - b->len % ALIGNMENT) % ALIGNMENT);
}

void make_tensor(gguf_make *m, const char *name, uint32_t dtype, uint64_t n, uint64_t rows)
{
    static const char zeros[64];
    pad(&m->data);
    put_string(&m->tensors, name);
    put_u32(&m->tensors, rows == 0 ? 1 : 2);
    put_u64(&m->tensors, n);
    if (rows > 0) put_u64(&m->tensors, rows);
    put_u32(&m->tensors, dtype);
    put_u64(&m->tensors, m->data.len);
    m->tensor_count++;
    uint32_t random = (uint32_t)m->tensor_count;
    for (uint64_t i = 0; dtype == IM__F32 && i < n * (rows == 0 ? 1 : rows); i++) {
        random = random * 1664525u + 1013904223u;
        float x = (float)(random >> 8) * 0x1p-24f * 0.1f + 0.5f;
        im__buf_append(&m->data, &x, sizeof x);
    }
    size_t left = dtype == IM__F32 ? 0 : im__dtype_row_bytes(dtype, (size_t)n) * (size_t)(rows == 0 ? 1 : rows);
    for (; left > 0; left -= left < sizeof zeros ? left : sizeof zeros)
        im__buf_append(&m->data, zeros, left < sizeof zeros ? left : sizeof zeros);
}

im__gguf *make_open(gguf_make *m)
{
    im__gguf *g = NULL;
    im_error err = {IM_OK, ""};
    im__buf_free(&m->file);
    im__buf_puts(&m->file, "GGUF");
    put_u32(&m->file, 3);
    put_u64(&m->file, m->tensor_count);
    put_u64(&m->file, m->key_count);
    im__buf_append(&m->file, m->keys.data == NULL ? "" : m->keys.data, m->keys.len);
    im__buf_append(&m->file, m->tensors.data == NULL ? "" : m->tensors.data, m->tensors.len);
    pad(&m->file);
    im__buf_append(&m->file, m->data.data == NULL ? "" : m->data.data, m->data.len);
    pad(&m->file);
    assert_false(m->keys.failed || m->tensors.failed || m->data.failed || m->file.failed);
    if (im__gguf_parse(&g, m->file.data, m->file.len, "made", &err) != IM_OK) fail_msg("%s", err.message);
    return g;
}

void make_clear(gguf_make *m)
{
    im__buf_free(&m->keys);
    im__buf_free(&m->tensors);
    im__buf_free(&m->data);
    im__buf_free(&m->file);
    *m = (gguf_make){0};
}
