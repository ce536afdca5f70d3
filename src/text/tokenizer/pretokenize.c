/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/pretokenize.h"

#include <string.h>

typedef struct splitter {
    im__pre_sink *sink;
    void *context;
} splitter;

static bool in_ranges(const im__char_range *r, uint32_t code)
{
    for (; r->last != 0; r++) {
        if (code >= r->first && code <= r->last) return true;
    }
    return false;
}

static bool contains(const im__char_set *set, const im__char *c)
{
    bool found = (c->cls & set->mask) != 0;
    if (found && set->except != NULL) found = !in_ranges(set->except, c->code);
    if (!found && set->ascii != NULL) found = c->code != 0 && c->code < 128 && strchr(set->ascii, (int)c->code) != NULL;
    if (!found && set->range != NULL) found = in_ranges(set->range, c->code);
    return found != set->negate;
}

/* Bytes of the longest run of at most `max` (0: any number of) characters of the set at s. */
static size_t run_length(const im__char_set *set, const char *s, size_t n, unsigned max)
{
    size_t at = 0;
    for (unsigned count = 0; at < n && (max == 0 || count < max); count++) {
        im__char c = im__char_at(s + at, n - at);
        if (!contains(set, &c)) break;
        at += c.bytes;
    }
    return at;
}

static size_t run_and_tail(const im__pre_rule *r, const char *s, size_t n)
{
    size_t run = run_length(r->run, s, n, r->max);
    return run == 0 || r->tail == NULL ? run : run + run_length(r->tail, s + run, n - run, 0);
}

/* Letters of a contraction behind the apostrophe; ſ is an s where case does not count. */
static size_t contraction(const char *s, size_t n, bool any_case)
{
    static const char *const ending[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (n < 2 || s[0] != '\'') return 0;
    if (any_case && n >= 3 && memcmp(s + 1, "\xc5\xbf", 2) == 0) return 3;
    char a = s[1], b = n >= 3 ? s[2] : 0;
    if (any_case) {
        if (a >= 'A' && a <= 'Z') a = (char)(a + ('a' - 'A'));
        if (b >= 'A' && b <= 'Z') b = (char)(b + ('a' - 'A'));
    }
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        if (a == ending[i][0] && (ending[i][1] == 0 || b == ending[i][1])) return 1 + strlen(ending[i]);
    }
    return 0;
}

/* upper* lower+ or upper+ lower* as a greedy, backtracking engine matches them: letters without case and marks belong to both sets. */
static size_t cased(const im__pre_rule *r, const char *s, size_t n)
{
    const uint32_t both = IM__CC_LM | IM__CC_LO | IM__CC_MARK;
    const im__char_set upper = {.mask = IM__CC_LU | IM__CC_LT | both}, lower = {.mask = IM__CC_LL | both};
    size_t at = 0, last_lower = 0; /* end of the last character of the upper run that is in both sets */
    while (at < n) {
        im__char c = im__char_at(s + at, n - at);
        if (!contains(&upper, &c)) break;
        at += c.bytes;
        if (contains(&lower, &c)) last_lower = at;
    }
    size_t rest = run_length(&lower, s + at, n - at, 0);
    if (r->kind == IM__PRE_CASED_UPPER) return at == 0 ? 0 : at + rest;
    return rest > 0 ? at + rest : last_lower;
}

static size_t body_length(const im__pre_rule *r, const char *s, size_t n)
{
    if (r->kind != IM__PRE_CASED_LOWER && r->kind != IM__PRE_CASED_UPPER) return run_and_tail(r, s, n);
    size_t len = cased(r, s, n);
    return len > 0 && r->suffix ? len + contraction(s + len, n - len, true) : len;
}

static size_t prefixed_length(const im__pre_rule *r, const char *s, size_t n)
{
    if (r->prefix != NULL) {
        im__char c = im__char_at(s, n);
        if (contains(r->prefix, &c)) {
            size_t body = body_length(r, s + c.bytes, n - c.bytes);
            if (body > 0) return c.bytes + body;
        }
        if (r->kind == IM__PRE_RUN_PREFIXED) return 0;
    }
    return body_length(r, s, n);
}

/* The rules that begin with white space, on the run of it at s. */
static size_t space_length(im__pre_rule_kind kind, const char *s, size_t n)
{
    size_t at = 0, last = 0, newline_end = 0;
    while (at < n) {
        im__char c = im__char_at(s + at, n - at);
        if ((c.cls & IM__CC_SPACE) == 0) break;
        last = at;
        at += c.bytes;
        if (c.cls & IM__CC_NEWLINE) newline_end = at;
    }
    if (kind == IM__PRE_SPACE_LINES || kind == IM__PRE_SPACE_LINE) return newline_end;
    return kind == IM__PRE_SPACE_BEFORE && at < n ? last : at;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t rule_length(const im__pre_rule *r, const char *s, size_t n)
{
    switch (r->kind) {
    case IM__PRE_RUN:
    case IM__PRE_RUN_PREFIXED:
    case IM__PRE_CASED_LOWER:
    case IM__PRE_CASED_UPPER: return prefixed_length(r, s, n);
    case IM__PRE_CONTRACTION:
    case IM__PRE_CONTRACTION_CI: return contraction(s, n, r->kind == IM__PRE_CONTRACTION_CI);
    case IM__PRE_SPACE_LINES:
    case IM__PRE_SPACE_LINE:
    case IM__PRE_SPACE_BEFORE:
    case IM__PRE_SPACE: return space_length(r->kind, s, n);
    case IM__PRE_DIGITS3: return n >= 3 && is_digit(s[0]) && is_digit(s[1]) && is_digit(s[2]) ? 3 : 0;
    default: return 0;
    }
}

static size_t first_match(const im__pre_rule *rules, const char *s, size_t n)
{
    for (const im__pre_rule *r = rules; r->kind != IM__PRE_END; r++) {
        size_t len = rule_length(r, s, n);
        if (len > 0) return len;
    }
    return 0;
}

static bool split_stage(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n);

static bool split_by_rules(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    size_t gap = 0, at = 0;
    while (at < n) {
        size_t len = first_match(*stage, s + at, n - at);
        if (len == 0) {
            at += im__char_at(s + at, n - at).bytes;
            continue;
        }
        if (!split_stage(p, stage + 1, s + gap, at - gap) || !split_stage(p, stage + 1, s + at, len)) return false;
        gap = at += len;
    }
    return split_stage(p, stage + 1, s + gap, n - gap);
}

static bool split_space_at_end(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    size_t end = 0;
    for (size_t at = 0; at < n;) {
        im__char c = im__char_at(s + at, n - at);
        at += c.bytes;
        if ((c.cls & IM__CC_SPACE) == 0) end = at;
    }
    return split_stage(p, stage + 1, s, end) && split_stage(p, stage + 1, s + end, n - end);
}

static bool split_thousands(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    const im__char_set digits = {.mask = IM__CC_DIGIT};
    size_t gap = 0, at = 0;
    while (at < n) {
        size_t run = run_length(&digits, s + at, n - at, 0), count = 0;
        for (size_t i = 0; i < run; i += im__char_at(s + at + i, run - i).bytes) count++;
        for (size_t i = 0; i < run; i += im__char_at(s + at + i, run - i).bytes, count--) {
            if (count % 3 != 0) continue;
            if (!split_stage(p, stage + 1, s + gap, at + i - gap)) return false;
            gap = at + i;
        }
        at += run;
        if (run == 0) at += im__char_at(s + at, n - at).bytes;
    }
    return split_stage(p, stage + 1, s + gap, n - gap);
}

/* The family whose digits are looked for after the mapping to the byte alphabet: there the bytes of ² ³ ¹ ¼ ½ ¾ count as numbers. */
static bool byte_is_number(char c) { return is_digit(c) || (c != 0 && strchr("\xb2\xb3\xb9\xbc\xbd\xbe", c) != NULL); }

static bool split_byte_numbers(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && byte_is_number(s[end]) == byte_is_number(s[at]); end++) continue;
        if (!split_stage(p, stage + 1, s + at, end - at)) return false;
    }
    return true;
}

static bool split_at_literal(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    const im__pre_rule *r = *stage;
    size_t gap = 0, at = 0;
    for (const char *found; at < n && (found = memmem(s + at, n - at, r->literal.ptr, r->literal.len)) != NULL;) {
        size_t begin = (size_t)(found - s);
        at = begin + r->literal.len;
        if (r->kind != IM__PRE_CUT_BEHIND) {
            if (!split_stage(p, stage + 1, s + gap, begin - gap)) return false;
            gap = begin;
        }
        if (r->kind != IM__PRE_CUT_BEFORE) {
            if (!split_stage(p, stage + 1, s + gap, at - gap)) return false;
            gap = at;
        }
    }
    return split_stage(p, stage + 1, s + gap, n - gap);
}

/* Recursion is as deep as the pattern has stages. */
static bool split_stage(const splitter *p, const im__pre_rule *const *stage, const char *s, size_t n)
{
    if (n == 0) return true;
    if (*stage == NULL) return p->sink(p->context, s, n);
    switch ((*stage)->kind) {
    case IM__PRE_SPACE_AT_END: return split_space_at_end(p, stage, s, n);
    case IM__PRE_THOUSANDS: return split_thousands(p, stage, s, n);
    case IM__PRE_BYTE_NUMBERS: return split_byte_numbers(p, stage, s, n);
    case IM__PRE_CUT_BEFORE:
    case IM__PRE_CUT_BEHIND:
    case IM__PRE_CUT_AROUND: return split_at_literal(p, stage, s, n);
    default: return split_by_rules(p, stage, s, n);
    }
}

bool im__pre_split(const im__pre *pre, const char *text, size_t n, im__pre_sink *sink, void *context)
{
    const splitter p = {sink, context};
    return split_stage(&p, pre->stage, text, n);
}
