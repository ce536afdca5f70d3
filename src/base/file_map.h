/* SPDX-License-Identifier: Apache-2.0
 *
 * A file mapped read-only. A file that is cut by another process while mapped makes later reads fault (SIGBUS): the size is taken once, and
 * im__file_map_check says whether the file is still that long.
 */
#ifndef IRONMULE_BASE_FILE_MAP_H
#define IRONMULE_BASE_FILE_MAP_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct im__file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
    int fd;
} im__file_map;

/* Errors: IM_ERR_IO with the path and the system's reason (absent, a folder, no permission ...). */
im_status im__file_map_open(im__file_map *map, const char *path, im_error *err);
void im__file_map_close(im__file_map *map);

/* Tells the system that [offset, offset + bytes) will not be read again soon: its pages leave this process's resident memory. */
void im__file_map_release(const im__file_map *map, size_t offset, size_t bytes);

#endif
