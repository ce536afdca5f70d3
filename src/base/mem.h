/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked sizes, allocation, and a growing byte buffer. All allocation of the library goes through here, so that tests can make the
 * n-th one fail.
 */
#ifndef IRONMULE_BASE_MEM_H
#define IRONMULE_BASE_MEM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b or a + b; false (and *out untouched) on overflow. */
bool im__mul(size_t a, size_t b, size_t *out);
bool im__add(size_t a, size_t b, size_t *out);

/* Zeroed memory for count elements of size bytes; NULL on overflow or exhaustion. count * size == 0 gives a unique pointer. */
void *im__calloc(size_t count, size_t size);
/* As realloc(3) with a checked product; on failure NULL, and `old` stays valid and owned by the caller. */
void *im__realloc(void *old, size_t count, size_t size);
char *im__strdup(const char *s, size_t n); /* n bytes copied and terminated; NULL on exhaustion */
void im__free(void *p);                    /* NULL allowed */

/* Zeroed, 64-byte aligned, straight from the system (mmap) when large: pages that are never touched cost nothing. From 8 MiB on in huge pages where the
 * system gives them. Free with im__aligned_free and the same size. */
void *im__aligned_alloc(size_t bytes);
void im__aligned_free(void *p, size_t bytes);

/* Fault injection for tests: the n-th allocation from now on (1 = the next) fails, once; 0 switches it off. */
void im__alloc_fail_after(long n);

/* A growing string of bytes, always followed by a zero that is not counted. Start with {0}. After a failed append `failed` is set
 * and further appends do nothing, so that a caller may check once at the end. */
typedef struct im__buf {
    char *data;
    size_t len, cap;
    bool failed;
} im__buf;

void im__buf_append(im__buf *b, const void *data, size_t n);
void im__buf_puts(im__buf *b, const char *s);
void im__buf_printf(im__buf *b, const char *format, ...) IM__PRINTF(2, 3);
void im__buf_free(im__buf *b);

#endif
