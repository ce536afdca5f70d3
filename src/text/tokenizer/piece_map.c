/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/piece_map.h"

#include <string.h>

/* Smallest power of two that leaves a table of `count` entries at most two thirds full. */
static bool table_size(size_t count, size_t *out)
{
    size_t size = 16;
    if (count > (size_t)1 << 30) return false;
    while (size - size / 3 < count) size *= 2;
    *out = size;
    return true;
}

static uint64_t load(const char *s, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, s, n);
    return v;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    return a ^ a >> 29;
}

static uint32_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = n * 0xd6e8feb86659fd93u;
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8) h = mix(h, load(s + i, 8));
        h = mix(h, load(s + n - 8, 8));
    } else if (n >= 4) {
        h = mix(h, load(s, 4) << 32 | load(s + n - 4, 4));
    } else if (n > 0) {
        h = mix(h, (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[n / 2] << 8 | (unsigned char)s[n - 1]);
    }
    return (uint32_t)(mix(h, h >> 32) >> 32);
}

bool im__piece_map_init(im__piece_map *m, const im__bytes *token, size_t count)
{
    size_t size;
    *m = (im__piece_map){0};
    if (!table_size(count, &size)) return false;
    m->slot = im__calloc(size, sizeof *m->slot);
    m->mask = (uint32_t)(size - 1);
    m->token = token;
    return m->slot != NULL;
}

void im__piece_map_free(im__piece_map *m)
{
    im__free(m->slot);
    *m = (im__piece_map){0};
}

/* The slot that holds the piece, or the empty one where it would be. */
static im__piece_slot *piece_slot(const im__piece_map *m, const char *piece, size_t n, uint32_t hash)
{
    uint32_t i = hash & m->mask;
    for (;; i = (i + 1) & m->mask) {
        im__piece_slot *s = &m->slot[i];
        if (s->id == 0) return s;
        if (s->hash != hash) continue;
        const im__bytes *t = &m->token[s->id - 1];
        if (t->len == n && memcmp(t->ptr, piece, n) == 0) return s;
    }
}

int32_t im__piece_map_add(im__piece_map *m, int32_t id)
{
    const im__bytes *t = &m->token[id];
    uint32_t hash = hash_bytes(t->ptr, t->len);
    im__piece_slot *s = piece_slot(m, t->ptr, t->len, hash);
    if (s->id != 0) return s->id - 1;
    *s = (im__piece_slot){hash, id + 1};
    if (t->len > m->longest) m->longest = t->len;
    return id;
}

int32_t im__piece_map_find(const im__piece_map *m, const char *piece, size_t n)
{
    if (n == 0 || n > m->longest) return -1;
    return piece_slot(m, piece, n, hash_bytes(piece, n))->id - 1;
}

bool im__pair_map_init(im__pair_map *m, size_t count)
{
    size_t size;
    *m = (im__pair_map){0};
    if (!table_size(count, &size)) return false;
    m->slot = im__calloc(size, sizeof *m->slot);
    m->mask = (uint32_t)(size - 1);
    if (m->slot == NULL) return false;
    memset(m->slot, 0xff, size * sizeof *m->slot);
    return true;
}

void im__pair_map_free(im__pair_map *m)
{
    im__free(m->slot);
    *m = (im__pair_map){0};
}

static im__pair_slot *pair_slot(const im__pair_map *m, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)(mix(key, key >> 31) >> 32) & m->mask;
    while (m->slot[i].left != -1 && (m->slot[i].left != left || m->slot[i].right != right)) i = (i + 1) & m->mask;
    return &m->slot[i];
}

void im__pair_map_add(im__pair_map *m, im__pair_slot pair) { *pair_slot(m, pair.left, pair.right) = pair; }

const im__pair_slot *im__pair_map_find(const im__pair_map *m, int32_t left, int32_t right)
{
    const im__pair_slot *s = pair_slot(m, left, right);
    return s->left == -1 ? NULL : s;
}
