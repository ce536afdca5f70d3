/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a GGUF file: parse, then read everything that was found through every getter, and de-quantise the tensors.
 */
#include "base/mem.h"
#include "format/gguf.h"
#include "num/group.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps reads of the results from being optimised away. */
static volatile unsigned sink;

static void touch(const void *p, size_t n)
{
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++) sink += bytes[i];
}

static void must(int promise)
{
    if (!promise) abort();
}

static void read_scalars(const im__gguf *g, const char *key)
{
    uint32_t u;
    float f;
    bool b;
    im__gguf_string s = {"", 0};
    im_error err;
    im__gguf_get_u32(g, key, true, &u, &err);
    im__gguf_get_f32(g, key, true, &f, &err);
    im__gguf_get_bool(g, key, true, &b, &err);
    if (im__gguf_get_string(g, key, true, &s, &err) == IM_OK) touch(s.ptr, s.len);
}

static void read_arrays(const im__gguf *g, const char *key)
{
    im__gguf_string *strings;
    float *floats;
    int32_t *integers;
    size_t count;
    im_error err;
    if (im__gguf_get_strings(g, key, &strings, &count, &err) == IM_OK)
        for (size_t i = 0; i < count; i++) touch(strings[i].ptr, strings[i].len);
    im__free(strings);
    if (im__gguf_get_f32s(g, key, &floats, &count, &err) == IM_OK) touch(floats, count * sizeof *floats);
    im__free(floats);
    if (im__gguf_get_i32s(g, key, &integers, &count, &err) == IM_OK) touch(integers, count * sizeof *integers);
    im__free(integers);
}

static void read_key(const im__gguf *g, const im__gguf_kv *kv)
{
    char *name = im__strdup(kv->key.ptr, kv->key.len);
    must(name != NULL && im__gguf_find(g, name) == kv);
    read_scalars(g, name);
    read_arrays(g, name);
    im__free(name);
}

static void read_tensor(const im__gguf *g, const im__gguf_tensor *t)
{
    char *name = im__strdup(t->name.ptr, t->name.len);
    must(name != NULL && im__gguf_find_tensor(g, name) == t);
    im__free(name);
    touch(t->data, t->bytes);
    size_t row = (size_t)t->dim[0];
    if (!im__dtype_get(t->dtype)->runs || row > 1 << 16) return;
    float *values = malloc(row * sizeof *values);
    must(values != NULL);
    size_t stride = im__dtype_row_bytes(t->dtype, row);
    for (size_t r = 0; r < t->bytes / stride; r++) im__dequantise_row(t->dtype, t->data + r * stride, values, row);
    touch(values, row * sizeof *values);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    im__gguf *g;
    im_error err = {.message = ""};
    im_status status = im__gguf_parse(&g, data, size, "fuzz", &err);
    must((status == IM_OK) == (g != NULL));
    if (g == NULL) {
        must(err.status == status && strncmp(err.message, "fuzz: ", 6) == 0 && strchr(err.message, '\n') == NULL);
        return 0;
    }
    for (size_t i = 0; i < g->kv_count && i < 64; i++) read_key(g, &g->kv[i]);
    for (size_t i = 0; i < g->tensor_count; i++) read_tensor(g, &g->tensor[i]);
    im__gguf_close(g);
    return 0;
}
