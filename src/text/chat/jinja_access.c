/* SPDX-License-Identifier: Apache-2.0
 * Attributes, subscripts and slices. What is not there is undefined, as in Jinja; what could change a value is out of reach, as in its
 * immutable sandbox. */
#include "text/chat/jinja_eval.h"

static bool bind_method(im__jrun *run, const im__jvalue *self, const im__jbuiltin *b, im__jvalue *out)
{
    im__jfunc *f = im__jalloc(run, sizeof *f);
    if (f == NULL) return false;
    *f = (im__jfunc){.builtin = b, .self = *self};
    *out = (im__jvalue){.type = J_FUNCTION, .as.func = f};
    return true;
}

static bool is_unsafe(const im__jvalue *obj, const char *name, size_t n)
{
    static const char *const of_list[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (n > 4 && memcmp(name, "__", 2) == 0 && memcmp(name + n - 2, "__", 2) == 0) return true;
    const char *const *list = obj->type == J_LIST ? of_list : of_dict;
    size_t count = obj->type == J_LIST ? 8 : obj->type == J_DICT ? 5 : 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == n && memcmp(list[i], name, n) == 0) return true;
    return false;
}

static bool undefined_of(im__jrun *run, im__jundef_kind kind, const im__jvalue *obj, const char *name, size_t n, im__jvalue *out)
{
    im__jvalue what;
    return im__jstr_new(run, name, n, J_FROM_TEMPLATE, &what) && im__jundefined(run, kind, obj, &what, out);
}

/* Python's getattr(obj, name). *found is false when there is none. */
static bool own_attribute(im__jrun *run, const im__jvalue *obj, const char *name, size_t n, im__jvalue *out, bool *found)
{
    *found = true;
    if (obj->type == J_NAMESPACE) {
        const im__jvalue *v = im__jdict_find(obj->as.dict, name, n);
        *found = v != NULL;
        if (v != NULL) *out = *v;
        return true;
    }
    if (obj->type == J_LOOP) {
        if (!im__jloop_attribute(run, obj->as.loop, name, n, out)) return false;
        if (!im__jabsent(out)) return true;
    }
    if (obj->type == J_FUNCTION && obj->as.func->macro != NULL && n == 4 && memcmp(name, "name", 4) == 0) {
        const im__jname *of = obj->as.func->macro->name;
        return im__jstr_new(run, of->p, of->n, J_FROM_TEMPLATE, out);
    }
    if (obj->type == J_TUPLE && obj->as.seq->pair && n == 7 && memcmp(name, "grouper", 7) == 0)
        return *out = obj->as.seq->at[0], true;
    if (obj->type == J_TUPLE && obj->as.seq->pair && n == 4 && memcmp(name, "list", 4) == 0) return *out = obj->as.seq->at[1], true;
    if (is_unsafe(obj, name, n)) return undefined_of(run, J_UNSAFE, obj, name, n, out);
    const im__jbuiltin *method = im__jfind_method(obj, name, n);
    *found = method != NULL;
    return method == NULL || bind_method(run, obj, method, out);
}

bool im__jget_attr(im__jrun *run, const im__jvalue *obj, const char *name, size_t n, im__jvalue *out)
{
    bool found;
    if (obj->type == J_UNDEFINED) return im__juse_undefined(run, obj);
    if (!own_attribute(run, obj, name, n, out, &found)) return false;
    if (found) return true;
    const im__jvalue *v = obj->type == J_DICT ? im__jdict_find(obj->as.dict, name, n) : NULL;
    if (v == NULL) return undefined_of(run, J_NO_ATTRIBUTE, obj, name, n, out);
    *out = *v;
    return true;
}

static bool str_item(im__jrun *run, const im__jstr *s, int64_t index, im__jvalue *out, bool *found)
{
    uint32_t code;
    if (!im__jwork(run, s->n / 16)) return false;
    if (index < 0) index += (int64_t)im__jstr_length(s);
    size_t at = index < 0 ? s->n : im__jstr_offset(s, (size_t)index);
    *found = at < s->n;
    return !*found || im__jstr_sub(run, s, at, at + im__jstr_step(s->p + at, &code), out);
}

/* obj[key] where it has one. */
static bool own_item(im__jrun *run, const im__jvalue *obj, const im__jvalue *key, im__jvalue *out, bool *found)
{
    *found = false;
    if (obj->type == J_DICT) {
        const im__jvalue *v = im__jdict_get(run, obj->as.dict, key);
        *found = v != NULL;
        if (v != NULL) *out = *v;
        return !run->failed;
    }
    bool list = obj->type == J_LIST || obj->type == J_TUPLE || obj->type == J_RANGE;
    if ((key->type != J_INT && key->type != J_BOOL) || (!list && obj->type != J_STR)) return true;
    int64_t index = key->type == J_INT ? key->as.i : key->as.b;
    if (!list) return str_item(run, obj->as.str, index, out, found);
    const im__jseq *seq = obj->as.seq;
    if (index < 0) index += (int64_t)seq->n;
    *found = index >= 0 && (uint64_t)index < seq->n;
    if (*found) *out = seq->at[index];
    return true;
}

bool im__jget_item(im__jrun *run, const im__jvalue *obj, const im__jvalue *key, im__jvalue *out)
{
    bool found;
    if (obj->type == J_UNDEFINED) return im__juse_undefined(run, obj);
    if (!own_item(run, obj, key, out, &found)) return false;
    if (!found && key->type == J_STR && !own_attribute(run, obj, key->as.str->p, key->as.str->n, out, &found)) return false;
    return found || im__jundefined(run, key->type == J_STR ? J_NO_ATTRIBUTE : J_NO_ELEMENT, obj, key, out);
}

/* ---- slices ---- */

/* Python's slice.indices(): where it starts, its step, and how many it takes. */
static size_t slice_indices(const im__jvalue bounds[3], int64_t length, int64_t *start, int64_t *step)
{
    *step = bounds[2].type == J_NONE ? 1 : bounds[2].as.i;
    int64_t lowest = *step < 0 ? -1 : 0, highest = *step < 0 ? length - 1 : length;
    int64_t ends[2] = {*step < 0 ? highest : lowest, *step < 0 ? lowest : highest};
    for (int i = 0; i < 2; i++) {
        if (bounds[i].type == J_NONE) continue;
        int64_t v = bounds[i].as.i;
        if (v < 0) v = v < -length ? lowest : v + length;
        ends[i] = v < lowest ? lowest : v > highest ? highest : v;
    }
    *start = ends[0];
    uint64_t span = *step < 0 ? (uint64_t)(ends[0] - ends[1]) : (uint64_t)(ends[1] - ends[0]);
    uint64_t stride = *step < 0 ? 0 - (uint64_t)*step : (uint64_t)*step;
    bool empty = *step < 0 ? ends[0] <= ends[1] : ends[0] >= ends[1];
    return empty ? 0 : (size_t)((span - 1) / stride + 1);
}

static bool slice_seq(im__jrun *run, const im__jvalue *obj, const im__jvalue bounds[3], im__jvalue *out)
{
    int64_t start, step;
    size_t n = slice_indices(bounds, (int64_t)obj->as.seq->n, &start, &step);
    im__jseq *seq = im__jwork(run, n) ? im__jseq_new(run, 0) : NULL;
    if (seq == NULL) return false;
    *out = im__jseq_value(obj->type == J_TUPLE ? J_TUPLE : J_LIST, seq);
    if (step == 1 && n > 0) { /* shares the items: lists do not change */
        *seq = (im__jseq){.at = obj->as.seq->at + start, .n = n, .cap = n};
        return true;
    }
    for (size_t i = 0; i < n; i++)
        if (!im__jseq_push(run, seq, &obj->as.seq->at[start + (int64_t)i * step])) return false;
    return true;
}

static bool slice_str(im__jrun *run, const im__jstr *s, const im__jvalue bounds[3], im__jvalue *out)
{
    int64_t start, step;
    uint32_t code;
    if (!im__jwork(run, s->n / 16)) return false;
    size_t n = slice_indices(bounds, (int64_t)im__jstr_length(s), &start, &step);
    if (n == 0) return im__jstr_static(run, "", out);
    size_t at = im__jstr_offset(s, (size_t)start);
    if (step == 1) {
        im__jstr rest = {.p = s->p + at, .n = s->n - at};
        return im__jstr_sub(run, s, at, at + im__jstr_offset(&rest, n), out);
    }
    im__jtext t = {.run = run};
    for (size_t i = 0; i < n; i++) {
        im__jtext_slice(&t, s, at, at + im__jstr_step(s->p + at, &code));
        for (int64_t k = 0; i + 1 < n && k < step; k++) at += im__jstr_step(s->p + at, &code);
        for (int64_t k = 0; i + 1 < n && k > step; k--) at -= im__jstr_step_back(s->p + at, &code);
        if (!im__jwork(run, 1)) return false;
    }
    return im__jtext_done(&t, out);
}

bool im__jget_slice(im__jrun *run, const im__jvalue *obj, const im__jvalue bounds[3], im__jvalue *out)
{
    im__jvalue b[3];
    bool sliceable = obj->type == J_STR || obj->type == J_LIST || obj->type == J_TUPLE || obj->type == J_RANGE;
    if (obj->type == J_UNDEFINED) return im__juse_undefined(run, obj);
    if (!sliceable) return im__jfail(run, "'%s' object cannot be sliced", im__jtype_name(obj));
    for (int i = 0; i < 3; i++) {
        b[i] = bounds[i];
        if (b[i].type == J_BOOL) b[i] = im__jint(b[i].as.b);
        if (b[i].type == J_UNDEFINED) return im__juse_undefined(run, &b[i]);
        if (b[i].type != J_NONE && b[i].type != J_INT) return im__jfail(run, "slice indices must be integers or None");
    }
    if (b[2].type == J_INT && b[2].as.i == 0) return im__jfail(run, "slice step cannot be zero");
    return obj->type == J_STR ? slice_str(run, obj->as.str, b, out) : slice_seq(run, obj, b, out);
}

/* ---- attribute= of filters ---- */

static bool all_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9') return false;
    return n > 0 && n < 18;
}

bool im__jget_path(im__jrun *run, const im__jvalue *obj, const im__jvalue *path, im__jvalue *out)
{
    *out = *obj;
    if (path->type != J_STR) return im__jget_item(run, obj, path, out);
    const char *p = path->as.str->p, *end = p + path->as.str->n;
    for (;;) {
        const char *dot = p < end ? memchr(p, '.', (size_t)(end - p)) : NULL;
        size_t n = (size_t)((dot != NULL ? dot : end) - p);
        im__jvalue key, from = *out;
        bool ok =
            all_digits(p, n) ? im__jint_parse(run, p, n, J_FROM_TEMPLATE, &key) : im__jstr_new(run, p, n, J_FROM_TEMPLATE, &key);
        if (!ok || !im__jget_item(run, &from, &key, out)) return false;
        if (dot == NULL) return true;
        p = dot + 1;
    }
}
