/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static im_status map_descriptor(im__file_map *map, int fd, const char *path, im_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return im__fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return im__fail(err, IM_ERR_IO, "%s: is a folder, not a file", path);
    if (!S_ISREG(st.st_mode)) return im__fail(err, IM_ERR_IO, "%s: is not a plain file", path);
    if ((uintmax_t)st.st_size > SIZE_MAX) return im__fail(err, IM_ERR_IO, "%s: too large for this machine's address space", path);
    *map = (im__file_map){0};
    if (st.st_size == 0) return IM_OK;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return im__fail(err, IM_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    map->data = data;
    map->size = (size_t)st.st_size;
    return IM_OK;
}

im_status im__file_map_open(im__file_map *map, const char *path, im_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe without a writer must not block us */
    if (fd < 0) return im__fail(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    im_status status = map_descriptor(map, fd, path, err);
    close(fd);
    return status;
}

void im__file_map_close(im__file_map *map)
{
    if (map->data != NULL) munmap((void *)map->data, map->size);
    *map = (im__file_map){0};
}

void im__file_release(const void *address, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)address;
    uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}
