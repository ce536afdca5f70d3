/* SPDX-License-Identifier: Apache-2.0
 *
 * The models on this machine: registered ones, those in the Hub's cache, and those in plain folders. A list of objects
 *
 *     {"name": what to call it, "source": "registered" | "cache" | "folder", "path": ..., "id": ..., "revision": ..., "commit": ...}
 */
#ifndef IRONMULE_STORE_INVENTORY_H
#define IRONMULE_STORE_INVENTORY_H

#include "hub/hub_error.h"

#include <jansson.h>

/* `folders`: separated by colons; NULL: none beside the program's own. Owned by the caller; NULL: an error. What is registered is not listed again where it lies. */
json_t *inventory_read(const char *folders, im_error *err);

#endif
