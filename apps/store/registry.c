/* SPDX-License-Identifier: Apache-2.0 */
#include "store/registry.h"

#include "store/home.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char file_name[] = "models.json";

const char *registry_text(const json_t *model, const char *key)
{
    const char *s = json_string_value(json_object_get(model, key));
    return s == NULL ? "" : s;
}

static bool is_entry(const json_t *m) { return registry_text(m, "name")[0] != 0 && registry_text(m, "path")[0] != 0; }

/* The list inside the document; NULL when the text is not ours. */
static json_t *list_of(const char *text, size_t n)
{
    size_t i;
    json_t *entry, *doc = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL), *list = json_incref(json_object_get(doc, "models"));
    bool good = json_integer_value(json_object_get(doc, "version")) == 1 && json_is_array(list);
    json_array_foreach(list, i, entry) good = good && is_entry(entry);
    json_decref(doc);
    if (good) return list;
    json_decref(list);
    return NULL;
}

static json_t *read_at(const char *path, im_error *err)
{
    char *text;
    size_t n;
    if (store_read(&text, &n, path, err) != IM_OK) return NULL;
    json_t *list = text == NULL ? json_array() : list_of(text, n);
    if (list == NULL) hub_fail(err, IM_ERR_FORMAT, "%s: damaged, or from a later version; move it away to begin anew", path);
    free(text);
    return list;
}

json_t *registry_read(im_error *err)
{
    char *path = store_state_path(file_name);
    json_t *list = NULL;
    if (path == NULL)
        hub_no_memory(err);
    else
        list = read_at(path, err);
    free(path);
    return list;
}

json_t *registry_find(const json_t *models, const char *name)
{
    size_t i;
    json_t *entry;
    json_array_foreach(models, i, entry) if (strcmp(registry_text(entry, "name"), name) == 0) return entry;
    json_array_foreach(models, i, entry) if (strcasecmp(registry_text(entry, "name"), name) == 0) return entry;
    return NULL;
}

/* ---- changes ------------------------------------------------------------------------------------------------------------------------------------ */

static json_t *drop(json_t *models, const char *name)
{
    json_t *entry = registry_find(models, name);
    for (size_t i = 0; entry != NULL && i < json_array_size(models); i++) {
        if (json_array_get(models, i) != entry) continue;
        json_incref(entry);
        json_array_remove(models, i);
        return entry;
    }
    return NULL;
}

static im_status write_at(const char *path, json_t *models, im_error *err)
{
    json_t *doc = json_pack("{s:i, s:O}", "version", 1, "models", models);
    char *text = doc == NULL ? NULL : json_dumps(doc, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    im_status status = text == NULL ? hub_no_memory(err) : store_write(path, text, err);
    free(text);
    json_decref(doc);
    return status;
}

/* Under the lock: read, drop `name`, put `model` (NULL: none) in front, write. */
static im_status change(const char *name, json_t *model, json_t **removed, im_error *err)
{
    int fd = -1;
    char *path = store_state_path(file_name);
    im_status status = path == NULL ? hub_no_memory(err) : store_lock(&fd, path, err);
    json_t *models = status == IM_OK ? read_at(path, err) : NULL, *old = NULL;
    if (status == IM_OK && models == NULL) status = IM_ERR_FORMAT;
    if (status == IM_OK) {
        old = drop(models, name);
        if (model != NULL) json_array_insert(models, 0, model);
        if (old != NULL || model != NULL) status = write_at(path, models, err);
    }
    json_decref(models);
    if (fd >= 0) close(fd);
    free(path);
    if (removed != NULL && status == IM_OK)
        *removed = old;
    else
        json_decref(old);
    return status;
}

im_status registry_add(json_t *model, im_error *err)
{
    char now[32];
    time_t t = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    json_object_set_new(model, "added", json_string(now));
    return change(registry_text(model, "name"), model, NULL, err);
}

im_status registry_remove(const char *name, json_t **removed, im_error *err)
{
    *removed = NULL;
    return change(name, NULL, removed, err);
}

char *registry_name_of_path(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    size_t n = end - begin;
    const char *name = path + begin;
    if (n > 5 && strncasecmp(name + n - 5, ".gguf", 5) == 0) n -= 5;
    if (n > 15 && name[n - 15] == '-' && strncmp(name + n - 9, "-of-", 4) == 0) n -= 15;
    return strndup(name, n);
}
