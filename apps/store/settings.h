/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings: what options of commands are when the command line does not say. One table (settings_table.c) names them; a value comes from the
 * environment (IRONMULE_PORT for `port`), else from the file settings.toml in the config folder, else it is the option's own default. A key that is not in the
 * table is an error that names the nearest one.
 *
 * The file is lines of `key = value`, a subset of TOML: text in double quotes (plain words may go without), numbers, true and false, # comments.
 */
#ifndef IRONMULE_STORE_SETTINGS_H
#define IRONMULE_STORE_SETTINGS_H

#include "hub/hub_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum setting_kind { SETTING_TEXT, SETTING_PATH, SETTING_INT, SETTING_NUMBER, SETTING_SIZE, SETTING_YES_NO } setting_kind;

typedef struct setting_about {
    const char *key;
    setting_kind kind;
    const char *otherwise; /* what holds without it, for reading */
    const char *help;      /* one line */
    const char *commands;  /* that take it, separated by blanks; NULL: all that have an option of this name */
    double lo, hi;         /* of SETTING_INT and SETTING_NUMBER */
    const char *words;     /* of SETTING_TEXT: what it may be, separated by blanks; NULL: anything */
} setting_about;

extern const setting_about setting_table[];
extern const size_t setting_count;

typedef enum setting_source { SETTING_DEFAULT, SETTING_FILE, SETTING_ENVIRONMENT } setting_source;

typedef struct setting {
    char *value; /* NULL: the default */
    setting_source source;
    char where[32]; /* "line 7", "IRONMULE_PORT" */
} setting;

typedef struct store_settings {
    char *path; /* of the file */
    bool exists;
    setting *item; /* setting_count of them, in the table's order */
} store_settings;

im_status settings_read(store_settings *out, im_error *err);
void settings_free(store_settings *s);

const setting *settings_find(const store_settings *s, const char *key);      /* NULL: no such key */
const char *settings_text(const store_settings *s, const char *key);         /* the value, or NULL: the default */
bool settings_yes(const store_settings *s, const char *key, bool otherwise); /* of SETTING_YES_NO */

/* Is this a value of that setting? */
im_status settings_check(const char *key, const char *value, im_error *err);

/* The text of the file with these changes (a value NULL takes the key out); lines of the user stay as they are. `old` NULL: a new file. Free with free. */
char *settings_edit(const char *old, const char *const *keys, const char *const *values, size_t count, im_error *err);

/* Reads, edits and writes the file under its lock. */
im_status settings_change(const char *const *keys, const char *const *values, size_t count, im_error *err);

#endif
