/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_lex.h"

#include "base/utf8.h"
#include "text/chat/jinja_text.h"

#include <stdio.h>
#include <utf8proc.h>

#define wrong(lex, ...) ((lex)->run->line = (lex)->line, im__jfail((lex)->run, __VA_ARGS__))

bool im__jlexer_start(im__jlexer *lex, im__jrun *run, const char *source, size_t n)
{
    *lex = (im__jlexer){.run = run, .line = 1, .line_start = true};
    char *text = im__jalloc(run, n + 1);
    if (text == NULL) return false;
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        text[out++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (out > 0 && text[out - 1] == '\n') out--;
    lex->p = lex->start = text;
    lex->end = text + out;
    return true;
}

static void count_lines(im__jlexer *lex, const char *from, const char *to)
{
    for (const char *c = from; c < to; c++) lex->line += *c == '\n';
}

static size_t left(const im__jlexer *lex) { return (size_t)(lex->end - lex->p); }

/* The end of the white space that begins at p. */
static const char *skip_spaces(const im__jlexer *lex, const char *p)
{
    uint32_t code;
    while (p < lex->end) {
        size_t len = im__jstr_step(p, &code);
        if (!im__jis_space(code)) break;
        p += len;
    }
    return p;
}

static const char *strip_right(const char *from, const char *to)
{
    uint32_t code;
    while (to > from) {
        size_t len = im__jstr_step_back(to, &code);
        if (!im__jis_space(code)) break;
        to -= len;
    }
    return to;
}

/* ---- text ---- */

/* What is left of the text [from, to) before a tag with this sign: "-" strips, a block tag loses the blanks of its own line. */
static const char *trim_before(const im__jlexer *lex, const char *from, const char *to, char sign, bool variable)
{
    if (sign == '-') return strip_right(from, to);
    if (sign == '+' || variable) return to;
    const char *line = to;
    while (line > from && line[-1] != '\n') line--;
    if (line == from && !lex->line_start) return to;
    return skip_spaces(lex, line) >= to ? line : to;
}

/* Moves behind the tag end `close` ("%}", "#}") at p, whose sign is at p already: eats what "-" and trim_blocks say. */
static void close_tag(im__jlexer *lex, const char *p, char sign)
{
    const char *from = lex->p;
    p += 2;
    if (sign == '-')
        p = skip_spaces(lex, p);
    else if (sign != '+' && p < lex->end && *p == '\n')
        p++;
    count_lines(lex, from, p);
    lex->p = p;
    lex->line_start = p > lex->start && p[-1] == '\n';
}

static char sign_at(const im__jlexer *lex, const char *p) { return p < lex->end && (*p == '-' || *p == '+') ? *p : 0; }

static bool skip_comment(im__jlexer *lex)
{
    const char *from = lex->p + 2 + (sign_at(lex, lex->p + 2) != 0);
    const char *hit = memmem(from, (size_t)(lex->end - from), "#}", 2);
    if (hit == NULL) return wrong(lex, "a comment does not end ('#}' is missing)");
    char sign = hit > from ? sign_at(lex, hit - 1) : 0;
    close_tag(lex, hit, sign);
    return true;
}

/* When a tag `word` stands at p ("{%", sign, blanks, word): the place behind the word; else NULL. */
static const char *tag_word(const im__jlexer *lex, const char *p, const char *word)
{
    size_t n = strlen(word);
    p = skip_spaces(lex, p + 2 + (sign_at(lex, p + 2) != 0));
    return (size_t)(lex->end - p) >= n && memcmp(p, word, n) == 0 ? skip_spaces(lex, p + n) : NULL;
}

static bool tag_end_at(const im__jlexer *lex, const char *p, const char *close)
{
    return lex->end - p >= 2 && p[0] == close[0] && p[1] == close[1];
}

/* lex->p stands on "{%"; true when that opens a raw section. *body is its first byte. */
static bool opens_raw(im__jlexer *lex, const char **body)
{
    const char *p = tag_word(lex, lex->p, "raw");
    if (p == NULL) return false;
    char sign = sign_at(lex, p) == '-' ? '-' : 0;
    p += sign != 0;
    if (!tag_end_at(lex, p, "%}")) return false;
    *body = sign != 0 ? skip_spaces(lex, p + 2) : p + 2;
    return true;
}

static bool raw_section(im__jlexer *lex, const char *body, im__jtoken *out)
{
    count_lines(lex, lex->p, body);
    lex->line_start = body[-1] == '\n';
    lex->p = body;
    for (const char *p = body; (p = memmem(p, (size_t)(lex->end - p), "{%", 2)) != NULL; p += 2) {
        const char *end = tag_word(lex, p, "endraw");
        if (end == NULL) continue;
        char close = sign_at(lex, end);
        end += close != 0;
        if (!tag_end_at(lex, end, "%}")) continue;
        const char *stop = trim_before(lex, body, p, sign_at(lex, p + 2), false);
        *out = (im__jtoken){.kind = T_TEXT, .line = lex->line, .p = body, .n = (size_t)(stop - body)};
        close_tag(lex, end, close);
        return true;
    }
    return wrong(lex, "a raw section does not end ('{%% endraw %%}' is missing)");
}

/* The next "{{", "{%" or "{#", or the end. */
static const char *find_tag(const im__jlexer *lex)
{
    for (const char *p = lex->p; (p = memchr(p, '{', (size_t)(lex->end - p))) != NULL; p++)
        if (p + 1 < lex->end && (p[1] == '{' || p[1] == '%' || p[1] == '#')) return p;
    return lex->end;
}

static bool enter_tag(im__jlexer *lex, im__jtoken *out)
{
    *out = (im__jtoken){.kind = lex->pending == 'v' ? T_VAR_BEGIN : T_BLOCK_BEGIN, .line = lex->line};
    lex->mode = lex->pending;
    lex->p += lex->pending_skip;
    lex->pending = 0;
    lex->open = 0;
    return true;
}

/* Text up to the next tag. Sets *given when there is a token, else (an empty text, a comment) more is to be read. */
static bool lex_text(im__jlexer *lex, im__jtoken *out, bool *given)
{
    const char *tag = find_tag(lex), *body;
    *given = true;
    if (tag == lex->end) {
        *out = (im__jtoken){.kind = lex->p < lex->end ? T_TEXT : T_END, .line = lex->line, .p = lex->p, .n = left(lex)};
        count_lines(lex, lex->p, lex->end);
        lex->p = lex->end;
        return true;
    }
    char sign = sign_at(lex, tag + 2);
    const char *stop = trim_before(lex, lex->p, tag, sign, tag[1] == '{');
    *out = (im__jtoken){.kind = T_TEXT, .line = lex->line, .p = lex->p, .n = (size_t)(stop - lex->p)};
    *given = out->n > 0;
    count_lines(lex, lex->p, tag);
    lex->p = tag;
    if (*given) return true; /* the next call comes here again, with no text before the tag */
    if (tag[1] == '#') return skip_comment(lex);
    if (tag[1] == '%' && opens_raw(lex, &body)) {
        *given = true;
        return raw_section(lex, body, out);
    }
    lex->pending = tag[1] == '{' ? 'v' : 'b';
    lex->pending_skip = 2 + (sign != 0);
    *given = true;
    return enter_tag(lex, out);
}

/* ---- inside tags ---- */

static bool name_char(uint32_t code, bool first)
{
    if (code < 0x80) return code == '_' || ((code | 32) >= 'a' && (code | 32) <= 'z') || (!first && code >= '0' && code <= '9');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    bool letter = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
    return letter || c == UTF8PROC_CATEGORY_NL ||
           (!first && (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND));
}

static bool lex_name(im__jlexer *lex, im__jtoken *out)
{
    const char *p = lex->p;
    uint32_t code;
    while (p < lex->end) {
        size_t len = im__jstr_step(p, &code);
        if (!name_char(code, p == lex->p)) break;
        p += len;
    }
    if (p == lex->p) return false;
    *out = (im__jtoken){.kind = T_NAME, .line = lex->line, .p = lex->p, .n = (size_t)(p - lex->p)};
    lex->p = p;
    return true;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
}

/* Copies digits (with single underscores between them) to `to`; returns the place behind them. */
static const char *digits(const im__jlexer *lex, const char *p, int base, char *to, size_t *n)
{
    while (p < lex->end) {
        if (digit_value(*p) < base)
            to[(*n)++] = *p++;
        else if (*p == '_' && *n > 0 && p + 1 < lex->end && digit_value(p[1]) < base && p[-1] != '_')
            p++;
        else
            break;
    }
    return p;
}

static bool lex_based(im__jlexer *lex, int base, char *to, im__jtoken *out)
{
    size_t n = 0;
    uint64_t value = 0;
    const char *p = lex->p + 2;
    if (p < lex->end && *p == '_') p++;
    p = digits(lex, p, base, to, &n);
    for (size_t i = 0; i < n; i++) {
        if (value > (uint64_t)INT64_MAX / (uint64_t)base - 1) return wrong(lex, "a number beyond 64 bits");
        value = value * (uint64_t)base + (uint64_t)digit_value(to[i]);
    }
    char *text = im__jalloc(lex->run, 24);
    if (text == NULL) return false;
    *out = (im__jtoken){
        .kind = T_INT, .line = lex->line, .p = text, .n = (size_t)snprintf(text, 24, "%llu", (unsigned long long)value)};
    lex->p = p;
    return true;
}

static const char *exponent(const im__jlexer *lex, const char *p, char *to, size_t *n)
{
    const char *q = p + 1;
    if (p >= lex->end || (*p | 32) != 'e') return p;
    if (q < lex->end && (*q == '+' || *q == '-')) q++;
    if (q >= lex->end || digit_value(*q) > 9) return p;
    memcpy(to + *n, p, (size_t)(q - p));
    *n += (size_t)(q - p);
    return digits(lex, q, 10, to, n);
}

static int base_of(const im__jlexer *lex)
{
    if (left(lex) < 3 || lex->p[0] != '0') return 0;
    int base = (lex->p[1] | 32) == 'x' ? 16 : (lex->p[1] | 32) == 'o' ? 8 : (lex->p[1] | 32) == 'b' ? 2 : 0;
    const char *first = lex->p + 2 + (lex->p[2] == '_');
    return base != 0 && first < lex->end && digit_value(*first) < base ? base : 0;
}

static bool lex_number(im__jlexer *lex, im__jtoken *out)
{
    size_t most = 0, n = 0;
    while (most < left(lex) && (digit_value(lex->p[most]) < 99 || strchr("_.+-xXoO", lex->p[most]) != NULL)) most++;
    if (most > 4000) return wrong(lex, "a number of more than 4000 characters");
    char *text = im__jalloc(lex->run, most + 1);
    if (text == NULL) return false;
    int base = base_of(lex);
    if (base != 0) return lex_based(lex, base, text, out);
    const char *p = digits(lex, lex->p, 10, text, &n);
    bool whole = true, after_dot = lex->p > lex->start && lex->p[-1] == '.';
    if (!after_dot) {
        if (p + 1 < lex->end && *p == '.' && digit_value(p[1]) <= 9) {
            text[n++] = '.';
            p = digits(lex, p + 1, 10, text, &n);
            whole = false;
        }
        const char *e = exponent(lex, p, text, &n);
        whole = whole && e == p;
        p = e;
    }
    if (whole && n > 1 && text[0] == '0' && strspn(text, "0") != n) return wrong(lex, "a number cannot begin with 0");
    *out = (im__jtoken){.kind = whole ? T_INT : T_FLOAT, .line = lex->line, .p = text, .n = n};
    lex->p = p;
    return true;
}

/* ---- string literals ---- */

typedef struct unescape {
    im__jlexer *lex;
    const char *p, *end;
    char *out;
    size_t n;
} unescape;

static bool put_code(unescape *u, uint32_t code)
{
    char bytes[4];
    size_t len = im__utf8_encode(code, bytes);
    if (len == 0) return wrong(u->lex, "a string holds an escape that is no character");
    memcpy(u->out + u->n, bytes, len);
    u->n += len;
    return true;
}

static bool hex_escape(unescape *u, int count)
{
    uint32_t code = 0;
    for (int i = 0; i < count; i++, u->p++) {
        if (u->p >= u->end || digit_value(*u->p) > 15) return wrong(u->lex, "a \\x, \\u or \\U escape is cut short");
        code = code * 16 + (uint32_t)digit_value(*u->p);
    }
    return put_code(u, code);
}

static bool octal_escape(unescape *u)
{
    uint32_t code = 0;
    for (int i = 0; i < 3 && u->p < u->end && *u->p >= '0' && *u->p <= '7'; i++, u->p++) code = code * 8 + (uint32_t)(*u->p - '0');
    return put_code(u, code);
}

/* u->p stands behind the backslash. An unknown escape keeps its backslash, as in Python. */
static bool one_escape(unescape *u)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *u->p;
    if (c >= '0' && c <= '7') return octal_escape(u);
    const char *hit = c != 0 ? strchr(from, c) : NULL;
    if (c == 'N') return wrong(u->lex, "\\N{...} in a string is not supported");
    if (hit == NULL && c != '\n' && c != 'x' && c != 'u' && c != 'U') {
        u->out[u->n++] = '\\';
        return true;
    }
    u->p++;
    if (c == 'x' || c == 'u' || c == 'U') return hex_escape(u, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if (hit != NULL) u->out[u->n++] = to[hit - from];
    return true;
}

static bool lex_string(im__jlexer *lex, im__jtoken *out)
{
    char quote = *lex->p;
    const char *p = lex->p + 1;
    bool escaped = false;
    for (; p < lex->end && *p != quote; p++) {
        if (*p == '\\') {
            escaped = true;
            p++;
        }
    }
    if (p >= lex->end) return wrong(lex, "a string does not end");
    *out = (im__jtoken){.kind = T_STRING, .line = lex->line, .p = lex->p + 1, .n = (size_t)(p - lex->p - 1)};
    if (escaped) {
        unescape u = {.lex = lex, .p = out->p, .end = p, .out = im__jalloc(lex->run, out->n + 4)};
        if (u.out == NULL) return false;
        while (u.p < u.end) {
            char c = *u.p++;
            if (c != '\\')
                u.out[u.n++] = c;
            else if (!one_escape(&u))
                return false;
        }
        out->p = u.out;
        out->n = u.n;
    }
    count_lines(lex, lex->p, p);
    lex->p = p + 1;
    return true;
}

/* ---- operators and tag ends ---- */

static bool balance(im__jlexer *lex, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    const char *o = strchr(open, c), *k = strchr(close, c);
    if (o != NULL) {
        if (lex->open == sizeof lex->brackets) return wrong(lex, "brackets are nested too deep");
        lex->brackets[lex->open++] = close[o - open];
    } else if (k != NULL) {
        if (lex->open == 0) return wrong(lex, "unexpected '%c'", c);
        if (lex->brackets[--lex->open] != c) return wrong(lex, "unexpected '%c', expected '%c'", c, lex->brackets[lex->open]);
    }
    return true;
}

static bool lex_op(im__jlexer *lex, im__jtoken *out)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    *out = (im__jtoken){.kind = T_OP, .line = lex->line};
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (!tag_end_at(lex, lex->p, two[i])) continue;
        out->op = IM__OP(two[i][0], two[i][1]);
        lex->p += 2;
        return true;
    }
    char c = *lex->p;
    if (c == 0 || strchr("+-/*%~[](){}><=.:|,;", c) == NULL) {
        uint32_t code;
        return wrong(lex, "unexpected character '%.*s'", (int)im__jstr_step(lex->p, &code), lex->p);
    }
    out->op = IM__OP(c, 0);
    lex->p++;
    return balance(lex, c);
}

/* When the tag ends at lex->p: moves behind it. */
static bool lex_tag_end(im__jlexer *lex, im__jtoken *out)
{
    const char *p = lex->p;
    char sign = sign_at(lex, p);
    const char *close = lex->mode == 'v' ? "}}" : "%}";
    if (lex->open > 0 || (sign == '+' && lex->mode == 'v')) return false;
    if (!tag_end_at(lex, p + (sign != 0), close)) return false;
    *out = (im__jtoken){.kind = lex->mode == 'v' ? T_VAR_END : T_BLOCK_END, .line = lex->line};
    close_tag(lex, p + (sign != 0), lex->mode == 'v' && sign == 0 ? '+' : sign);
    lex->mode = 0;
    return true;
}

static bool lex_inside(im__jlexer *lex, im__jtoken *out)
{
    const char *p = skip_spaces(lex, lex->p);
    count_lines(lex, lex->p, p);
    lex->p = p;
    if (p >= lex->end) return wrong(lex, "the template ends inside a tag");
    if (lex_tag_end(lex, out)) return true;
    if (*p >= '0' && *p <= '9') return lex_number(lex, out);
    if (*p == '"' || *p == '\'') return lex_string(lex, out);
    return lex_name(lex, out) || lex_op(lex, out);
}

bool im__jlexer_next(im__jlexer *lex, im__jtoken *out)
{
    if (lex->mode != 0) return lex_inside(lex, out);
    for (bool given = false; !given;)
        if (!lex_text(lex, out, &given)) return false;
    return true;
}
