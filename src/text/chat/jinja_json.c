/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_json.h"

#include "base/utf8.h"

#define DEEPEST 100

typedef struct reader {
    im__jrun *run;
    const char *p, *end;
    const char *why; /* set when the text is not JSON */
    unsigned depth;
} reader;

static bool read_value(reader *r, im__jvalue *out);

static bool wrong(reader *r, const char *why)
{
    if (r->why == NULL) r->why = why;
    return false;
}

static void skip_blanks(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) r->p++;
}

static bool next_is(reader *r, char c)
{
    if (r->p >= r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool is_digit(const reader *r) { return r->p < r->end && *r->p >= '0' && *r->p <= '9'; }

/* ---- strings ---- */

static bool read_hex(reader *r, uint32_t *out)
{
    *out = 0;
    if (r->end - r->p < 4) return wrong(r, "a \\u escape needs four hexadecimal digits");
    for (int i = 0; i < 4; i++, r->p++) {
        char c = *r->p;
        uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 32) - 'a' + 10);
        if (digit > 15) return wrong(r, "a \\u escape needs four hexadecimal digits");
        *out = *out * 16 + digit;
    }
    return true;
}

static bool read_unicode(reader *r, im__jtext *t)
{
    uint32_t code, low;
    if (!read_hex(r, &code)) return false;
    if (code >= 0xdc00 && code <= 0xdfff) return wrong(r, "half of a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (!next_is(r, '\\') || !next_is(r, 'u') || !read_hex(r, &low)) return wrong(r, "half of a surrogate pair");
        if (low < 0xdc00 || low > 0xdfff) return wrong(r, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    im__jtext_code(t, code, J_FROM_INPUT);
    return true;
}

static bool read_escape(reader *r, im__jtext *t)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    r->p++;
    if (r->p >= r->end) return wrong(r, "a string does not end");
    char c = *r->p++;
    if (c == 'u') return read_unicode(r, t);
    const char *hit = c != 0 ? strchr(from, c) : NULL;
    if (hit == NULL) return wrong(r, "an escape that JSON does not have");
    im__jtext_put(t, &to[hit - from], 1, J_FROM_INPUT);
    return true;
}

static bool read_string(reader *r, im__jvalue *out)
{
    im__jtext t = {.run = r->run, .origin = J_FROM_INPUT};
    const char *done = ++r->p;
    bool escaped = false;
    for (; r->p < r->end && *r->p != '"';) {
        if ((unsigned char)*r->p < 0x20) return wrong(r, "a control character in a string");
        if (*r->p != '\\') {
            r->p++;
            continue;
        }
        escaped = true;
        im__jtext_put(&t, done, (size_t)(r->p - done), J_FROM_INPUT);
        if (!read_escape(r, &t)) return false;
        done = r->p;
    }
    if (r->p >= r->end) return wrong(r, "a string does not end");
    size_t rest = (size_t)(r->p++ - done);
    if (!escaped) return im__jstr_new(r->run, done, rest, J_FROM_INPUT, out);
    im__jtext_put(&t, done, rest, J_FROM_INPUT);
    return im__jtext_done(&t, out);
}

/* ---- numbers and words ---- */

static bool read_number(reader *r, im__jvalue *out)
{
    const char *start = r->p;
    bool whole = true;
    next_is(r, '-');
    if (!is_digit(r)) return wrong(r, "not a value");
    if (!next_is(r, '0'))
        while (is_digit(r)) r->p++;
    if (next_is(r, '.')) {
        whole = false;
        if (!is_digit(r)) return wrong(r, "a digit must follow the decimal point");
        while (is_digit(r)) r->p++;
    }
    if (next_is(r, 'e') || next_is(r, 'E')) {
        whole = false;
        if (!next_is(r, '-')) next_is(r, '+');
        if (!is_digit(r)) return wrong(r, "a digit must follow the exponent sign");
        while (is_digit(r)) r->p++;
    }
    size_t n = (size_t)(r->p - start);
    if (n > 4000) return wrong(r, "a number of more than 4000 digits");
    if (whole) return im__jint_parse(r->run, start, n, J_FROM_INPUT, out);
    *out = im__jfloat(im__jfloat_parse(start, n));
    return true;
}

static bool read_word(reader *r, const char *word, im__jvalue value, im__jvalue *out)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return wrong(r, "not a value");
    r->p += n;
    *out = value;
    return true;
}

/* ---- containers ---- */

static bool read_list(reader *r, im__jvalue *out)
{
    im__jvalue item;
    im__jseq *seq = im__jseq_new(r->run, 0);
    if (seq == NULL) return false;
    *out = im__jseq_value(J_LIST, seq);
    r->p++;
    skip_blanks(r);
    if (next_is(r, ']')) return true;
    for (;;) {
        if (!read_value(r, &item) || !im__jseq_push(r->run, seq, &item)) return false;
        skip_blanks(r);
        if (next_is(r, ']')) return true;
        if (!next_is(r, ',')) return wrong(r, "a comma or ] is missing");
    }
}

static bool read_object(reader *r, im__jvalue *out)
{
    im__jvalue key, value;
    im__jdict *d = im__jdict_new(r->run);
    if (d == NULL) return false;
    *out = (im__jvalue){.type = J_DICT, .as.dict = d};
    r->p++;
    skip_blanks(r);
    if (next_is(r, '}')) return true;
    for (;;) {
        skip_blanks(r);
        if (r->p >= r->end || *r->p != '"') return wrong(r, "a key in quotes is missing");
        if (!read_string(r, &key)) return false;
        skip_blanks(r);
        if (!next_is(r, ':')) return wrong(r, "a colon is missing");
        if (!read_value(r, &value) || !im__jdict_set(r->run, d, &key, &value)) return false;
        skip_blanks(r);
        if (next_is(r, '}')) return true;
        if (!next_is(r, ',')) return wrong(r, "a comma or } is missing");
    }
}

static bool read_container(reader *r, im__jvalue *out)
{
    if (r->depth >= DEEPEST) return wrong(r, "nested deeper than 100 levels");
    r->depth++;
    bool ok = *r->p == '[' ? read_list(r, out) : read_object(r, out);
    r->depth--;
    return ok;
}

static bool read_value(reader *r, im__jvalue *out)
{
    skip_blanks(r);
    if (r->p >= r->end) return wrong(r, "it ends too early");
    switch (*r->p) {
    case '[':
    case '{': return read_container(r, out);
    case '"': return read_string(r, out);
    case 't': return read_word(r, "true", im__jbool(true), out);
    case 'f': return read_word(r, "false", im__jbool(false), out);
    case 'n': return read_word(r, "null", im__jnone(), out);
    default: return read_number(r, out);
    }
}

static bool read_all(reader *r, im__jvalue *out)
{
    if (!im__utf8_valid(r->p, (size_t)(r->end - r->p))) return wrong(r, "the text is not valid UTF-8");
    if (!read_value(r, out)) return false;
    skip_blanks(r);
    return r->p == r->end || wrong(r, "something follows the value");
}

bool im__jjson_read(im__jrun *run, const char *name, const char *p, size_t n, im__jvalue *out)
{
    reader r = {.run = run, .p = p, .end = p + n};
    if (read_all(&r, out)) return !run->failed;
    return im__jfail(run, "%s: not valid JSON at byte %zu: %s", name, (size_t)(r.p - p), r.why ? r.why : "");
}

bool im__jjson_try(im__jrun *run, const char *p, size_t n, im__jvalue *out, bool *valid)
{
    reader r = {.run = run, .p = p, .end = p + n};
    *valid = read_all(&r, out);
    return !run->failed;
}
