/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long fail_after;

static bool planned_failure(void)
{
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) <= 0) return false;
    return atomic_fetch_sub_explicit(&fail_after, 1, memory_order_relaxed) == 1;
}

void im__alloc_fail_after(long n) { atomic_store(&fail_after, n); }

bool im__mul(size_t a, size_t b, size_t *out)
{
    if (a != 0 && b > SIZE_MAX / a) return false;
    *out = a * b;
    return true;
}

bool im__add(size_t a, size_t b, size_t *out)
{
    if (b > SIZE_MAX - a) return false;
    *out = a + b;
    return true;
}

void *im__calloc(size_t count, size_t size)
{
    if (planned_failure()) return NULL;
    return count == 0 || size == 0 ? calloc(1, 1) : calloc(count, size);
}

void *im__realloc(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (!im__mul(count, size, &bytes) || planned_failure()) return NULL;
    return realloc(old, bytes == 0 ? 1 : bytes);
}

char *im__strdup(const char *s, size_t n)
{
    size_t bytes;
    char *copy = im__add(n, 1, &bytes) ? im__calloc(bytes, 1) : NULL;
    if (copy != NULL && n > 0) memcpy(copy, s, n);
    return copy;
}

void im__free(void *p) { free(p); }

/* From this size on memory comes straight from mmap: it is zero already and goes back to the system when freed. */
#define MAP_THRESHOLD ((size_t)1 << 20)
/* From this size on it is asked for in huge pages: they are faulted in at a fraction of the cost and need fewer entries of the address cache. */
#define HUGE_THRESHOLD ((size_t)8 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Begins at a boundary of huge pages; what was mapped around it goes back. */
static void *map_huge(size_t bytes)
{
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    char *all = bytes > SIZE_MAX / 2 ? NULL : map(rounded + HUGE_PAGE);
    if (all == NULL) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(all, before);
    munmap(all + before + rounded, HUGE_PAGE - before);
    madvise(all + before, rounded, MADV_HUGEPAGE);
    return all + before;
}

void *im__aligned_alloc(size_t bytes)
{
    if (planned_failure() || bytes > SIZE_MAX - 64) return NULL;
    if (bytes >= HUGE_THRESHOLD) return map_huge(bytes);
    if (bytes >= MAP_THRESHOLD) return map(bytes);
    size_t rounded = (bytes + 63) & ~(size_t)63;
    void *p = aligned_alloc(64, rounded == 0 ? 64 : rounded);
    if (p != NULL) memset(p, 0, rounded == 0 ? 64 : rounded);
    return p;
}

void im__aligned_free(void *p, size_t bytes)
{
    if (p == NULL) return;
    if (bytes >= MAP_THRESHOLD)
        munmap(p, bytes);
    else
        free(p);
}

static bool reserve(im__buf *b, size_t more)
{
    size_t need;
    if (b->failed) return false;
    if (im__add(b->len, more, &need) && im__add(need, 1, &need)) {
        if (need <= b->cap) return true;
        size_t cap = b->cap < 64 ? 64 : b->cap;
        while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
        char *grown = im__realloc(b->data, cap, 1);
        if (grown != NULL) {
            b->data = grown;
            b->cap = cap;
            return true;
        }
    }
    b->failed = true;
    return false;
}

void im__buf_append(im__buf *b, const void *data, size_t n)
{
    if (!reserve(b, n)) return;
    if (n > 0) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void im__buf_puts(im__buf *b, const char *s) { im__buf_append(b, s, strlen(s)); }

void im__buf_printf(im__buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0)
        b->failed = true;
    else if (reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void im__buf_free(im__buf *b)
{
    im__free(b->data);
    *b = (im__buf){0};
}
