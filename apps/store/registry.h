/* SPDX-License-Identifier: Apache-2.0
 *
 * The models that the user has registered: names for paths, in models.json of the state folder. A model is an object
 *
 *     {"name": ..., "path": ..., "id": ..., "revision": ..., "commit": ..., "added": "2026-11-30T12:00:00Z"}
 *
 * id, revision and commit only where it is from the Hub. Weights are never touched from here.
 */
#ifndef IRONMULE_STORE_REGISTRY_H
#define IRONMULE_STORE_REGISTRY_H

#include "hub/hub_error.h"

#include <jansson.h>

/* The list of models (an empty one when nothing was registered), owned by the caller; NULL: the file is damaged, or out of memory. */
json_t *registry_read(im_error *err);

/* Adds the model (borrowed) in front, so that the latest is the first; one of the same name goes. "added" is set here. */
im_status registry_add(json_t *model, im_error *err);

/* *removed: the entry (owned by the caller), NULL when there is none of that name. */
im_status registry_remove(const char *name, json_t **removed, im_error *err);

/* The entry of that name, borrowed; NULL: none. */
json_t *registry_find(const json_t *models, const char *name);

/* Name of a model that nobody named: the file's without .gguf and the mark of a shard, or the folder's. Free with free. */
char *registry_name_of_path(const char *path);

const char *registry_text(const json_t *model, const char *key); /* "" when it has none */

#endif
