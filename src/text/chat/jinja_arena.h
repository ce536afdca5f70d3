/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena with a budget: everything a template compiles to, or one render makes, lives in one and is freed at once.
 */
#ifndef IRONMULE_TEXT_JINJA_ARENA_H
#define IRONMULE_TEXT_JINJA_ARENA_H

#include "base/mem.h"

typedef struct im__jchunk im__jchunk;

typedef struct im__jarena {
    im__jchunk *chunks; /* newest first */
    char *free;         /* next free byte of the newest chunk */
    size_t left;        /* bytes behind it */
    size_t used;        /* bytes of all chunks */
    size_t budget;      /* `used` never passes it */
} im__jarena;

/* Zeroed memory of n bytes, aligned for any object; NULL when the budget or the memory is used up. */
void *im__jarena_alloc(im__jarena *a, size_t n);
void im__jarena_free(im__jarena *a);

#endif
