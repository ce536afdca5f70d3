/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/encoder.h"
#include "text/tokenizer/json_build.h"

#include <string.h>

static bool same(im__bytes a, im__bytes b) { return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0; }

static bool push(im__json_build *b, const im__json_added *token)
{
    if (b->added_count == b->added_cap) {
        size_t cap = b->added_cap == 0 ? 64 : 2 * b->added_cap;
        im__json_added *grown = im__realloc(b->added, cap, sizeof *grown);
        if (grown == NULL) return false;
        b->added = grown;
        b->added_cap = cap;
    }
    b->added[b->added_count++] = *token;
    return true;
}

static im_status read_token(im__json_build *b, im__json v, im__json_added *out)
{
    im__json id, content, single_word, lstrip, rstrip, normalized, special;
    uint64_t n;
    const im__json_field field[] = {
        {"id", &id},         {"content", &content},       {"single_word", &single_word}, {"lstrip", &lstrip},
        {"rstrip", &rstrip}, {"normalized", &normalized}, {"special", &special},         {0},
    };
    IM__TRY(im__json_fields(b, v, "an added token", field));
    if (!im__json_u64(id, &n) || n >= b->capacity)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: an added token has the id %.*s, which cannot be", b->name,
                        (int)(id.len > 24 ? 24 : id.len), id.len == 0 ? "" : id.ptr);
    out->id = (int32_t)n;
    IM__TRY(im__json_bytes(b, content, "the content of an added token", &out->text));
    IM__TRY(im__json_flag(b, special, "special", false, &out->special));
    IM__TRY(im__json_flag(b, normalized, "normalized", !out->special, &out->normalized));
    IM__TRY(im__json_flag(b, single_word, "single_word", false, &out->single_word));
    IM__TRY(im__json_flag(b, lstrip, "lstrip", false, &out->lstrip));
    return im__json_flag(b, rstrip, "rstrip", false, &out->rstrip);
}

/* An added token that the vocabulary has too must have the same id there: its place then holds the same string. */
static im_status check_place(im__json_build *b, im__json_added *a)
{
    const im__bytes there = b->r->token[a->id];
    if (a->text.len == 0 || a->text.len > IM__ADDED_MAX)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the added token %ld is %zu bytes long; 1 to %d are possible", b->name,
                        (long)a->id, a->text.len, IM__ADDED_MAX);
    if (there.ptr == NULL) return IM_OK;
    if (!same(there, a->text)) return im__fail(b->err, IM_ERR_FORMAT, "%s: two tokens have the id %ld", b->name, (long)a->id);
    a->text = there;
    return IM_OK;
}

im_status im__json_read_added(im__json_build *b)
{
    im__json v;
    im__json_items items = im__json_items_of(b->added_tokens);
    if (!im__json_absent(b->added_tokens) && im__json_kind_of(b->added_tokens) != IM__JSON_ARRAY)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: added_tokens is %s, not a list", b->name, im__json_kind_name(b->added_tokens));
    while (im__json_next(&items, NULL, &v)) {
        im__json_added a;
        IM__TRY(read_token(b, v, &a));
        IM__TRY(check_place(b, &a));
        if (!push(b, &a)) return im__json_memory(b);
    }
    return IM_OK;
}

/* ---- the two lists ---- */

/* The text that is looked for in normalised text; kept at the end of *all, whose place is not yet final. */
static im_status normalised(im__json_build *b, const im__json_added *a, im__buf *all, im__buf *x, im__buf *y, im__bytes *out)
{
    im__bytes s = a->text;
    if (!im__edits_apply(b->r->normal, b->r->normal_count, &s, true, x, y)) return im__json_memory(b);
    if (s.len == 0 || s.len > IM__ADDED_MAX)
        return im__fail(b->err, IM_ERR_FORMAT, "%s: the added token %ld is %zu bytes long once it is normalised", b->name,
                        (long)a->id, s.len);
    *out = (im__bytes){NULL, s.len};
    if (same(s, a->text)) out->ptr = a->text.ptr;
    if (out->ptr == NULL) im__buf_append(all, s.ptr, s.len);
    return all->failed ? im__json_memory(b) : IM_OK;
}

static im__added_token entry_of(const im__json_added *a, im__bytes text)
{
    return (im__added_token){text, a->id, a->special, a->single_word, a->lstrip, a->rstrip};
}

/* Special tokens that normalising leaves as they are count as not normalised: they are found in the text as it came, where it is known which part of it a
 * user typed. */
static im_status sort_out(im__json_build *b, im__added_token *early, size_t *earlies, im__added_token *late, size_t *lates,
                          im__buf *all)
{
    im__buf x = {0}, y = {0};
    im_status status = IM_OK;
    for (size_t i = 0; i < b->added_count && status == IM_OK; i++) {
        const im__json_added *a = &b->added[i];
        im__bytes text = a->text;
        bool normal = a->normalized && b->r->normal_count > 0;
        if (normal) status = normalised(b, a, all, &x, &y, &text);
        if (normal && !(a->special && text.ptr == a->text.ptr))
            late[(*lates)++] = entry_of(a, text);
        else
            early[(*earlies)++] = entry_of(a, a->text);
    }
    im__buf_free(&x);
    im__buf_free(&y);
    return status;
}

im_status im__json_index_added(im__json_build *b)
{
    size_t earlies = 0, lates = 0, at = 0;
    im__buf all = {0};
    im__added_token *early = im__calloc(b->added_count, sizeof *early), *late = im__calloc(b->added_count, sizeof *late);
    b->t->added.entry = early;
    b->r->late.entry = late;
    if (early == NULL || late == NULL) return im__json_memory(b);
    im_status status = sort_out(b, early, &earlies, late, &lates, &all);
    b->r->late_text = all.data;
    IM__TRY(status);
    for (size_t i = 0; i < lates; i++) {
        if (late[i].text.ptr != NULL) continue;
        late[i].text.ptr = all.data + at;
        at += late[i].text.len;
    }
    im__added_tokens_init(&b->t->added, early, earlies);
    im__added_tokens_init(&b->r->late, late, lates);
    return IM_OK;
}

im_status im__json_add(im__json_build *b, const im__json_added *token)
{
    im__json_added a = *token;
    IM__TRY(check_place(b, &a));
    return push(b, &a) ? IM_OK : im__json_memory(b);
}
