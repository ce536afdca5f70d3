/* SPDX-License-Identifier: Apache-2.0
 *
 * One GGUF file as a set of bytes: header, keys, tensor directory, checked as far as one file can be checked alone. gguf.c puts
 * shards together.
 */
#ifndef IRONMULE_FORMAT_GGUF_SHARD_H
#define IRONMULE_FORMAT_GGUF_SHARD_H

#include "format/gguf.h"

/* Directory of one file. Zeroed before use; free both arrays with im__gguf_shard_free also after a failure. */
typedef struct im__gguf_shard {
    const char *path; /* for messages; not owned */
    uint32_t version, alignment;
    size_t kv_count, tensor_count;
    im__gguf_kv *kv;
    im__gguf_tensor *tensor;
} im__gguf_shard;

/* Parses `size` bytes; keys and tensors point into them. `path` must be set. Names are not yet checked for being unique. */
im_status im__gguf_shard_parse(im__gguf_shard *s, const uint8_t *data, size_t size, im_error *err);
void im__gguf_shard_free(im__gguf_shard *s);

/* A name out of the file as messages show it: at most 64 bytes, control characters as '?', terminated. Returns `out`. */
#define IM__GGUF_SHOWN 68
const char *im__gguf_show(im__gguf_string name, char out[IM__GGUF_SHOWN]);

/* Bytes of a scalar of this type; 0 for strings, arrays and numbers that are no type. */
size_t im__gguf_scalar_bytes(uint32_t type);
const char *im__gguf_type_name(uint32_t type); /* "u32", "string", ...; "unknown" */

/* An integer value of any width or sign, held to the range of int64; false when the value is no integer scalar. */
bool im__gguf_integer(im__gguf_type type, const uint8_t *data, int64_t *out);

#endif
