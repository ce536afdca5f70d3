/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resolve.h"

#include "hub/hub_cache.h"
#include "hub/hub_env.h"
#include "store/registry.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void resolved_free(resolved *r)
{
    free(r->path);
    free(r->name);
    *r = (resolved){.path = NULL};
}

bool looks_like_path(const char *model)
{
    size_t n = strlen(model);
    return model[0] == '/' || strncmp(model, "./", 2) == 0 || strncmp(model, "../", 3) == 0 || strncmp(model, "~/", 2) == 0 ||
           strcmp(model, ".") == 0 || strcmp(model, "..") == 0 || (n >= 5 && strcasecmp(model + n - 5, ".gguf") == 0);
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static im_status as_named(resolved *out, const char *path, const char *name, im_error *err)
{
    out->path = strdup(path);
    out->name = strdup(name);
    if (out->path != NULL && out->name != NULL) return IM_OK;
    resolved_free(out);
    return hub_no_memory(err);
}

/* IM_ERR_BUSY stands for "not registered". */
static im_status as_registered(resolved *out, const char *model, im_error *err)
{
    json_t *models = registry_read(err), *entry = registry_find(models, model);
    const char *path = registry_text(entry, "path");
    im_status status = models == NULL  ? err->status
                       : entry == NULL ? IM_ERR_BUSY
                                       : as_named(out, path, registry_text(entry, "name"), err);
    if (status == IM_OK && !exists(path)) {
        status =
            hub_fail(err, IM_ERR_IO, "%s is registered as %s, which is not there any more; 'ironmule models remove %s' forgets it",
                     model, path, model);
        resolved_free(out);
    }
    json_decref(models);
    return status;
}

static im_status as_cached(resolved *out, const hub_id *id, const char *model, im_error *err)
{
    hub_env env;
    char commit[41], *path = NULL;
    im_status status = hub_env_read(&env, err);
    if (status != IM_OK) return status;
    status = hub_cache_find(&path, commit, env.cache, id, err);
    if (status == IM_OK) status = as_named(out, path, model, err);
    free(path);
    hub_env_free(&env);
    return status;
}

im_status model_resolve(resolved *out, const char *model, im_error *err)
{
    hub_id id;
    im_error unheard;
    *out = (resolved){.path = NULL};
    if (err == NULL) err = &unheard;
    if (looks_like_path(model) || exists(model)) {
        out->path = strdup(model);
        return out->path == NULL ? hub_no_memory(err) : IM_OK;
    }
    im_status status = as_registered(out, model, err);
    if (status != IM_ERR_BUSY) return status;
    if (hub_id_parse(&id, model)) return as_cached(out, &id, model, err);
    return hub_fail(err, IM_ERR_IO,
                    "%s: No such file or folder, and no model is registered under this name ('ironmule models list')", model);
}
