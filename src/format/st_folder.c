/* SPDX-License-Identifier: Apache-2.0 */
#include "format/st_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

static char *joined(const char *folder, const char *name)
{
    im__buf b = {0};
    size_t n = strlen(folder);
    im__buf_printf(&b, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
    if (!b.failed) return b.data;
    im__buf_free(&b);
    return NULL;
}

static bool is_there(const char *folder, const char *name)
{
    char *path = joined(folder, name);
    bool there = path != NULL && access(path, F_OK) == 0;
    im__free(path);
    return there;
}

bool im__st_folder_is_one(const char *path) { return is_there(path, SINGLE) || is_there(path, INDEX); }

/* The first name by the alphabet that ends in .safetensors ("": none), and how many there are. */
static size_t first_shard(const char *path, char name[256])
{
    size_t count = 0;
    DIR *d = opendir(path);
    name[0] = 0;
    if (d == NULL) return 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (e->d_name[0] == '.' || n < 13 || n > 255 || strcmp(e->d_name + n - 12, ".safetensors") != 0) continue;
        if (count++ == 0 || strcmp(e->d_name, name) < 0) memcpy(name, e->d_name, n + 1);
    }
    closedir(d);
    return count;
}

im_status im__st_folder_explain(const char *path, im_error *err)
{
    char name[256];
    size_t count = first_shard(path, name);
    if (count > 0)
        return im__fail(err, IM_ERR_IO,
                        "%s: holds %zu safetensors files (%s), but neither " SINGLE " nor " INDEX
                        ", which says what they are shards of; download it too",
                        path, count, name);
    if (is_there(path, "config.json"))
        return im__fail(err, IM_ERR_IO,
                        "%s: holds config.json, but no weights: neither " SINGLE " nor " INDEX " and its shards; download them too",
                        path);
    return IM_OK;
}

im_status im__json_file_open(im__file_map *map, im__json *root, const char *folder, const char *name, bool required, char *path,
                             size_t size, im_error *err)
{
    *map = (im__file_map){0};
    *root = (im__json){NULL, 0};
    size_t n = strlen(folder);
    snprintf(path, size, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
    if (!required && !is_there(folder, name)) return IM_OK;
    char *whole = joined(folder, name);
    if (whole == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = im__file_map_open(map, whole, err);
    im__free(whole);
    IM__TRY(status);
    if (map->size > IM__ST_MAX_TEXT)
        return im__fail(err, IM_ERR_FORMAT, "%s: %zu bytes are too many for such a file", path, map->size);
    return im__json_check((const char *)map->data, map->size, path, root, err);
}

/* ---- shards ---- */

static im_status open_shard(im__st_folder *f, const char *name, im_error *err)
{
    char *path = joined(f->path, name);
    if (path == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    im_status status = im__safetensors_open(&f->shard[f->shard_count], path, err);
    if (status == IM_OK) f->shard_count++;
    im__free(path);
    return status;
}

static im_status open_single(im__st_folder *f, im_error *err)
{
    f->shard = im__calloc(1, sizeof *f->shard);
    return f->shard == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : open_shard(f, SINGLE, err);
}

/* The index: which shard holds which tensor. */
typedef struct shard_index {
    const char *path;
    im__json map;
    im__json *name; /* [count] of the shards, each once, sorted */
    size_t count;
} shard_index;

static int by_text(const void *a, const void *b) { return im__json_compare(*(const im__json *)a, *(const im__json *)b); }

static im_status collect_names(shard_index *x, im_error *err)
{
    im__json v;
    size_t n = 0, kept = 0;
    for (im__json_items i = im__json_items_of(x->map); im__json_next(&i, NULL, &v); n++)
        if (im__json_kind_of(v) != IM__JSON_STRING)
            return im__fail(err, IM_ERR_FORMAT, "%s: weight_map holds %s in place of a file's name", x->path,
                            im__json_kind_name(v));
    if (n == 0 || n > IM__ST_MAX_TENSORS) return im__fail(err, IM_ERR_FORMAT, "%s: weight_map names %zu tensors", x->path, n);
    x->name = im__calloc(n, sizeof *x->name);
    if (x->name == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (im__json_items i = im__json_items_of(x->map); im__json_next(&i, NULL, &v);) {
        /* neighbours mostly name the same shard */
        if (x->count == 0 || by_text(&x->name[x->count - 1], &v) != 0) x->name[x->count++] = v;
    }
    qsort(x->name, x->count, sizeof *x->name, by_text);
    for (size_t i = 0; i < x->count; i++)
        if (kept == 0 || by_text(&x->name[kept - 1], &x->name[i]) != 0) x->name[kept++] = x->name[i];
    x->count = kept;
    if (kept <= IM__ST_MAX_SHARDS) return IM_OK;
    return im__fail(err, IM_ERR_FORMAT, "%s: %zu shards are too many", x->path, kept);
}

static im_status plain_name(const shard_index *x, im__json v, char name[256], im_error *err)
{
    bool plain =
        im__json_copy(v, name, 256) && name[0] != 0 && name[0] != '.' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL;
    for (const char *p = name; plain && *p != 0; p++) plain = (unsigned char)*p >= 0x20;
    if (plain) return IM_OK;
    return im__fail(err, IM_ERR_FORMAT, "%s: weight_map names %.*s, which is no file of this folder", x->path,
                    (int)(v.len > 80 ? 80 : v.len), v.ptr);
}

static im_status check_there(const im__st_folder *f, const shard_index *x, im_error *err)
{
    char name[256];
    im__buf missing = {0};
    im_status status = IM_OK;
    for (size_t i = 0; i < x->count && status == IM_OK; i++) {
        status = plain_name(x, x->name[i], name, err);
        if (status == IM_OK && !is_there(f->path, name)) im__buf_printf(&missing, "%s%s", missing.len == 0 ? "" : ", ", name);
    }
    if (status == IM_OK && missing.failed) status = im__fail(err, IM_ERR_MEMORY, "out of memory");
    if (status == IM_OK && missing.len > 0)
        status = im__fail(err, IM_ERR_IO, "%s: missing are %s, which model.safetensors.index.json names; download them again",
                          f->path, missing.data);
    im__buf_free(&missing);
    return status;
}

static size_t shard_of(const im__st_folder *f, const shard_index *x, im__json name)
{
    const im__json *at = bsearch(&name, x->name, f->shard_count, sizeof name, by_text);
    return (size_t)(at - x->name);
}

static im_status check_promises(const im__st_folder *f, const shard_index *x, im_error *err)
{
    im__json key, v;
    char name[IM__ST_MAX_NAME + 1];
    for (im__json_items i = im__json_items_of(x->map); im__json_next(&i, &key, &v);) {
        const im__safetensors *shard = f->shard[shard_of(f, x, v)];
        if (!im__json_copy(key, name, sizeof name))
            return im__fail(err, IM_ERR_FORMAT, "%s: weight_map holds a name that no tensor can have", x->path);
        if (im__safetensors_find(shard, name) == NULL)
            return im__fail(err, IM_ERR_FORMAT, "%s: tensor %s is not there, but %s promises it", shard->path, name, INDEX);
    }
    return IM_OK;
}

/* ---- the directory of all shards ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const im__st_entry *)a)->tensor->name, ((const im__st_entry *)b)->tensor->name);
}

static im_status collect_entries(im__st_folder *f, im_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < f->shard_count; i++) n += f->shard[i]->tensor_count;
    if (n > IM__ST_MAX_TENSORS) return im__fail(err, IM_ERR_FORMAT, "%s: %zu tensors are too many", f->path, n);
    f->entry = im__calloc(n, sizeof *f->entry);
    if (f->entry == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < f->shard_count; i++)
        for (size_t k = 0; k < f->shard[i]->tensor_count; k++)
            f->entry[f->count++] = (im__st_entry){&f->shard[i]->tensor[k], f->shard[i]};
    qsort(f->entry, n, sizeof *f->entry, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&f->entry[i - 1], &f->entry[i]) == 0)
            return im__fail(err, IM_ERR_FORMAT, "%s: tensor %s is in %s too", f->entry[i].shard->path, f->entry[i].tensor->name,
                            f->entry[i - 1].shard->path);
    return IM_OK;
}

/* ---- opening ---- */

static im_status open_shards(im__st_folder *f, shard_index *x, im_error *err)
{
    char name[256];
    IM__TRY(collect_names(x, err));
    IM__TRY(check_there(f, x, err));
    f->shard = im__calloc(x->count, sizeof *f->shard);
    if (f->shard == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < x->count; i++) {
        IM__TRY(plain_name(x, x->name[i], name, err));
        IM__TRY(open_shard(f, name, err));
    }
    return check_promises(f, x, err);
}

static im_status open_indexed(im__st_folder *f, im_error *err)
{
    char path[1024];
    im__file_map map;
    im__json root;
    shard_index x = {.path = path};
    im_status status = im__json_file_open(&map, &root, f->path, INDEX, true, path, sizeof path, err);
    if (status == IM_OK && (im__json_member(root, "weight_map", &x.map) != 1 || im__json_kind_of(x.map) != IM__JSON_OBJECT))
        status = im__fail(err, IM_ERR_FORMAT, "%s: has no weight_map", path);
    if (status == IM_OK) status = open_shards(f, &x, err);
    im__free(x.name);
    im__file_map_close(&map);
    return status;
}

im_status im__st_folder_open(im__st_folder **out, const char *path, im_error *err)
{
    *out = NULL;
    im__st_folder *f = im__calloc(1, sizeof *f);
    if (f != NULL) f->path = im__strdup(path, strlen(path));
    im_status status = f == NULL || f->path == NULL ? im__fail(err, IM_ERR_MEMORY, "out of memory") : IM_OK;
    if (status == IM_OK) status = is_there(path, INDEX) ? open_indexed(f, err) : open_single(f, err);
    if (status == IM_OK) status = collect_entries(f, err);
    if (status == IM_OK)
        *out = f;
    else
        im__st_folder_close(f);
    return status;
}

void im__st_folder_close(im__st_folder *f)
{
    if (f == NULL) return;
    for (size_t i = 0; i < f->shard_count; i++) im__safetensors_close(f->shard[i]);
    im__free(f->shard);
    im__free(f->entry);
    im__free(f->path);
    im__free(f);
}

const im__st_entry *im__st_folder_find(const im__st_folder *f, const char *name)
{
    const im__st_tensor tensor = {.name = name};
    const im__st_entry key = {.tensor = &tensor};
    return f->count == 0 ? NULL : bsearch(&key, f->entry, f->count, sizeof key, by_name);
}
