/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "defaults.h"
#include "hub/hub_listing.h"
#include "models.h"
#include "start_watch.h"
#include "store/registry.h"
#include "store/resolve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const arg_command about = {
    .name = "start",
    .summary = "one step to a chat: settings, a model, the server, the chat page",
    .usage = "[MODEL]",
    .details = "Writes the settings if there are none, takes MODEL, the model of the settings or the one registered last, or "
               "proposes one that fits this\n"
               "machine's memory; fetches it only after a yes (the end of the input is a no); serves it, waits until it answers, "
               "and opens the chat page.",
    .examples = "  ironmule start\n  ironmule start --yes --no-browser\n  ironmule start Qwen/Qwen3-4B-GGUF:Q4_K_M",
    .least = 0,
    .most = 1,
};

typedef struct wish {
    const char *mode, *model;
    int64_t port;
    bool yes, no_browser, json;
} wish;

/* ---- which model -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct proposal {
    const char *id, *licence;
    double download, memory; /* bytes, roughly: the hub tells the exact size before anything is fetched */
} proposal;

/* The best first. Chosen for a free licence, no login, and a family that this program knows. */
static const proposal proposals[] = {
    {"Qwen/Qwen3-4B-GGUF:Q4_K_M", "Apache-2.0", 2.5e9, 3.6e9},
    {"Qwen/Qwen3-1.7B-GGUF:Q8_0", "Apache-2.0", 1.8e9, 2.6e9},
    {"Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", "Apache-2.0", 1.1e9, 1.7e9},
    {"Qwen/Qwen3-0.6B-GGUF:Q8_0", "Apache-2.0", 0.64e9, 1.2e9},
    {"HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0", "Apache-2.0", 0.39e9, 0.6e9},
};
#define PROPOSALS (sizeof proposals / sizeof *proposals)

/* Half of what is free stays for everything else. */
static const proposal *propose(void)
{
    im_machine_info machine;
    im_machine_get_info(&machine);
    for (size_t i = 0; i < PROPOSALS; i++)
        if (machine.memory_available == 0 || proposals[i].memory <= (double)machine.memory_available / 2) return &proposals[i];
    return &proposals[PROPOSALS - 1];
}

/* Fetches the model after a yes; its name (free with free), or NULL after a message and *code set. */
static char *fetch(const char *id, const char *question, const wish *w, int *code)
{
    const add_options o = {.download = true};
    if (!w->yes && !ask_yes(question)) {
        *code = say(about.name, "nothing was fetched; 'ironmule models add PATH' registers a model that you have");
        return NULL;
    }
    json_t *entry = add_model(about.name, id, &o, code);
    char *name = entry == NULL ? NULL : strdup(registry_text(entry, "name"));
    json_decref(entry);
    return name;
}

static char *proposed(const wish *w, int *code)
{
    char question[400], size[32];
    const proposal *p = propose();
    snprintf(question, sizeof question, "No model is registered. Fetch %s (about %s, licence %s) from the Hugging Face Hub?", p->id,
             hub_bytes(size, sizeof size, (uint64_t)p->download), p->licence);
    return fetch(p->id, question, w, code);
}

/* A model that was named: here, or to be fetched if that is what its name means. */
static char *named(const char *model, const wish *w, int *code)
{
    im_error err;
    resolved r;
    hub_id id;
    char question[700];
    if (model_resolve(&r, model, &err) == IM_OK) {
        bool there = access(r.path, R_OK) == 0;
        resolved_free(&r);
        if (there) return strdup(model);
        hub_fail(&err, IM_ERR_IO, "%s: %s", model, strerror(errno));
    }
    if (looks_like_path(model) || !hub_id_parse(&id, model)) {
        *code = say_failed(about.name, &err);
        return NULL;
    }
    snprintf(question, sizeof question,
             "%s is not here. Fetch it from the Hugging Face Hub (size and licence are shown before it begins)?", model);
    return fetch(model, question, w, code);
}

static char *choose(const wish *w, const store_settings *s, int *code)
{
    im_error err;
    const char *given = w->model != NULL ? w->model : settings_text(s, "model");
    if (given != NULL) return named(given, w, code);
    json_t *models = registry_read(&err);
    if (models == NULL) {
        *code = say_failed(about.name, &err);
        return NULL;
    }
    const char *first = registry_text(json_array_get(models, 0), "name");
    char *name = first[0] == 0 ? proposed(w, code) : named(first, w, code);
    json_decref(models);
    return name;
}

/* ---- settings and server ------------------------------------------------------------------------------------------------------------------------ */

static const store_settings *ensure_settings(const wish *w)
{
    im_error err;
    const char *keys[] = {"mode"}, *values[] = {w->mode == NULL ? "desktop" : w->mode};
    const store_settings *s = defaults_read(about.name);
    if (s == NULL || s->exists) return s;
    if (settings_change(keys, values, 1, &err) != IM_OK) {
        say_failed(about.name, &err);
        return NULL;
    }
    say(about.name, "settings written to %s", s->path);
    defaults_forget();
    return defaults_read(about.name);
}

/* What requests call the model: a path is called by its file. Free with free. */
static char *called(const char *model)
{
    bool path = looks_like_path(model) || access(model, F_OK) == 0;
    return path ? registry_name_of_path(model) : strdup(model);
}

static int serve(char *model, const wish *w, const store_settings *s)
{
    char port[16];
    char *argv[8];
    int argc = 0;
    static char port_option[] = "--port", mode_option[] = "--mode";
    const char *set_port = settings_text(s, "port"), *host = settings_text(s, "host");
    char *name = called(model);
    watch_options watch = {
        .host = host, .model = name == NULL ? model : name, .json = w->json, .tls = settings_text(s, "tls_cert") != NULL};
    watch.browser = !w->no_browser && settings_yes(s, "browser", true);
    watch.port = w->port > 0 ? (int)w->port : set_port != NULL ? atoi(set_port) : watch_free_port(8080);
    snprintf(port, sizeof port, "%d", watch.port);
    argv[argc++] = model;
    argv[argc++] = port_option;
    argv[argc++] = port;
    if (w->mode != NULL) {
        argv[argc++] = mode_option;
        argv[argc++] = (char *)w->mode;
    }
    argv[argc] = NULL;
    say(about.name, "loading %s; Ctrl-C ends the server", model);
    watch_begin(&watch);
    int code = cmd_serve(argc, argv);
    watch_end();
    free(name);
    return code;
}

int cmd_start(int argc, char **argv)
{
    arg_rest rest;
    wish w = {.mode = NULL};
    const arg_option options[] = {
        {"yes", 'y', ARG_FLAG, &w.yes, NULL, "fetch a model without asking, if none is here", 0, 0},
        {"no-browser", 0, ARG_FLAG, &w.no_browser, NULL, "do not open the chat page", 0, 0},
        {"port", 'p', ARG_INT, &w.port, "N", "port of the server (default: of the settings, or the first free one from 8080)", 1,
         65535},
        {"mode", 0, ARG_STRING, &w.mode, "MODE", "desktop or server", 0, 0},
        {"json", 0, ARG_FLAG, &w.json, NULL, "one JSON document with the address, when the server answers", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code >= 0) return code;
    if (rest.count > 0) w.model = rest.item[0];
    im_error err;
    if (w.mode != NULL && settings_check("mode", w.mode, &err) != IM_OK) return args_wrong(&about, "--%s", err.message);
    const store_settings *s = ensure_settings(&w);
    if (s == NULL) return EXIT_FAILED;
    code = EXIT_FAILED;
    char *model = choose(&w, s, &code);
    if (model != NULL) code = serve(model, &w, s);
    free(model);
    return code;
}
