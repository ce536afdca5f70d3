/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "defaults.h"
#include "models.h"
#include "store/facts.h"
#include "store/inventory.h"
#include "store/registry.h"
#include "store/resolve.h"

#include <string.h>

const command models_commands[] = {
    {"list", "all models on this machine, and whether they can run here", models_list},
    {"show", "one model", models_show},
    {"add", "registers a model; with --download fetches it first", models_add},
    {"registered", "the models that are registered, without a look at them", models_registered},
    {"remove", "forgets a model; its files stay unless --delete", models_remove},
    {NULL, NULL, NULL},
};

static const arg_command about_list = {
    .name = "models list",
    .summary = "all models on this machine, and whether they can run here",
    .usage = "",
    .details = "Registered models, those of the Hugging Face cache, and those in folders that the setting model_folders names. "
               "Their metadata is read,\n"
               "no weight is, and the network is not asked. NEEDS is the memory for weights, the KV cache of one conversation and "
               "workspace.",
    .examples = "  ironmule models list\n  ironmule models list --context 32768 --json",
    .least = 0,
    .most = 0,
};

static const arg_command about_show = {
    .name = "models show",
    .summary = "one model: where it is, what it is, what it needs, whether it can run here",
    .usage = "MODEL",
    .examples = "  ironmule models show Qwen/Qwen3-4B-GGUF:Q4_K_M --context 8192",
    .least = 1,
    .most = 1,
};

static const arg_command about_registered = {
    .name = "models registered",
    .summary = "the models that are registered, the latest first, without a look at them",
    .usage = "",
    .least = 0,
    .most = 0,
};

/* ---- list ----------------------------------------------------------------------------------------------------------------------------------- */

static void gigabytes(char *out, size_t size, uint64_t bytes)
{
    if (bytes == 0)
        snprintf(out, size, "?");
    else
        snprintf(out, size, bytes < 100000000 ? "%.2f GB" : "%.1f GB", (double)bytes / 1e9);
}

static void print_row(const json_t *entry, const model_facts *f)
{
    char bytes[32], need[32];
    gigabytes(bytes, sizeof bytes, f->bytes);
    gigabytes(need, sizeof need, f->need);
    printf("%-44s %-12s %-10s %9s %9s  %s\n", shown(registry_text(entry, "name")), f->family[0] == 0 ? "?" : shown(f->family),
           f->quantisation[0] == 0 ? "?" : shown(f->quantisation), bytes, need, f->runs ? "yes" : "no");
    if (!f->runs) printf("    %s\n", shown(f->why));
}

static int list_all(json_t *models, uint32_t context, bool json)
{
    size_t i;
    json_t *entry;
    if (!json && json_array_size(models) > 0)
        printf("%-44s %-12s %-10s %9s %9s  %s\n", "NAME", "FAMILY", "WEIGHTS", "SIZE", "NEEDS", "RUNS HERE");
    json_array_foreach(models, i, entry)
    {
        model_facts f;
        model_facts_read(&f, registry_text(entry, "path"), context);
        if (json)
            model_facts_json(entry, &f);
        else
            print_row(entry, &f);
    }
    if (json) return print_json(json_incref(models));
    if (json_array_size(models) == 0)
        say(about_list.name,
            "no models here; 'ironmule models add ORG/NAME --download' fetches one, 'ironmule start' proposes one");
    return EXIT_DONE;
}

static int list_names(const json_t *models)
{
    size_t i;
    json_t *entry;
    json_array_foreach(models, i, entry) printf("%s\n", shown(registry_text(entry, "name")));
    return EXIT_DONE;
}

int models_list(int argc, char **argv)
{
    im_error err;
    arg_rest rest;
    int64_t context = 0;
    bool json = false, names = false;
    const arg_option options[] = {
        {"context", 'c', ARG_INT, &context, "N", "positions that NEEDS counts (default: up to 4096)", 2, 16777216},
        {"names", 0, ARG_FLAG, &names, NULL, "only what to call them, one a line", 0, 0},
        {"json", 0, ARG_FLAG, &json, NULL, "one JSON document", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about_list, options, argc, argv, &rest);
    if (code >= 0) return code;
    const store_settings *s = defaults_read(about_list.name);
    if (s == NULL) return EXIT_FAILED;
    json_t *models = inventory_read(settings_text(s, "model_folders"), &err);
    if (models == NULL) return say_failed(about_list.name, &err);
    code = names ? list_names(models) : list_all(models, (uint32_t)context, json);
    json_decref(models);
    return code;
}

int models_registered(int argc, char **argv)
{
    im_error err;
    arg_rest rest;
    size_t i;
    json_t *entry;
    bool json = false;
    const arg_option options[] = {
        {"json", 0, ARG_FLAG, &json, NULL, "one JSON document", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about_registered, options, argc, argv, &rest);
    if (code >= 0) return code;
    json_t *models = registry_read(&err);
    if (models == NULL) return say_failed(about_registered.name, &err);
    if (json) return print_json(models);
    json_array_foreach(models, i, entry)
        printf("%-44s %s\n", shown(registry_text(entry, "name")), shown(registry_text(entry, "path")));
    json_decref(models);
    return EXIT_DONE;
}

/* ---- show ----------------------------------------------------------------------------------------------------------------------------------- */

/* What is known of a path beside the file itself: the registration or the place in the cache. */
static json_t *entry_of(const char *folders, const resolved *r, im_error *err)
{
    size_t i;
    json_t *entry, *models = inventory_read(folders, err), *found = NULL;
    if (models == NULL) return NULL;
    json_array_foreach(models, i, entry) if (found == NULL && strcmp(registry_text(entry, "path"), r->path) == 0) found =
        json_incref(entry);
    json_decref(models);
    if (found == NULL)
        found = json_pack("{s:s, s:s, s:s, s:n, s:n, s:n}", "name", r->name == NULL ? r->path : r->name, "source", "path", "path",
                          r->path, "id", "revision", "commit");
    if (found == NULL) hub_no_memory(err);
    return found;
}

static void print_facts(const json_t *entry, const model_facts *f)
{
    char bytes[32], need[32];
    gigabytes(bytes, sizeof bytes, f->bytes);
    gigabytes(need, sizeof need, f->need);
    printf("%s\n  path        %s\n", shown(registry_text(entry, "name")), shown(registry_text(entry, "path")));
    if (registry_text(entry, "commit")[0] != 0)
        printf("  from        %s, commit %s\n", shown(registry_text(entry, "id")), shown(registry_text(entry, "commit")));
    printf("  what        %s, %s, %s, %s\n", f->format, f->family[0] == 0 ? "unknown family" : shown(f->family),
           f->quantisation[0] == 0 ? "unknown weights" : shown(f->quantisation), bytes);
    printf("  licence     %s\n", f->licence[0] == 0 ? "not stated in the file" : shown(f->licence));
    if (f->made_for > 0) printf("  made for    %u positions\n", f->made_for);
    if (f->need > 0) printf("  needs       %s of memory for %u positions\n", need, f->context);
    printf("  runs here   %s%s%s\n", f->runs ? "yes" : "no", f->runs ? "" : ": ", f->runs ? "" : shown(f->why));
}

static int show(const resolved *r, uint32_t context, bool json)
{
    im_error err;
    model_facts f;
    const store_settings *s = defaults_read(about_show.name);
    if (s == NULL) return EXIT_FAILED;
    json_t *entry = entry_of(settings_text(s, "model_folders"), r, &err);
    if (entry == NULL) return say_failed(about_show.name, &err);
    model_facts_read(&f, r->path, context);
    if (json) {
        model_facts_json(entry, &f);
        return print_json(entry);
    }
    print_facts(entry, &f);
    json_decref(entry);
    return EXIT_DONE;
}

int models_show(int argc, char **argv)
{
    im_error err;
    arg_rest rest;
    resolved r;
    int64_t context = 0;
    bool json = false;
    const arg_option options[] = {
        {"context", 'c', ARG_INT, &context, "N", "positions that the memory is counted for (default: up to 4096)", 2, 16777216},
        {"json", 0, ARG_FLAG, &json, NULL, "one JSON document", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about_show, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (model_resolve(&r, rest.item[0], &err) != IM_OK) return say_failed(about_show.name, &err);
    code = show(&r, (uint32_t)context, json);
    resolved_free(&r);
    return code;
}

/* ---- models --------------------------------------------------------------------------------------------------------------------------------- */

static int help(FILE *f)
{
    fprintf(f, "ironmule models - models on this machine\n\nUsage: ironmule models COMMAND [options] ...\n\nCommands:\n");
    for (const command *c = models_commands; c->name != NULL; c++) fprintf(f, "  %-12s %s\n", c->name, c->summary);
    fprintf(f, "\n'ironmule models COMMAND --help' describes a command.\n");
    return f == stdout ? EXIT_DONE : EXIT_USAGE;
}

int cmd_models(int argc, char **argv)
{
    const char *names[16] = {NULL};
    if (argc == 0) return help(stderr);
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) return help(stdout);
    for (size_t i = 0; models_commands[i].name != NULL; i++) {
        names[i] = models_commands[i].name;
        if (strcmp(argv[0], names[i]) == 0) return models_commands[i].run(argc - 1, argv + 1);
    }
    const char *near = args_nearest(argv[0], names);
    fprintf(stderr, "ironmule models: unknown command \"%s\"%s%s%s\nTry 'ironmule models --help'.\n", argv[0],
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
    return EXIT_USAGE;
}
