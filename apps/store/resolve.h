/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user means by MODEL: a path, a registered name, or a Hub id whose files are in the local cache. The first of these that fits; the network is
 * never asked.
 */
#ifndef IRONMULE_STORE_RESOLVE_H
#define IRONMULE_STORE_RESOLVE_H

#include "hub/hub_error.h"

#include <stdbool.h>

typedef struct resolved {
    char *path; /* a file or a folder */
    char *name; /* registered name or id as the user gave it; NULL: it was a path */
} resolved;

im_status model_resolve(resolved *out, const char *model, im_error *err);
void resolved_free(resolved *r);

/* Is it written like a path (begins with "/", "./", "../" or "~/", ends in ".gguf")? */
bool looks_like_path(const char *model);

#endif
