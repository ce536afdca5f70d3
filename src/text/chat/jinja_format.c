/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDEST 10000

/* One placeholder: [[fill]align][sign][#][0][width][,][.precision][type] */
typedef struct spec {
    im__jstr fill; /* one character */
    char align;    /* < > ^ =, or 0 */
    char sign;     /* + - or blank */
    bool alternate, zero, comma, has_precision;
    size_t width;
    int precision;
    char type; /* 0: none given */
} spec;

/* ---- what a value looks like ---- */

/* Thousands get commas: `digits` is a run of digits, then anything. */
static void put_grouped(im__jtext *t, const char *digits, bool comma)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (comma && i > 0 && (whole - i) % 3 == 0) im__jtext_puts(t, ",");
        im__jtext_put(t, digits + i, 1, J_FROM_TEMPLATE);
    }
    im__jtext_puts(t, digits + whole);
}

static bool put_integer(im__jtext *t, int64_t i, const spec *s, bool *negative)
{
    char text[80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *negative = i < 0;
    switch (s->type) {
    case 'x': snprintf(text, sizeof text, s->alternate ? "0x%" PRIx64 : "%" PRIx64, u); break;
    case 'X': snprintf(text, sizeof text, s->alternate ? "0X%" PRIX64 : "%" PRIX64, u); break;
    case 'o': snprintf(text, sizeof text, s->alternate ? "0o%" PRIo64 : "%" PRIo64, u); break;
    case 'b': {
        char *p = text + sizeof text - 1;
        *p = 0;
        do *--p = (char)('0' + (u & 1));
        while ((u >>= 1) != 0);
        if (s->alternate) im__jtext_puts(t, "0b");
        im__jtext_puts(t, p);
        return true;
    }
    default: snprintf(text, sizeof text, "%" PRIu64, u); break;
    }
    put_grouped(t, text, s->comma);
    return true;
}

static bool put_float(im__jtext *t, double f, const spec *s, bool *negative)
{
    char text[512];
    int precision = s->has_precision ? s->precision : 6;
    char kind = s->type == '%' ? 'f' : s->type == 0 ? 'g' : s->type;
    *negative = f < 0 || (f == 0 && 1 / f < 0);
    if (precision > 100) return im__jfail(t->run, "a precision above 100");
    if (s->type == '%') f *= 100;
    if (s->type == 0 && !s->has_precision)
        im__jfloat_text(*negative ? -f : f, text);
    else
        im__jfloat_format(text, sizeof text, kind, precision, s->alternate, *negative ? -f : f);
    put_grouped(t, text, s->comma);
    if (s->type == '%') im__jtext_puts(t, "%");
    return true;
}

static bool is_float_type(char type) { return type != 0 && strchr("eEfFgG%", type) != NULL; }

/* The number without its sign; "" in *sign or what stands before it. */
static bool put_number(im__jtext *t, const im__jvalue *v, const spec *s, const char **sign)
{
    bool negative, ok;
    if (v->type == J_FLOAT || is_float_type(s->type))
        ok = put_float(t, im__jas_double(v), s, &negative);
    else
        ok = put_integer(t, v->type == J_BOOL ? v->as.b : v->as.i, s, &negative);
    *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    return ok;
}

static void put_padding(im__jtext *t, const spec *s, size_t n)
{
    for (size_t i = 0; i < n; i++) im__jtext_add(t, &s->fill);
}

static bool put_padded(im__jtext *t, const im__jstr *body, const char *sign, const spec *s, char align)
{
    size_t used = im__jstr_length(body) + strlen(sign), pad = s->width > used ? s->width - used : 0;
    size_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    put_padding(t, s, before);
    im__jtext_puts(t, sign);
    if (align == '=') put_padding(t, s, pad);
    im__jtext_add(t, body);
    if (align == '<' || align == '^') put_padding(t, s, pad - before);
    return !t->run->failed;
}

static bool put_value(im__jtext *t, const im__jvalue *v, const spec *s, bool as_number)
{
    im__jtext body = {.run = t->run};
    im__jvalue text;
    const char *sign = "";
    bool ok = as_number ? put_number(&body, v, s, &sign) : im__jput_str(&body, v);
    if (!ok || !im__jtext_done(&body, &text)) return false;
    const im__jstr *str = text.as.str;
    if (!as_number && s->has_precision && !im__jstr_sub(t->run, str, 0, im__jstr_offset(str, (size_t)s->precision), &text))
        return false;
    char align = s->align != 0 ? s->align : as_number ? (s->zero ? '=' : '>') : '<';
    return put_padded(t, text.as.str, sign, s, align);
}

/* ---- "..." % values ---- */

typedef struct percent {
    im__jrun *run;
    const char *p, *end;
    const im__jvalue *values;
    size_t next; /* of a tuple */
} percent;

static bool take_value(percent *f, im__jvalue *out)
{
    bool tuple = f->values->type == J_TUPLE;
    size_t n = tuple ? f->values->as.seq->n : 1;
    if (f->next >= n) return im__jfail(f->run, "not enough arguments for format string");
    *out = tuple ? f->values->as.seq->at[f->next] : *f->values;
    f->next++;
    return true;
}

static bool take_named(percent *f, im__jvalue *out)
{
    const char *close = memchr(f->p, ')', (size_t)(f->end - f->p));
    if (close == NULL || f->values->type != J_DICT) return im__jfail(f->run, "%%(name) in a format needs a dict");
    const im__jvalue *v = im__jdict_find(f->values->as.dict, f->p, (size_t)(close - f->p));
    if (v == NULL)
        return im__jfail(f->run, "a format names the key '%.*s', which is not there", im__jshown((size_t)(close - f->p)), f->p);
    *out = *v;
    f->p = close + 1;
    return true;
}

static bool take_count(percent *f, size_t *out)
{
    im__jvalue v = im__jnone();
    *out = 0;
    if (f->p < f->end && *f->p == '*') {
        f->p++;
        if (!take_value(f, &v)) return false;
        if (v.type != J_INT || v.as.i < 0 || v.as.i > WIDEST) return im__jfail(f->run, "* in a format needs a small integer");
        *out = (size_t)v.as.i;
        return true;
    }
    for (; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++)
        if ((*out = *out * 10 + (size_t)(*f->p - '0')) > WIDEST) return im__jfail(f->run, "a format is too wide");
    return true;
}

static bool read_percent(percent *f, spec *s)
{
    char left = 0;
    for (; f->p < f->end && memchr("-+ #0", *f->p, 5) != NULL; f->p++) {
        if (*f->p == '-') left = '<';
        if (*f->p == '+' || (*f->p == ' ' && s->sign == 0)) s->sign = *f->p;
        s->alternate |= *f->p == '#';
        s->zero |= *f->p == '0';
    }
    size_t precision = 0;
    if (!take_count(f, &s->width)) return false;
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        s->has_precision = true;
        if (!take_count(f, &precision)) return false;
    }
    s->precision = (int)precision;
    s->align = left;
    s->type = f->p < f->end ? *f->p++ : 0;
    return true;
}

static bool put_conversion(percent *f, im__jtext *t, spec *s, const im__jvalue *given)
{
    im__jvalue v = *given;
    im__jtext repr = {.run = f->run};
    switch (s->type) {
    case 'r':
    case 'a':
        if (!im__jput_repr(&repr, given) || !im__jtext_done(&repr, &v)) return false;
        /* fall through */
    case 's': s->align = s->align == 0 ? '>' : s->align; return put_value(t, &v, s, false);
    case 'd':
    case 'i':
    case 'u':
        if (v.type == J_FLOAT && v.as.f > -9e18 && v.as.f < 9e18) v = im__jint((int64_t)v.as.f);
        /* fall through */
    case 'x':
    case 'X':
    case 'o':
        if (v.type != J_INT && v.type != J_BOOL) return im__jfail(f->run, "%%%c format: a real number is required", s->type);
        if (s->align == '<') s->zero = false;
        if (s->zero) s->fill.p = "0";
        return put_value(t, &v, s, true);
    default:
        if (!is_float_type(s->type) || s->type == '%') return im__jfail(f->run, "unsupported format character '%c'", s->type);
        if (!im__jis_number(&v)) return im__jfail(f->run, "%%%c format: a real number is required", s->type);
        if (s->align == '<') s->zero = false;
        if (s->zero) s->fill.p = "0";
        return put_value(t, &v, s, true);
    }
}

bool im__jformat_percent(im__jrun *run, const im__jstr *format, const im__jvalue *values, im__jvalue *out)
{
    im__jtext t = {.run = run};
    percent f = {.run = run, .p = format->p, .end = format->p + format->n, .values = values};
    bool named = false;
    while (f.p < f.end) {
        const char *hit = memchr(f.p, '%', (size_t)(f.end - f.p));
        size_t from = (size_t)(f.p - format->p);
        im__jtext_slice(&t, format, from, hit == NULL ? format->n : (size_t)(hit - format->p));
        if (hit == NULL) break;
        f.p = hit + 1;
        im__jvalue v;
        spec s = {.fill = {.p = " ", .n = 1}};
        if (f.p < f.end && *f.p == '%') {
            im__jtext_slice(&t, format, (size_t)(f.p - format->p), (size_t)(f.p - format->p) + 1);
            f.p++;
            continue;
        }
        bool by_name = f.p < f.end && *f.p == '(';
        named = named || by_name;
        f.p += by_name;
        if (by_name && !take_named(&f, &v)) return false;
        if (!read_percent(&f, &s) || (!by_name && !take_value(&f, &v)) || !put_conversion(&f, &t, &s, &v)) return false;
    }
    bool indexed = values->type == J_DICT || values->type == J_LIST || values->type == J_UNDEFINED; /* need not be used */
    bool all_used = values->type == J_TUPLE ? f.next == values->as.seq->n : f.next > 0 || indexed;
    if (!named && !all_used) return im__jfail(run, "not all arguments converted during string formatting");
    return im__jtext_done(&t, out);
}

/* ---- "...".format(values) ---- */

static bool read_spec(im__jrun *run, const char *p, const char *end, spec *s)
{
    uint32_t code;
    size_t len = p < end ? im__jstr_step(p, &code) : 0;
    if (p + len < end && memchr("<>^=", p[len], 4) != NULL) {
        s->fill = (im__jstr){.p = p, .n = len};
        s->align = p[len];
        p += len + 1;
    } else if (p < end && memchr("<>^=", *p, 4) != NULL) {
        s->align = *p++;
    }
    if (p < end && memchr("+- ", *p, 3) != NULL) s->sign = *p++;
    if (p < end && *p == '#') s->alternate = p++ != NULL;
    if (p < end && *p == '0') {
        s->zero = p++ != NULL;
        if (s->align == 0) s->fill.p = "0";
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if ((s->width = s->width * 10 + (size_t)(*p - '0')) > WIDEST) return im__jfail(run, "a format is too wide");
    if (p < end && *p == ',') s->comma = p++ != NULL;
    if (p < end && *p == '.') {
        s->has_precision = true;
        for (p++; p < end && *p >= '0' && *p <= '9'; p++)
            if ((s->precision = s->precision * 10 + (*p - '0')) > WIDEST) return im__jfail(run, "a format is too wide");
    }
    if (p < end) s->type = *p++;
    return p == end || im__jfail(run, "a format specifier is not understood");
}

typedef struct braces {
    im__jrun *run;
    const im__jargs *args;
    size_t next;
} braces;

static bool field_root(braces *b, const char *p, size_t n, im__jvalue *out)
{
    size_t index = b->next;
    bool digits = n > 0 && n < 9 && strspn(p, "0123456789") >= n;
    if (n == 0 || digits) {
        if (n == 0)
            b->next++;
        else
            index = (size_t)strtoul(p, NULL, 10);
        if (index >= b->args->pos_count) return im__jfail(b->run, "format(): replacement index %zu out of range", index);
        *out = b->args->pos[index];
        return true;
    }
    for (size_t i = 0; i < b->args->named_count; i++) {
        const im__jstr *key = b->args->named[i].key.as.str;
        if (key->n != n || memcmp(key->p, p, n) != 0) continue;
        *out = b->args->named[i].value;
        return true;
    }
    return im__jfail(b->run, "format(): no argument '%.*s'", im__jshown(n), p);
}

/* name.attribute[item] */
static bool field_value(braces *b, const char *p, const char *end, im__jvalue *out)
{
    const char *stop = p;
    while (stop < end && *stop != '.' && *stop != '[') stop++;
    if (!field_root(b, p, (size_t)(stop - p), out)) return false;
    for (p = stop; p < end; p = stop) {
        im__jvalue from = *out, key;
        bool item = *p == '[';
        for (stop = ++p; stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '[');) stop++;
        size_t n = (size_t)(stop - p);
        bool digits = item && n > 0 && n < 9 && strspn(p, "0123456789") >= n;
        bool ok = digits ? im__jint_parse(b->run, p, n, J_FROM_TEMPLATE, &key) : im__jstr_new(b->run, p, n, J_FROM_TEMPLATE, &key);
        ok = ok && (item ? im__jget_item(b->run, &from, &key, out) : im__jget_attr(b->run, &from, p, n, out));
        if (!ok) return false;
        if (out->type == J_UNDEFINED) return im__juse_undefined(b->run, out);
        stop += item && stop < end;
    }
    return true;
}

static bool put_field(braces *b, im__jtext *t, const char *p, const char *end)
{
    im__jvalue v, text;
    im__jtext repr = {.run = b->run};
    spec s = {.fill = {.p = " ", .n = 1}};
    const char *colon = memchr(p, ':', (size_t)(end - p));
    const char *name_end = colon != NULL ? colon : end;
    bool as_repr = name_end - p >= 2 && name_end[-2] == '!' && name_end[-1] == 'r';
    bool as_str = name_end - p >= 2 && name_end[-2] == '!' && name_end[-1] == 's';
    if (as_repr || as_str) name_end -= 2;
    if (!field_value(b, p, name_end, &v)) return false;
    if (colon != NULL && !read_spec(b->run, colon + 1, end, &s)) return false;
    if (as_repr) {
        if (!im__jput_repr(&repr, &v) || !im__jtext_done(&repr, &text)) return false;
        v = text;
    }
    bool number = im__jis_number(&v) && !as_str && s.type != 's' && !(v.type == J_BOOL && colon == NULL);
    return put_value(t, &v, &s, number);
}

bool im__jformat_braces(im__jrun *run, const im__jstr *format, const im__jargs *args, im__jvalue *out)
{
    im__jtext t = {.run = run};
    braces b = {.run = run, .args = args};
    for (size_t i = 0; i < format->n;) {
        size_t from = i;
        while (i < format->n && format->p[i] != '{' && format->p[i] != '}') i++;
        im__jtext_slice(&t, format, from, i);
        if (i == format->n) break;
        char c = format->p[i++];
        if (i < format->n && format->p[i] == c) {
            im__jtext_slice(&t, format, i, i + 1);
            i++;
            continue;
        }
        const char *close = c == '{' ? memchr(format->p + i, '}', format->n - i) : NULL;
        if (close == NULL) return im__jfail(run, "format(): single '%c' in the format", c);
        if (!put_field(&b, &t, format->p + i, close) || !im__jwork(run, 1)) return false;
        i = (size_t)(close - format->p) + 1;
    }
    return im__jtext_done(&t, out);
}
