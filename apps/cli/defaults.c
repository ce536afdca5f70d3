/* SPDX-License-Identifier: Apache-2.0 */
#include "defaults.h"

#include "common.h"

#include <string.h>

static store_settings read_once;
static bool have_read;

const store_settings *defaults_read(const char *who)
{
    im_error err;
    if (!have_read && settings_read(&read_once, &err) != IM_OK) {
        say_failed(who, &err);
        return NULL;
    }
    have_read = true;
    return &read_once;
}

void defaults_forget(void)
{
    if (have_read) settings_free(&read_once);
    have_read = false;
}

static bool takes(const setting_about *a, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = a->commands; at != NULL && (at = strstr(at, name)) != NULL; at += n)
        if ((at == a->commands || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    return a->commands == NULL;
}

bool defaults_setting(const char *of, const char *option, const char **value, const char **where)
{
    char key[64];
    snprintf(key, sizeof key, "%s", option);
    for (char *c = key; *c != 0; c++)
        if (*c == '-') *c = '_';
    size_t i = 0;
    while (i < setting_count && strcmp(setting_table[i].key, key) != 0) i++;
    if (i == setting_count || !takes(&setting_table[i], of)) return true;
    const store_settings *s = defaults_read(of);
    if (s == NULL) return false;
    *value = s->item[i].value;
    *where = s->item[i].source == SETTING_FILE ? s->path : s->item[i].where;
    return true;
}

static const char *source_name(const setting *item)
{
    return item->source == SETTING_DEFAULT ? "default" : item->source == SETTING_FILE ? "file" : "environment";
}

json_t *defaults_json(const store_settings *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < setting_count; i++) {
        const setting *item = &s->item[i];
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s, s:s?, s:s}", "key", setting_table[i].key, "value", item->value,
                                              "source", source_name(item), "where", item->value == NULL ? NULL : item->where,
                                              "default", setting_table[i].otherwise));
    }
    return json_pack("{s:s, s:b, s:o}", "path", s->path, "exists", (int)s->exists, "settings", list);
}

void defaults_print(const store_settings *s)
{
    printf("%s%s\n", s->path, s->exists ? "" : " (not there: 'ironmule setup' writes it)");
    for (size_t i = 0; i < setting_count; i++) {
        const setting *item = &s->item[i];
        if (item->value == NULL)
            printf("  %-14s %s (default)\n", setting_table[i].key, setting_table[i].otherwise);
        else
            printf("  %-14s %s (%s, %s)\n", setting_table[i].key, item->value, source_name(item), item->where);
    }
}
