/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files make up a model: PREFIX-00002-of-00003.gguf names its siblings. Links are not resolved: siblings are looked for beside the
 * name that was given, since in a cache of blobs the link's target has no telling name.
 */
#ifndef IRONMULE_FORMAT_GGUF_SPLIT_H
#define IRONMULE_FORMAT_GGUF_SPLIT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct im__gguf_set {
    char **path;  /* [count], in shard order */
    size_t count; /* 1 for a file whose name is not that of a shard */
    bool split;   /* the names are those of shards, even of a single one */
} im__gguf_set;

/* `path` is a file, any shard, or a folder that holds just one model. Every shard exists when IM_OK is returned; else the missing ones are
 * named (IM_ERR_IO). A folder without a model is IM_ERR_IO, one with several IM_ERR_ARGUMENT. Free *out with im__gguf_set_free. */
im_status im__gguf_set_find(im__gguf_set *out, const char *path, im_error *err);
void im__gguf_set_free(im__gguf_set *set);

#endif
