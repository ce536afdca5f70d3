/* SPDX-License-Identifier: Apache-2.0 */
#include "format/gguf_split.h"

#include "base/mem.h"
#include "format/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".gguf"
#define SUFFIX_LEN 5
#define TAIL_LEN 20 /* "-00001-of-00003.gguf" */

/* Names of a folder, and the paths made of them. */
typedef struct names {
    char **item;
    size_t count, cap;
} names;

static void names_free(names *n)
{
    for (size_t i = 0; i < n->count; i++) im__free(n->item[i]);
    im__free(n->item);
    *n = (names){0};
}

/* Takes ownership of `s` (also when it fails; NULL counts as a failure). */
static bool names_add(names *n, char *s)
{
    if (s != NULL && n->count == n->cap) {
        size_t cap = n->cap == 0 ? 8 : 2 * n->cap;
        char **grown = im__realloc(n->item, cap, sizeof *grown);
        if (grown == NULL) {
            im__free(s);
            return false;
        }
        n->item = grown;
        n->cap = cap;
    }
    if (s != NULL) n->item[n->count++] = s;
    return s != NULL;
}

static bool ends_with_suffix(const char *s, size_t len)
{
    return len > SUFFIX_LEN && memcmp(s + len - SUFFIX_LEN, SUFFIX, SUFFIX_LEN) == 0;
}

static bool five_digits(const char *s, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *out = *out * 10 + (unsigned)(s[i] - '0');
    }
    return true;
}

/* Reads the tail of a shard's name; false for any other name. */
static bool shard_name(const char *s, size_t len, unsigned *no, unsigned *count)
{
    if (len <= TAIL_LEN || !ends_with_suffix(s, len)) return false;
    const char *tail = s + len - TAIL_LEN;
    return tail[0] == '-' && five_digits(tail + 1, no) && memcmp(tail + 6, "-of-", 4) == 0 && five_digits(tail + 10, count) &&
           *no >= 1 && *no <= *count;
}

static im_status no_memory(const char *path, im_error *err)
{
    return im__fail(err, IM_ERR_MEMORY, "%s: no memory for file names", path);
}

/* Adds the name, for a shard that of the first of its set. */
static bool add_model(names *found, const char *name, size_t len)
{
    unsigned no, count;
    char *copy = im__strdup(name, len);
    if (copy != NULL && shard_name(copy, len, &no, &count)) memcpy(copy + len - TAIL_LEN + 1, "00001", 5);
    for (size_t i = 0; copy != NULL && i < found->count; i++) {
        if (strcmp(found->item[i], copy) != 0) continue;
        im__free(copy);
        return true;
    }
    return names_add(found, copy);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static im_status several(const char *folder, names *found, im_error *err)
{
    qsort(found->item, found->count, sizeof *found->item, by_name);
    return im__fail(err, IM_ERR_ARGUMENT, "%s: holds %zu GGUF models (%s, %s%s); name one of the files", folder, found->count,
                    found->item[0], found->item[1], found->count > 2 ? ", ..." : "");
}

static im_status read_folder(DIR *dir, const char *folder, names *found, im_error *err)
{
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        size_t len = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || !ends_with_suffix(entry->d_name, len)) continue;
        if (!add_model(found, entry->d_name, len)) return no_memory(folder, err);
    }
    if (found->count == 0) return im__fail(err, IM_ERR_IO, "%s: no .gguf file in this folder", folder);
    return found->count > 1 ? several(folder, found, err) : IM_OK;
}

/* *file = the path of the one model in the folder (its first shard), to be freed. */
static im_status pick_in_folder(const char *folder, char **file, im_error *err)
{
    names found = {0};
    im__buf path = {0};
    DIR *dir = opendir(folder);
    if (dir == NULL) return im__fail(err, IM_ERR_IO, "%s: %s", folder, strerror(errno));
    im_status status = read_folder(dir, folder, &found, err);
    closedir(dir);
    if (status == IM_OK) {
        im__buf_printf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", found.item[0]);
        if (path.failed) {
            im__buf_free(&path);
            status = no_memory(folder, err);
        }
    }
    *file = path.data;
    names_free(&found);
    return status;
}

static im_status list_missing(const im__gguf_set *set, const char *path, im_error *err)
{
    im__buf list = {0};
    size_t missing = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (access(set->path[i], F_OK) == 0) continue;
        const char *slash = strrchr(set->path[i], '/');
        im__buf_printf(&list, "%s%s", missing++ == 0 ? "" : ", ", slash == NULL ? set->path[i] : slash + 1);
    }
    im_status status = IM_OK;
    if (missing > 0)
        status = im__fail(err, IM_ERR_IO, "%s: %zu of the %zu files of this split model are missing: %s", path, missing, set->count,
                          list.failed ? "(no memory for their names)" : list.data);
    im__buf_free(&list);
    return status;
}

static im_status list_shards(im__gguf_set *set, const char *path, size_t len, unsigned count, im_error *err)
{
    char number[24];
    if (count > IM__GGUF_MAX_SHARDS)
        return im__fail(err, IM_ERR_UNSUPPORTED, "%s: a model of %u files, at most %d are supported", path, count,
                        IM__GGUF_MAX_SHARDS);
    set->path = im__calloc(count, sizeof *set->path);
    if (set->path == NULL) return no_memory(path, err);
    set->split = true;
    for (; set->count < count; set->count++) {
        char *copy = im__strdup(path, len);
        if (copy == NULL) return no_memory(path, err);
        snprintf(number, sizeof number, "%05u", (unsigned)set->count + 1);
        memcpy(copy + len - TAIL_LEN + 1, number, 5);
        set->path[set->count] = copy;
    }
    return list_missing(set, path, err);
}

static im_status list_files(im__gguf_set *set, const char *path, im_error *err)
{
    unsigned no, count;
    size_t len = strlen(path);
    if (shard_name(path, len, &no, &count)) return list_shards(set, path, len, count, err);
    set->path = im__calloc(1, sizeof *set->path);
    if (set->path == NULL || (set->path[0] = im__strdup(path, len)) == NULL) return no_memory(path, err);
    set->count = 1;
    return IM_OK;
}

im_status im__gguf_set_find(im__gguf_set *out, const char *path, im_error *err)
{
    struct stat st;
    char *file = NULL;
    *out = (im__gguf_set){0};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) IM__TRY(pick_in_folder(path, &file, err));
    im_status status = list_files(out, file != NULL ? file : path, err);
    im__free(file);
    if (status != IM_OK) im__gguf_set_free(out);
    return status;
}

void im__gguf_set_free(im__gguf_set *set)
{
    for (size_t i = 0; i < set->count; i++) im__free(set->path[i]);
    im__free(set->path);
    *set = (im__gguf_set){0};
}
