/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of the settings file: `key = value  # comment`.
 */
#ifndef IRONMULE_STORE_SETTINGS_LINE_H
#define IRONMULE_STORE_SETTINGS_LINE_H

#include "store/settings.h"

#include <stdint.h>

typedef struct setting_line {
    size_t key, key_len; /* where the key stands; length 0: the line is empty or a comment */
    char *value;         /* without quotes and escapes */
} setting_line;

/* n bytes without the newline. */
im_status setting_line_parse(setting_line *out, const char *line, size_t n, im_error *err);
void setting_line_free(setting_line *l);

/* "# key = ..." too: where the key stands in it; false: the line is something else. */
bool setting_line_is_about(const char *line, size_t n, const char *key, bool *comment);

size_t setting_index(const char *key, size_t n); /* in the table; SIZE_MAX: not there */
im_status setting_unknown(const char *key, size_t n, im_error *err);

#endif
