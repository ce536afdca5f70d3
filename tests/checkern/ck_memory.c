/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CANARY 0xc5
#define BAND 64

static size_t page_size(void)
{
    static size_t size;
    if (size == 0) size = (size_t)sysconf(_SC_PAGESIZE);
    return size;
}

static void *need(void *p)
{
    if (p == NULL || p == MAP_FAILED) {
        fputs("checkern: out of memory\n", stderr);
        _exit(3);
    }
    return p;
}

ck_block *ck_block_new(ck_arena *a, const char *name, ck_role role, ck_kind kind, size_t row, size_t bytes, size_t align)
{
    if (a->count == CK_BLOCKS) need(NULL);
    ck_block *b = &a->block[a->count++];
    size_t page = page_size();
    memset(b, 0, sizeof *b);
    snprintf(b->name, sizeof b->name, "%s", name);
    b->role = role, b->kind = kind, b->row = row, b->bytes = bytes;
    b->body = (bytes + BAND + align + page - 1) / page * page;
    b->map = need(mmap(NULL, b->body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    unsigned char *body = b->map + page;
    if (mprotect(body, b->body, PROT_READ | PROT_WRITE) != 0) need(NULL);
    memset(body, CANARY, b->body);
    b->data = a->flush_begin ? body : body + (b->body - bytes) / align * align;
    return b;
}

void ck_arena_clear(ck_arena *a)
{
    for (size_t i = 0; i < a->count; i++) {
        munmap(a->block[i].map, a->block[i].body + 2 * page_size());
        free(a->block[i].before);
        free(a->block[i].want);
    }
    a->count = 0;
}

static bool compared(const ck_block *b) { return b->role == CK_OUTPUT || b->role == CK_INOUT; }

static void poison(unsigned char *data, size_t bytes)
{
    uint32_t word = CK_POISON;
    size_t i = 0;
    for (; i + 4 <= bytes; i += 4) memcpy(data + i, &word, 4);
    memset(data + i, 0xa5, bytes - i);
}

void ck_arena_seal(ck_arena *a)
{
    for (size_t i = 0; i < a->count; i++) {
        ck_block *b = &a->block[i];
        if (b->role == CK_INPUT) mprotect(b->map + page_size(), b->body, PROT_READ);
        if (!compared(b)) continue;
        if (b->role == CK_OUTPUT) poison(b->data, b->bytes);
        b->before = need(malloc(b->bytes));
        b->want = need(malloc(b->bytes));
        memcpy(b->before, b->data, b->bytes);
    }
}

void ck_arena_restore(ck_arena *a)
{
    for (size_t i = 0; i < a->count; i++) {
        ck_block *b = &a->block[i];
        if (compared(b)) memcpy(b->data, b->before, b->bytes);
        if (b->role == CK_SCRATCH) poison(b->data, b->bytes);
    }
}

void ck_arena_keep(ck_arena *a)
{
    for (size_t i = 0; i < a->count; i++)
        if (compared(&a->block[i])) memcpy(a->block[i].want, a->block[i].data, a->block[i].bytes);
}

static bool canaries_alive(const unsigned char *from, const unsigned char *to)
{
    while (from < to)
        if (*from++ != CANARY) return false;
    return true;
}

const char *ck_arena_canaries(const ck_arena *a)
{
    for (size_t i = 0; i < a->count; i++) {
        const ck_block *b = &a->block[i];
        const unsigned char *body = b->map + page_size();
        if (!canaries_alive(body, b->data) || !canaries_alive(b->data + b->bytes, body + b->body)) return b->name;
    }
    return NULL;
}

void ck_arena_locate(const ck_arena *a, const void *address, char *text, size_t size)
{
    const unsigned char *p = address;
    for (size_t i = 0; i < a->count; i++) {
        const ck_block *b = &a->block[i];
        if (p < b->map || p >= b->map + b->body + 2 * page_size()) continue;
        if (p >= b->data + b->bytes)
            snprintf(text, size, "%zu bytes past the end of %s", (size_t)(p - b->data) - b->bytes, b->name);
        else if (p < b->data)
            snprintf(text, size, "%zu bytes before %s", (size_t)(b->data - p), b->name);
        else
            snprintf(text, size, "byte %zu of %s%s", (size_t)(p - b->data), b->name, b->role == CK_INPUT ? ", an input" : "");
        return;
    }
    snprintf(text, size, "address %p, in none of the blocks", address);
}
