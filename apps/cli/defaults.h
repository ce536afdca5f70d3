/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings as the commands see them: read once, when the first command asks.
 */
#ifndef IRONMULE_CLI_DEFAULTS_H
#define IRONMULE_CLI_DEFAULTS_H

#include "store/settings.h"

#include <jansson.h>

/* NULL after a message: they cannot be read. */
const store_settings *defaults_read(const char *who);

/* Forgets them: they were changed. */
void defaults_forget(void);

/* For args_setting. `of`: the command's name. */
bool defaults_setting(const char *of, const char *option, const char **value, const char **where);

/* Each setting with its value and where that comes from, as JSON (owned by the caller) and as lines on stdout. */
json_t *defaults_json(const store_settings *s);
void defaults_print(const store_settings *s);

#endif
