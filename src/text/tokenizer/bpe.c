/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/bpe.h"

#include <math.h>
#include <string.h>

void im__bpe_free(im__bpe *b)
{
    im__free(b->symbol);
    im__free(b->heap);
    *b = (im__bpe){0};
}

bool im__bpe_reserve(im__bpe *b, size_t count)
{
    b->count = 0;
    if (count <= b->cap) return true;
    size_t cap = count < 64 ? 64 : count + count / 2;
    im__bpe_symbol *grown = im__realloc(b->symbol, cap, sizeof *grown);
    if (grown == NULL) return false;
    b->symbol = grown;
    b->cap = cap;
    return true;
}

void im__bpe_add(im__bpe *b, uint32_t start, uint32_t len, uint32_t chars, int32_t id)
{
    int32_t at = (int32_t)b->count++;
    b->symbol[at] = (im__bpe_symbol){start, len, chars, id, at - 1, -1};
    if (at > 0) b->symbol[at - 1].next = at;
}

/* Higher scores come first; not a number comes last. */
static uint32_t score_order(float score)
{
    uint32_t bits;
    if (isnan(score)) return UINT32_MAX;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~bits;
}

static uint64_t short_of_most(uint32_t chars) { return chars > 0xffff ? 0 : 0xffff - chars; }

/* The order of a merge list that is made from scores as the reference makes it: by score, then the longer left part, then the
 * longer right part. */
static bool pair_by_score(const im__tokenizer *t, const char *text, const im__bpe_symbol *l, const im__bpe_symbol *r,
                          im__bpe_pair *pair)
{
    if (l->chars == 0 || r->chars == 0) return false;
    int32_t id = im__piece_map_find(&t->pieces, text + l->start, (size_t)l->len + r->len);
    if (id < 0 || !im__token_merges(t, id)) return false;
    pair->id = id;
    pair->order = (uint64_t)score_order(t->source.score[id]) << 32 | short_of_most(l->chars) << 16 | short_of_most(r->chars);
    return true;
}

static bool make_pair(const im__tokenizer *t, const char *text, const im__bpe_symbol *l, const im__bpe_symbol *r,
                      im__bpe_pair *pair)
{
    pair->len = l->len + r->len;
    if (!t->by_rank) return pair_by_score(t, text, l, r, pair);
    const im__pair_slot *merge = im__pair_map_find(&t->pairs, l->id, r->id);
    if (merge == NULL) return false;
    pair->id = merge->id;
    pair->order = merge->rank;
    return true;
}

static bool better(const im__bpe_pair *a, const im__bpe_pair *b)
{
    if (a->order != b->order) return a->order < b->order;
    return a->id != b->id ? a->id < b->id : a->pos < b->pos;
}

static void sift_down(im__bpe_pair *heap, size_t n, size_t at)
{
    im__bpe_pair moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && better(&heap[child + 1], &heap[child])) child++;
        if (!better(&heap[child], &moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void sift_up(im__bpe_pair *heap, size_t at)
{
    im__bpe_pair moved = heap[at];
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!better(&moved, &heap[parent])) break;
        heap[at] = heap[parent];
    }
    heap[at] = moved;
}

static im__bpe_pair pop(im__bpe *b)
{
    im__bpe_pair top = b->heap[0];
    b->heap[0] = b->heap[--b->heap_len];
    if (b->heap_len > 1) sift_down(b->heap, b->heap_len, 0);
    return top;
}

/* Puts the pair of symbol `left` and the one behind it at the end of the heap array, when they merge. */
static bool append_pair(im__bpe *b, const im__tokenizer *t, const char *text, int32_t left)
{
    if (left < 0 || b->symbol[left].next < 0) return false;
    const im__bpe_symbol *l = &b->symbol[left], *r = &b->symbol[l->next];
    im__bpe_pair *pair = &b->heap[b->heap_len];
    pair->pos = (uint32_t)left;
    if (!make_pair(t, text, l, r, pair)) return false;
    b->heap_len++;
    return true;
}

static void push(im__bpe *b, const im__tokenizer *t, const char *text, int32_t left)
{
    if (append_pair(b, t, text, left)) sift_up(b->heap, b->heap_len - 1);
}

static void merge_right(im__bpe *b, int32_t left, int32_t id)
{
    im__bpe_symbol *l = &b->symbol[left], *r = &b->symbol[l->next];
    l->len += r->len;
    l->chars += r->chars;
    l->id = id;
    l->next = r->next;
    r->len = 0;
    if (l->next >= 0) b->symbol[l->next].prev = left;
}

/* Room for the pairs at the beginning and two more for each merge, one of which replaces the merged pair. */
static bool reserve_heap(im__bpe *b, size_t symbols)
{
    size_t need = 2 * symbols;
    b->heap_len = 0;
    if (need <= b->heap_cap) return true;
    size_t cap = need < 128 ? 128 : need + need / 2;
    im__bpe_pair *grown = im__realloc(b->heap, cap, sizeof *grown);
    if (grown == NULL) return false;
    b->heap = grown;
    b->heap_cap = cap;
    return true;
}

bool im__bpe_merge(im__bpe *b, const im__tokenizer *t, const char *text)
{
    if (b->count < 2) return true;
    if (!reserve_heap(b, b->count)) return false;
    for (size_t i = 0; i + 1 < b->count; i++) append_pair(b, t, text, (int32_t)i);
    for (size_t i = b->heap_len / 2; i-- > 0;) sift_down(b->heap, b->heap_len, i);
    while (b->heap_len > 0) {
        im__bpe_pair best = pop(b);
        const im__bpe_symbol *l = &b->symbol[best.pos];
        if (l->len == 0 || l->next < 0 || l->len + b->symbol[l->next].len != best.len) continue; /* out of date */
        merge_right(b, (int32_t)best.pos, best.id);
        push(b, t, text, l->prev);
        push(b, t, text, (int32_t)best.pos);
    }
    return true;
}
