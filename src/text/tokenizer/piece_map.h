/* SPDX-License-Identifier: Apache-2.0
 *
 * The two look-up tables of a vocabulary: from a piece's bytes to its id, and from a pair of ids to the merge of the two. Both are flat
 * (open addressing, no allocation per entry), are filled once and then only read.
 */
#ifndef IRONMULE_TEXT_PIECE_MAP_H
#define IRONMULE_TEXT_PIECE_MAP_H

#include "text/tokenizer/tokenizer.h"

typedef struct im__piece_slot {
    uint32_t hash;
    int32_t id; /* id + 1; 0 is an empty slot */
} im__piece_slot;

typedef struct im__piece_map {
    im__piece_slot *slot;
    uint32_t mask;
    const im__bytes *token; /* borrowed: the pieces by id */
    size_t longest;         /* bytes of the longest piece in the map */
} im__piece_map;

/* Room for `count` pieces of `token`; false on exhaustion. */
bool im__piece_map_init(im__piece_map *m, const im__bytes *token, size_t count);
void im__piece_map_free(im__piece_map *m);
/* Adds token[id]. Of several ids with the same bytes the first added stays: its id is returned, else `id`. */
int32_t im__piece_map_add(im__piece_map *m, int32_t id);
/* Id of the piece, -1 when absent. */
int32_t im__piece_map_find(const im__piece_map *m, const char *piece, size_t n);

typedef struct im__pair_slot {
    int32_t left, right; /* left is -1 in an empty slot */
    uint32_t rank;
    int32_t id;
} im__pair_slot;

typedef struct im__pair_map {
    im__pair_slot *slot;
    uint32_t mask;
} im__pair_map;

bool im__pair_map_init(im__pair_map *m, size_t count);
void im__pair_map_free(im__pair_map *m);
/* Adds a merge; of several for one pair the last stays, as in the reference. */
void im__pair_map_add(im__pair_map *m, im__pair_slot pair);
/* The merge of the two ids, NULL when they do not merge. */
const im__pair_slot *im__pair_map_find(const im__pair_map *m, int32_t left, int32_t right);

#endif
