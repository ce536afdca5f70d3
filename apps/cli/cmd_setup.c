/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"
#include "defaults.h"
#include "store/home.h"

#include <stdlib.h>
#include <string.h>

static const arg_command about = {
    .name = "setup",
    .summary = "writes the settings",
    .usage = "",
    .details = "The settings are one small file, settings.toml in ~/.config/ironmule (XDG_CONFIG_HOME, or IRONMULE_HOME), with a "
               "comment for each. What you\n"
               "have written there stays. The command line beats the environment (IRONMULE_PORT for port), which beats the file.",
    .examples =
        "  ironmule setup\n  ironmule setup --mode server --set port=9000 --set parallel=32\n  ironmule setup --unset port --print",
    .least = 0,
    .most = 0,
};

enum { MOST_CHANGES = 40 };

typedef struct changes {
    const char *key[MOST_CHANGES], *value[MOST_CHANGES];
    char *copy[MOST_CHANGES]; /* of "KEY=VALUE", cut in two */
    size_t count;
} changes;

static int add(changes *c, const char *text, bool set)
{
    char *copy = strdup(text), *equals = copy == NULL ? NULL : strchr(copy, '=');
    if (copy == NULL) return say(about.name, "out of memory");
    c->copy[c->count] = copy;
    if (set && equals == NULL) return c->count++, args_wrong(&about, "--set %s: KEY=VALUE is meant", text);
    if (set) *equals = 0;
    c->key[c->count] = copy;
    c->value[c->count++] = set ? equals + 1 : NULL;
    return -1;
}

static int gather(changes *c, const char *mode, const arg_list *set, const arg_list *unset)
{
    int code = -1;
    if (mode != NULL) {
        c->key[c->count] = "mode";
        c->value[c->count++] = mode;
    }
    for (size_t i = 0; code < 0 && i < set->count; i++) code = add(c, set->item[i], true);
    for (size_t i = 0; code < 0 && i < unset->count; i++) code = add(c, unset->item[i], false);
    return code;
}

/* What the file would be, on stdout. */
static int print(const changes *c)
{
    im_error err;
    char *old = NULL, *path = store_config_path("settings.toml"), *text = NULL;
    size_t n;
    if (path == NULL) hub_no_memory(&err);
    if (path != NULL && store_read(&old, &n, path, &err) == IM_OK) text = settings_edit(old, c->key, c->value, c->count, &err);
    int code = text == NULL ? say_failed(about.name, &err) : EXIT_DONE;
    if (text != NULL) fputs(text, stdout);
    free(path);
    free(old);
    free(text);
    return code;
}

static int write_file(const changes *c, bool json)
{
    im_error err;
    if (settings_change(c->key, c->value, c->count, &err) != IM_OK) return say_failed(about.name, &err);
    const store_settings *s = defaults_read(about.name);
    if (s == NULL) return EXIT_FAILED;
    if (json) return print_json(defaults_json(s));
    printf("%s\n", s->path);
    return EXIT_DONE;
}

int cmd_setup(int argc, char **argv)
{
    arg_rest rest;
    arg_list set = {.count = 0}, unset = {.count = 0};
    changes c = {.count = 0};
    const char *mode = NULL;
    bool only_print = false, json = false;
    const arg_option options[] = {
        {"mode", 0, ARG_STRING, &mode, "MODE", "desktop (one person) or server (many clients)", 0, 0},
        {"set", 0, ARG_LIST, &set, "KEY=VALUE", "change a setting; may be repeated", 0, 0},
        {"unset", 0, ARG_LIST, &unset, "KEY", "back to the default; may be repeated", 0, 0},
        {"print", 0, ARG_FLAG, &only_print, NULL, "print what the file would be, and write nothing", 0, 0},
        {"json", 0, ARG_FLAG, &json, NULL, "one JSON document with all settings", 0, 0},
        {NULL, 0, ARG_FLAG, NULL, NULL, NULL, 0, 0},
    };
    int code = args_parse(&about, options, argc, argv, &rest);
    if (code < 0 && only_print && json) code = args_wrong(&about, "--print and --json: one of them");
    if (code < 0) code = gather(&c, mode, &set, &unset);
    if (code < 0) code = only_print ? print(&c) : write_file(&c, json);
    for (size_t i = 0; i < c.count; i++) free(c.copy[i]);
    return code;
}
