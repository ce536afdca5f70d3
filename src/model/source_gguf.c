/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF files, whose names are those of the roles and whose values are stored as the families want them.
 */
#include "model/source.h"

#include <string.h>

typedef struct gguf_file {
    im__gguf *g;
    im__vocab_arrays arrays;
} gguf_file;

static const im__gguf *gguf_of(const im__source *s) { return ((const gguf_file *)s->file)->g; }

static im_status params(const im__source *s, im__params *out, im_error *err) { return im__params_read(gguf_of(s), out, err); }

static im_status vocabulary(im__source *s, const char *pre, im__tokenizer **out, im_error *err)
{
    return im__vocabulary_read(gguf_of(s), pre, out, &((gguf_file *)s->file)->arrays, err);
}

static const char *label(const im__source *s, const char *role, char out[128])
{
    (void)s, (void)out;
    return role;
}

static void close_gguf(im__source *s)
{
    gguf_file *f = s->file;
    im__vocab_arrays_clear(&f->arrays);
    im__gguf_close(f->g);
    im__free(f);
}

static const im__source_kind kind = {.params = params, .vocabulary = vocabulary, .label = label, .close = close_gguf};

static im__tensor tensor_of(const im__gguf *g, const im__gguf_tensor *from)
{
    im__tensor t = {.dtype = from->dtype, .data = from->data, .bytes = from->bytes, .path = g->path[from->shard]};
    memcpy(t.name, from->name.ptr, from->name.len);
    memcpy(t.dim, from->dim, sizeof t.dim);
    return t;
}

/* A value of another kind is as good as none. */
static im__bytes text(const im__gguf *g, const char *key)
{
    im__gguf_string s = {NULL, 0};
    im__gguf_get_string(g, key, false, &s, NULL);
    return (im__bytes){s.ptr, s.len};
}

im_status im__source_of_gguf(im__source **out, im__gguf *g, im_error *err)
{
    *out = NULL;
    im__source *s = im__source_new(&kind, g->tensor_count);
    gguf_file *f = im__calloc(1, sizeof *f);
    if (s == NULL || f == NULL) {
        im__free(f);
        im__source_close(s);
        im__gguf_close(g);
        return im__fail(err, IM_ERR_MEMORY, "out of memory");
    }
    f->g = g;
    s->file = f;
    s->path = g->path[0];
    for (size_t i = 0; i < g->tensor_count; i++) s->tensor[s->tensor_count++] = tensor_of(g, &g->tensor[i]);
    for (size_t i = 0; i < g->shard_count; i++) s->file_bytes += g->map[i].size;
    s->architecture = text(g, "general.architecture");
    s->name = text(g, "general.name");
    s->licence = text(g, "general.license");
    s->chat_template = text(g, "tokenizer.chat_template");
    im_status status = im__source_sort(s, err);
    if (status == IM_OK)
        *out = s;
    else
        im__source_close(s);
    return status;
}
