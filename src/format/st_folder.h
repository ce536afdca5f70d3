/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json names. What the index promises is checked: every shard is
 * there, every tensor is in the shard that the index gives, no tensor is in two shards. Shards lie in the folder itself; a name that leads out of it is refused.
 */
#ifndef IRONMULE_FORMAT_ST_FOLDER_H
#define IRONMULE_FORMAT_ST_FOLDER_H

#include "base/json.h"
#include "format/safetensors.h"

#define IM__ST_MAX_SHARDS 1000
#define IM__ST_MAX_TEXT ((size_t)64 << 20) /* of a JSON file beside the weights */

typedef struct im__st_entry {
    const im__st_tensor *tensor;
    const im__safetensors *shard; /* that holds it */
} im__st_entry;

typedef struct im__st_folder {
    char *path;
    im__safetensors **shard; /* [shard_count] */
    size_t shard_count;
    im__st_entry *entry; /* [count] of all shards, sorted by name */
    size_t count;
} im__st_folder;

/* Does the folder hold weights by one of the two names? */
bool im__st_folder_is_one(const char *path);

/* Of a folder that is none: does it look like one that is not whole (config.json without weights, shards without their index)? Then IM_ERR_IO that says what
 * is missing, else IM_OK. */
im_status im__st_folder_explain(const char *path, im_error *err);

/* On success *out is the caller's. All missing shards are named. Errors as those of im__safetensors_open. */
im_status im__st_folder_open(im__st_folder **out, const char *path, im_error *err);
void im__st_folder_close(im__st_folder *f); /* NULL allowed */

const im__st_entry *im__st_folder_find(const im__st_folder *f, const char *name); /* NULL when absent */

/* A JSON file of a folder, mapped and checked. `required`: an absent one is IM_ERR_IO; else *root is no value. The map is the caller's (im__file_map_close), also
 * after an error. `path` gets the file's name for messages (room for `size`, cut when it is longer). */
im_status im__json_file_open(im__file_map *map, im__json *root, const char *folder, const char *name, bool required, char *path,
                             size_t size, im_error *err);

#endif
