/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/added_tokens.h"

#include "text/tokenizer/char_class.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *x, const void *y)
{
    const im__added_token *a = x, *b = y;
    size_t shared = a->text.len < b->text.len ? a->text.len : b->text.len;
    int order = memcmp(a->text.ptr, b->text.ptr, shared);
    if (order != 0) return order;
    if (a->text.len != b->text.len) return a->text.len < b->text.len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool same_text(const im__added_token *a, const im__added_token *b)
{
    return a->text.len == b->text.len && memcmp(a->text.ptr, b->text.ptr, a->text.len) == 0;
}

void im__added_tokens_init(im__added_tokens *a, im__added_token *entry, size_t count)
{
    size_t kept = 0;
    *a = (im__added_tokens){.entry = entry};
    if (count > 0) qsort(entry, count, sizeof *entry, compare);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || !same_text(&entry[kept - 1], &entry[i])) entry[kept++] = entry[i];
    }
    a->count = kept;
    size_t at = 0;
    for (unsigned b = 0; b < 256; b++) {
        a->first[b] = (uint32_t)at;
        while (at < kept && (unsigned char)entry[at].text.ptr[0] == b) at++;
    }
    a->first[256] = (uint32_t)at;
}

void im__added_tokens_free(im__added_tokens *a)
{
    im__free(a->entry);
    *a = (im__added_tokens){0};
}

/* First entry of [lo, hi) whose byte at `depth` is at least `byte`; all of them share the bytes before it and are longer than depth. */
static size_t lower_bound(const im__added_tokens *a, size_t lo, size_t hi, size_t depth, unsigned byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)a->entry[mid].text.ptr[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool im__spans_touch(const im__encode_options *o, size_t begin, size_t end, size_t *span)
{
    while (*span < o->plain_count && o->plain[*span].end <= begin) ++*span;
    for (size_t i = *span; i < o->plain_count && o->plain[i].begin < end; i++) {
        if (o->plain[i].end > begin && o->plain[i].begin < o->plain[i].end) return true;
    }
    return false;
}

/* The longest entry that text[at..n) begins with and that is allowed there; NULL when there is none. */
static const im__added_token *longest_at(const im__added_tokens *a, const char *text, size_t n, size_t at,
                                         const im__encode_options *options, size_t *span)
{
    const im__added_token *best = NULL;
    unsigned byte = (unsigned char)text[at];
    size_t lo = a->first[byte], hi = a->first[byte + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        const im__added_token *e = &a->entry[lo];
        if (e->text.len == depth) {
            if (!e->control || (options->parse_special && !im__spans_touch(options, at, at + depth, span))) best = e;
            lo++;
        }
        if (at + depth == n) break;
        byte = (unsigned char)text[at + depth];
        lo = lower_bound(a, lo, hi, depth, byte);
        hi = lower_bound(a, lo, hi, depth, byte + 1);
    }
    return best;
}

static bool touches_word(const char *text, size_t n, size_t begin, size_t end)
{
    im__char before = im__char_before(text, begin), behind = im__char_at(text + end, n - end);
    return im__char_is_word(&before) || im__char_is_word(&behind);
}

/* The end of the white space at `at`; a stretch that is known is not walked again, or a row of such tokens would take time without bound. */
static size_t white_end(const char *text, size_t n, size_t at, size_t known)
{
    im__char c;
    if (at < known) at = known;
    while (at < n && (c = im__char_at(text + at, n - at)).cls & IM__CC_SPACE) at += c.bytes;
    return at;
}

static im__added_match match_of(const im__added_token *e, const char *text, size_t n, size_t at, const im__added_match *last)
{
    im__added_match m = {at, at + e->text.len, at + e->text.len, last->white, e->id};
    im__char c;
    while (e->lstrip && m.begin > last->end && (c = im__char_before(text, m.begin)).cls & IM__CC_SPACE) m.begin -= c.bytes;
    if (e->lstrip && m.begin < last->end) m.begin = last->end;
    if (e->rstrip) m.end = m.white = white_end(text, n, m.end, m.white);
    return m;
}

im__added_match im__added_tokens_next(const im__added_tokens *a, const char *text, size_t n, const im__added_match *last,
                                      const im__encode_options *options, size_t *span)
{
    for (size_t at = last->resume, len; at < n; at += len) {
        unsigned byte = (unsigned char)text[at];
        len = 1;
        if (a->first[byte] == a->first[byte + 1]) continue;
        const im__added_token *e = longest_at(a, text, n, at, options, span);
        if (e == NULL) continue;
        if (!e->single_word || !touches_word(text, n, at, at + e->text.len)) return match_of(e, text, n, at, last);
        len = e->text.len; /* the reference goes on behind it */
    }
    return (im__added_match){n, n, n, n, -1};
}
