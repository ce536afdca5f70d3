/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_listing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 100000 };
static const uint64_t most_bytes = (uint64_t)1 << 50; /* of a file: a pebibyte */

void hub_listing_free(hub_listing *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->file[i].path);
    free(l->file);
    *l = (hub_listing){.file = NULL};
}

im_status hub_listing_add(hub_listing *l, const char *path, uint64_t size, const char *etag, im_error *err)
{
    if (l->count >= MOST_FILES) return hub_fail(err, IM_ERR_FORMAT, "more than %d files", MOST_FILES);
    if ((l->count & (l->count + 1)) == 0) { /* 0, 1, 3, 7 ...: full */
        hub_file *grown = realloc(l->file, (2 * l->count + 1) * sizeof *grown);
        if (grown == NULL) return hub_no_memory(err);
        l->file = grown;
    }
    hub_file *f = &l->file[l->count];
    f->path = strdup(path);
    if (f->path == NULL) return hub_no_memory(err);
    f->size = size;
    snprintf(f->etag, sizeof f->etag, "%s", etag);
    l->count++;
    return IM_OK;
}

/* The string at the key, or "". */
static const char *string_at(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s == NULL ? "" : s;
}

static im_status add_sibling(hub_listing *out, const json_t *entry, const hub_id *id, im_error *err)
{
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *path = string_at(entry, "rfilename"),
               *etag = json_is_object(lfs) ? string_at(lfs, "sha256") : string_at(entry, "blobId");
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
    if (!hub_path_is_safe(path))
        return hub_fail(err, IM_ERR_FORMAT,
                        "%s: the hub lists a file named \"%.200s\", which would leave the model's folder; refused", id->name, path);
    if (!hub_is_hex(etag, json_is_object(lfs) ? 64 : 40))
        return hub_fail(err, IM_ERR_FORMAT, "%s: the hub gives no digest for %s", id->name, path);
    if (!json_is_integer(size) || json_integer_value(size) < 0 || (uint64_t)json_integer_value(size) > most_bytes)
        return hub_fail(err, IM_ERR_FORMAT, "%s: the hub gives no sensible size for %s", id->name, path);
    return hub_listing_add(out, path, (uint64_t)json_integer_value(size), etag, err);
}

static im_status parse_document(hub_listing *out, const json_t *doc, const hub_id *id, im_error *err)
{
    size_t i;
    uint64_t total = 0;
    json_t *entry;
    const json_t *siblings = json_object_get(doc, "siblings");
    const char *commit = string_at(doc, "sha");
    if (!hub_is_commit(commit) || !json_is_array(siblings))
        return hub_fail(err, IM_ERR_FORMAT, "%s: the hub's answer names no commit or no files", id->name);
    if (hub_is_commit(id->revision) && strcmp(commit, id->revision) != 0)
        return hub_fail(err, IM_ERR_FORMAT, "%s: asked for commit %s, the hub answers with %s", id->name, id->revision, commit);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    snprintf(out->licence, sizeof out->licence, "%s", string_at(json_object_get(doc, "cardData"), "license"));
    hub_clean(out->licence);
    json_array_foreach(siblings, i, entry)
    {
        im_status status = add_sibling(out, entry, id, err);
        if (status != IM_OK) return status;
        total += out->file[i].size;
        if (total > most_bytes)
            return hub_fail(err, IM_ERR_FORMAT, "%s: the hub gives no sensible sizes: the files are too large together", id->name);
    }
    return IM_OK;
}

im_status hub_listing_parse(hub_listing *out, const char *json, size_t n, const hub_id *id, im_error *err)
{
    json_error_t why;
    json_t *doc = json_loadb(json, n, 0, &why);
    *out = (hub_listing){.file = NULL};
    im_status status = !json_is_object(doc) ? hub_fail(err, IM_ERR_FORMAT, "%s: the hub's answer is no JSON object", id->name)
                                            : parse_document(out, doc, id, err);
    json_decref(doc);
    if (status != IM_OK) hub_listing_free(out);
    return status;
}

const char *hub_bytes(char *out, size_t size, uint64_t bytes)
{
    if (bytes < 10000)
        snprintf(out, size, "%llu bytes", (unsigned long long)bytes);
    else if (bytes < 1000000)
        snprintf(out, size, "%.0f kB", (double)bytes / 1e3);
    else if (bytes < 1000000000)
        snprintf(out, size, "%.0f MB", (double)bytes / 1e6);
    else
        snprintf(out, size, "%.1f GB", (double)bytes / 1e9);
    return out;
}
