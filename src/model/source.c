/* SPDX-License-Identifier: Apache-2.0 */
#include "model/source.h"

#include "format/st_folder.h"

#include <stdlib.h>
#include <string.h>

im__source *im__source_new(const im__source_kind *kind, size_t tensors)
{
    im__source *s = im__calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->kind = kind;
    s->tensor = im__calloc(tensors, sizeof *s->tensor);
    s->by_name = im__calloc(tensors, sizeof *s->by_name);
    if (s->tensor != NULL && s->by_name != NULL) return s;
    im__free(s->tensor);
    im__free(s->by_name);
    im__free(s);
    return NULL;
}

/* A key that is searched for stands in front of its place. */
typedef struct named {
    const char *name;
    uint32_t index;
} named;

static int by_name(const void *a, const void *b) { return strcmp(((const named *)a)->name, ((const named *)b)->name); }

im_status im__source_sort(im__source *s, im_error *err)
{
    im_status status = IM_OK;
    named *list = im__calloc(s->tensor_count, sizeof *list);
    if (list == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < s->tensor_count; i++) list[i] = (named){s->tensor[i].name, (uint32_t)i};
    qsort(list, s->tensor_count, sizeof *list, by_name);
    for (size_t i = 0; i < s->tensor_count; i++) {
        s->by_name[i] = list[i].index;
        if (i > 0 && by_name(&list[i - 1], &list[i]) == 0 && status == IM_OK)
            status = im__fail(err, IM_ERR_FORMAT, "%s: tensor %s is there twice", s->path, list[i].name);
    }
    im__free(list);
    return status;
}

const im__tensor *im__source_find(const im__source *s, const char *name)
{
    size_t low = 0, high = s->tensor_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const im__tensor *t = &s->tensor[s->by_name[middle]];
        int order = strcmp(t->name, name);
        if (order == 0) return t;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

im_status im__source_open(im__source **out, const char *path, im_error *err)
{
    im__gguf *g;
    *out = NULL;
    if (im__st_folder_is_one(path)) return im__source_of_folder(out, path, err);
    im_status status = im__gguf_open(&g, path, err);
    if (status == IM_OK) return im__source_of_gguf(out, g, err);
    if (status == IM_ERR_IO) IM__TRY(im__st_folder_explain(path, err));
    if (status == IM_ERR_FORMAT && (ends_in(path, ".safetensors") || ends_in(path, ".safetensors.index.json")))
        return im__fail(err, status, "%s: is a part of a model; give the folder that holds it", path);
    return status;
}

void im__source_close(im__source *s)
{
    if (s == NULL) return;
    if (s->file != NULL) s->kind->close(s);
    im__free(s->tensor);
    im__free(s->by_name);
    im__free(s);
}

void im__params_clear(im__params *p)
{
    im__free(p->ff);
    im__free(p->kv_heads);
    p->ff = p->kv_heads = NULL;
}
