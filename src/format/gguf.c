/* SPDX-License-Identifier: Apache-2.0 */
#include "format/gguf.h"

#include "base/mem.h"
#include "format/gguf_shard.h"
#include "format/gguf_split.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Names sorted by bytes: a look-up costs a few comparisons whatever names a hostile file chooses, and equal names end up side by side. */
typedef struct entry {
    im__gguf_string name;
    size_t id;
} entry;

struct im__gguf_index {
    entry *kv, *tensor;
};

static int compare_names(const im__gguf_string *a, const im__gguf_string *b)
{
    int order = memcmp(a->ptr, b->ptr, a->len < b->len ? a->len : b->len);
    if (order != 0) return order;
    return (a->len > b->len) - (a->len < b->len);
}

static int compare_entries(const void *a, const void *b)
{
    return compare_names(&((const entry *)a)->name, &((const entry *)b)->name);
}

static const entry *find_entry(const entry *entries, size_t count, const char *name)
{
    entry wanted = {{name, strlen(name)}, 0};
    return count == 0 ? NULL : bsearch(&wanted, entries, count, sizeof *entries, compare_entries);
}

const im__gguf_kv *im__gguf_find(const im__gguf *g, const char *key)
{
    const entry *e = find_entry(g->index->kv, g->kv_count, key);
    return e == NULL ? NULL : &g->kv[e->id];
}

const im__gguf_tensor *im__gguf_find_tensor(const im__gguf *g, const char *name)
{
    const entry *e = find_entry(g->index->tensor, g->tensor_count, name);
    return e == NULL ? NULL : &g->tensor[e->id];
}

/* Sorts, and returns an entry whose name occurs twice; NULL when there is none. */
static const entry *sort_names(entry *entries, size_t count)
{
    if (count > 0) qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 1; i < count; i++)
        if (compare_entries(&entries[i - 1], &entries[i]) == 0) return &entries[i];
    return NULL;
}

static im_status check_unique(const im__gguf *g, im_error *err)
{
    char shown[IM__GGUF_SHOWN];
    const entry *key = sort_names(g->index->kv, g->kv_count), *tensor = sort_names(g->index->tensor, g->tensor_count);
    if (key != NULL) return im__fail(err, IM_ERR_FORMAT, "%s: key '%s' occurs twice", g->path[0], im__gguf_show(key->name, shown));
    if (tensor != NULL)
        return im__fail(err, IM_ERR_FORMAT, "%s: tensor '%s' occurs twice", g->path[g->tensor[tensor->id].shard],
                        im__gguf_show(tensor->name, shown));
    return IM_OK;
}

static im_status build_index(im__gguf *g, im_error *err)
{
    struct im__gguf_index *index = g->index = im__calloc(1, sizeof *index);
    if (index != NULL) {
        index->kv = im__calloc(g->kv_count, sizeof *index->kv);
        index->tensor = im__calloc(g->tensor_count, sizeof *index->tensor);
    }
    if (index == NULL || index->kv == NULL || index->tensor == NULL)
        return im__fail(err, IM_ERR_MEMORY, "%s: no memory for the index of names", g->path[0]);
    for (size_t i = 0; i < g->kv_count; i++) index->kv[i] = (entry){g->kv[i].key, i};
    for (size_t i = 0; i < g->tensor_count; i++) index->tensor[i] = (entry){g->tensor[i].name, i};
    return check_unique(g, err);
}

/* ---- shards ---- */

/* What a shard says about the set that it is part of. */
typedef struct split_keys {
    int64_t no, count, tensors; /* -1 where the key is absent */
} split_keys;

static im_status take_split_key(const im__gguf_shard *s, const im__gguf_kv *kv, const char *name, int64_t *out, im_error *err)
{
    if (kv->key.len != strlen(name) || memcmp(kv->key.ptr, name, kv->key.len) != 0) return IM_OK;
    if (!im__gguf_integer(kv->type, kv->data, out) || *out < 0)
        return im__fail(err, IM_ERR_FORMAT, "%s: key '%s' is not a count", s->path, name);
    return IM_OK;
}

static im_status read_split_keys(const im__gguf_shard *s, split_keys *k, im_error *err)
{
    *k = (split_keys){-1, -1, -1};
    for (size_t i = 0; i < s->kv_count; i++) {
        IM__TRY(take_split_key(s, &s->kv[i], "split.no", &k->no, err));
        IM__TRY(take_split_key(s, &s->kv[i], "split.count", &k->count, err));
        IM__TRY(take_split_key(s, &s->kv[i], "split.tensors.count", &k->tensors, err));
    }
    return IM_OK;
}

/* A file that says it is part of more must have the name of a shard, and names and keys must tell the same. */
static im_status check_split(const im__gguf *g, const im__gguf_shard *s, size_t no, const split_keys *k, im_error *err)
{
    if (g->shard_count == 1) {
        if (k->count > 1)
            return im__fail(err, IM_ERR_FORMAT,
                            "%s: this is one of %" PRId64
                            " files of a split model, but its name does not end in -0000N-of-%05" PRId64
                            ".gguf, so the others cannot be found",
                            s->path, k->count, k->count);
        return IM_OK;
    }
    if (k->count != (int64_t)g->shard_count)
        return im__fail(err, IM_ERR_FORMAT, "%s: named as one of %zu files, but its split.count %s", s->path, g->shard_count,
                        k->count < 0 ? "is absent" : "is another number");
    if (k->no != (int64_t)no)
        return im__fail(err, IM_ERR_FORMAT, "%s: named as file %zu, but its split.no is not %zu", s->path, no + 1, no);
    return IM_OK;
}

static im_status append_tensors(im__gguf *g, const im__gguf_shard *s, size_t no, im_error *err)
{
    size_t total = g->tensor_count + s->tensor_count;
    if (total > IM__GGUF_MAX_TENSORS)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: more than %u tensors with the files before it", s->path,
                        IM__GGUF_MAX_TENSORS);
    im__gguf_tensor *grown = im__realloc(g->tensor, total, sizeof *grown);
    if (grown == NULL) return im__fail(err, IM_ERR_MEMORY, "%s: no memory for the directory", s->path);
    g->tensor = grown;
    for (size_t i = 0; i < s->tensor_count; i++) {
        grown[g->tensor_count] = s->tensor[i];
        grown[g->tensor_count++].shard = (uint32_t)no;
    }
    return IM_OK;
}

static im_status add_parsed(im__gguf *g, im__gguf_shard *s, size_t no, int64_t *announced, im_error *err)
{
    split_keys k;
    IM__TRY(read_split_keys(s, &k, err));
    IM__TRY(check_split(g, s, no, &k, err));
    if (no == 0) *announced = k.tensors;
    if (k.tensors != *announced)
        return im__fail(err, IM_ERR_FORMAT, "%s: its split.tensors.count is not that of the first file", s->path);
    IM__TRY(append_tensors(g, s, no, err));
    if (no == 0) {
        g->version = s->version;
        g->alignment = s->alignment;
        g->kv = s->kv;
        g->kv_count = s->kv_count;
        s->kv = NULL;
    }
    return IM_OK;
}

static im_status add_shard(im__gguf *g, size_t no, const uint8_t *data, size_t size, int64_t *announced, im_error *err)
{
    im__gguf_shard s = {.path = g->path[no]};
    im_status status = im__gguf_shard_parse(&s, data, size, err);
    if (status == IM_OK) status = add_parsed(g, &s, no, announced, err);
    im__gguf_shard_free(&s);
    return status;
}

static im_status finish(im__gguf *g, int64_t announced, im_error *err)
{
    if (g->shard_count > 1 && announced >= 0 && announced != (int64_t)g->tensor_count)
        return im__fail(err, IM_ERR_FORMAT, "%s: split.tensors.count is %" PRId64 ", but the files hold %zu tensors", g->path[0],
                        announced, g->tensor_count);
    return build_index(g, err);
}

static im_status open_shards(im__gguf *g, im_error *err)
{
    int64_t announced = -1;
    for (size_t i = 0; i < g->shard_count; i++) {
        IM__TRY(im__file_map_open(&g->map[i], g->path[i], err));
        IM__TRY(add_shard(g, i, g->map[i].data, g->map[i].size, &announced, err));
    }
    return finish(g, announced, err);
}

static im_status parse_bytes(im__gguf *g, const void *data, size_t size, im_error *err)
{
    int64_t announced = -1;
    IM__TRY(add_shard(g, 0, data, size, &announced, err));
    return finish(g, announced, err);
}

/* A gguf for the paths of `set`, which it takes over. */
static im__gguf *new_gguf(im__gguf_set *set)
{
    im__gguf *g = im__calloc(1, sizeof *g);
    im__file_map *map = g == NULL ? NULL : im__calloc(set->count, sizeof *map);
    if (map == NULL) {
        im__gguf_set_free(set);
        im__free(g);
        return NULL;
    }
    g->map = map;
    g->path = set->path;
    g->shard_count = set->count;
    return g;
}

im_status im__gguf_open(im__gguf **out, const char *path, im_error *err)
{
    im__gguf_set set;
    *out = NULL;
    IM__TRY(im__gguf_set_find(&set, path, err));
    im__gguf *g = new_gguf(&set);
    if (g == NULL) return im__fail(err, IM_ERR_MEMORY, "%s: no memory to open it", path);
    im_status status = open_shards(g, err);
    if (status == IM_OK)
        *out = g;
    else
        im__gguf_close(g);
    return status;
}

im_status im__gguf_parse(im__gguf **out, const void *data, size_t size, const char *name, im_error *err)
{
    im__gguf_set set = {.path = im__calloc(1, sizeof *set.path), .count = 1};
    *out = NULL;
    if (set.path != NULL) set.path[0] = im__strdup(name, strlen(name));
    im__gguf *g = set.path == NULL || set.path[0] == NULL ? NULL : new_gguf(&set);
    if (g == NULL) {
        im__free(set.path);
        return im__fail(err, IM_ERR_MEMORY, "%s: no memory to open it", name);
    }
    im_status status = parse_bytes(g, data, size, err);
    if (status == IM_OK)
        *out = g;
    else
        im__gguf_close(g);
    return status;
}

void im__gguf_close(im__gguf *g)
{
    if (g == NULL) return;
    for (size_t i = 0; i < g->shard_count; i++) {
        im__file_map_close(&g->map[i]);
        im__free(g->path[i]);
    }
    if (g->index != NULL) {
        im__free(g->index->kv);
        im__free(g->index->tensor);
    }
    im__free(g->index);
    im__free(g->map);
    im__free(g->path);
    im__free(g->kv);
    im__free(g->tensor);
    im__free(g);
}
