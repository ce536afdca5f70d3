/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/bytes.h"
#include "base/utf8.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

typedef struct checker {
    const char *at, *end;
    const char *fault;
    uint64_t objects; /* bit d: level d is an object */
    unsigned depth;
} checker;

static bool wrong(checker *c, const char *fault)
{
    c->fault = fault;
    return false;
}

#define EACH UINT64_C(0x0101010101010101) /* times a byte: eight of it */
#define TOPS (EACH * 0x80)

static uint64_t load(const char *p) { return im__load_u64((const uint8_t *)p); }

/* The top bit of a byte is set if the byte is zero; those above a zero byte may be set as well. */
static uint64_t zeros(uint64_t w) { return (w - EACH) & ~w & TOPS; }

/* Index of the first byte that has its top bit set, or another one; w is not 0. */
static size_t first_byte(uint64_t w) { return (size_t)__builtin_ctzll(w) / 8; }

static const char *skip_blanks(const char *p, const char *end)
{
    for (;;) {
        if (p == end || (unsigned char)*p > ' ') return p;
        if (*p != ' ' && *p != '\n' && *p != '\r' && *p != '\t') return p;
        p++;
        while (end - p >= 8 && *p == ' ') {
            uint64_t other = load(p) ^ EACH * ' ';
            if (other != 0) {
                p += first_byte(other);
                break;
            }
            p += 8;
        }
    }
}

/* The bytes that are not plain (top bits, as zeros gives them): not ASCII, control characters, quote, backslash. */
static uint64_t odd_bytes(uint64_t w)
{
    return ((w | ((w - EACH * 0x20) & ~w)) & TOPS) | zeros(w ^ EACH * '"') | zeros(w ^ EACH * '\\');
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four digits; -1 when they are not there. */
static int32_t hex_unit(const char *p, const char *end)
{
    int32_t unit = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* What \u at p (behind the backslash) stands for and how many bytes it takes; 0: nothing good. */
static size_t unicode_escape(const char *p, const char *end, uint32_t *code)
{
    int32_t high = hex_unit(p + 1, end), low;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000)) return 0;
    *code = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000) return 5;
    if (end - p < 11 || p[5] != '\\' || p[6] != 'u') return 0;
    low = hex_unit(p + 7, end);
    if (low < 0xdc00 || low >= 0xe000) return 0;
    *code = 0x10000 + (((uint32_t)high & 0x3ff) << 10 | ((uint32_t)low & 0x3ff));
    return 11;
}

/* The byte that \c stands for; -1: none. */
static int short_escape(char c)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *at = c == 0 ? NULL : strchr(names, c);
    return at == NULL ? -1 : bytes[at - names];
}

static bool check_escape(checker *c)
{
    uint32_t code;
    const char *p = c->at + 1;
    size_t n = p == c->end ? 0 : *p == 'u' ? unicode_escape(p, c->end, &code) : short_escape(*p) >= 0;
    if (n == 0) return wrong(c, "an escape that is not one");
    c->at = p + n;
    return true;
}

/* The string at `at`, which is on its quote. */
static bool check_string(checker *c)
{
    uint32_t code;
    if (c->at == c->end || *c->at != '"') return wrong(c, "a string is missing");
    for (c->at++;;) {
        for (uint64_t odd = 0; odd == 0 && c->end - c->at >= 8;) {
            odd = odd_bytes(load(c->at));
            c->at += odd == 0 ? 8 : first_byte(odd);
        }
        if (c->at == c->end) return wrong(c, "a string without an end");
        unsigned char byte = (unsigned char)*c->at;
        if (byte == '"') break;
        if (byte == '\\') {
            if (!check_escape(c)) return false;
            continue;
        }
        if (byte < 0x20) return wrong(c, "a control character in a string");
        size_t n = byte < 0x80 ? 1 : im__utf8_decode(c->at, (size_t)(c->end - c->at), &code);
        if (n == 0) return wrong(c, "bytes that are not UTF-8");
        c->at += n;
    }
    c->at++;
    return true;
}

static size_t digits(checker *c)
{
    const char *p = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') c->at++;
    return (size_t)(c->at - p);
}

static bool at_byte(checker *c, char byte)
{
    if (c->at == c->end || *c->at != byte) return false;
    c->at++;
    return true;
}

static bool check_number(checker *c)
{
    at_byte(c, '-');
    const char *first = c->at;
    size_t n = digits(c);
    if (n == 0 || (n > 1 && *first == '0')) return wrong(c, "a value is missing or is no number");
    if (at_byte(c, '.') && digits(c) == 0) return wrong(c, "a number without digits behind its point");
    if (at_byte(c, 'e') || at_byte(c, 'E')) {
        if (!at_byte(c, '+')) at_byte(c, '-');
        if (digits(c) == 0) return wrong(c, "a number without digits in its exponent");
    }
    return true;
}

static bool check_scalar(checker *c)
{
    static const char *const words[] = {"null", "true", "false"};
    if (c->at < c->end && *c->at == '"') return check_string(c);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(c->end - c->at) < n || memcmp(c->at, words[i], n) != 0) continue;
        c->at += n;
        return true;
    }
    return check_number(c);
}

static bool check_key(checker *c)
{
    c->at = skip_blanks(c->at, c->end);
    if (!check_string(c)) return false;
    c->at = skip_blanks(c->at, c->end);
    return at_byte(c, ':') ? true : wrong(c, "a colon is missing");
}

static bool in_object(const checker *c) { return (c->objects >> (c->depth - 1) & 1) != 0; }

/* Enters the array or object at `at`; *inside: a value comes next; otherwise it is empty and left again. */
static bool enter(checker *c, bool *inside)
{
    bool object = *c->at++ == '{';
    if (c->depth == IM__JSON_DEPTH) return wrong(c, "more than 64 levels");
    c->objects = (c->objects & ~(UINT64_C(1) << c->depth)) | (uint64_t)object << c->depth;
    c->depth++;
    c->at = skip_blanks(c->at, c->end);
    *inside = !at_byte(c, object ? '}' : ']');
    if (!*inside) c->depth--;
    return !*inside || !object || check_key(c);
}

/* Behind a value: leaves what ends here. True when another value follows; false at the end of the text's value or with a fault. */
static bool another(checker *c)
{
    while (c->depth > 0) {
        c->at = skip_blanks(c->at, c->end);
        if (at_byte(c, ',')) return !in_object(c) || check_key(c);
        if (!at_byte(c, in_object(c) ? '}' : ']')) return wrong(c, "a comma or the end of an array or object is missing");
        c->depth--;
    }
    return false;
}

static bool check_value(checker *c)
{
    do {
        for (bool inside = true; inside;) {
            c->at = skip_blanks(c->at, c->end);
            inside = false;
            if (!(c->at < c->end && (*c->at == '{' || *c->at == '[') ? enter(c, &inside) : check_scalar(c))) return false;
        }
    } while (another(c));
    return c->fault == NULL;
}

im_status im__json_check(const char *text, size_t n, const char *name, im__json *root, im_error *err)
{
    *root = (im__json){NULL, 0};
    if (n == 0) return im__fail(err, IM_ERR_FORMAT, "%s: is empty, not JSON", name); /* text may be NULL */
    checker c = {.at = skip_blanks(text, text + n), .end = text + n};
    const char *begin = c.at;
    if (check_value(&c)) {
        *root = (im__json){begin, (size_t)(c.at - begin)};
        c.at = skip_blanks(c.at, c.end);
        if (c.at < c.end) wrong(&c, "something behind the end of the value");
    }
    if (c.fault == NULL) return IM_OK;
    *root = (im__json){NULL, 0};
    return im__fail(err, IM_ERR_FORMAT, "%s: not JSON: %s, at byte %zu", name, c.fault, (size_t)(c.at - text));
}

/* ---- walking text that was checked ---- */

im__json_kind im__json_kind_of(im__json v)
{
    if (v.len == 0) return IM__JSON_NONE;
    switch (*v.ptr) {
    case '{': return IM__JSON_OBJECT;
    case '[': return IM__JSON_ARRAY;
    case '"': return IM__JSON_STRING;
    case 'n': return IM__JSON_NULL;
    case 'f': return IM__JSON_FALSE;
    case 't': return IM__JSON_TRUE;
    default: return IM__JSON_NUMBER;
    }
}

const char *im__json_kind_name(im__json v)
{
    static const char *const names[] = {"no value", "null", "false", "true", "a number", "a string", "a list", "an object"};
    return names[im__json_kind_of(v)];
}

/* Bytes up to `end` belong to the text. */
static const char *string_end(const char *p, const char *end)
{
    for (p++;; p++) {
        for (uint64_t hit = 0; hit == 0 && end - p >= 8;) {
            hit = zeros(load(p) ^ EACH * '"') | zeros(load(p) ^ EACH * '\\');
            p += hit == 0 ? 8 : first_byte(hit);
        }
        if (*p == '"') return p + 1;
        if (*p == '\\') p++;
    }
}

/* Behind the array or object at p. Outside strings only brackets, braces and letters have the bit 0x40. */
static const char *container_end(const char *p, const char *end)
{
    for (size_t depth = 0;; p++) {
        for (uint64_t hit = 0; hit == 0 && end - p >= 8;) {
            uint64_t w = load(p);
            hit = (w & EACH * 0x40) << 1 | zeros(w ^ EACH * '"');
            p += hit == 0 ? 8 : first_byte(hit);
        }
        if (*p == '"') p = string_end(p, end) - 1;
        if (*p == '{' || *p == '[') depth++;
        if ((*p == '}' || *p == ']') && --depth == 0) return p + 1;
    }
}

static bool is_container(const char *p) { return *p == '{' || *p == '['; }

static const char *value_end(const char *p, const char *end)
{
    if (*p == '"') return string_end(p, end);
    if (is_container(p)) return container_end(p, end);
    while (p < end && strchr(",]} \t\r\n", *p) == NULL) p++;
    return p;
}

/* `end`: of the value or of a text that the value ends in. */
static im__json_items items_at(const char *p, const char *end)
{
    return (im__json_items){.at = skip_blanks(p + 1, end), .end = end, .named = *p == '{'};
}

im__json_items im__json_items_of(im__json v)
{
    return v.len > 0 && is_container(v.ptr) ? items_at(v.ptr, v.ptr + v.len) : (im__json_items){0};
}

static bool at_end(const im__json_items *i) { return i->at == i->end || *i->at == '}' || *i->at == ']'; }

im__json im__json_key(const im__json_items *i)
{
    if (!i->named || at_end(i)) return (im__json){NULL, 0};
    return (im__json){i->at, (size_t)(string_end(i->at, i->end) - i->at)};
}

/* From the key at `at` to the value. */
static void to_value(im__json_items *i, im__json key) { i->at = skip_blanks(skip_blanks(i->at + key.len, i->end) + 1, i->end); }

static void behind_value(im__json_items *i, const char *end)
{
    i->at = skip_blanks(end, i->end);
    if (i->at < i->end && *i->at == ',') i->at = skip_blanks(i->at + 1, i->end);
}

bool im__json_next(im__json_items *i, im__json *key, im__json *value)
{
    im__json name = im__json_key(i);
    if (at_end(i)) return false;
    if (i->named) to_value(i, name);
    if (key != NULL) *key = name;
    *value = (im__json){i->at, (size_t)(value_end(i->at, i->end) - i->at)};
    behind_value(i, i->at + value->len);
    return true;
}

bool im__json_enter(im__json_items *i, im__json_items *inside)
{
    im__json_items there = *i;
    if (at_end(i)) return false;
    if (i->named) to_value(&there, im__json_key(i));
    if (!is_container(there.at)) return false;
    *i = there;
    *inside = items_at(i->at, i->end);
    return true;
}

void im__json_leave(im__json_items *i, im__json_items *inside)
{
    im__json value;
    while (im__json_next(inside, NULL, &value)) continue;
    behind_value(i, inside->at + 1);
}

int im__json_member(im__json object, const char *name, im__json *out)
{
    im__json key, value;
    int found = 0;
    *out = (im__json){NULL, 0};
    im__json_items i = im__json_items_of(object);
    while (i.named && found < 2 && im__json_next(&i, &key, &value)) {
        if (!im__json_is(key, name)) continue;
        if (found++ == 0) *out = value;
    }
    return found;
}

/* ---- scalars ---- */

bool im__json_u64(im__json v, uint64_t *out)
{
    uint64_t n = 0;
    if (im__json_kind_of(v) != IM__JSON_NUMBER) return false;
    for (size_t i = 0; i < v.len; i++) {
        unsigned digit = (unsigned)(v.ptr[i] - '0');
        if (digit > 9 || n > (UINT64_MAX - digit) / 10) return false;
        n = n * 10 + digit;
    }
    *out = n;
    return true;
}

/* strtod obeys the locale of the process, so its decimal point takes the place of the dot. */
bool im__json_double(im__json v, double *out)
{
    char text[256 + 8];
    const char *point = localeconv()->decimal_point;
    size_t n = 0, len = point == NULL || point[0] == 0 || strlen(point) > 7 ? 0 : strlen(point);
    if (im__json_kind_of(v) != IM__JSON_NUMBER || v.len > 256) return false;
    for (size_t i = 0; i < v.len; i++) {
        if (v.ptr[i] != '.' || len == 0) {
            text[n++] = v.ptr[i];
            continue;
        }
        memcpy(text + n, point, len);
        n += len;
    }
    text[n] = 0;
    *out = strtod(text, NULL);
    return true;
}

bool im__json_bool(im__json v, bool *out)
{
    im__json_kind kind = im__json_kind_of(v);
    if (kind != IM__JSON_TRUE && kind != IM__JSON_FALSE) return false;
    *out = kind == IM__JSON_TRUE;
    return true;
}

/* ---- strings ---- */

/* The next bytes (at most 4) that a string at *p stands for; 0 at its closing quote. */
static size_t next_bytes(const char **p, char out[4])
{
    uint32_t code = 0;
    if (**p == '"') return 0;
    if (**p != '\\') {
        out[0] = *(*p)++;
        return 1;
    }
    ++*p;
    if (**p != 'u') {
        out[0] = (char)short_escape(*(*p)++);
        return 1;
    }
    *p += unicode_escape(*p, *p + 11, &code);
    return im__utf8_encode(code, out);
}

bool im__json_is(im__json v, const char *text)
{
    char bytes[4];
    if (im__json_kind_of(v) != IM__JSON_STRING) return false;
    const char *p = v.ptr + 1;
    for (size_t n; (n = next_bytes(&p, bytes)) > 0; text += n)
        if (strnlen(text, n) < n || memcmp(text, bytes, n) != 0) return false;
    return *text == 0;
}

bool im__json_text(im__json v, im__buf *out)
{
    char bytes[4];
    if (im__json_kind_of(v) != IM__JSON_STRING) return false;
    const char *p = v.ptr + 1, *end = v.ptr + v.len - 1;
    while (p < end) {
        const char *run = memchr(p, '\\', (size_t)(end - p));
        size_t n = run == NULL ? (size_t)(end - p) : (size_t)(run - p);
        im__buf_append(out, p, n);
        p += n;
        if (p < end) im__buf_append(out, bytes, next_bytes(&p, bytes));
    }
    return true;
}

bool im__json_copy(im__json v, char *out, size_t size)
{
    char bytes[4];
    size_t len = 0;
    if (im__json_kind_of(v) != IM__JSON_STRING) return false;
    const char *p = v.ptr + 1;
    for (size_t n; (n = next_bytes(&p, bytes)) > 0; len += n) {
        if (bytes[0] == 0 || n >= size - len) return false;
        memcpy(out + len, bytes, n);
    }
    out[len] = 0;
    return true;
}

int im__json_compare(im__json a, im__json b)
{
    char x[4], y[4];
    const char *p = a.ptr + 1, *q = b.ptr + 1;
    size_t n = 0, m = 0, i = 0, j = 0;
    for (;; i++, j++) {
        if (i == n) n = next_bytes(&p, x), i = 0;
        if (j == m) m = next_bytes(&q, y), j = 0;
        if (n == 0 || m == 0) return (n != 0) - (m != 0);
        if (x[i] != y[j]) return (unsigned char)x[i] < (unsigned char)y[j] ? -1 : 1;
    }
}
