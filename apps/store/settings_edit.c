/* SPDX-License-Identifier: Apache-2.0 */
#include "store/home.h"
#include "store/settings_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_value(FILE *f, const setting_about *a, const char *value)
{
    bool bare = a->kind == SETTING_INT || a->kind == SETTING_NUMBER || a->kind == SETTING_YES_NO;
    if (bare) {
        fputs(value, f);
        return;
    }
    putc('"', f);
    for (const char *c = value; *c != 0; c++) {
        if (*c == '"' || *c == '\\') putc('\\', f);
        putc(*c, f);
    }
    putc('"', f);
}

static void print_new(FILE *f)
{
    fputs("# Settings of ironmule. A line is: key = value. The command line beats the environment (IRONMULE_PORT for port),\n"
          "# which beats this file. 'ironmule info --settings' shows what holds and where it comes from.\n",
          f);
    for (size_t i = 0; i < setting_count; i++)
        fprintf(f, "\n# %s (default: %s)\n# %s =\n", setting_table[i].help, setting_table[i].otherwise, setting_table[i].key);
}

/* Where the new line for the key goes: on the line that sets it, else on the comment that could, else at the end (SIZE_MAX). */
static size_t place_of(const char *text, const char *key, bool *comment)
{
    size_t best = SIZE_MAX;
    for (const char *line = text; *line != 0;) {
        size_t n = strcspn(line, "\n");
        bool remark;
        if (setting_line_is_about(line, n, key, &remark) && (best == SIZE_MAX || !remark)) {
            best = (size_t)(line - text);
            *comment = remark;
            if (!remark) return best;
        }
        line += n + (line[n] == '\n');
    }
    return best;
}

static void print_line(FILE *f, const setting_about *a, const char *value)
{
    fputs(value == NULL ? "# " : "", f);
    fprintf(f, "%s =%s", a->key, value == NULL ? "" : " ");
    if (value != NULL) print_value(f, a, value);
    putc('\n', f);
}

/* The text with one change; NULL: out of memory. */
static char *edit_one(const char *text, const char *key, const char *value)
{
    char *out = NULL;
    size_t size;
    bool comment = false;
    size_t at = place_of(text, key, &comment), length = strlen(text);
    const setting_about *a = &setting_table[setting_index(key, strlen(key))];
    if (value == NULL && (at == SIZE_MAX || comment)) return strdup(text);
    FILE *f = open_memstream(&out, &size);
    if (f == NULL) return NULL;
    size_t head = at == SIZE_MAX ? length : at, line = at == SIZE_MAX ? 0 : strcspn(text + at, "\n");
    fwrite(text, 1, head, f);
    if (at == SIZE_MAX && length > 0 && text[length - 1] != '\n') putc('\n', f);
    print_line(f, a, value);
    if (at != SIZE_MAX && text[at + line] == '\n') fputs(text + at + line + 1, f);
    return fclose(f) == 0 ? out : NULL;
}

static char *new_text(void)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    if (f == NULL) return NULL;
    print_new(f);
    return fclose(f) == 0 ? out : NULL;
}

char *settings_edit(const char *old, const char *const *keys, const char *const *values, size_t count, im_error *err)
{
    char *text = old == NULL ? new_text() : strdup(old);
    for (size_t i = 0; text != NULL && i < count; i++) {
        im_status status = values[i] != NULL                                     ? settings_check(keys[i], values[i], err)
                           : setting_index(keys[i], strlen(keys[i])) == SIZE_MAX ? setting_unknown(keys[i], strlen(keys[i]), err)
                                                                                 : IM_OK;
        char *next = status == IM_OK ? edit_one(text, keys[i], values[i]) : NULL;
        free(text);
        text = next;
        if (status != IM_OK) return NULL;
    }
    if (text == NULL) hub_no_memory(err);
    return text;
}

im_status settings_change(const char *const *keys, const char *const *values, size_t count, im_error *err)
{
    int fd = -1;
    size_t n;
    char *path = store_config_path("settings.toml"), *old = NULL, *text = NULL;
    im_status status = path == NULL ? hub_no_memory(err) : store_lock(&fd, path, err);
    if (status == IM_OK) status = store_read(&old, &n, path, err);
    if (status == IM_OK) {
        text = settings_edit(old, keys, values, count, err);
        status = text == NULL ? IM_ERR_ARGUMENT : store_write(path, text, err);
    }
    if (fd >= 0) close(fd);
    free(path);
    free(old);
    free(text);
    return status;
}
