/* SPDX-License-Identifier: Apache-2.0
 * str() and repr() of values. */
#include "text/chat/jinja_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <utf8proc.h>

static bool printable(uint32_t code)
{
    if (code < 0x7f) return code >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void put_escape(im__jtext *t, uint32_t code, uint8_t origin)
{
    char text[16];
    const char *form = code < 0x100 ? "\\x%02" PRIx32 : code < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32;
    if (code == '\n' || code == '\r' || code == '\t') form = code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    int n = snprintf(text, sizeof text, form, code);
    im__jtext_put(t, text, (size_t)n, origin);
}

static void repr_str(im__jtext *t, const im__jstr *s)
{
    if (s->safe) im__jtext_puts(t, "Markup(");
    char quote = memchr(s->p, '\'', s->n) != NULL && memchr(s->p, '"', s->n) == NULL ? '"' : '\'';
    im__jtext_put(t, &quote, 1, J_FROM_TEMPLATE);
    size_t done = 0;
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t len = im__jstr_step(s->p + i, &code);
        bool backslash = code == '\\' || code == (uint32_t)quote;
        if (backslash || !printable(code)) {
            im__jtext_slice(t, s, done, i);
            if (backslash) {
                im__jtext_put(t, "\\", 1, im__jstr_origin(s, i));
                im__jtext_slice(t, s, i, i + len);
            } else {
                put_escape(t, code, im__jstr_origin(s, i));
            }
            done = i + len;
        }
        i += len;
    }
    im__jtext_slice(t, s, done, s->n);
    im__jtext_put(t, &quote, 1, J_FROM_TEMPLATE);
    if (s->safe) im__jtext_puts(t, ")");
}

static bool repr_items(im__jtext *t, const im__jseq *seq)
{
    for (size_t i = 0; i < seq->n; i++) {
        if (i > 0) im__jtext_puts(t, ", ");
        if (!im__jput_repr(t, &seq->at[i])) return false;
    }
    return true;
}

static bool repr_seq(im__jtext *t, im__jtype type, const im__jseq *seq)
{
    static const char *const open[] = {
        [J_LIST] = "[", [J_TUPLE] = "(", [J_KEYS] = "dict_keys([", [J_VALUES] = "dict_values([", [J_ITEMS] = "dict_items(["};
    if (type == J_RANGE) {
        im__jtext_printf(t, "range(%" PRId64 ", %" PRId64, seq->start, seq->stop);
        if (seq->step != 1) im__jtext_printf(t, ", %" PRId64, seq->step);
        im__jtext_puts(t, ")");
        return true;
    }
    im__jtext_puts(t, open[type]);
    if (!repr_items(t, seq)) return false;
    if (type == J_TUPLE) im__jtext_puts(t, seq->n == 1 ? ",)" : ")");
    if (type == J_LIST) im__jtext_puts(t, "]");
    if (type >= J_KEYS) im__jtext_puts(t, "])");
    return true;
}

static bool repr_dict(im__jtext *t, const im__jdict *d)
{
    im__jtext_puts(t, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0) im__jtext_puts(t, ", ");
        if (!im__jput_repr(t, &d->at[i].key)) return false;
        im__jtext_puts(t, ": ");
        if (!im__jput_repr(t, &d->at[i].value)) return false;
    }
    im__jtext_puts(t, "}");
    return true;
}

static bool repr_nested(im__jtext *t, const im__jvalue *v)
{
    bool ok;
    if (!im__jenter(t->run)) return false;
    if (v->type == J_DICT) {
        ok = repr_dict(t, v->as.dict);
    } else if (v->type == J_NAMESPACE) {
        im__jtext_puts(t, "<Namespace ");
        ok = repr_dict(t, v->as.dict);
        im__jtext_puts(t, ">");
    } else {
        ok = repr_seq(t, v->type, v->as.seq);
    }
    im__jleave(t->run);
    return ok;
}

bool im__jput_repr(im__jtext *t, const im__jvalue *v)
{
    char text[32];
    switch (v->type) {
    case J_UNDEFINED: im__jtext_puts(t, "Undefined"); break;
    case J_NONE: im__jtext_puts(t, "None"); break;
    case J_BOOL: im__jtext_puts(t, v->as.b ? "True" : "False"); break;
    case J_INT: im__jtext_printf(t, "%" PRId64, v->as.i); break;
    case J_BIG: im__jtext_add(t, v->as.str); break;
    case J_FLOAT:
        im__jfloat_text(v->as.f, text);
        im__jtext_puts(t, text);
        break;
    case J_STR: repr_str(t, v->as.str); break;
    case J_ITER:
    case J_FUNCTION:
    case J_LOOP:
    case J_JOINER:
    case J_CYCLER: im__jtext_printf(t, "<%s>", im__jtype_name(v)); break;
    default: return repr_nested(t, v);
    }
    return !t->run->failed;
}

bool im__jput_str(im__jtext *t, const im__jvalue *v)
{
    if (v->type == J_STR) {
        im__jtext_add(t, v->as.str);
        return !t->run->failed;
    }
    if (v->type == J_UNDEFINED) return true;
    return im__jput_repr(t, v);
}

bool im__jto_str(im__jrun *run, const im__jvalue *v, im__jvalue *out)
{
    if (v->type == J_STR) {
        *out = *v;
        return true;
    }
    im__jtext t = {.run = run};
    return im__jput_str(&t, v) && im__jtext_done(&t, out);
}
