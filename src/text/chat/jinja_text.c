/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_text.h"

#include "base/utf8.h"

#include <stdio.h>

/* ---- putting text together ---- */

static bool grow(im__jtext *t, size_t more)
{
    size_t need;
    if (t->run->failed) return false;
    if (!im__add(t->n, more, &need)) need = SIZE_MAX / 4;
    if (need <= t->cap) return true;
    size_t cap = t->cap < 32 ? 32 : t->cap;
    while (cap < need) cap *= 2;
    char *data = im__jalloc(t->run, cap);
    uint8_t *mark = t->mark != NULL ? im__jalloc(t->run, cap) : NULL;
    if (data == NULL || (t->mark != NULL && mark == NULL)) return false;
    if (t->n > 0) memcpy(data, t->data, t->n);
    if (t->mark != NULL && t->n > 0) memcpy(mark, t->mark, t->n);
    t->data = data;
    t->mark = mark;
    t->cap = cap;
    return true;
}

static bool add_marks(im__jtext *t)
{
    if (t->mark != NULL) return true;
    t->mark = im__jalloc(t->run, t->cap);
    if (t->mark == NULL) return false;
    memset(t->mark, t->origin, t->n);
    return true;
}

/* Room for n bytes, whose marks the caller fills in when *mark is not NULL. */
static bool open_gap(im__jtext *t, size_t n, bool uniform, uint8_t origin, uint8_t **mark)
{
    if (!im__jwork(t->run, n / 16) || !grow(t, n)) return false;
    if (t->n == 0 && uniform && t->mark == NULL) t->origin = origin;
    if ((!uniform || origin != t->origin) && !add_marks(t)) return false;
    *mark = t->mark != NULL ? t->mark + t->n : NULL;
    return true;
}

void im__jtext_put(im__jtext *t, const char *p, size_t n, uint8_t origin)
{
    uint8_t *mark;
    if (n == 0 || !open_gap(t, n, true, origin, &mark)) return;
    memcpy(t->data + t->n, p, n);
    if (mark != NULL) memset(mark, origin, n);
    t->n += n;
}

void im__jtext_puts(im__jtext *t, const char *s) { im__jtext_put(t, s, strlen(s), J_FROM_TEMPLATE); }

void im__jtext_printf(im__jtext *t, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0) im__jtext_put(t, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1, J_FROM_TEMPLATE);
}

void im__jtext_code(im__jtext *t, uint32_t code, uint8_t origin)
{
    char bytes[4];
    im__jtext_put(t, bytes, im__utf8_encode(code, bytes), origin);
}

void im__jtext_add(im__jtext *t, const im__jstr *s) { im__jtext_slice(t, s, 0, s->n); }

void im__jtext_slice(im__jtext *t, const im__jstr *s, size_t from, size_t to)
{
    uint8_t *mark;
    if (from >= to) return;
    if (s->mark == NULL) {
        im__jtext_put(t, s->p + from, to - from, s->origin);
        return;
    }
    if (!open_gap(t, to - from, false, 0, &mark)) return;
    memcpy(t->data + t->n, s->p + from, to - from);
    memcpy(mark, s->mark + from, to - from);
    t->n += to - from;
}

bool im__jtext_done(const im__jtext *t, im__jvalue *out)
{
    im__jstr *s = t->run->failed ? NULL : im__jalloc(t->run, sizeof *s);
    if (s == NULL) return false;
    *s = (im__jstr){.p = t->n > 0 ? t->data : "", .n = t->n, .mark = t->n > 0 ? t->mark : NULL, .origin = t->origin};
    *out = (im__jvalue){.type = J_STR, .as.str = s};
    return true;
}

/* ---- strings ---- */

bool im__jstr_new(im__jrun *run, const char *p, size_t n, uint8_t origin, im__jvalue *out)
{
    im__jstr *s = im__jalloc(run, sizeof *s);
    if (s == NULL) return false;
    *s = (im__jstr){.p = p, .n = n, .origin = origin};
    *out = (im__jvalue){.type = J_STR, .as.str = s};
    return true;
}

bool im__jstr_static(im__jrun *run, const char *s, im__jvalue *out)
{
    return im__jstr_new(run, s, strlen(s), J_FROM_TEMPLATE, out);
}

bool im__jstr_sub(im__jrun *run, const im__jstr *s, size_t from, size_t to, im__jvalue *out)
{
    im__jstr *sub = im__jalloc(run, sizeof *sub);
    if (sub == NULL) return false;
    *sub =
        (im__jstr){.p = s->p + from, .n = to - from, .mark = s->mark ? s->mark + from : NULL, .origin = s->origin, .safe = s->safe};
    *out = (im__jvalue){.type = J_STR, .as.str = sub};
    return true;
}

/* The text that `a` may grow in: its own when nothing was written behind it yet, else a copy with room. */
static im__jtext *home_of(im__jrun *run, const im__jstr *a, size_t more)
{
    im__jtext *t = a->home;
    if (t != NULL && t->n > 0 && t->data + t->n == a->p + a->n) return t;
    t = im__jalloc(run, sizeof *t);
    if (t == NULL) return NULL;
    *t = (im__jtext){.run = run};
    if (a->n <= SIZE_MAX / 4 && more <= SIZE_MAX / 4) grow(t, a->n + a->n / 2 + more);
    im__jtext_add(t, a);
    return t;
}

bool im__jstr_concat(im__jrun *run, const im__jstr *a, const im__jstr *b, im__jvalue *out)
{
    im__jtext *t = home_of(run, a, b->n);
    im__jstr *s = im__jalloc(run, sizeof *s);
    if (t == NULL || s == NULL) return false;
    im__jtext_add(t, b);
    if (run->failed) return false;
    size_t n = a->n + b->n, from = t->n - n;
    *s = (im__jstr){.p = t->data != NULL ? t->data + from : "",
                    .n = n,
                    .mark = t->mark ? t->mark + from : NULL,
                    .origin = t->origin,
                    .home = t};
    *out = (im__jvalue){.type = J_STR, .as.str = s};
    return true;
}

bool im__jstr_escape(im__jrun *run, const im__jstr *s, im__jvalue *out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    im__jtext t = {.run = run};
    size_t done = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *hit = memchr(from, s->p[i], sizeof from - 1);
        if (hit == NULL) continue;
        im__jtext_slice(&t, s, done, i);
        im__jtext_put(&t, to[hit - from], strlen(to[hit - from]), im__jstr_origin(s, i));
        done = i + 1;
    }
    im__jtext_slice(&t, s, done, s->n);
    return im__jtext_done(&t, out) && im__jstr_safe(run, out, out);
}

bool im__jstr_safe(im__jrun *run, const im__jvalue *v, im__jvalue *out)
{
    const im__jstr *from = v->as.str;
    im__jstr *s = im__jalloc(run, sizeof *s);
    if (s == NULL) return false;
    *s = *from;
    s->safe = true;
    s->home = NULL;
    *out = (im__jvalue){.type = J_STR, .as.str = s};
    return true;
}

uint8_t im__jstr_origin(const im__jstr *s, size_t at)
{
    if (s->n == 0) return J_FROM_TEMPLATE;
    return s->mark != NULL ? s->mark[at < s->n ? at : s->n - 1] : s->origin;
}

bool im__jstr_is(const im__jvalue *v, const char *s)
{
    return v->type == J_STR && v->as.str->n == strlen(s) && memcmp(v->as.str->p, s, v->as.str->n) == 0;
}

bool im__jstr_same(const im__jstr *a, const im__jstr *b) { return a->n == b->n && memcmp(a->p, b->p, a->n) == 0; }

int im__jstr_compare(const im__jstr *a, const im__jstr *b)
{
    int order = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (order == 0) return (a->n > b->n) - (a->n < b->n);
    return order > 0 ? 1 : -1;
}

/* ---- characters ---- */

static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

size_t im__jstr_length(const im__jstr *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += !continues(s->p[i]);
    return n;
}

size_t im__jstr_offset(const im__jstr *s, size_t index)
{
    size_t i = 0;
    for (; i < s->n; i++)
        if (!continues(s->p[i]) && index-- == 0) break;
    return i;
}

size_t im__jstr_step(const char *p, uint32_t *code)
{
    unsigned char lead = (unsigned char)p[0];
    return im__utf8_decode(p, lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4, code);
}

size_t im__jstr_step_back(const char *p, uint32_t *code)
{
    size_t n = 1;
    while (n < 4 && continues(p[-(ptrdiff_t)n])) n++;
    return im__utf8_decode(p - n, n, code);
}

size_t im__jstr_find(const im__jstr *s, const im__jstr *what, size_t from, size_t to)
{
    if (from > to || to - from < what->n) return SIZE_MAX;
    if (what->n == 0) return from;
    const char *hit = memmem(s->p + from, to - from, what->p, what->n);
    return hit == NULL ? SIZE_MAX : (size_t)(hit - s->p);
}

size_t im__jstr_rfind(const im__jstr *s, const im__jstr *what, size_t from, size_t to)
{
    if (from > to || to - from < what->n) return SIZE_MAX;
    for (size_t at = to - what->n + 1; at-- > from;)
        if (im__jstr_at(s, at, what)) return at;
    return SIZE_MAX;
}

bool im__jstr_at(const im__jstr *s, size_t at, const im__jstr *what)
{
    return at <= s->n && what->n <= s->n - at && memcmp(s->p + at, what->p, what->n) == 0;
}

bool im__jis_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool strippable(uint32_t code, const char *p, size_t len, const im__jstr *chars)
{
    if (chars == NULL) return im__jis_space(code);
    return memmem(chars->p, chars->n, p, len) != NULL;
}

void im__jstr_strip(const im__jstr *s, const im__jstr *chars, bool left, bool right, size_t *from, size_t *to)
{
    uint32_t code;
    *from = 0;
    *to = s->n;
    while (left && *from < *to) {
        size_t len = im__jstr_step(s->p + *from, &code);
        if (!strippable(code, s->p + *from, len, chars)) break;
        *from += len;
    }
    while (right && *to > *from) {
        size_t len = im__jstr_step_back(s->p + *to, &code);
        if (!strippable(code, s->p + *to - len, len, chars)) break;
        *to -= len;
    }
}
