/* SPDX-License-Identifier: Apache-2.0
 *
 * A file mapped read-only. The size is taken once: if another process cuts the file while it is mapped, later reads behind its new end
 * fault (SIGBUS), as with every mapping.
 */
#ifndef IRONMULE_BASE_FILE_MAP_H
#define IRONMULE_BASE_FILE_MAP_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct im__file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
} im__file_map;

/* Only plain files (or links to one) are taken; the file itself is closed again, so a mapping costs no descriptor. On success the
 * caller owns *map. Errors: IM_ERR_IO with the path and the system's reason (absent, a folder, no permission ...). */
im_status im__file_map_open(im__file_map *map, const char *path, im_error *err);
void im__file_map_close(im__file_map *map); /* an all-zero map is allowed and left so */

/* Tells the system that the bytes at `address`, which lie inside a file map, will not be read again soon: whole pages of them leave this process's resident
 * memory. Reading them later is allowed and brings them back. (Memory that is no file map would lose its contents.) */
void im__file_release(const void *address, size_t bytes);

#endif
