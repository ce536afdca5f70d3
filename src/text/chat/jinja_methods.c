/* SPDX-License-Identifier: Apache-2.0
 * Methods of strings, lists, dicts and the loop variable. */
#include "text/chat/jinja_case.h"
#include "text/chat/jinja_eval.h"
#include "text/chat/jinja_format.h"

#include <utf8proc.h>

#define STR(c) ((c)->self->as.str)

static bool give_int(im__jvalue *out, int64_t i)
{
    *out = im__jint(i);
    return true;
}

static bool give_bool(im__jvalue *out, bool b)
{
    *out = im__jbool(b);
    return true;
}

static bool need_str(const im__jcall *c, size_t i, const im__jstr **out)
{
    if (!im__jarg_str(c, i, out)) return false;
    return *out != NULL || im__jfail(c->run, "argument %zu must be a string, not %s", i + 1, im__jtype_name(&c->arg[i]));
}

/* ---- strip, case ---- */

static bool strip(const im__jcall *c, bool left, bool right, im__jvalue *out)
{
    const im__jstr *chars;
    size_t from, to;
    if (!im__jarg_str(c, 0, &chars)) return false;
    if (!im__jwork(c->run, STR(c)->n / 16 * (chars != NULL ? 1 + chars->n / 16 : 1))) return false;
    im__jstr_strip(STR(c), chars, left, right, &from, &to);
    return im__jstr_sub(c->run, STR(c), from, to, out);
}

static bool str_strip(const im__jcall *c, im__jvalue *out) { return strip(c, true, true, out); }
static bool str_lstrip(const im__jcall *c, im__jvalue *out) { return strip(c, true, false, out); }
static bool str_rstrip(const im__jcall *c, im__jvalue *out) { return strip(c, false, true, out); }
static bool str_upper(const im__jcall *c, im__jvalue *out) { return im__jcase(c->run, STR(c), J_UPPER, out); }
static bool str_lower(const im__jcall *c, im__jvalue *out) { return im__jcase(c->run, STR(c), J_LOWER, out); }
static bool str_title(const im__jcall *c, im__jvalue *out) { return im__jcase(c->run, STR(c), J_TITLE, out); }
static bool str_capitalize(const im__jcall *c, im__jvalue *out) { return im__jcase(c->run, STR(c), J_CAPITALIZE, out); }
static bool str_swapcase(const im__jcall *c, im__jvalue *out) { return im__jcase(c->run, STR(c), J_SWAPCASE, out); }

static bool remove_affix(const im__jcall *c, bool suffix, im__jvalue *out)
{
    const im__jstr *affix;
    if (!need_str(c, 0, &affix)) return false;
    size_t n = STR(c)->n, cut = affix->n <= n && im__jstr_at(STR(c), suffix ? n - affix->n : 0, affix) ? affix->n : 0;
    return im__jstr_sub(c->run, STR(c), suffix ? 0 : cut, suffix ? n - cut : n, out);
}

static bool str_removeprefix(const im__jcall *c, im__jvalue *out) { return remove_affix(c, false, out); }
static bool str_removesuffix(const im__jcall *c, im__jvalue *out) { return remove_affix(c, true, out); }

/* ---- splitting and joining ---- */

static bool push_part(const im__jcall *c, im__jseq *seq, size_t from, size_t to)
{
    im__jvalue part;
    return im__jwork(c->run, 1) && im__jstr_sub(c->run, STR(c), from, to, &part) && im__jseq_push(c->run, seq, &part);
}

static bool split_at(const im__jcall *c, const im__jstr *sep, int64_t most, im__jseq *seq)
{
    const im__jstr *s = STR(c);
    size_t from = 0;
    for (; most != 0; most--) {
        size_t hit = im__jstr_find(s, sep, from, s->n);
        if (hit == SIZE_MAX) break;
        if (!push_part(c, seq, from, hit)) return false;
        from = hit + sep->n;
    }
    return push_part(c, seq, from, s->n);
}

static size_t skip_blank(const im__jstr *s, size_t at, bool blank)
{
    uint32_t code;
    while (at < s->n) {
        size_t len = im__jstr_step(s->p + at, &code);
        if (im__jis_space(code) != blank) break;
        at += len;
    }
    return at;
}

static bool split_blank(const im__jcall *c, int64_t most, im__jseq *seq)
{
    const im__jstr *s = STR(c);
    size_t at = skip_blank(s, 0, true);
    for (; at < s->n && most != 0; most--) {
        size_t end = skip_blank(s, at, false);
        if (!push_part(c, seq, at, end)) return false;
        at = skip_blank(s, end, true);
    }
    return at >= s->n || push_part(c, seq, at, s->n);
}

static void reverse(im__jseq *seq)
{
    for (size_t i = 0, k = seq->n; i + 1 < k; i++) {
        im__jvalue v = seq->at[i];
        seq->at[i] = seq->at[--k];
        seq->at[k] = v;
    }
}

static bool rsplit_at(const im__jcall *c, const im__jstr *sep, int64_t most, im__jseq *seq)
{
    const im__jstr *s = STR(c);
    size_t to = s->n;
    for (; most != 0; most--) {
        size_t hit = im__jstr_rfind(s, sep, 0, to);
        if (hit == SIZE_MAX) break;
        if (!push_part(c, seq, hit + sep->n, to)) return false;
        to = hit;
    }
    if (!push_part(c, seq, 0, to)) return false;
    reverse(seq);
    return true;
}

static size_t back_blank(const im__jstr *s, size_t at, bool blank)
{
    uint32_t code;
    while (at > 0) {
        size_t len = im__jstr_step_back(s->p + at, &code);
        if (im__jis_space(code) != blank) break;
        at -= len;
    }
    return at;
}

static bool rsplit_blank(const im__jcall *c, int64_t most, im__jseq *seq)
{
    const im__jstr *s = STR(c);
    size_t at = back_blank(s, s->n, true);
    for (; at > 0 && most != 0; most--) {
        size_t from = back_blank(s, at, false);
        if (!push_part(c, seq, from, at)) return false;
        at = back_blank(s, from, true);
    }
    if (at > 0 && !push_part(c, seq, 0, at)) return false;
    reverse(seq);
    return true;
}

static bool split(const im__jcall *c, bool right, im__jvalue *out)
{
    const im__jstr *sep;
    int64_t most;
    im__jseq *seq = im__jseq_new(c->run, 0);
    if (seq == NULL || !im__jarg_str(c, 0, &sep) || !im__jarg_int(c, 1, -1, &most)) return false;
    if (sep != NULL && sep->n == 0) return im__jfail(c->run, "split(): empty separator");
    if (!im__jwork(c->run, STR(c)->n / 16 * (right && sep != NULL ? 1 + sep->n / 32 : 1))) return false;
    *out = im__jseq_value(J_LIST, seq);
    if (sep == NULL) return right ? rsplit_blank(c, most, seq) : split_blank(c, most, seq);
    return right ? rsplit_at(c, sep, most, seq) : split_at(c, sep, most, seq);
}

static bool str_split(const im__jcall *c, im__jvalue *out) { return split(c, false, out); }
static bool str_rsplit(const im__jcall *c, im__jvalue *out) { return split(c, true, out); }

static bool breaks_line(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

static bool str_splitlines(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *s = STR(c);
    bool keep = im__jarg_flag(c, 0, false);
    im__jseq *seq = im__jseq_new(c->run, 0);
    size_t from = 0;
    if (seq == NULL || !im__jwork(c->run, s->n / 16)) return false;
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t len = im__jstr_step(s->p + i, &code), end = i;
        i += len;
        if (!breaks_line(code)) continue;
        if (code == '\r' && i < s->n && s->p[i] == '\n') i++;
        if (!push_part(c, seq, from, keep ? i : end)) return false;
        from = i;
    }
    *out = im__jseq_value(J_LIST, seq);
    return from >= s->n || push_part(c, seq, from, s->n);
}

static bool partition(const im__jcall *c, bool right, im__jvalue *out)
{
    const im__jstr *sep, *s = STR(c);
    im__jseq *seq = im__jseq_new(c->run, 3);
    if (seq == NULL || !need_str(c, 0, &sep)) return false;
    if (sep->n == 0) return im__jfail(c->run, "partition(): empty separator");
    if (!im__jwork(c->run, s->n / 16 * (1 + sep->n / 32))) return false;
    size_t hit = right ? im__jstr_rfind(s, sep, 0, s->n) : im__jstr_find(s, sep, 0, s->n);
    size_t cut[2] = {hit, hit + sep->n};
    if (hit == SIZE_MAX) cut[0] = cut[1] = right ? 0 : s->n;
    *out = im__jseq_value(J_TUPLE, seq);
    return push_part(c, seq, 0, cut[0]) && push_part(c, seq, cut[0], cut[1]) && push_part(c, seq, cut[1], s->n);
}

static bool str_partition(const im__jcall *c, im__jvalue *out) { return partition(c, false, out); }
static bool str_rpartition(const im__jcall *c, im__jvalue *out) { return partition(c, true, out); }

static bool str_join(const im__jcall *c, im__jvalue *out)
{
    im__jtext t = {.run = c->run};
    im__jseq *items;
    if (!im__jiterate(c->run, &c->arg[0], &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        if (items->at[i].type != J_STR)
            return im__jfail(c->run, "join(): item %zu is no string but %s", i, im__jtype_name(&items->at[i]));
        if (i > 0) im__jtext_add(&t, STR(c));
        im__jtext_add(&t, items->at[i].as.str);
        if (!im__jwork(c->run, 1)) return false;
    }
    return im__jtext_done(&t, out);
}

/* ---- searching ---- */

/* The bytes that start= and end= (arguments `i` and i + 1) leave; false in *any when start is behind the end. */
static bool window(const im__jcall *c, size_t i, size_t *from, size_t *to, bool *any)
{
    const im__jstr *s = STR(c);
    int64_t ends[2] = {0, INT64_MAX};
    *from = 0;
    *to = s->n;
    *any = true;
    for (size_t k = 0; k < 2; k++)
        if (c->arg[i + k].type != J_NONE && !im__jarg_int(c, i + k, ends[k], &ends[k])) return false;
    if (ends[0] == 0 && ends[1] == INT64_MAX) return true;
    int64_t n = (int64_t)im__jstr_length(s);
    for (int k = 0; k < 2; k++)
        if (ends[k] < 0) ends[k] = ends[k] < -n ? 0 : ends[k] + n;
    *any = ends[0] <= n && ends[0] <= ends[1];
    *from = im__jstr_offset(s, (size_t)ends[0]);
    *to = im__jstr_offset(s, (size_t)ends[1]);
    return im__jwork(c->run, s->n / 16);
}

static bool search(const im__jcall *c, bool right, bool must, im__jvalue *out)
{
    const im__jstr *what, *s = STR(c);
    size_t from, to;
    bool any;
    if (!need_str(c, 0, &what) || !window(c, 1, &from, &to, &any)) return false;
    if (!im__jwork(c->run, s->n / 16 * (right ? 1 + what->n / 32 : 1))) return false;
    size_t hit = !any ? SIZE_MAX : right ? im__jstr_rfind(s, what, from, to) : im__jstr_find(s, what, from, to);
    if (hit == SIZE_MAX) return must ? im__jfail(c->run, "index(): substring not found") : give_int(out, -1);
    im__jstr before = {.p = s->p, .n = hit};
    return give_int(out, (int64_t)im__jstr_length(&before));
}

static bool str_find(const im__jcall *c, im__jvalue *out) { return search(c, false, false, out); }
static bool str_rfind(const im__jcall *c, im__jvalue *out) { return search(c, true, false, out); }
static bool str_index(const im__jcall *c, im__jvalue *out) { return search(c, false, true, out); }
static bool str_rindex(const im__jcall *c, im__jvalue *out) { return search(c, true, true, out); }

static bool str_count(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *what, *s = STR(c);
    size_t from, to;
    bool any;
    int64_t n = 0;
    if (!need_str(c, 0, &what) || !window(c, 1, &from, &to, &any) || !im__jwork(c->run, s->n / 16)) return false;
    if (!any) return give_int(out, 0);
    if (what->n == 0) {
        im__jstr part = {.p = s->p + from, .n = to - from};
        return give_int(out, (int64_t)im__jstr_length(&part) + 1);
    }
    for (size_t hit; (hit = im__jstr_find(s, what, from, to)) != SIZE_MAX; n++) from = hit + what->n;
    return give_int(out, n);
}

static bool affix_matches(const im__jcall *c, const im__jvalue *affix, bool suffix, size_t from, size_t to, bool *out)
{
    if (affix->type != J_STR)
        return im__jfail(c->run, "%s() needs a string or a tuple of them, not %s", suffix ? "endswith" : "startswith",
                         im__jtype_name(affix));
    size_t n = affix->as.str->n;
    if (n <= to - from && im__jstr_at(STR(c), suffix ? to - n : from, affix->as.str)) *out = true;
    return true;
}

static bool has_affix(const im__jcall *c, bool suffix, im__jvalue *out)
{
    size_t from, to;
    bool any, found = false;
    const im__jvalue *affix = &c->arg[0];
    if (!window(c, 1, &from, &to, &any)) return false;
    if (!any) return give_bool(out, false);
    if (affix->type != J_TUPLE) return affix_matches(c, affix, suffix, from, to, &found) && give_bool(out, found);
    for (size_t i = 0; i < affix->as.seq->n; i++)
        if (!affix_matches(c, &affix->as.seq->at[i], suffix, from, to, &found)) return false;
    return give_bool(out, found);
}

static bool str_startswith(const im__jcall *c, im__jvalue *out) { return has_affix(c, false, out); }
static bool str_endswith(const im__jcall *c, im__jvalue *out) { return has_affix(c, true, out); }

/* ---- replacing and padding ---- */

static bool str_replace(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *old, *with, *s = STR(c);
    int64_t most;
    im__jtext t = {.run = c->run};
    size_t from = 0, step = 0;
    if (!need_str(c, 0, &old) || !need_str(c, 1, &with) || !im__jarg_int(c, 2, -1, &most)) return false;
    for (; most != 0 && im__jwork(c->run, 1); most--) {
        size_t hit = old->n > 0 ? im__jstr_find(s, old, from, s->n) : from + step;
        if (hit == SIZE_MAX || hit > s->n) break;
        im__jtext_slice(&t, s, from, hit);
        im__jtext_add(&t, with);
        from = hit + old->n;
        uint32_t code;
        if (old->n == 0) step = from < s->n ? im__jstr_step(s->p + from, &code) : 1; /* "" stands between all characters */
    }
    im__jtext_slice(&t, s, from, s->n);
    return im__jwork(c->run, s->n / 16) && im__jtext_done(&t, out);
}

static bool pad(const im__jcall *c, size_t before, size_t after, const im__jstr *fill, im__jvalue *out)
{
    static const im__jstr blank = {.p = " ", .n = 1};
    im__jtext t = {.run = c->run};
    if (fill == NULL) fill = &blank;
    if (im__jstr_length(fill) != 1) return im__jfail(c->run, "the fill character must be exactly one character long");
    for (size_t i = 0; i < before && im__jwork(c->run, 1); i++) im__jtext_add(&t, fill);
    im__jtext_add(&t, STR(c));
    for (size_t i = 0; i < after && im__jwork(c->run, 1); i++) im__jtext_add(&t, fill);
    return im__jtext_done(&t, out);
}

static bool missing_width(const im__jcall *c, size_t *out)
{
    int64_t width, n = (int64_t)im__jstr_length(STR(c));
    *out = 0;
    if (!im__jarg_int(c, 0, 0, &width)) return false;
    if (width > 0 && (uint64_t)width > c->run->limits.memory) return im__jfail(c->run, "a string grows too large");
    *out = width > n ? (size_t)(width - n) : 0;
    return true;
}

static bool str_ljust(const im__jcall *c, im__jvalue *out)
{
    size_t n;
    const im__jstr *fill;
    return missing_width(c, &n) && im__jarg_str(c, 1, &fill) && pad(c, 0, n, fill, out);
}

static bool str_rjust(const im__jcall *c, im__jvalue *out)
{
    size_t n;
    const im__jstr *fill;
    return missing_width(c, &n) && im__jarg_str(c, 1, &fill) && pad(c, n, 0, fill, out);
}

static bool str_center(const im__jcall *c, im__jvalue *out)
{
    size_t n;
    const im__jstr *fill;
    if (!missing_width(c, &n) || !im__jarg_str(c, 1, &fill)) return false;
    size_t width = n + im__jstr_length(STR(c)), left = n / 2 + (n & width & 1); /* as CPython rounds */
    return pad(c, left, n - left, fill, out);
}

static bool str_zfill(const im__jcall *c, im__jvalue *out)
{
    static const im__jstr zero = {.p = "0", .n = 1};
    size_t n;
    const im__jstr *s = STR(c);
    if (!missing_width(c, &n)) return false;
    size_t sign = s->n > 0 && (s->p[0] == '-' || s->p[0] == '+');
    im__jtext t = {.run = c->run};
    im__jtext_slice(&t, s, 0, sign);
    for (size_t i = 0; i < n && im__jwork(c->run, 1); i++) im__jtext_add(&t, &zero);
    im__jtext_slice(&t, s, sign, s->n);
    return im__jtext_done(&t, out);
}

static bool str_expandtabs(const im__jcall *c, im__jvalue *out)
{
    int64_t size;
    size_t column = 0;
    const im__jstr *s = STR(c);
    im__jtext t = {.run = c->run};
    if (!im__jarg_int(c, 0, 8, &size)) return false;
    for (size_t i = 0; i < s->n && im__jwork(c->run, 1);) {
        uint32_t code;
        size_t len = im__jstr_step(s->p + i, &code);
        int64_t blanks = code == '\t' && size > 0 ? size - (int64_t)(column % (size_t)size) : 0;
        for (int64_t k = 0; k < blanks && im__jwork(c->run, 1); k++) im__jtext_put(&t, " ", 1, im__jstr_origin(s, i));
        if (code != '\t') im__jtext_slice(&t, s, i, i + len);
        column = code == '\n' || code == '\r' ? 0 : column + (code == '\t' ? (size_t)blanks : 1);
        i += len;
    }
    return im__jtext_done(&t, out);
}

static bool str_format(const im__jcall *c, im__jvalue *out) { return im__jformat_braces(c->run, STR(c), c->args, out); }

/* ---- kinds of characters ---- */

static bool is_letter(uint32_t code)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t code) { return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND; }

static bool is_numeric(uint32_t code)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

static bool is_digit(uint32_t code) { return is_decimal(code) || (code >= 0xb2 && code <= 0xb3) || code == 0xb9; }
static bool is_alnum(uint32_t code) { return is_letter(code) || is_numeric(code); }
static bool is_ascii(uint32_t code) { return code < 0x80; }

static bool all_are(const im__jcall *c, bool (*kind)(uint32_t), bool when_empty, im__jvalue *out)
{
    const im__jstr *s = STR(c);
    bool all = s->n > 0 || when_empty;
    for (size_t i = 0; i < s->n && all;) {
        uint32_t code;
        i += im__jstr_step(s->p + i, &code);
        all = kind(code);
    }
    return im__jwork(c->run, s->n / 16) && give_bool(out, all);
}

static bool str_isspace(const im__jcall *c, im__jvalue *out) { return all_are(c, im__jis_space, false, out); }
static bool str_isalpha(const im__jcall *c, im__jvalue *out) { return all_are(c, is_letter, false, out); }
static bool str_isalnum(const im__jcall *c, im__jvalue *out) { return all_are(c, is_alnum, false, out); }
static bool str_isdigit(const im__jcall *c, im__jvalue *out) { return all_are(c, is_digit, false, out); }
static bool str_isdecimal(const im__jcall *c, im__jvalue *out) { return all_are(c, is_decimal, false, out); }
static bool str_isnumeric(const im__jcall *c, im__jvalue *out) { return all_are(c, is_numeric, false, out); }
static bool str_isascii(const im__jcall *c, im__jvalue *out) { return all_are(c, is_ascii, true, out); }

/* All cased characters are of `wanted` case, and there is one. */
static bool all_cased(const im__jcall *c, utf8proc_category_t wanted, im__jvalue *out)
{
    const im__jstr *s = STR(c);
    bool any = false, all = true;
    for (size_t i = 0; i < s->n && all;) {
        uint32_t code;
        i += im__jstr_step(s->p + i, &code);
        if (!im__jis_cased(code)) continue;
        any = true;
        all = utf8proc_category((utf8proc_int32_t)code) == wanted;
    }
    return im__jwork(c->run, s->n / 16) && give_bool(out, any && all);
}

static bool str_isupper(const im__jcall *c, im__jvalue *out) { return all_cased(c, UTF8PROC_CATEGORY_LU, out); }
static bool str_islower(const im__jcall *c, im__jvalue *out) { return all_cased(c, UTF8PROC_CATEGORY_LL, out); }

static bool str_istitle(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *s = STR(c);
    bool any = false, in_word = false;
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += im__jstr_step(s->p + i, &code);
        bool cased = im__jis_cased(code), small = utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_LL;
        if (cased && small != in_word) return give_bool(out, false);
        any = any || cased;
        in_word = cased;
    }
    return im__jwork(c->run, s->n / 16) && give_bool(out, any);
}

static const im__jbuiltin of_str[] = {
    {"strip", "chars?", str_strip},
    {"lstrip", "chars?", str_lstrip},
    {"rstrip", "chars?", str_rstrip},
    {"split", "sep? maxsplit?", str_split},
    {"rsplit", "sep? maxsplit?", str_rsplit},
    {"splitlines", "keepends?", str_splitlines},
    {"startswith", "prefix start? end?", str_startswith},
    {"endswith", "suffix start? end?", str_endswith},
    {"replace", "old new count?", str_replace},
    {"upper", "", str_upper},
    {"lower", "", str_lower},
    {"casefold", "", str_lower},
    {"title", "", str_title},
    {"capitalize", "", str_capitalize},
    {"swapcase", "", str_swapcase},
    {"removeprefix", "prefix", str_removeprefix},
    {"removesuffix", "suffix", str_removesuffix},
    {"join", "iterable", str_join},
    {"find", "sub start? end?", str_find},
    {"rfind", "sub start? end?", str_rfind},
    {"index", "sub start? end?", str_index},
    {"rindex", "sub start? end?", str_rindex},
    {"count", "sub start? end?", str_count},
    {"partition", "sep", str_partition},
    {"rpartition", "sep", str_rpartition},
    {"ljust", "width fillchar?", str_ljust},
    {"rjust", "width fillchar?", str_rjust},
    {"center", "width fillchar?", str_center},
    {"zfill", "width", str_zfill},
    {"expandtabs", "tabsize?", str_expandtabs},
    {"format", "*", str_format},
    {"isspace", "", str_isspace},
    {"isalpha", "", str_isalpha},
    {"isalnum", "", str_isalnum},
    {"isdigit", "", str_isdigit},
    {"isdecimal", "", str_isdecimal},
    {"isnumeric", "", str_isnumeric},
    {"isascii", "", str_isascii},
    {"isupper", "", str_isupper},
    {"islower", "", str_islower},
    {"istitle", "", str_istitle},
};

/* ---- dict ---- */

static bool view(const im__jcall *c, im__jtype type, im__jvalue *out)
{
    const im__jdict *d = c->self->as.dict;
    im__jseq *seq = im__jwork(c->run, d->n) ? im__jseq_new(c->run, d->n) : NULL;
    for (size_t i = 0; seq != NULL && i < d->n; i++) {
        const im__jentry *e = &d->at[i];
        if (type == J_ITEMS && !im__jpair(c->run, &e->key, &e->value, &seq->at[i])) return false;
        if (type != J_ITEMS) seq->at[i] = type == J_KEYS ? e->key : e->value;
        seq->n++;
    }
    *out = im__jseq_value(type, seq);
    return seq != NULL;
}

static bool dict_keys(const im__jcall *c, im__jvalue *out) { return view(c, J_KEYS, out); }
static bool dict_values(const im__jcall *c, im__jvalue *out) { return view(c, J_VALUES, out); }
static bool dict_items(const im__jcall *c, im__jvalue *out) { return view(c, J_ITEMS, out); }

static bool dict_get(const im__jcall *c, im__jvalue *out)
{
    const im__jvalue *v = im__jdict_get(c->run, c->self->as.dict, &c->arg[0]);
    *out = v != NULL ? *v : im__jabsent(&c->arg[1]) ? im__jnone() : c->arg[1];
    return !c->run->failed;
}

static bool same_self(const im__jcall *c, im__jvalue *out)
{
    *out = *c->self;
    return true;
}

static const im__jbuiltin of_dict[] = {
    {"keys", "", dict_keys},           {"values", "", dict_values}, {"items", "", dict_items},
    {"get", "key default?", dict_get}, {"copy", "", same_self},
};

/* ---- list, tuple, range ---- */

static bool list_count(const im__jcall *c, im__jvalue *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self->as.seq->n; i++) {
        bool same;
        if (!im__jwork(c->run, 1) || !im__jequal(c->run, &c->self->as.seq->at[i], &c->arg[0], &same)) return false;
        n += same;
    }
    return give_int(out, n);
}

static bool list_index(const im__jcall *c, im__jvalue *out)
{
    int64_t from, n = (int64_t)c->self->as.seq->n;
    if (!im__jarg_int(c, 1, 0, &from)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    for (int64_t i = from; i < n; i++) {
        bool same;
        if (!im__jwork(c->run, 1) || !im__jequal(c->run, &c->self->as.seq->at[i], &c->arg[0], &same)) return false;
        if (same) return give_int(out, i);
    }
    return im__jfail(c->run, "index(): the value is not in the list");
}

static const im__jbuiltin of_list[] = {
    {"count", "value", list_count}, {"index", "value start?", list_index}, {"copy", "", same_self}};

/* ---- loop, cycler ---- */

static bool loop_cycle(const im__jcall *c, im__jvalue *out)
{
    if (c->args->pos_count == 0) return im__jfail(c->run, "loop.cycle(): no items to cycle through");
    *out = c->args->pos[im__jloop_index(c->self->as.loop) % c->args->pos_count];
    return true;
}

static bool loop_changed(const im__jcall *c, im__jvalue *out)
{
    bool changed;
    im__jseq *seq = im__jseq_new(c->run, 0);
    for (size_t i = 0; seq != NULL && i < c->args->pos_count; i++)
        if (!im__jseq_push(c->run, seq, &c->args->pos[i])) return false;
    if (seq == NULL) return false;
    im__jvalue values = im__jseq_value(J_TUPLE, seq);
    return im__jloop_changed(c->run, c->self->as.loop, &values, &changed) && give_bool(out, changed);
}

static const im__jbuiltin of_loop[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};

static bool cycler_next(const im__jcall *c, im__jvalue *out)
{
    im__jcycle *cycle = c->self->as.cycle;
    *out = cycle->items.as.seq->at[cycle->pos];
    cycle->pos = (cycle->pos + 1) % cycle->items.as.seq->n;
    return true;
}

static bool cycler_reset(const im__jcall *c, im__jvalue *out)
{
    c->self->as.cycle->pos = 0;
    *out = im__jnone();
    return true;
}

static const im__jbuiltin of_cycler[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};

#define FIND(table) im__jfind_in(table, sizeof table / sizeof table[0], name, n)

const im__jbuiltin *im__jfind_method(const im__jvalue *self, const char *name, size_t n)
{
    switch (self->type) {
    case J_STR: return FIND(of_str);
    case J_DICT: return FIND(of_dict);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE: return FIND(of_list);
    case J_LOOP: return FIND(of_loop);
    case J_CYCLER: return FIND(of_cycler);
    default: return NULL;
    }
}
