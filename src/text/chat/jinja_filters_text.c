/* SPDX-License-Identifier: Apache-2.0
 * Filters that give text or numbers. */
#include "text/chat/jinja_case.h"
#include "text/chat/jinja_filters.h"
#include "text/chat/jinja_format.h"
#include "text/chat/jinja_json.h"

#include <math.h>
#include <utf8proc.h>

/* ---- strings ---- */

static bool as_str(const im__jcall *c, im__jvalue *out) { return im__jto_str(c->run, c->self, out); }

bool im__jcall_str_method(const im__jcall *c, const char *method, const im__jvalue *arg, size_t count, im__jvalue *out)
{
    im__jvalue s;
    im__jargs args = {.pos = arg, .pos_count = count};
    return as_str(c, &s) && im__jcall_builtin(c->run, im__jfind_method(&s, method, strlen(method)), &s, &args, out);
}

static size_t given(const im__jcall *c, size_t most)
{
    size_t n = 0;
    while (n < most && !im__jabsent(&c->arg[n])) n++;
    return n;
}

static bool f_trim(const im__jcall *c, im__jvalue *out) { return im__jcall_str_method(c, "strip", c->arg, given(c, 1), out); }
static bool f_upper(const im__jcall *c, im__jvalue *out) { return im__jcall_str_method(c, "upper", NULL, 0, out); }
static bool f_lower(const im__jcall *c, im__jvalue *out) { return im__jcall_str_method(c, "lower", NULL, 0, out); }
static bool f_capitalize(const im__jcall *c, im__jvalue *out) { return im__jcall_str_method(c, "capitalize", NULL, 0, out); }

static bool f_center(const im__jcall *c, im__jvalue *out)
{
    im__jvalue width = im__jabsent(&c->arg[0]) ? im__jint(80) : c->arg[0];
    return im__jcall_str_method(c, "center", &width, 1, out);
}

static bool f_replace(const im__jcall *c, im__jvalue *out)
{
    im__jvalue arg[3];
    int64_t count = 0;
    if (c->arg[2].type != J_NONE && !im__jarg_int(c, 2, 0, &count)) return false;
    arg[2] = im__jint(count != 0 ? count : -1);
    for (int i = 0; i < 2; i++)
        if (!im__jto_str(c->run, &c->arg[i], &arg[i])) return false;
    return im__jcall_str_method(c, "replace", arg, 3, out);
}

/* Jinja's own title case: words begin behind blanks and - ( { [ <. */
static bool f_title(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s, part;
    im__jtext t = {.run = c->run};
    if (!as_str(c, &s)) return false;
    const im__jstr *str = s.as.str;
    bool starts = true;
    for (size_t i = 0; i < str->n && im__jwork(c->run, 1);) {
        uint32_t code;
        size_t len = im__jstr_step(str->p + i, &code);
        im__jstr one = {.p = str->p + i, .n = len, .mark = str->mark ? str->mark + i : NULL, .origin = str->origin};
        if (!im__jcase(c->run, &one, starts ? J_UPPER : J_LOWER, &part)) return false;
        im__jtext_add(&t, part.as.str);
        starts = im__jis_space(code) || (code < 0x80 && strchr("-({[<", (int)code) != NULL);
        i += len;
    }
    return im__jtext_done(&t, out);
}

static bool f_forceescape(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s;
    return as_str(c, &s) && im__jstr_escape(c->run, s.as.str, out);
}

static bool f_escape(const im__jcall *c, im__jvalue *out)
{
    *out = *c->self;
    return (c->self->type == J_STR && c->self->as.str->safe) || f_forceescape(c, out);
}

static bool f_safe(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s;
    return as_str(c, &s) && im__jstr_safe(c->run, &s, out);
}

static bool need_str(const im__jcall *c, im__jvalue *out)
{
    *out = *c->self;
    if (c->self->type == J_UNDEFINED) return im__juse_undefined(c->run, c->self);
    return c->self->type == J_STR || im__jfail(c->run, "this filter needs a string, not %s", im__jtype_name(c->self));
}

static bool indentation(const im__jcall *c, const im__jvalue *width, im__jvalue *out)
{
    im__jtext t = {.run = c->run};
    if (width->type == J_STR) {
        *out = *width;
        return true;
    }
    int64_t n = im__jabsent(width) ? 4 : width->type == J_INT ? width->as.i : width->type == J_BOOL ? width->as.b : -1;
    if (n < 0 && width->type != J_INT)
        return im__jfail(c->run, "the width must be an integer or a string, not %s", im__jtype_name(width));
    for (int64_t i = 0; i < n && im__jwork(c->run, 1); i++) im__jtext_puts(&t, " ");
    return im__jtext_done(&t, out);
}

static bool f_indent(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s, lines, pad, newline;
    im__jtext t = {.run = c->run};
    bool first = im__jarg_flag(c, 1, false), blank = im__jarg_flag(c, 2, false);
    if (!indentation(c, &c->arg[0], &pad) || !need_str(c, &s) || !im__jstr_static(c->run, "\n", &newline)) return false;
    im__jvalue whole = s;
    im__jargs none = {0};
    if (!im__jstr_concat(c->run, s.as.str, newline.as.str, &whole)) return false;
    if (!im__jcall_builtin(c->run, im__jfind_method(&whole, "splitlines", 10), &whole, &none, &lines)) return false;
    const im__jseq *seq = lines.as.seq;
    if (first) im__jtext_add(&t, pad.as.str);
    for (size_t i = 0; i < seq->n && im__jwork(c->run, 1); i++) {
        const im__jstr *line = seq->at[i].as.str;
        if (i > 0) im__jtext_puts(&t, "\n");
        if (i > 0 && (blank || line->n > 0)) im__jtext_add(&t, pad.as.str);
        im__jtext_add(&t, line);
    }
    return im__jtext_done(&t, out);
}

static bool word_char(uint32_t code)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return code == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
           (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

static bool f_wordcount(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s;
    int64_t words = 0;
    bool inside = false;
    if (!as_str(c, &s) || !im__jwork(c->run, s.as.str->n / 16)) return false;
    for (size_t i = 0; i < s.as.str->n;) {
        uint32_t code;
        i += im__jstr_step(s.as.str->p + i, &code);
        words += word_char(code) && !inside;
        inside = word_char(code);
    }
    *out = im__jint(words);
    return true;
}

static bool f_truncate(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s, end, head;
    int64_t length, leeway;
    size_t n;
    if (!im__jlength(c->run, c->self, &n) || !im__jstr_static(c->run, "...", &end)) return false;
    if (!im__jabsent(&c->arg[2]) && !im__jto_str(c->run, &c->arg[2], &end)) return false;
    if (!im__jarg_int(c, 0, 255, &length) || !im__jarg_int(c, 3, 5, &leeway)) return false;
    int64_t end_length = (int64_t)im__jstr_length(end.as.str);
    if (length < end_length || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return im__jfail(c->run, "truncate: expected length >= %lld, got %lld", (long long)end_length, (long long)length);
    *out = *c->self;
    if ((int64_t)n <= length + leeway) return true;
    if (!need_str(c, &s)) return false;
    size_t cut = im__jstr_offset(s.as.str, (size_t)(length - end_length));
    if (!im__jarg_flag(c, 1, false)) {
        static const im__jstr blank = {.p = " ", .n = 1};
        size_t hit = im__jstr_rfind(s.as.str, &blank, 0, cut);
        if (hit != SIZE_MAX) cut = hit;
    }
    return im__jstr_sub(c->run, s.as.str, 0, cut, &head) && im__jstr_concat(c->run, head.as.str, end.as.str, out);
}

static bool f_format(const im__jcall *c, im__jvalue *out)
{
    im__jvalue s, values;
    if (!as_str(c, &s)) return false;
    if (c->args->named_count > 0) {
        if (c->args->pos_count > 0)
            return im__jfail(c->run, "format: can't handle positional and keyword arguments at the same time");
        im__jdict *d = im__jdict_new(c->run);
        for (size_t i = 0; d != NULL && i < c->args->named_count; i++)
            if (!im__jdict_set(c->run, d, &c->args->named[i].key, &c->args->named[i].value)) return false;
        if (d == NULL) return false;
        values = (im__jvalue){.type = J_DICT, .as.dict = d};
    } else {
        im__jseq *seq = im__jseq_new(c->run, c->args->pos_count);
        for (size_t i = 0; seq != NULL && i < c->args->pos_count; i++) seq->at[seq->n++] = c->args->pos[i];
        if (seq == NULL) return false;
        values = im__jseq_value(J_TUPLE, seq);
    }
    return im__jformat_percent(c->run, s.as.str, &values, out);
}

static bool separators(const im__jcall *c, const im__jvalue *v, im__jjson_style *style)
{
    if (im__jabsent(v) || v->type == J_NONE) return true;
    bool two = (v->type == J_TUPLE || v->type == J_LIST) && v->as.seq->n == 2 && v->as.seq->at[0].type == J_STR &&
               v->as.seq->at[1].type == J_STR;
    if (!two) return im__jfail(c->run, "tojson: separators must be two strings");
    style->item_sep = v->as.seq->at[0].as.str;
    style->key_sep = v->as.seq->at[1].as.str;
    return true;
}

static bool f_tojson(const im__jcall *c, im__jvalue *out)
{
    im__jvalue pad;
    im__jtext t = {.run = c->run};
    im__jjson_style style = {.ascii = im__jarg_flag(c, 0, false), .sort_keys = im__jarg_flag(c, 3, false)};
    style.indented = !im__jabsent(&c->arg[1]) && c->arg[1].type != J_NONE;
    if (style.indented && !indentation(c, &c->arg[1], &pad)) return false;
    if (style.indented) style.indent = pad.as.str;
    return separators(c, &c->arg[2], &style) && im__jjson_write(&t, c->self, &style) && im__jtext_done(&t, out);
}

/* ---- numbers ---- */

static bool is_digits(const char *p, const char *end)
{
    if (p < end && (*p == '+' || *p == '-')) p++;
    if (p == end) return false;
    for (; p < end; p++)
        if (*p < '0' || *p > '9') return false;
    return true;
}

/* A decimal float literal, or inf, nan. */
static bool parse_float(const char *p, const char *end, double *out)
{
    bool digits = false;
    const char *s = p + (p < end && (*p == '+' || *p == '-'));
    const char *start = s;
    for (; s < end && (*s == '.' || (*s >= '0' && *s <= '9')); s++) digits |= *s != '.';
    if (digits && s < end && (*s | 32) == 'e') {
        const char *exponent = s + 1;
        if (!is_digits(exponent, end)) return false;
        s = end;
    }
    if (digits && s == end && end - p < 4000 &&
        memchr(start, '.', (size_t)(end - start)) == memrchr(start, '.', (size_t)(end - start))) {
        *out = im__jfloat_parse(p, (size_t)(end - p));
        return true;
    }
    size_t n = (size_t)(end - start);
    bool inf = (n == 3 && strncasecmp(start, "inf", 3) == 0) || (n == 8 && strncasecmp(start, "infinity", 8) == 0);
    if (!inf && !(n == 3 && strncasecmp(start, "nan", 3) == 0)) return false;
    *out = inf ? (double)INFINITY : (double)NAN;
    if (*p == '-') *out = -*out;
    return true;
}

static void stripped(const im__jstr *s, const char **p, const char **end)
{
    size_t from, to;
    im__jstr_strip(s, NULL, true, true, &from, &to);
    *p = s->p + from;
    *end = s->p + to;
}

static bool int_of_float(double f, im__jvalue *out)
{
    if (!(f > -9.2e18 && f < 9.2e18)) return false;
    *out = im__jint((int64_t)f);
    return true;
}

static bool based_int(const char *p, const char *end, int64_t base, im__jvalue *out)
{
    bool negative = p < end && *p == '-';
    int64_t value = 0;
    if (p < end && (*p == '-' || *p == '+')) p++;
    char mark = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0;
    if (mark != 0 && end - p > 2 && p[0] == '0' && (p[1] | 32) == mark) p += 2;
    if (p == end || end - p > 15) return false;
    for (; p < end; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : (*p | 32) >= 'a' && (*p | 32) <= 'z' ? (*p | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        if (value > INT64_MAX / 37) return false;
        value = value * base + digit;
    }
    *out = im__jint(negative ? -value : value);
    return true;
}

static bool int_of_str(const im__jcall *c, int64_t base, im__jvalue *out, bool *ok)
{
    const char *p, *end;
    double f;
    stripped(c->self->as.str, &p, &end);
    *ok = true;
    if (base == 10 && is_digits(p, end) && end - p <= 4000)
        return im__jint_parse(c->run, p, (size_t)(end - p), im__jstr_origin(c->self->as.str, 0), out);
    if (base != 10 && base >= 2 && base <= 36 && based_int(p, end, base, out)) return true;
    *ok = parse_float(p, end, &f) && int_of_float(f, out);
    return true;
}

static bool f_int(const im__jcall *c, im__jvalue *out)
{
    int64_t base;
    bool ok = false;
    const im__jvalue *v = c->self;
    im__jvalue fallback = im__jabsent(&c->arg[0]) ? im__jint(0) : c->arg[0];
    if (!im__jarg_int(c, 1, 10, &base)) return false;
    if (v->type == J_UNDEFINED) return im__juse_undefined(c->run, v);
    if (v->type == J_STR && !int_of_str(c, base, out, &ok)) return false;
    if (v->type == J_INT || v->type == J_BOOL || v->type == J_BIG) {
        *out = v->type == J_BOOL ? im__jint(v->as.b) : *v;
        ok = true;
    }
    if (v->type == J_FLOAT) ok = int_of_float(v->as.f, out);
    if (!ok) *out = fallback;
    return true;
}

static bool f_float(const im__jcall *c, im__jvalue *out)
{
    const char *p, *end;
    const im__jvalue *v = c->self;
    *out = im__jabsent(&c->arg[0]) ? im__jfloat(0) : c->arg[0];
    if (v->type == J_UNDEFINED) return im__juse_undefined(c->run, v);
    if (im__jis_number(v)) *out = im__jfloat(im__jas_double(v));
    if (v->type == J_STR || v->type == J_BIG) {
        double f;
        stripped(v->as.str, &p, &end);
        if (parse_float(p, end, &f)) *out = im__jfloat(f);
    }
    return true;
}

static bool f_abs(const im__jcall *c, im__jvalue *out)
{
    const im__jvalue *v = c->self;
    if (v->type == J_UNDEFINED) return im__juse_undefined(c->run, v);
    if (!im__jis_number(v)) return im__jfail(c->run, "bad operand type for abs(): '%s'", im__jtype_name(v));
    *out = v->type == J_FLOAT ? im__jfloat(fabs(v->as.f)) : im__jint(v->type == J_BOOL ? v->as.b : v->as.i);
    if (out->type == J_INT && out->as.i == INT64_MIN) return im__jfail(c->run, "an integer grows beyond 64 bits");
    if (out->type == J_INT && out->as.i < 0) out->as.i = -out->as.i;
    return true;
}

/* Python's round(f, places): by the exact decimal value, halves to even. */
static double round_places(double f, int64_t places)
{
    char text[400];
    if (!isfinite(f) || places > 300) return f;
    if (places < 0) {
        double scale = pow(10, (double)-places);
        return places < -308 ? copysign(0, f) : nearbyint(f / scale) * scale;
    }
    int n = im__jfloat_format(text, sizeof text, 'f', places > 60 ? 60 : (int)places, false, f);
    return n < 0 || (size_t)n >= sizeof text ? f : im__jfloat_parse(text, (size_t)n);
}

static bool f_round(const im__jcall *c, im__jvalue *out)
{
    int64_t places;
    const im__jstr *method;
    const im__jvalue *v = c->self;
    if (!im__jarg_int(c, 0, 0, &places) || !im__jarg_str(c, 1, &method)) return false;
    if (v->type == J_UNDEFINED) return im__juse_undefined(c->run, v);
    if (!im__jis_number(v)) return im__jfail(c->run, "type %s cannot be rounded", im__jtype_name(v));
    double f = im__jas_double(v), scale = pow(10, (double)places);
    bool ceiling = method != NULL && im__jstr_is(&c->arg[1], "ceil"), floored = method != NULL && im__jstr_is(&c->arg[1], "floor");
    if (method != NULL && !ceiling && !floored && !im__jstr_is(&c->arg[1], "common"))
        return im__jfail(c->run, "round: method must be common, ceil or floor");
    if (ceiling || floored)
        *out = im__jfloat((ceiling ? ceil(f * scale) : floor(f * scale)) / scale);
    else if (v->type == J_FLOAT)
        *out = im__jfloat(round_places(f, places));
    else
        *out = im__jint(places < 0 ? (int64_t)round_places(f, places) : v->type == J_BOOL ? v->as.b : v->as.i);
    return true;
}

static const im__jbuiltin filters[] = {
    {"trim", "chars?", f_trim},
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"capitalize", "", f_capitalize},
    {"title", "", f_title},
    {"center", "width?", f_center},
    {"replace", "old new count?", f_replace},
    {"string", "", as_str},
    {"safe", "", f_safe},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"forceescape", "", f_forceescape},
    {"indent", "width? first? blank?", f_indent},
    {"wordcount", "", f_wordcount},
    {"truncate", "length? killwords? end? leeway?", f_truncate},
    {"format", "*", f_format},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", f_tojson},
    {"int", "default? base?", f_int},
    {"float", "default?", f_float},
    {"abs", "", f_abs},
    {"round", "precision? method?", f_round},
};

const im__jbuiltin *im__jfind_text_filter(const char *name, size_t n)
{
    return im__jfind_in(filters, sizeof filters / sizeof filters[0], name, n);
}
