/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_arena.h"

#include <stdalign.h>
#include <string.h>

struct im__jchunk {
    im__jchunk *next;
    alignas(max_align_t) char bytes[];
};

#define FIRST_CHUNK ((size_t)8 << 10)
#define LARGEST_CHUNK ((size_t)1 << 20)

static bool add_chunk(im__jarena *a, size_t need)
{
    size_t size = a->used < FIRST_CHUNK ? FIRST_CHUNK : a->used;
    if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
    if (size < need) size = need;
    if (size > a->budget - a->used) size = need;
    if (size > a->budget - a->used) return false;
    im__jchunk *c = im__calloc(1, sizeof *c + size);
    if (c == NULL) return false;
    c->next = a->chunks;
    a->chunks = c;
    a->free = c->bytes;
    a->left = size;
    a->used += size;
    return true;
}

void *im__jarena_alloc(im__jarena *a, size_t n)
{
    size_t const unit = alignof(max_align_t);
    if (n > a->budget) return NULL;
    size_t rounded = (n + unit - 1) / unit * unit;
    if (rounded == 0) rounded = unit;
    if (rounded > a->left && !add_chunk(a, rounded)) return NULL;
    void *p = a->free;
    a->free += rounded;
    a->left -= rounded;
    return p;
}

void im__jarena_free(im__jarena *a)
{
    for (im__jchunk *c = a->chunks; c != NULL;) {
        im__jchunk *next = c->next;
        im__free(c);
        c = next;
    }
    *a = (im__jarena){.budget = a->budget};
}
