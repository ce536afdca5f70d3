/* SPDX-License-Identifier: Apache-2.0 */
#include "store/inventory.h"

#include "hub/hub_cache.h"
#include "hub/hub_env.h"
#include "store/home.h"
#include "store/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_listed(const json_t *list, const char *path)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry) if (strcmp(registry_text(entry, "path"), path) == 0) return true;
    return false;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcasecmp(path + n - m, ending) == 0;
}

/* Files that are a model by themselves: no projector, and of a split model the first shard. */
static bool is_model_file(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    size_t n = strlen(name);
    if (!ends_in(name, ".gguf") || strncasecmp(name, "mmproj", 6) == 0 || strcasestr(name, "imatrix") != NULL) return false;
    bool split = n > 20 && strncmp(name + n - 14, "-of-", 4) == 0 && name[n - 20] == '-';
    return !split || strncmp(name + n - 20, "-00001-of-", 10) == 0;
}

static bool has_weights(const hub_listing *l)
{
    bool config = false, weights = false;
    for (size_t i = 0; i < l->count; i++) {
        config = config || strcmp(l->file[i].path, "config.json") == 0;
        weights = weights || (strchr(l->file[i].path, '/') == NULL && ends_in(l->file[i].path, ".safetensors"));
    }
    return config && weights;
}

/* ---- the cache ---------------------------------------------------------------------------------------------------------------------------------- */

/* The way to call a snapshot: its revision only when that is needed. */
static void name_snapshot(char *out, size_t size, const char *name, const char *commit, const char *refs)
{
    bool main_ref = strncmp(refs, "main", 4) == 0 && (refs[4] == 0 || refs[4] == ' ');
    main_ref = main_ref || strstr(refs, " main") != NULL;
    int first = (int)strcspn(refs, " ");
    if (main_ref)
        snprintf(out, size, "%s", name);
    else if (first > 0)
        snprintf(out, size, "%s@%.*s", name, first, refs);
    else
        snprintf(out, size, "%s@%s", name, commit);
}

static void add(json_t *list, const char *source, const char *name, const char *path, const char *id, const char *refs,
                const char *commit)
{
    if (is_listed(list, path)) return;
    json_t *entry = json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:s?}", "name", name, "source", source, "path", path, "id", id,
                              "revision", refs, "commit", commit);
    if (entry != NULL) json_array_append_new(list, entry);
}

static void add_file(json_t *list, const hub_listing *l, size_t which, const char *called, const char *name, const char *commit,
                     const char *refs, const char *folder)
{
    char path[4096], tag[64], whole[700];
    const char *file = l->file[which].path;
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return;
    hub_quantisation(tag, sizeof tag, file);
    size_t alike = 0;
    for (size_t i = 0; i < l->count; i++)
        alike += is_model_file(l->file[i].path) && tag[0] != 0 && hub_tag_matches(l->file[i].path, tag);
    snprintf(whole, sizeof whole, "%s:%s", called, alike == 1 ? tag : file);
    add(list, "cache", whole, path, name, refs, commit);
}

static void add_snapshot(void *user, const char *name, const char *commit, const char *refs, const char *folder)
{
    char called[500];
    hub_listing l;
    json_t *list = user;
    if (hub_cache_files(&l, folder, NULL) != IM_OK) return;
    name_snapshot(called, sizeof called, name, commit, refs);
    if (has_weights(&l)) add(list, "cache", called, folder, name, refs[0] == 0 ? NULL : refs, commit);
    for (size_t i = 0; i < l.count; i++)
        if (is_model_file(l.file[i].path)) add_file(list, &l, i, called, name, commit, refs[0] == 0 ? NULL : refs, folder);
    hub_listing_free(&l);
}

/* ---- plain folders ------------------------------------------------------------------------------------------------------------------------------ */

static void add_plain(json_t *list, const char *folder, const char *inside)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, inside) >= (int)sizeof path) return;
    char *name = registry_name_of_path(path);
    if (name != NULL) add(list, "folder", name, path, NULL, NULL, NULL);
    free(name);
}

/* A folder of safetensors is named by its config.json. */
static void add_folder(json_t *list, const char *folder)
{
    hub_listing l;
    if (hub_cache_files(&l, folder, NULL) != IM_OK) return;
    for (size_t i = 0; i < l.count; i++) {
        char *file = l.file[i].path;
        if (is_model_file(file)) add_plain(list, folder, file);
        if (!ends_in(file, "/config.json")) continue;
        size_t n = strlen(file) - strlen("/config.json");
        bool weights = false;
        for (size_t j = 0; j < l.count; j++)
            weights = weights || (strncmp(l.file[j].path, file, n + 1) == 0 && ends_in(l.file[j].path, ".safetensors"));
        file[n] = 0;
        if (weights) add_plain(list, folder, file);
        file[n] = '/';
    }
    hub_listing_free(&l);
}

static void add_folders(json_t *list, const char *folders)
{
    for (const char *at = folders; *at != 0; at += *at == ':') {
        size_t n = strcspn(at, ":");
        char *one = strndup(at, n), *path = one == NULL ? NULL : store_expand(one);
        if (path != NULL && n > 0) add_folder(list, path);
        free(one);
        free(path);
        at += n;
    }
}

/* Where ./start puts what it fetches. */
static void add_own_folder(json_t *list)
{
    char path[4096];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg != NULL && xdg[0] != 0)
        snprintf(path, sizeof path, "%s/ironmule/models", xdg);
    else
        snprintf(path, sizeof path, "%s/.cache/ironmule/models", home == NULL ? "." : home);
    add_folder(list, path);
}

json_t *inventory_read(const char *folders, im_error *err)
{
    hub_env env;
    size_t i;
    json_t *entry, *list = registry_read(err);
    if (list == NULL) return NULL;
    json_array_foreach(list, i, entry) json_object_set_new(entry, "source", json_string("registered"));
    if (hub_env_read(&env, err) != IM_OK) {
        json_decref(list);
        return NULL;
    }
    hub_cache_walk(env.cache, add_snapshot, list);
    hub_env_free(&env);
    if (folders != NULL) add_folders(list, folders);
    add_own_folder(list);
    return list;
}
