/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the program keeps its own small files: settings in ${XDG_CONFIG_HOME:-~/.config}/ironmule, state in
 * ${XDG_STATE_HOME:-~/.local/state}/ironmule, or both in $IRONMULE_HOME. Folders are private (0700), files too (0600); a file is replaced as a whole or
 * not at all; writers exclude each other.
 */
#ifndef IRONMULE_STORE_HOME_H
#define IRONMULE_STORE_HOME_H

#include "hub/hub_error.h"

#include <stdbool.h>
#include <stddef.h>

/* Paths; free with free, NULL: out of memory. */
char *store_config_path(const char *file);
char *store_state_path(const char *file);
char *store_expand(const char *path); /* "~/" at the beginning is the home folder */

/* The whole file, terminated; *text NULL when there is none. Free with free. */
im_status store_read(char **text, size_t *n, const char *path, im_error *err);

im_status store_write(const char *path, const char *text, im_error *err);

/* Waits for other writers of this file. Close *fd to let the next one in. */
im_status store_lock(int *fd, const char *path, im_error *err);

#endif
