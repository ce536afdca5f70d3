/* SPDX-License-Identifier: Apache-2.0 */
#include "store/settings.h"

#include "store/home.h"
#include "store/settings_line.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const setting *settings_find(const store_settings *s, const char *key)
{
    size_t i = setting_index(key, strlen(key));
    return i == SIZE_MAX ? NULL : &s->item[i];
}

const char *settings_text(const store_settings *s, const char *key)
{
    const setting *found = settings_find(s, key);
    return found == NULL ? NULL : found->value;
}

bool settings_yes(const store_settings *s, const char *key, bool otherwise)
{
    const char *v = settings_text(s, key);
    return v == NULL ? otherwise : strcmp(v, "true") == 0;
}

void settings_free(store_settings *s)
{
    for (size_t i = 0; s->item != NULL && i < setting_count; i++) free(s->item[i].value);
    free(s->item);
    free(s->path);
    *s = (store_settings){.path = NULL};
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------------------- */

static bool is_word(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (const char *w = words; *w != 0; w += strspn(w, " ")) {
        size_t m = strcspn(w, " ");
        if (n == m && strncmp(w, value, n) == 0) return true;
        w += m;
    }
    return false;
}

static bool is_number(const setting_about *a, const char *value)
{
    char *end;
    double v = a->kind == SETTING_INT ? (double)strtoll(value, &end, 10) : strtod(value, &end);
    return end != value && *end == 0 && v >= a->lo && v <= a->hi;
}

static bool is_size(const char *value)
{
    char *end;
    double v = strtod(value, &end);
    return end != value && isfinite(v) && v >= 0 &&
           (*end == 0 || (strchr("KMG", *end) != NULL && (end[1] == 0 || strcmp(end + 1, "iB") == 0)));
}

static im_status check_value(const setting_about *a, const char *value, im_error *err)
{
    for (const char *c = value; *c != 0; c++)
        if ((unsigned char)*c < ' ' || *c == 127) return hub_fail(err, IM_ERR_ARGUMENT, "%s: a value is one line of text", a->key);
    if (value[0] == 0) return hub_fail(err, IM_ERR_ARGUMENT, "%s: the value is empty", a->key);
    bool number = a->kind == SETTING_INT || a->kind == SETTING_NUMBER;
    if (number && !is_number(a, value))
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: \"%s\" is no %snumber within %.10g .. %.10g", a->key, value,
                        a->kind == SETTING_INT ? "whole " : "", a->lo, a->hi);
    if (a->kind == SETTING_SIZE && !is_size(value))
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: \"%s\" is no size; 512M and 2G are", a->key, value);
    if (a->kind == SETTING_YES_NO && strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: true or false, not \"%s\"", a->key, value);
    if (a->words != NULL && !is_word(a->words, value))
        return hub_fail(err, IM_ERR_ARGUMENT, "%s: \"%s\" is none of: %s", a->key, value, a->words);
    return IM_OK;
}

im_status settings_check(const char *key, const char *value, im_error *err)
{
    size_t i = setting_index(key, strlen(key));
    return i == SIZE_MAX ? setting_unknown(key, strlen(key), err) : check_value(&setting_table[i], value, err);
}

static im_status take(store_settings *s, size_t i, const char *value, setting_source source, const char *where, im_error *err)
{
    setting *to = &s->item[i];
    im_status status = check_value(&setting_table[i], value, err);
    if (status != IM_OK) return status;
    char *copy = setting_table[i].kind == SETTING_PATH ? store_expand(value) : strdup(value);
    if (copy == NULL) return hub_no_memory(err);
    free(to->value);
    to->value = copy;
    to->source = source;
    snprintf(to->where, sizeof to->where, "%s", where);
    return IM_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------------------------------------------------ */

static im_status take_line(store_settings *s, const char *line, size_t n, unsigned number, im_error *err)
{
    char where[32];
    im_error why;
    setting_line parts;
    snprintf(where, sizeof where, "line %u", number);
    im_status status = setting_line_parse(&parts, line, n, &why);
    if (status == IM_OK && parts.key_len == 0) return IM_OK;
    size_t i = status == IM_OK ? setting_index(line + parts.key, parts.key_len) : 0;
    if (status == IM_OK && i == SIZE_MAX)
        status = setting_unknown(line + parts.key, parts.key_len, &why);
    else if (status == IM_OK && s->item[i].value != NULL)
        status = hub_fail(&why, IM_ERR_FORMAT, "%s is there already, on %s", setting_table[i].key, s->item[i].where);
    else if (status == IM_OK)
        status = take(s, i, parts.value, SETTING_FILE, where, &why);
    setting_line_free(&parts);
    return status == IM_OK ? IM_OK : hub_fail(err, status, "%s, line %u: %s", s->path, number, why.message);
}

static im_status take_file(store_settings *s, const char *text, im_error *err)
{
    unsigned number = 1;
    for (const char *line = text; *line != 0; number++) {
        size_t n = strcspn(line, "\n");
        im_status status = take_line(s, line, n, number, err);
        if (status != IM_OK) return status;
        line += n + (line[n] == '\n');
    }
    return IM_OK;
}

/* ---- the environment -------------------------------------------------------------------------------------------------------------------------- */

static im_status take_environment(store_settings *s, im_error *err)
{
    for (size_t i = 0; i < setting_count; i++) {
        char name[32] = "IRONMULE_";
        for (const char *c = setting_table[i].key; *c != 0; c++) name[strlen(name)] = (char)toupper((unsigned char)*c);
        const char *value = getenv(name);
        im_error why;
        if (value == NULL || value[0] == 0) continue;
        im_status status = take(s, i, value, SETTING_ENVIRONMENT, name, &why);
        if (status != IM_OK) return hub_fail(err, status, "%s in the environment: %s", name, why.message);
    }
    return IM_OK;
}

im_status settings_read(store_settings *out, im_error *err)
{
    char *text = NULL;
    size_t n;
    *out = (store_settings){.path = store_config_path("settings.toml"), .item = calloc(setting_count, sizeof *out->item)};
    im_status status = out->path == NULL || out->item == NULL ? hub_no_memory(err) : store_read(&text, &n, out->path, err);
    out->exists = text != NULL;
    if (status == IM_OK && text != NULL && strlen(text) != n)
        status = hub_fail(err, IM_ERR_FORMAT, "%s: holds a zero byte", out->path);
    if (status == IM_OK && text != NULL) status = take_file(out, text, err);
    if (status == IM_OK) status = take_environment(out, err);
    free(text);
    if (status != IM_OK) settings_free(out);
    return status;
}
