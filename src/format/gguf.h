/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF versions 2 and 3, little endian, whole or split (name-00001-of-00003.gguf; any shard or the folder that holds just one model).
 * Bytes in, validated directory out: after im__gguf_open has returned IM_OK every key, string and tensor lies inside its file, names are unique,
 * not empty, valid UTF-8 and without a zero byte, offsets are aligned, disjoint and within the data, dimensions are not 0, element counts and
 * byte sizes are free of overflow, booleans are 0 or 1. String values and the strings of arrays may hold any bytes. Nothing is copied but the
 * directory: strings and tensor data point into the mapping and live as long as the im__gguf.
 *
 * Source of the format: docs/gguf.md of the ggml project. Limits that it leaves open are ours: see the constants. What it leaves to the reader:
 * holes between tensors, data in another order than the directory and bytes behind the last tensor are accepted; a key that occurs twice
 * (even with the same value) and arrays of arrays are refused. What the keys mean is not looked at, but for general.alignment and split.*.
 *
 * A closed or failed open leaves nothing behind. An im__gguf is never changed after open: any number of threads may read it.
 */
#ifndef IRONMULE_FORMAT_GGUF_H
#define IRONMULE_FORMAT_GGUF_H

#include "base/error.h"
#include "base/file_map.h"

#include <stdbool.h>

#define IM__GGUF_MAX_DIMS 4
#define IM__GGUF_MAX_NAME 64 /* bytes of a tensor name, by the format; keys may have 65535 */
#define IM__GGUF_MAX_SHARDS 1000
#define IM__GGUF_MAX_KEYS (1u << 16)
#define IM__GGUF_MAX_TENSORS (1u << 16) /* of a whole set */
#define IM__GGUF_MAX_ITEMS (1u << 21)   /* of an array that a getter copies; the largest vocabularies have about 2^18 tokens */

typedef enum im__gguf_type {
    IM__GGUF_U8 = 0,
    IM__GGUF_I8 = 1,
    IM__GGUF_U16 = 2,
    IM__GGUF_I16 = 3,
    IM__GGUF_U32 = 4,
    IM__GGUF_I32 = 5,
    IM__GGUF_F32 = 6,
    IM__GGUF_BOOL = 7,
    IM__GGUF_STRING = 8,
    IM__GGUF_ARRAY = 9,
    IM__GGUF_U64 = 10,
    IM__GGUF_I64 = 11,
    IM__GGUF_F64 = 12
} im__gguf_type;

typedef struct im__gguf_string {
    const char *ptr; /* not terminated */
    size_t len;
} im__gguf_string;

/* One key and its value. For an array `type` is IM__GGUF_ARRAY, `item` the element type, `count` the length and `data` the first element in the mapping
 * (unaligned; strings are length-prefixed there). For a scalar, `data` points at it; for a string at its length. Arrays of arrays are refused. */
typedef struct im__gguf_kv {
    im__gguf_string key;
    im__gguf_type type, item;
    uint64_t count;
    const uint8_t *data;
} im__gguf_kv;

typedef struct im__gguf_tensor {
    im__gguf_string name;
    uint32_t dtype;                  /* im__dtype number as stored; known by name, not necessarily one that runs */
    uint32_t n_dims;                 /* 1 .. IM__GGUF_MAX_DIMS */
    uint64_t dim[IM__GGUF_MAX_DIMS]; /* dim[0] is the contiguous (inner) one; missing ones are 1 */
    uint32_t shard;
    const uint8_t *data; /* `bytes` bytes in the shard's mapping */
    size_t bytes;
} im__gguf_tensor;

typedef struct im__gguf {
    uint32_t version, alignment;
    size_t kv_count, tensor_count, shard_count;
    im__gguf_kv *kv;              /* of the first shard, in file order */
    im__gguf_tensor *tensor;      /* of all shards, in shard and file order */
    im__file_map *map;            /* [shard_count]; empty ones after im__gguf_parse */
    char **path;                  /* [shard_count] */
    struct im__gguf_index *index; /* name lookup */
} im__gguf;

/* Opens, maps and validates. On success *out is owned by the caller. Errors name the file and the fault: IM_ERR_IO, IM_ERR_FORMAT,
 * IM_ERR_UNSUPPORTED (version 1, big endian, an unknown tensor type: type number and tensor are named), IM_ERR_MEMORY, IM_ERR_ARGUMENT (a folder
 * with several models). All missing shards are named; siblings are looked for beside the given name, links are not resolved. On failure *out is NULL. */
im_status im__gguf_open(im__gguf **out, const char *path, im_error *err);
/* The same on bytes in memory that outlive the result (used by fuzzing): a single shard called `name` in messages. */
im_status im__gguf_parse(im__gguf **out, const void *data, size_t size, const char *name, im_error *err);
void im__gguf_close(im__gguf *g); /* NULL allowed */

const im__gguf_kv *im__gguf_find(const im__gguf *g, const char *key);             /* NULL when absent */
const im__gguf_tensor *im__gguf_find_tensor(const im__gguf *g, const char *name); /* NULL when absent */

/* Typed reads. Absent key: *out keeps its value and the call returns IM_OK (so callers set defaults first); `required` makes it
 * IM_ERR_FORMAT naming the key. A value of another kind or out of range is IM_ERR_FORMAT naming key, found and expected type. Integers of
 * all widths convert when the value fits; floats accept F32 and F64 (and integers). */
im_status im__gguf_get_u32(const im__gguf *g, const char *key, bool required, uint32_t *out, im_error *err);
im_status im__gguf_get_f32(const im__gguf *g, const char *key, bool required, float *out, im_error *err);
im_status im__gguf_get_bool(const im__gguf *g, const char *key, bool required, bool *out, im_error *err);
im_status im__gguf_get_string(const im__gguf *g, const char *key, bool required, im__gguf_string *out, im_error *err);
/* Array of strings: *out is a new array of *count entries pointing into the mapping (free with im__free). Absent: NULL, 0. */
im_status im__gguf_get_strings(const im__gguf *g, const char *key, im__gguf_string **out, size_t *count, im_error *err);
/* Arrays of numbers, copied (aligned) into a new array; a scalar counts as an array of one. A double beyond the float range becomes infinite,
 * an integer beyond 32 bits is refused. Absent: NULL, 0. More than IM__GGUF_MAX_ITEMS elements are refused, here and for strings. */
im_status im__gguf_get_f32s(const im__gguf *g, const char *key, float **out, size_t *count, im_error *err);
im_status im__gguf_get_i32s(const im__gguf *g, const char *key, int32_t **out, size_t *count, im_error *err);

#endif
