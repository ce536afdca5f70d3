/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "hub/hub_cache.h"
#include "hub/hub_net.h"
#include "models.h"
#include "store/registry.h"
#include "store/resolve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const arg_command about = {
    .name = "models add",
    .summary = "registers a model; with --download fetches it first",
    .usage = "PATH | ORG/NAME[@REVISION][:TAG]",
    .details = "A path is registered as it stands. An id of the Hugging Face Hub is looked for in the local cache; only with "
               "--download is the network asked.\n"
               "Files go into the standard cache, where other tools find them, and are checked by their digests. What was "
               "interrupted goes on where it\n"
               "stopped. TAG chooses a GGUF file (Q4_K_M, or a file's name). The environment says more: HF_ENDPOINT, HF_TOKEN, "
               "HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.",
    .examples = "  ironmule models add ~/models/gemma-3-4b-it.Q4_K_M.gguf --name gemma\n"
                "  ironmule models add Qwen/Qwen3-4B-GGUF:Q4_K_M --download\n"
                "  ironmule models add mlx-community/gemma-3-1b-it-4bit --download --revision main",
    .least = 1,
    .most = 1,
};

bool ask_yes(const char *question)
{
    char line[64];
    fprintf(stderr, "%s [y/N] ", question);
    fflush(stderr);
    if (fgets(line, sizeof line, stdin) == NULL) {
        fputc('\n', stderr);
        return false;
    }
    return line[0] == 'y' || line[0] == 'Y';
}

/* ---- while it downloads ----------------------------------------------------------------------------------------------------------------------- */

typedef struct watch {
    const char *who;
    progress bar;
    double told; /* s: the last line when stderr is no terminal */
    uint64_t fetched;
} watch;

static bool stop(void *user)
{
    (void)user;
    return interrupted();
}

static void note(void *user, const char *line)
{
    watch *w = user;
    progress_end(&w->bar);
    say(w->who, "%s", shown(line));
}

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void left_text(char *out, size_t size, const hub_progress *p)
{
    double s = p->rate > 0 ? (double)(p->total - p->done) / p->rate : 0;
    if (p->rate <= 0)
        snprintf(out, size, "%s", p->waiting ? "waiting for another process that fetches the same" : "");
    else if (s < 3600)
        snprintf(out, size, "%d:%02d left", (int)s / 60, (int)s % 60);
    else
        snprintf(out, size, "%.1f hours left", s / 3600);
}

static void draw(void *user, const hub_progress *p)
{
    char detail[160], done[32], total[32], rate[32], left[64];
    watch *w = user;
    w->fetched = p->fetched;
    left_text(left, sizeof left, p);
    snprintf(detail, sizeof detail, "%s of %s, %s/s, %s", hub_bytes(done, sizeof done, p->done),
             hub_bytes(total, sizeof total, p->total), hub_bytes(rate, sizeof rate, (uint64_t)p->rate), left);
    progress_draw(&w->bar, p->total == 0 ? 1 : (double)p->done / (double)p->total, detail);
    if (isatty(STDERR_FILENO) || clock_s() - w->told < 30) return;
    w->told = clock_s();
    say(w->who, "%s", detail);
}

/* ---- the Hub ------------------------------------------------------------------------------------------------------------------------------------ */

static json_t *hub_entry(const hub_id *id, const char *commit, const char *path, const add_options *o)
{
    char name[620];
    bool plain = strcmp(id->revision, "main") == 0;
    snprintf(name, sizeof name, "%s%s%.150s%s%.150s", id->name, plain ? "" : "@", plain ? "" : id->revision,
             id->tag[0] == 0 ? "" : ":", id->tag);
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", o->name == NULL ? name : o->name, "path", path, "id", id->name,
                     "revision", id->revision, "commit", commit);
}

static char *path_of_choice(const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c)
{
    char rest[1200];
    bool file = c->model != SIZE_MAX;
    snprintf(rest, sizeof rest, "snapshots/%s%s%s", l->commit, file ? "/" : "", file ? l->file[c->model].path : "");
    return hub_cache_path(e->cache, id->name, rest);
}

static json_t *fetch_chosen(watch *w, const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c,
                            const hub_hooks *h, const add_options *o, im_error *err)
{
    char size[32];
    say(w->who, "%s: %zu file%s, %s, licence: %s; into %s", id->name, c->count, c->count == 1 ? "" : "s",
        hub_bytes(size, sizeof size, c->bytes), l->licence[0] == 0 ? "not stated" : l->licence, e->cache);
    im_status status = hub_fetch(e, id, l, c, h, err);
    progress_end(&w->bar);
    if (status != IM_OK) return NULL;
    char *path = path_of_choice(e, id, l, c);
    json_t *entry = path == NULL ? NULL : hub_entry(id, l->commit, path, o);
    free(path);
    if (entry == NULL) {
        hub_no_memory(err);
        return NULL;
    }
    json_object_set_new(entry, "files", json_integer((json_int_t)c->count));
    json_object_set_new(entry, "bytes", json_integer((json_int_t)c->bytes));
    json_object_set_new(entry, "fetched_bytes", json_integer((json_int_t)w->fetched));
    return entry;
}

static json_t *download(const char *who, const hub_env *e, const hub_id *id, const add_options *o, im_error *err)
{
    hub_listing l = {.file = NULL};
    hub_choice c = {.index = NULL};
    json_t *entry = NULL;
    watch w = {.who = who, .bar = {.label = "fetching"}, .told = clock_s()};
    const hub_hooks hooks = {.user = &w, .stop = stop, .progress = draw, .note = note};
    interrupt_set(NULL);
    if (hub_list(&l, e, id, &hooks, err) == IM_OK && hub_choose(&c, &l, id, o->patterns, err) == IM_OK)
        entry = fetch_chosen(&w, e, id, &l, &c, &hooks, o, err);
    interrupt_clear();
    hub_choice_free(&c);
    hub_listing_free(&l);
    return entry;
}

static json_t *from_cache(const hub_env *e, const hub_id *id, const add_options *o, im_error *err)
{
    char commit[41], *path;
    if (hub_cache_find(&path, commit, e->cache, id, err) != IM_OK) return NULL;
    json_t *entry = hub_entry(id, commit, path, o);
    free(path);
    if (entry == NULL) hub_no_memory(err);
    return entry;
}

static json_t *from_hub(const char *who, const char *model, const add_options *o, im_error *err)
{
    hub_id id;
    hub_env env;
    json_t *entry;
    if (!hub_id_parse(&id, model)) {
        hub_fail(err, IM_ERR_ARGUMENT, "%s: neither a file or folder here nor an id like ORG/NAME or ORG/NAME:Q4_K_M", model);
        return NULL;
    }
    if (o->revision != NULL && (!hub_path_is_safe(o->revision) || strlen(o->revision) >= sizeof id.revision)) {
        hub_fail(err, IM_ERR_ARGUMENT, "--revision %s: no name of a revision", o->revision);
        return NULL;
    }
    if (o->revision != NULL) snprintf(id.revision, sizeof id.revision, "%s", o->revision);
    if (hub_env_read(&env, err) != IM_OK) return NULL;
    /* Offline, what is here will do. */
    entry = o->download && !env.offline ? download(who, &env, &id, o, err) : from_cache(&env, &id, o, err);
    hub_env_free(&env);
    return entry;
}

/* ---- paths -------------------------------------------------------------------------------------------------------------------------------------- */

/* Absolute, with its links as they are: shards are looked for beside a link, under its name. */
static json_t *from_path(const char *model, const add_options *o, im_error *err)
{
    char folder[4096] = "", *whole = NULL, *name = NULL;
    json_t *entry = NULL;
    if (model[0] != '/' && getcwd(folder, sizeof folder) == NULL) {
        hub_fail(err, IM_ERR_IO, "the current folder cannot be told");
        return NULL;
    }
    if (asprintf(&whole, "%s%s%s", folder, folder[0] == 0 ? "" : "/", model) < 0) whole = NULL;
    if (whole != NULL) name = o->name == NULL ? registry_name_of_path(whole) : strdup(o->name);
    if (name != NULL) hub_clean(name);
    if (name != NULL) entry = json_pack("{s:s, s:s}", "name", name, "path", whole);
    if (entry == NULL) hub_fail(err, IM_ERR_ARGUMENT, "%s: the name is no UTF-8; give one with --name", model);
    free(whole);
    free(name);
    return entry;
}

json_t *add_model(const char *who, const char *model, const add_options *o, int *code)
{
    im_error err = {.status = IM_OK, .message = ""};
    struct stat st;
    bool there = stat(model, &st) == 0;
    json_t *entry = NULL;
    if (there && (!o->download || looks_like_path(model)))
        entry = from_path(model, o, &err);
    else if (!there && looks_like_path(model))
        hub_fail(&err, IM_ERR_IO, "%s: No such file or directory", model);
    else
        entry = from_hub(who, model, o, &err);
    if (entry != NULL && registry_add(entry, &err) != IM_OK) {
        json_decref(entry);
        entry = NULL;
    }
    *code = entry != NULL ? EXIT_DONE : err.status == IM_ERR_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
    if (entry == NULL) say_failed(who, &err);
    return entry;
}

/* ---- the command -------------------------------------------------------------------------------------------------------------------------------- */

int models_add(int argc, char **argv)
{
    arg_rest rest;
    arg_list patterns = {.count = 0};
    add_options o = {.revision = NULL};
    bool json = false;
    const arg_option options[] = {
        {"download", 0, ARG_FLAG, &o.download, NULL, "fetch what is not here; without it the network is not asked", 0, 0},
        {"revision", 0, ARG_STRING, &o.revision, "R", "branch, tag or commit (default main)", 0, 0},
        {"file", 0, ARG_LIST, &patterns, "PATTERN", "fetch the files that fit, in place of what the model needs; may be repeated",
         0, 0},
        {"name", 0, ARG_STRING, &o.name, "NAME", "register it under this name (default: the id, or the file's name)", 0, 0},
        {"json", 0, ARG_FLAG, &json, NULL, "one JSON document", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (patterns.count > 0 && !o.download) return args_wrong(&about, "--file needs --download");
    if (o.name != NULL && (o.name[0] == 0 || strlen(o.name) > 200)) return args_wrong(&about, "--name: 1 to 200 bytes");
    if (patterns.count > 0) o.patterns = patterns.item;
    json_t *entry = add_model(about.name, rest.item[0], &o, &code);
    if (entry == NULL) return code;
    if (json) return print_json(entry);
    printf("%s: %s\n", shown(registry_text(entry, "name")), shown(registry_text(entry, "path")));
    json_decref(entry);
    return EXIT_DONE;
}
