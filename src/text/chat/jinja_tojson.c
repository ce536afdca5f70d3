/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct writer {
    im__jtext *t;
    const im__jjson_style *style;
    unsigned level;
} writer;

static bool write_value(writer *w, const im__jvalue *v);

/* The escape of a character, or 0 bytes when it is written as it is. */
static int escape(uint32_t code, bool ascii, char out[16])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *hit = code != 0 && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (hit != NULL) return snprintf(out, 16, "\\%c", to[hit - from]);
    if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000)) return snprintf(out, 16, "\\u%04" PRIx32, code);
    if (!ascii || code < 0x7f) return 0;
    code -= 0x10000;
    return snprintf(out, 16, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
}

static void write_string(writer *w, const im__jstr *s)
{
    size_t done = 0;
    im__jtext_puts(w->t, "\"");
    for (size_t i = 0; i < s->n;) {
        char text[16];
        uint32_t code;
        size_t len = im__jstr_step(s->p + i, &code);
        int n = escape(code, w->style->ascii, text);
        if (n > 0) {
            im__jtext_slice(w->t, s, done, i);
            im__jtext_put(w->t, text, (size_t)n, im__jstr_origin(s, i));
            done = i + len;
        }
        i += len;
    }
    im__jtext_slice(w->t, s, done, s->n);
    im__jtext_puts(w->t, "\"");
}

static void write_float(writer *w, double f)
{
    char text[32];
    im__jfloat_text(f, text);
    im__jtext_puts(w->t, isnan(f) ? "NaN" : isinf(f) ? (f > 0 ? "Infinity" : "-Infinity") : text);
}

static void new_line(writer *w)
{
    if (!w->style->indented) return;
    im__jtext_puts(w->t, "\n");
    for (unsigned i = 0; i < w->level; i++) im__jtext_add(w->t, w->style->indent);
}

static void separator(writer *w)
{
    if (w->style->item_sep != NULL)
        im__jtext_add(w->t, w->style->item_sep);
    else
        im__jtext_puts(w->t, w->style->indented ? "," : ", ");
    new_line(w);
}

static bool write_list(writer *w, const im__jseq *seq)
{
    if (seq->n == 0) {
        im__jtext_puts(w->t, "[]");
        return true;
    }
    im__jtext_puts(w->t, "[");
    w->level++;
    new_line(w);
    for (size_t i = 0; i < seq->n; i++) {
        if (i > 0) separator(w);
        if (!write_value(w, &seq->at[i])) return false;
    }
    w->level--;
    new_line(w);
    im__jtext_puts(w->t, "]");
    return true;
}

static bool write_key(writer *w, const im__jvalue *key)
{
    switch (key->type) {
    case J_STR: write_string(w, key->as.str); return true;
    case J_BOOL:
    case J_NONE:
    case J_INT:
    case J_BIG:
    case J_FLOAT:
        im__jtext_puts(w->t, "\"");
        if (!write_value(w, key)) return false;
        im__jtext_puts(w->t, "\"");
        return true;
    default: return im__jfail(w->t->run, "tojson: a key cannot be of type %s", im__jtype_name(key));
    }
}

/* The order in which the entries of a dict are written. */
static im__jsortable *entry_order(writer *w, const im__jdict *d)
{
    im__jsortable *list = im__jalloc_array(w->t->run, d->n, sizeof *list);
    for (size_t i = 0; list != NULL && i < d->n; i++) list[i] = (im__jsortable){.key = d->at[i].key, .index = i};
    if (list != NULL && w->style->sort_keys && !im__jsort(w->t->run, list, d->n, false)) return NULL;
    return list;
}

static bool write_dict(writer *w, const im__jdict *d)
{
    if (d->n == 0) {
        im__jtext_puts(w->t, "{}");
        return true;
    }
    const im__jsortable *list = entry_order(w, d);
    if (list == NULL) return false;
    im__jtext_puts(w->t, "{");
    w->level++;
    new_line(w);
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0) separator(w);
        const im__jentry *e = &d->at[list[i].index];
        if (!write_key(w, &e->key)) return false;
        if (w->style->key_sep != NULL)
            im__jtext_add(w->t, w->style->key_sep);
        else
            im__jtext_puts(w->t, ": ");
        if (!write_value(w, &e->value)) return false;
    }
    w->level--;
    new_line(w);
    im__jtext_puts(w->t, "}");
    return true;
}

static bool write_nested(writer *w, const im__jvalue *v)
{
    if (!im__jenter(w->t->run)) return false;
    bool ok = v->type == J_DICT ? write_dict(w, v->as.dict) : write_list(w, v->as.seq);
    im__jleave(w->t->run);
    return ok;
}

static bool write_value(writer *w, const im__jvalue *v)
{
    switch (v->type) {
    case J_NONE: im__jtext_puts(w->t, "null"); break;
    case J_BOOL: im__jtext_puts(w->t, v->as.b ? "true" : "false"); break;
    case J_INT: im__jtext_printf(w->t, "%" PRId64, v->as.i); break;
    case J_BIG: im__jtext_add(w->t, v->as.str); break;
    case J_FLOAT: write_float(w, v->as.f); break;
    case J_STR: write_string(w, v->as.str); break;
    case J_LIST:
    case J_TUPLE:
    case J_DICT: return write_nested(w, v);
    case J_UNDEFINED:
        if (v->as.undef && v->as.undef->kind != J_NO_NAME) return im__juse_undefined(w->t->run, v);
        return im__jfail(w->t->run, "tojson: an undefined value cannot be written as JSON");
    default: return im__jfail(w->t->run, "tojson: a value of type %s cannot be written as JSON", im__jtype_name(v));
    }
    return !w->t->run->failed;
}

bool im__jjson_write(im__jtext *t, const im__jvalue *v, const im__jjson_style *style)
{
    writer w = {.t = t, .style = style};
    return write_value(&w, v);
}
