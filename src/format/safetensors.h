/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: 8 bytes with the length of a header, the header (JSON), the tensors' bytes. Bytes in, validated directory out: after im__safetensors_open
 * has returned IM_OK every tensor lies inside its file and has as many bytes as its type and shape need; tensors neither overlap nor leave a hole, names are
 * unique, not empty and without control characters. Data point into the mapping and live as long as the im__safetensors.
 *
 * Source of the format: the README of the safetensors project; what its reference reader refuses is refused here. Limits that it leaves open are ours.
 * A closed or failed open leaves nothing behind. Never changed after open: any number of threads may read it.
 */
#ifndef IRONMULE_FORMAT_SAFETENSORS_H
#define IRONMULE_FORMAT_SAFETENSORS_H

#include "base/error.h"
#include "base/file_map.h"

#include <stdint.h>

#define IM__ST_MAX_DIMS 8
#define IM__ST_MAX_NAME 256
#define IM__ST_MAX_HEADER (100u << 20) /* by the format */
#define IM__ST_MAX_TENSORS (1u << 18)  /* of a file, and of a folder */

typedef enum im__st_type {
    IM__ST_BOOL,
    IM__ST_U8,
    IM__ST_I8,
    IM__ST_F8_E5M2,
    IM__ST_F8_E4M3,
    IM__ST_F8_E8M0,
    IM__ST_U16,
    IM__ST_I16,
    IM__ST_F16,
    IM__ST_BF16,
    IM__ST_U32,
    IM__ST_I32,
    IM__ST_F32,
    IM__ST_U64,
    IM__ST_I64,
    IM__ST_F64,
    IM__ST_C64,
    IM__ST_TYPES
} im__st_type;

typedef struct im__st_tensor {
    const char *name; /* owned by the directory */
    im__st_type type;
    uint32_t n_dims;               /* 0 .. IM__ST_MAX_DIMS */
    uint64_t dim[IM__ST_MAX_DIMS]; /* outermost first; those that are not there are 1 */
    const uint8_t *data;           /* any alignment */
    size_t bytes;
} im__st_tensor;

typedef struct im__safetensors {
    char *path;
    size_t size;           /* of the file */
    im__st_tensor *tensor; /* [tensor_count], sorted by name */
    size_t tensor_count;
    char *names;
    im__file_map map; /* empty after im__safetensors_parse */
} im__safetensors;

/* Opens, maps and validates. On success *out is the caller's. Errors name the file and the tensor: IM_ERR_IO, IM_ERR_FORMAT, IM_ERR_UNSUPPORTED (a type of
 * elements that is not known), IM_ERR_MEMORY. On failure *out is NULL. */
im_status im__safetensors_open(im__safetensors **out, const char *path, im_error *err);
/* The same on bytes in memory that outlive the result, called `name` in messages. */
im_status im__safetensors_parse(im__safetensors **out, const void *data, size_t size, const char *name, im_error *err);
void im__safetensors_close(im__safetensors *s); /* NULL allowed */

const im__st_tensor *im__safetensors_find(const im__safetensors *s, const char *name); /* NULL when absent */

const char *im__st_type_name(im__st_type type); /* "BF16" */
size_t im__st_type_bytes(im__st_type type);     /* of an element */

#endif
