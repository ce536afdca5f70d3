/* SPDX-License-Identifier: Apache-2.0
 *
 * The program with an allocator that fails when it is told to: linked with --wrap=malloc, calloc, realloc and strdup. It is told through a file of two 64-bit numbers,
 * mapped, that IM_STARVE names: how many allocations succeed before one fails (negative: all do), and how many have failed.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *old, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *old, size_t n);
char *__wrap_strdup(const char *s);

typedef struct orders {
    atomic_llong left, failed;
} orders;

static orders *told;

__attribute__((constructor)) static void listen_to_orders(void)
{
    const char *path = getenv("IM_STARVE");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) told = at;
}

static bool fails(void)
{
    if (told == NULL || atomic_load(&told->left) < 0 || atomic_fetch_sub(&told->left, 1) != 0) return false;
    atomic_fetch_add(&told->failed, 1);
    return true;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t count, size_t n) { return fails() ? NULL : __real_calloc(count, n); }
void *__wrap_realloc(void *old, size_t n) { return fails() ? NULL : __real_realloc(old, n); }

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = __wrap_malloc(n);
    return copy == NULL ? NULL : memcpy(copy, s, n);
}
