/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "hub/hub_cache.h"
#include "hub/hub_env.h"
#include "models.h"
#include "store/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const arg_command about = {
    .name = "models remove",
    .summary = "forgets a model; its files stay unless --delete",
    .usage = "NAME",
    .details = "--delete removes the files too, after a yes (or --yes): a snapshot of the Hugging Face cache with those of its "
               "blobs that no other\n"
               "snapshot needs, or a single GGUF file. Folders of your own are left to you.",
    .examples = "  ironmule models remove gemma\n  ironmule models remove Qwen/Qwen3-4B-GGUF:Q4_K_M --delete",
    .least = 1,
    .most = 1,
};

/* ---- deleting ----------------------------------------------------------------------------------------------------------------------------------- */

static im_status delete_snapshot(const hub_id *id, const char *commit, uint64_t *bytes, im_error *err)
{
    hub_env env;
    im_status status = hub_env_read(&env, err);
    if (status != IM_OK) return status;
    status = hub_cache_remove(env.cache, id, commit, bytes, err);
    hub_env_free(&env);
    return status;
}

static im_status delete_file(const char *path, uint64_t *bytes, im_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0) return IM_OK; /* gone already */
    if (!S_ISREG(st.st_mode))
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: a folder of your own; remove it yourself if nothing in it is needed", path);
    if (strstr(path, "-of-") != NULL) return hub_fail(err, IM_ERR_ARGUMENT, "%s: one of several files; remove them yourself", path);
    if (unlink(path) != 0) return hub_fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    *bytes = (uint64_t)st.st_size;
    return IM_OK;
}

/* What --delete would take away: a snapshot (id and commit) or a file. */
typedef struct target {
    hub_id id;
    char commit[41];
    bool in_cache;
    const char *path;
} target;

static im_status delete_target(const target *t, uint64_t *bytes, im_error *err)
{
    return t->in_cache ? delete_snapshot(&t->id, t->commit, bytes, err) : delete_file(t->path, bytes, err);
}

/* An id that nobody registered may still be in the cache. */
static bool find_in_cache(target *t, const char *name)
{
    hub_env env;
    char *folder = NULL;
    if (!hub_id_parse(&t->id, name) || hub_env_read(&env, NULL) != IM_OK) return false;
    t->in_cache = hub_cache_snapshot(&folder, t->commit, env.cache, &t->id, NULL) == IM_OK;
    free(folder);
    hub_env_free(&env);
    return t->in_cache;
}

static void target_of(target *t, const json_t *entry)
{
    const char *id = registry_text(entry, "id"), *commit = registry_text(entry, "commit");
    t->path = registry_text(entry, "path");
    t->in_cache = hub_is_commit(commit) && hub_id_parse(&t->id, id);
    if (t->in_cache) snprintf(t->commit, sizeof t->commit, "%s", commit);
}

static bool agreed(const target *t, bool yes)
{
    char question[4400];
    if (yes) return true;
    if (t->in_cache)
        snprintf(question, sizeof question, "delete commit %s of %s from the cache, for all tools?", t->commit, t->id.name);
    else
        snprintf(question, sizeof question, "delete %s?", shown(t->path));
    return ask_yes(question);
}

/* ---- the command -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct wish {
    bool remove_files, yes, json;
} wish;

static int report(const char *name, bool was_registered, bool deleted, uint64_t bytes, bool json)
{
    char size[32];
    if (json)
        return print_json(json_pack("{s:s, s:b, s:b, s:I}", "name", name, "registration_removed", (int)was_registered, "deleted",
                                    (int)deleted, "freed_bytes", (json_int_t)bytes));
    if (was_registered) printf("%s: no longer registered\n", shown(name));
    if (deleted) printf("%s: deleted, %s freed\n", shown(name), hub_bytes(size, sizeof size, bytes));
    return EXIT_DONE;
}

static int remove_model(const char *name, const wish *w)
{
    im_error err;
    uint64_t bytes = 0;
    target t = {.path = NULL};
    json_t *models = registry_read(&err), *removed = NULL;
    if (models == NULL) return say_failed(about.name, &err);
    const json_t *entry = registry_find(models, name);
    if (entry != NULL) target_of(&t, entry);
    im_status status = IM_OK;
    if (entry == NULL && !(w->remove_files && find_in_cache(&t, name)))
        status = hub_fail(&err, IM_ERR_ARGUMENT, "no model is registered as %s; 'ironmule models registered' lists them", name);
    else if (w->remove_files && !agreed(&t, w->yes))
        status = hub_fail(&err, IM_ERR_CANCELLED, "nothing was removed");
    if (status == IM_OK && w->remove_files) status = delete_target(&t, &bytes, &err);
    if (status == IM_OK && entry != NULL) status = registry_remove(registry_text(entry, "name"), &removed, &err);
    int code = status != IM_OK ? say_failed(about.name, &err) : report(name, removed != NULL, w->remove_files, bytes, w->json);
    json_decref(models);
    json_decref(removed);
    return code;
}

int models_remove(int argc, char **argv)
{
    arg_rest rest;
    wish w = {.yes = false};
    const arg_option options[] = {
        {"delete", 0, ARG_FLAG, &w.remove_files, NULL, "the files too", 0, 0},
        {"yes", 'y', ARG_FLAG, &w.yes, NULL, "do not ask", 0, 0},
        {"json", 0, ARG_FLAG, &w.json, NULL, "one JSON document", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    return code >= 0 ? code : remove_model(rest.item[0], &w);
}
