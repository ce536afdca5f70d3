/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in which a wrong step shows: every block lies between two forbidden pages, flush with one of them, and the rest of its own
 * pages is filled with canaries. Inputs are made read-only while functions run, outputs are poisoned before.
 */
#ifndef CK_MEMORY_H
#define CK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ck_role { CK_INPUT, CK_OUTPUT, CK_INOUT, CK_SCRATCH } ck_role;
typedef enum ck_kind { CK_F32, CK_F16, CK_I8, CK_I16, CK_I32 } ck_kind;

typedef struct ck_block {
    char name[12];
    ck_role role;
    ck_kind kind;
    size_t row;                   /* elements from one row to the next, for reports */
    unsigned char *map, *data;    /* map begins with the first forbidden page */
    size_t body, bytes;           /* body: bytes between the forbidden pages */
    unsigned char *before, *want; /* contents before a run, and what the reference left; outputs only */
} ck_block;

#define CK_BLOCKS 24

typedef struct ck_arena {
    bool flush_begin; /* blocks lie at the start of their pages, else at the end */
    size_t count;
    ck_block block[CK_BLOCKS];
} ck_arena;

/* A block of `bytes` whose address is a multiple of `align`; never NULL (the harness ends when memory does). */
ck_block *ck_block_new(ck_arena *a, const char *name, ck_role role, ck_kind kind, size_t row, size_t bytes, size_t align);
void ck_arena_clear(ck_arena *a);

void ck_arena_seal(ck_arena *a);    /* inputs read-only; contents of inouts are remembered, outputs get their poison */
void ck_arena_restore(ck_arena *a); /* outputs and inouts as before the run, scratch poisoned */
void ck_arena_keep(ck_arena *a);    /* outputs now are what is wanted */

/* NULL when every canary is alive, else the name of the block. */
const char *ck_arena_canaries(const ck_arena *a);

/* Says where `address` lies in relation to the blocks: "8 bytes past the end of y". */
void ck_arena_locate(const ck_arena *a, const void *address, char *text, size_t size);

#define CK_POISON 0x7fa5a5a5u /* a signalling NaN that no arithmetic yields */

/* First difference between block's data and what is wanted: false and a description, or true. Two NaN are equal unless one is the poison. */
bool ck_block_equal(const ck_block *b, char *text, size_t size);

/* Mixes what is wanted into a digest that does not depend on the machine (NaN are all the same). */
uint64_t ck_block_digest(const ck_block *b, uint64_t digest);

#endif
