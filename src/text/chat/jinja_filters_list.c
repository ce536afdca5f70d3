/* SPDX-License-Identifier: Apache-2.0
 * Filters that work on sequences and dicts. */
#include "text/chat/jinja_case.h"
#include "text/chat/jinja_filters.h"

static bool undefined_hint(im__jrun *run, const char *hint, im__jvalue *out)
{
    im__jundef *u = im__jalloc(run, sizeof *u);
    if (u == NULL) return false;
    *u = (im__jundef){.kind = J_HINT, .hint = hint};
    *out = (im__jvalue){.type = J_UNDEFINED, .as.undef = u};
    return true;
}

static bool given(const im__jvalue *v) { return !im__jabsent(v) && v->type != J_NONE; }

/* ---- keys by which items are sorted, grouped and compared ---- */

/* How a filter looks at an item. */
typedef struct key_rule {
    const im__jvalue *attribute; /* none or absent: the item itself */
    const im__jvalue *fallback;  /* for what is undefined; NULL, none or absent: it stays undefined */
    bool fold;                   /* strings in lower case */
    bool many;                   /* "a,b" names several attributes, and the key is the list of them */
} key_rule;

static bool key_of(im__jrun *run, const im__jvalue *item, key_rule rule, im__jvalue *out)
{
    *out = *item;
    if (given(rule.attribute) && !im__jget_path(run, item, rule.attribute, out)) return false;
    if (out->type == J_UNDEFINED && rule.fallback != NULL && given(rule.fallback)) *out = *rule.fallback;
    im__jvalue key = *out;
    return !rule.fold || key.type != J_STR || im__jcase(run, key.as.str, J_LOWER, out);
}

static bool keys_of(im__jrun *run, const im__jvalue *item, key_rule rule, im__jvalue *out)
{
    im__jseq *keys = im__jseq_new(run, 1);
    im__jvalue key, path;
    const im__jvalue *attribute = rule.attribute;
    if (keys == NULL) return false;
    *out = im__jseq_value(J_LIST, keys);
    if (attribute->type != J_STR) return key_of(run, item, rule, &key) && im__jseq_push(run, keys, &key);
    const im__jstr *all = attribute->as.str;
    rule.attribute = &path;
    for (size_t from = 0; from <= all->n;) {
        const char *comma = memchr(all->p + from, ',', all->n - from);
        size_t to = comma != NULL ? (size_t)(comma - all->p) : all->n;
        if (!im__jstr_sub(run, all, from, to, &path) || !key_of(run, item, rule, &key)) return false;
        if (!im__jseq_push(run, keys, &key)) return false;
        from = to + 1;
    }
    return true;
}

/* The items of self, sorted. */
static bool sorted(const im__jcall *c, key_rule rule, bool reverse, im__jseq **out)
{
    im__jseq *items, *result;
    if (!im__jiterate(c->run, c->self, &items)) return false;
    im__jsortable *list = im__jalloc_array(c->run, items->n, sizeof *list);
    result = im__jseq_new(c->run, items->n);
    if (list == NULL || result == NULL) return false;
    for (size_t i = 0; i < items->n; i++) {
        list[i].index = i;
        bool ok = im__jwork(c->run, 1) && (rule.many ? keys_of : key_of)(c->run, &items->at[i], rule, &list[i].key);
        if (!ok) return false;
    }
    if (!im__jsort(c->run, list, items->n, reverse)) return false;
    for (size_t i = 0; i < items->n; i++) result->at[result->n++] = items->at[list[i].index];
    *out = result;
    return true;
}

static bool f_sort(const im__jcall *c, im__jvalue *out)
{
    im__jseq *seq;
    if (!sorted(c, (key_rule){.attribute = &c->arg[2], .fold = !im__jarg_flag(c, 1, false), .many = true},
                im__jarg_flag(c, 0, false), &seq))
        return false;
    *out = im__jseq_value(J_LIST, seq);
    return true;
}

static bool f_dictsort(const im__jcall *c, im__jvalue *out)
{
    im__jvalue pair, by = im__jint(0);
    bool fold = !im__jarg_flag(c, 0, false);
    if (c->self->type == J_UNDEFINED) return im__juse_undefined(c->run, c->self);
    if (c->self->type != J_DICT) return im__jfail(c->run, "dictsort: needs a dict, not %s", im__jtype_name(c->self));
    if (!im__jabsent(&c->arg[1])) {
        if (!im__jstr_is(&c->arg[1], "key") && !im__jstr_is(&c->arg[1], "value"))
            return im__jfail(c->run, "dictsort: you can only sort by either \"key\" or \"value\"");
        by = im__jint(im__jstr_is(&c->arg[1], "value"));
    }
    const im__jdict *d = c->self->as.dict;
    im__jseq *pairs = im__jseq_new(c->run, d->n), *seq;
    for (size_t i = 0; pairs != NULL && i < d->n; i++)
        if (!im__jpair(c->run, &d->at[i].key, &d->at[i].value, &pair) || !im__jseq_push(c->run, pairs, &pair)) return false;
    if (pairs == NULL) return false;
    im__jvalue self = im__jseq_value(J_LIST, pairs);
    im__jcall inner = {.run = c->run, .self = &self};
    if (!sorted(&inner, (key_rule){.attribute = &by, .fold = fold}, im__jarg_flag(c, 2, false), &seq)) return false;
    *out = im__jseq_value(J_LIST, seq);
    return true;
}

static bool f_unique(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items, *seq = im__jseq_new(c->run, 0);
    im__jdict *seen = im__jdict_new(c->run);
    if (seq == NULL || seen == NULL || !im__jiterate(c->run, c->self, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        im__jvalue key;
        if (!im__jwork(c->run, 1) ||
            !key_of(c->run, &items->at[i], (key_rule){.attribute = &c->arg[1], .fold = !im__jarg_flag(c, 0, false)}, &key))
            return false;
        if (im__jdict_get(c->run, seen, &key) != NULL) continue;
        if (!im__jdict_set(c->run, seen, &key, &key) || !im__jseq_push(c->run, seq, &items->at[i])) return false;
    }
    *out = im__jseq_value(J_ITER, seq);
    return true;
}

static bool extreme(const im__jcall *c, int sign, im__jvalue *out)
{
    im__jseq *items;
    bool fold = !im__jarg_flag(c, 0, false);
    im__jvalue best, key;
    if (!im__jiterate(c->run, c->self, &items)) return false;
    if (items->n == 0) return undefined_hint(c->run, "No aggregated item, sequence was empty.", out);
    for (size_t i = 0; i < items->n; i++) {
        int order = sign;
        if (!im__jwork(c->run, 1) || !key_of(c->run, &items->at[i], (key_rule){.attribute = &c->arg[1], .fold = fold}, &key))
            return false;
        if (i > 0 && !im__jorder(c->run, &key, &best, sign > 0 ? ">" : "<", &order)) return false;
        if (order != sign) continue;
        best = key;
        *out = items->at[i];
    }
    return true;
}

static bool f_min(const im__jcall *c, im__jvalue *out) { return extreme(c, -1, out); }
static bool f_max(const im__jcall *c, im__jvalue *out) { return extreme(c, 1, out); }

static bool f_sum(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items;
    im__jvalue item, left;
    *out = im__jabsent(&c->arg[1]) ? im__jint(0) : c->arg[1];
    if (out->type == J_STR) return im__jfail(c->run, "sum() can't sum strings, use join");
    if (!im__jiterate(c->run, c->self, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        left = *out;
        if (!im__jwork(c->run, 1) || !key_of(c->run, &items->at[i], (key_rule){.attribute = &c->arg[0]}, &item)) return false;
        if (!im__jmath(c->run, (unsigned)'+' << 8, &left, &item, out)) return false;
    }
    return true;
}

static bool f_groupby(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items, *groups = im__jseq_new(c->run, 0), *group = NULL;
    key_rule rule = {.attribute = &c->arg[0], .fallback = &c->arg[1], .fold = !im__jarg_flag(c, 2, false)}, as_is = rule;
    im__jvalue key, last = im__jnone(), pair, shown;
    bool same = false;
    as_is.fold = false;
    if (groups == NULL || !sorted(c, rule, false, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        if (!key_of(c->run, &items->at[i], rule, &key) || !im__jequal(c->run, &key, &last, &same)) return false;
        if (i == 0 || !same) {
            if ((group = im__jseq_new(c->run, 0)) == NULL || !key_of(c->run, &items->at[i], as_is, &shown)) return false;
            im__jvalue list = im__jseq_value(J_LIST, group);
            if (!im__jpair(c->run, &shown, &list, &pair) || !im__jseq_push(c->run, groups, &pair)) return false;
            pair.as.seq->pair = true;
        }
        last = key;
        if (!im__jseq_push(c->run, group, &items->at[i])) return false;
    }
    *out = im__jseq_value(J_LIST, groups);
    return true;
}

/* ---- map, select and their like ---- */

/* What map and select go through: anything false, none too, is an empty sequence for them. */
static bool iterate_true(const im__jcall *c, im__jseq **out)
{
    if (im__jtruth(c->self)) return im__jiterate(c->run, c->self, out);
    *out = im__jseq_new(c->run, 0);
    return *out != NULL;
}

static bool named(const im__jcall *c, const char *name, im__jvalue *out)
{
    *out = (im__jvalue){.type = J_UNDEFINED};
    for (size_t i = 0; i < c->args->named_count; i++)
        if (im__jstr_is(&c->args->named[i].key, name)) *out = c->args->named[i].value;
    return !im__jabsent(out);
}

static bool map_attribute(const im__jcall *c, const im__jvalue *attribute, im__jseq *items, im__jseq *seq)
{
    im__jvalue fallback, v;
    bool has_fallback = named(c, "default", &fallback) && fallback.type != J_NONE;
    for (size_t i = 0; i < items->n; i++) {
        if (!im__jwork(c->run, 1) || !im__jget_path(c->run, &items->at[i], attribute, &v)) return false;
        if (!im__jseq_push(c->run, seq, v.type == J_UNDEFINED && has_fallback ? &fallback : &v)) return false;
    }
    return true;
}

/* The positional arguments from the n-th on, and the named ones. */
static im__jargs rest(const im__jcall *c, size_t n)
{
    im__jargs args = *c->args;
    if (args.pos_count > n) args.pos += n;
    args.pos_count = args.pos_count > n ? args.pos_count - n : 0;
    return args;
}

static bool f_map(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items, *seq = im__jseq_new(c->run, 0);
    im__jvalue attribute, v;
    if (seq == NULL || !iterate_true(c, &items)) return false;
    *out = im__jseq_value(J_ITER, seq);
    if (c->args->pos_count == 0 && named(c, "attribute", &attribute)) return map_attribute(c, &attribute, items, seq);
    if (c->args->pos_count == 0 || c->args->pos[0].type != J_STR) return im__jfail(c->run, "map requires a filter argument");
    const im__jstr *name = c->args->pos[0].as.str;
    im__jargs args = rest(c, 1);
    for (size_t i = 0; i < items->n; i++)
        if (!im__jcall_filter(c->run, name->p, name->n, &items->at[i], &args, &v) || !im__jseq_push(c->run, seq, &v)) return false;
    return true;
}

/* Keeps the items whose test gives `wanted`; by_attribute: the test sees what the first argument names. */
static bool choose(const im__jcall *c, bool by_attribute, bool wanted, im__jvalue *out)
{
    im__jseq *items, *seq = im__jseq_new(c->run, 0);
    size_t at = by_attribute ? 1 : 0;
    if (seq == NULL || !iterate_true(c, &items)) return false;
    if (c->args->pos_count < at) return im__jfail(c->run, "missing parameter for attribute name");
    const im__jvalue *test = c->args->pos_count > at ? &c->args->pos[at] : NULL;
    if (test != NULL && test->type != J_STR) return im__jfail(c->run, "the name of a test must be a string");
    im__jargs args = rest(c, at + 1);
    for (size_t i = 0; i < items->n; i++) {
        im__jvalue v = items->at[i];
        bool holds;
        if (!im__jwork(c->run, 1)) return false;
        if (by_attribute && !im__jget_path(c->run, &items->at[i], &c->args->pos[0], &v)) return false;
        holds = im__jtruth(&v);
        if (test != NULL && !im__jcall_test(c->run, test->as.str->p, test->as.str->n, &v, &args, &holds)) return false;
        if (holds == wanted && !im__jseq_push(c->run, seq, &items->at[i])) return false;
    }
    *out = im__jseq_value(J_ITER, seq);
    return true;
}

static bool f_select(const im__jcall *c, im__jvalue *out) { return choose(c, false, true, out); }
static bool f_reject(const im__jcall *c, im__jvalue *out) { return choose(c, false, false, out); }
static bool f_selectattr(const im__jcall *c, im__jvalue *out) { return choose(c, true, true, out); }
static bool f_rejectattr(const im__jcall *c, im__jvalue *out) { return choose(c, true, false, out); }

/* ---- taking apart and putting together ---- */

static bool f_length(const im__jcall *c, im__jvalue *out)
{
    size_t n;
    if (!im__jlength(c->run, c->self, &n)) return false;
    *out = im__jint((int64_t)n);
    return true;
}

static bool f_first(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items;
    if (c->self->type == J_STR) {
        im__jvalue zero = im__jint(0);
        return im__jget_item(c->run, c->self, &zero, out);
    }
    if (c->self->type == J_ITER) { /* takes only one from it */
        items = c->self->as.seq;
        if (items->next >= items->n) return undefined_hint(c->run, "No first item, sequence was empty.", out);
        *out = items->at[items->next++];
        return true;
    }
    if (!im__jiterate(c->run, c->self, &items)) return false;
    if (items->n == 0) return undefined_hint(c->run, "No first item, sequence was empty.", out);
    *out = items->at[0];
    return true;
}

static bool f_last(const im__jcall *c, im__jvalue *out)
{
    im__jseq *items;
    if (c->self->type == J_ITER) return im__jfail(c->run, "'generator' object is not reversible");
    if (c->self->type == J_STR && c->self->as.str->n > 0) {
        im__jvalue end = im__jint(-1);
        return im__jget_item(c->run, c->self, &end, out);
    }
    if (!im__jiterate(c->run, c->self, &items)) return false;
    if (items->n == 0) return undefined_hint(c->run, "No last item, sequence was empty.", out);
    *out = items->at[items->n - 1];
    return true;
}

static bool f_join(const im__jcall *c, im__jvalue *out)
{
    im__jtext t = {.run = c->run};
    im__jseq *items;
    im__jvalue sep, v;
    if (!im__jstr_static(c->run, "", &sep) || (!im__jabsent(&c->arg[0]) && !im__jto_str(c->run, &c->arg[0], &sep))) return false;
    if (!im__jiterate(c->run, c->self, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        if (!im__jwork(c->run, 1) || !key_of(c->run, &items->at[i], (key_rule){.attribute = &c->arg[1]}, &v)) return false;
        if (i > 0) im__jtext_add(&t, sep.as.str);
        if (!im__jput_str(&t, &v)) return false;
    }
    return im__jtext_done(&t, out);
}

/* A list of its own, which nobody else holds. */
static bool copy(const im__jcall *c, im__jseq **out)
{
    im__jseq *items;
    if (!im__jiterate(c->run, c->self, &items) || !im__jwork(c->run, items->n)) return false;
    *out = im__jseq_new(c->run, items->n);
    if (*out == NULL) return false;
    if (items->n > 0) memcpy((*out)->at, items->at, items->n * sizeof *items->at);
    (*out)->n = items->n;
    return true;
}

static bool f_list(const im__jcall *c, im__jvalue *out)
{
    im__jseq *seq;
    if (!copy(c, &seq)) return false;
    *out = im__jseq_value(J_LIST, seq);
    return true;
}

static bool f_items(const im__jcall *c, im__jvalue *out)
{
    im__jargs none = {0};
    im__jseq *seq;
    if (c->self->type == J_UNDEFINED) {
        if ((seq = im__jseq_new(c->run, 0)) == NULL) return false;
        *out = im__jseq_value(J_ITER, seq);
        return true;
    }
    if (c->self->type != J_DICT) return im__jfail(c->run, "can only get item pairs from a mapping");
    if (!im__jcall_builtin(c->run, im__jfind_method(c->self, "items", 5), c->self, &none, out)) return false;
    out->type = J_ITER;
    return true;
}

static bool f_reverse(const im__jcall *c, im__jvalue *out)
{
    im__jseq *seq;
    if (c->self->type == J_STR) {
        im__jvalue bounds[3] = {im__jnone(), im__jnone(), im__jint(-1)};
        return im__jget_slice(c->run, c->self, bounds, out);
    }
    if (!copy(c, &seq)) return false;
    for (size_t i = 0, k = seq->n; i + 1 < k; i++) {
        im__jvalue v = seq->at[i];
        seq->at[i] = seq->at[--k];
        seq->at[k] = v;
    }
    *out = im__jseq_value(J_ITER, seq);
    return true;
}

static bool f_batch(const im__jcall *c, im__jvalue *out)
{
    int64_t count;
    im__jseq *items, *row = NULL, *rows = im__jseq_new(c->run, 0);
    if (rows == NULL || !im__jarg_int(c, 0, 1, &count) || !im__jiterate(c->run, c->self, &items)) return false;
    if (count < 1) return im__jfail(c->run, "batch: the count must be positive");
    for (size_t i = 0; i < items->n; i++) {
        if (i % (uint64_t)count == 0) {
            if ((row = im__jseq_new(c->run, 0)) == NULL) return false;
            im__jvalue v = im__jseq_value(J_LIST, row);
            if (!im__jseq_push(c->run, rows, &v)) return false;
        }
        if (!im__jwork(c->run, 1) || !im__jseq_push(c->run, row, &items->at[i])) return false;
    }
    while (row != NULL && given(&c->arg[1]) && row->n < (uint64_t)count)
        if (!im__jwork(c->run, 1) || !im__jseq_push(c->run, row, &c->arg[1])) return false;
    *out = im__jseq_value(J_ITER, rows);
    return true;
}

static bool f_slice(const im__jcall *c, im__jvalue *out)
{
    int64_t slices;
    im__jseq *items, *rows = im__jseq_new(c->run, 0);
    if (rows == NULL || !im__jarg_int(c, 0, 1, &slices) || !im__jiterate(c->run, c->self, &items)) return false;
    if (slices < 1 || slices > 100000)
        return im__jfail(c->run, "slice: the number of slices must be positive and not above 100000");
    size_t per = items->n / (size_t)slices, longer = items->n % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices; i++) {
        size_t n = per + (i < longer);
        im__jseq *row = im__jseq_new(c->run, n + 1);
        if (row == NULL || !im__jwork(c->run, n + 1)) return false;
        if (n > 0) memcpy(row->at, items->at + at, n * sizeof *row->at);
        row->n = n;
        at += n;
        im__jvalue v = im__jseq_value(J_LIST, row);
        if (given(&c->arg[1]) && i >= longer && !im__jseq_push(c->run, row, &c->arg[1])) return false;
        if (!im__jseq_push(c->run, rows, &v)) return false;
    }
    *out = im__jseq_value(J_ITER, rows);
    return true;
}

static bool f_default(const im__jcall *c, im__jvalue *out)
{
    *out = *c->self;
    bool replace = c->self->type == J_UNDEFINED || (im__jarg_flag(c, 1, false) && !im__jtruth(c->self));
    if (!replace) return true;
    *out = c->arg[0];
    return !im__jabsent(out) || im__jstr_static(c->run, "", out);
}

static bool f_attr(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *name;
    if (!im__jarg_str(c, 0, &name) || name == NULL) return false;
    if (c->self->type == J_DICT && im__jfind_method(c->self, name->p, name->n) == NULL)
        return im__jundefined(c->run, J_NO_ATTRIBUTE, c->self, &c->arg[0], out);
    return im__jget_attr(c->run, c->self, name->p, name->n, out);
}

static const im__jbuiltin filters[] = {
    {"length", "", f_length},
    {"count", "", f_length},
    {"first", "", f_first},
    {"last", "", f_last},
    {"join", "d? attribute?", f_join},
    {"default", "default_value? boolean?", f_default},
    {"d", "default_value? boolean?", f_default},
    {"list", "", f_list},
    {"items", "", f_items},
    {"map", "*", f_map},
    {"select", "*", f_select},
    {"reject", "*", f_reject},
    {"selectattr", "*", f_selectattr},
    {"rejectattr", "*", f_rejectattr},
    {"sort", "reverse? case_sensitive? attribute?", f_sort},
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort},
    {"unique", "case_sensitive? attribute?", f_unique},
    {"min", "case_sensitive? attribute?", f_min},
    {"max", "case_sensitive? attribute?", f_max},
    {"sum", "attribute? start?", f_sum},
    {"groupby", "attribute default? case_sensitive?", f_groupby},
    {"reverse", "", f_reverse},
    {"batch", "linecount fill_with?", f_batch},
    {"slice", "slices fill_with?", f_slice},
    {"attr", "name", f_attr},
};

const im__jbuiltin *im__jfind_filter(const char *name, size_t n)
{
    const im__jbuiltin *b = im__jfind_in(filters, sizeof filters / sizeof filters[0], name, n);
    return b != NULL ? b : im__jfind_text_filter(name, n);
}
