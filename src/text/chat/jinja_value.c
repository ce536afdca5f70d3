/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_value.h"

#include "text/chat/jinja_text.h"

#include <math.h>
#include <stdio.h>

/* ---- the run ---- */

bool im__jfail(im__jrun *run, const char *format, ...)
{
    char text[IM_ERROR_MESSAGE_MAX];
    va_list args;
    if (run->failed) return false;
    run->failed = true;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (run->line > 0)
        im__fail(run->err, IM_ERR_TEMPLATE, "chat template, line %u: %s", run->line, text);
    else
        im__fail(run->err, IM_ERR_TEMPLATE, "%s", text);
    return false;
}

void *im__jalloc(im__jrun *run, size_t n)
{
    void *p = run->failed ? NULL : im__jarena_alloc(&run->arena, n);
    if (p == NULL && !run->failed) {
        run->failed = true;
        im__fail(run->err, n > run->arena.budget - run->arena.used ? IM_ERR_TEMPLATE : IM_ERR_MEMORY,
                 "chat template, line %u: needs more than %zu MiB of memory", run->line, run->arena.budget >> 20);
    }
    return p;
}

void *im__jalloc_array(im__jrun *run, size_t count, size_t size)
{
    size_t bytes;
    return im__jalloc(run, im__mul(count, size, &bytes) ? bytes : SIZE_MAX);
}

bool im__jwork(im__jrun *run, uint64_t steps)
{
    if (run->failed) return false;
    if (steps > run->limits.steps - run->steps)
        return im__jfail(run, "takes more than %llu steps; it does not seem to end", (unsigned long long)run->limits.steps);
    run->steps += steps;
    return true;
}

bool im__jenter(im__jrun *run)
{
    if (!im__jwork(run, 1)) return false;
    if (run->depth >= run->limits.depth) return im__jfail(run, "nested deeper than %u levels", run->limits.depth);
    run->depth++;
    return true;
}

void im__jleave(im__jrun *run) { run->depth--; }

/* ---- undefined ---- */

bool im__jundefined(im__jrun *run, im__jundef_kind kind, const im__jvalue *owner, const im__jvalue *what, im__jvalue *out)
{
    im__jundef *u = im__jalloc(run, sizeof *u);
    if (u == NULL) return false;
    *u = (im__jundef){.kind = kind, .owner = owner ? owner->type : J_UNDEFINED, .what = what ? *what : im__jnone()};
    *out = (im__jvalue){.type = J_UNDEFINED, .as.undef = u};
    return true;
}

bool im__juse_undefined(im__jrun *run, const im__jvalue *v)
{
    const im__jundef *u = v->as.undef;
    if (u == NULL) return im__jfail(run, "a value is undefined");
    if (u->kind == J_HINT) return im__jfail(run, "%s", u->hint);
    im__jtext t = {.run = run};
    im__jvalue owner = {.type = u->owner}, text;
    if (u->kind == J_NO_NAME || u->kind == J_NO_PARAMETER || u->what.type == J_STR)
        im__jput_str(&t, &u->what);
    else
        im__jput_repr(&t, &u->what);
    if (!im__jtext_done(&t, &text)) return false;
    int n = text.as.str->n > 200 ? 200 : (int)text.as.str->n;
    const char *name = text.as.str->p;
    switch (u->kind) {
    case J_NO_PARAMETER: return im__jfail(run, "parameter '%.*s' was not provided", n, name);
    case J_NO_ATTRIBUTE: return im__jfail(run, "'%s object' has no attribute '%.*s'", im__jtype_name(&owner), n, name);
    case J_NO_ELEMENT: return im__jfail(run, "%s object has no element %.*s", im__jtype_name(&owner), n, name);
    case J_UNSAFE: return im__jfail(run, "access to attribute '%.*s' of '%s' object is unsafe", n, name, im__jtype_name(&owner));
    default: return im__jfail(run, "'%.*s' is undefined", n, name);
    }
}

/* ---- sequences ---- */

im__jseq *im__jseq_new(im__jrun *run, size_t expected)
{
    im__jseq *seq = im__jalloc(run, sizeof *seq);
    if (seq == NULL || expected == 0) return seq;
    seq->at = im__jalloc_array(run, expected, sizeof *seq->at);
    if (seq->at == NULL) return NULL;
    seq->cap = expected;
    return seq;
}

bool im__jseq_push(im__jrun *run, im__jseq *seq, const im__jvalue *v)
{
    if (seq->n == seq->cap) {
        size_t cap = seq->cap < 4 ? 4 : seq->cap * 2;
        im__jvalue *grown = im__jalloc_array(run, cap, sizeof *grown);
        if (grown == NULL) return false;
        if (seq->n > 0) memcpy(grown, seq->at, seq->n * sizeof *grown);
        seq->at = grown;
        seq->cap = cap;
    }
    seq->at[seq->n++] = *v;
    return true;
}

bool im__jpair(im__jrun *run, const im__jvalue *a, const im__jvalue *b, im__jvalue *out)
{
    im__jseq *seq = im__jseq_new(run, 2);
    if (seq == NULL) return false;
    seq->at[0] = *a;
    seq->at[1] = *b;
    seq->n = 2;
    *out = im__jseq_value(J_TUPLE, seq);
    return true;
}

/* ---- dicts ---- */

static uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *bytes = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001b3u;
    return h ^ (h >> 29);
}

static bool hash_of(const im__jvalue *v, uint64_t *out, unsigned depth)
{
    if (im__jis_number(v)) {
        double f = im__jas_double(v); /* 1, 1.0 and true are one key */
        if (f == 0) f = 0;
        *out = hash_bytes(&f, sizeof f);
        return true;
    }
    switch (v->type) {
    case J_STR:
    case J_BIG: *out = hash_bytes(v->as.str->p, v->as.str->n); return true;
    case J_UNDEFINED:
    case J_NONE: *out = v->type; return true;
    case J_TUPLE:
        *out = 17;
        for (size_t i = 0; i < v->as.seq->n; i++) {
            uint64_t h;
            if (depth > 50 || !hash_of(&v->as.seq->at[i], &h, depth + 1)) return false;
            *out = *out * 31 + h;
        }
        return true;
    default: return false;
    }
}

im__jdict *im__jdict_new(im__jrun *run) { return im__jalloc(run, sizeof(im__jdict)); }

static void place(im__jdict *d, size_t index)
{
    size_t slot = d->at[index].hash & (d->slot_count - 1);
    while (d->slots[slot] != 0) slot = (slot + 1) & (d->slot_count - 1);
    d->slots[slot] = (uint32_t)index + 1;
}

static bool rehash(im__jrun *run, im__jdict *d)
{
    size_t count = d->cap * 2; /* cap is a power of two */
    if (count > UINT32_MAX) return im__jfail(run, "a dict is too large");
    d->slots = im__jalloc_array(run, count, sizeof *d->slots);
    if (d->slots == NULL) return false;
    d->slot_count = count;
    for (size_t i = 0; i < d->n; i++) place(d, i);
    return true;
}

/* Keys of different hashes are never compared, so `equal` only runs for real candidates. */
static im__jentry *lookup(im__jrun *run, const im__jdict *d, const im__jvalue *key, uint64_t hash)
{
    bool same = false;
    if (d->slots == NULL) {
        for (size_t i = 0; i < d->n; i++)
            if (d->at[i].hash == hash && im__jequal(run, &d->at[i].key, key, &same) && same) return &d->at[i];
        return NULL;
    }
    for (size_t slot = hash & (d->slot_count - 1); d->slots[slot] != 0; slot = (slot + 1) & (d->slot_count - 1)) {
        im__jentry *e = &d->at[d->slots[slot] - 1];
        if (!im__jwork(run, 1)) return NULL;
        if (e->hash == hash && im__jequal(run, &e->key, key, &same) && same) return e;
    }
    return NULL;
}

bool im__jdict_set(im__jrun *run, im__jdict *d, const im__jvalue *key, const im__jvalue *value)
{
    uint64_t hash;
    if (!hash_of(key, &hash, 0)) return im__jfail(run, "a %s cannot be the key of a dict", im__jtype_name(key));
    im__jentry *old = lookup(run, d, key, hash);
    if (run->failed) return false;
    if (old != NULL) {
        old->value = *value;
        return true;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap < 4 ? 4 : d->cap * 2;
        im__jentry *grown = im__jalloc_array(run, cap, sizeof *grown);
        if (grown == NULL) return false;
        if (d->n > 0) memcpy(grown, d->at, d->n * sizeof *grown);
        d->at = grown;
        d->cap = cap;
        if (cap > 8 && !rehash(run, d)) return false;
    }
    d->at[d->n++] = (im__jentry){.key = *key, .value = *value, .hash = hash};
    if (d->slots != NULL) place(d, d->n - 1);
    return true;
}

im__jvalue *im__jdict_get(im__jrun *run, const im__jdict *d, const im__jvalue *key)
{
    uint64_t hash;
    im__jentry *e = hash_of(key, &hash, 0) ? lookup(run, d, key, hash) : NULL;
    return e == NULL ? NULL : &e->value;
}

im__jvalue *im__jdict_find(const im__jdict *d, const char *key, size_t n)
{
    uint64_t hash = hash_bytes(key, n);
    size_t mask = d->slot_count - 1;
    for (size_t i = 0, slot = hash & mask; d->slots == NULL ? i < d->n : d->slots[slot] != 0; i++, slot = (slot + 1) & mask) {
        im__jentry *e = d->slots == NULL ? &d->at[i] : &d->at[d->slots[slot] - 1];
        const im__jvalue *k = &e->key;
        if (e->hash == hash && k->type == J_STR && k->as.str->n == n && memcmp(k->as.str->p, key, n) == 0) return &e->value;
    }
    return NULL;
}

/* ---- asking ---- */

bool im__jis_number(const im__jvalue *v) { return v->type == J_BOOL || v->type == J_INT || v->type == J_FLOAT; }

double im__jas_double(const im__jvalue *v)
{
    if (v->type == J_FLOAT) return v->as.f;
    return v->type == J_BOOL ? (double)v->as.b : (double)v->as.i;
}

bool im__jis_seq(const im__jvalue *v)
{
    return v->type == J_LIST || v->type == J_TUPLE || v->type == J_RANGE || v->type == J_KEYS || v->type == J_VALUES ||
           v->type == J_ITEMS || v->type == J_ITER;
}

const char *im__jtype_name(const im__jvalue *v)
{
    static const char *const names[] = {
        [J_UNDEFINED] = "Undefined",
        [J_NONE] = "NoneType",
        [J_BOOL] = "bool",
        [J_INT] = "int",
        [J_BIG] = "int",
        [J_FLOAT] = "float",
        [J_STR] = "str",
        [J_LIST] = "list",
        [J_TUPLE] = "tuple",
        [J_RANGE] = "range",
        [J_KEYS] = "dict_keys",
        [J_VALUES] = "dict_values",
        [J_ITEMS] = "dict_items",
        [J_ITER] = "generator",
        [J_DICT] = "dict",
        [J_NAMESPACE] = "Namespace",
        [J_FUNCTION] = "function",
        [J_LOOP] = "LoopContext",
        [J_JOINER] = "Joiner",
        [J_CYCLER] = "Cycler",
    };
    return names[v->type];
}

bool im__jtruth(const im__jvalue *v)
{
    switch (v->type) {
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v->as.b;
    case J_INT: return v->as.i != 0;
    case J_FLOAT: return v->as.f != 0;
    case J_STR: return v->as.str->n > 0;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_KEYS:
    case J_VALUES:
    case J_ITEMS: return v->as.seq->n > 0;
    case J_DICT: return v->as.dict->n > 0;
    default: return true;
    }
}

bool im__jlength(im__jrun *run, const im__jvalue *v, size_t *out)
{
    switch (v->type) {
    case J_UNDEFINED: *out = 0; return true;
    case J_STR: *out = im__jstr_length(v->as.str); return im__jwork(run, v->as.str->n / 16);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_KEYS:
    case J_VALUES:
    case J_ITEMS: *out = v->as.seq->n; return true;
    case J_DICT: *out = v->as.dict->n; return true;
    default: return im__jfail(run, "object of type '%s' has no len()", im__jtype_name(v));
    }
}

static bool characters(im__jrun *run, const im__jstr *whole, im__jseq **out)
{
    im__jstr plain = *whole, *s = &plain;
    plain.safe = false;
    im__jseq *seq = im__jseq_new(run, im__jstr_length(s));
    for (size_t i = 0; seq != NULL && i < s->n;) {
        uint32_t code;
        im__jvalue c;
        size_t len = im__jstr_step(s->p + i, &code);
        if (!im__jwork(run, 1) || !im__jstr_sub(run, s, i, i + len, &c) || !im__jseq_push(run, seq, &c)) return false;
        i += len;
    }
    *out = seq;
    return seq != NULL;
}

bool im__jiterate(im__jrun *run, const im__jvalue *v, im__jseq **out)
{
    if (v->type == J_ITER) {
        im__jseq *all = v->as.seq, *rest = im__jseq_new(run, 0);
        if (rest == NULL) return false;
        if (all->next < all->n) *rest = (im__jseq){.at = all->at + all->next, .n = all->n - all->next, .cap = all->n - all->next};
        all->next = all->n;
        *out = rest;
        return true;
    }
    if (im__jis_seq(v)) {
        *out = v->as.seq;
        return true;
    }
    if (v->type == J_STR) return characters(run, v->as.str, out);
    if (v->type == J_DICT) {
        im__jseq *keys = im__jseq_new(run, v->as.dict->n);
        for (size_t i = 0; keys != NULL && i < v->as.dict->n; i++) keys->at[keys->n++] = v->as.dict->at[i].key;
        *out = keys;
        return keys != NULL && im__jwork(run, keys->n);
    }
    if (v->type == J_UNDEFINED) {
        *out = im__jseq_new(run, 0);
        return *out != NULL;
    }
    return im__jfail(run, "'%s' object is not iterable", im__jtype_name(v));
}

/* ---- comparing ---- */

static bool equal_seq(im__jrun *run, const im__jseq *a, const im__jseq *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!im__jequal(run, &a->at[i], &b->at[i], out)) return false;
    return true;
}

static bool equal_dict(im__jrun *run, const im__jdict *a, const im__jdict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        const im__jvalue *other = im__jdict_get(run, b, &a->at[i].key);
        *out = other != NULL;
        if (run->failed || (other != NULL && !im__jequal(run, &a->at[i].value, other, out))) return false;
    }
    return true;
}

static int order_numbers(const im__jvalue *a, const im__jvalue *b)
{
    if (a->type != J_FLOAT && b->type != J_FLOAT) {
        int64_t x = a->type == J_BOOL ? a->as.b : a->as.i, y = b->type == J_BOOL ? b->as.b : b->as.i;
        return (x > y) - (x < y);
    }
    double x = im__jas_double(a), y = im__jas_double(b);
    return (x > y) - (x < y);
}

static bool equal_same_type(im__jrun *run, const im__jvalue *a, const im__jvalue *b, bool *out)
{
    switch (a->type) {
    case J_UNDEFINED:
    case J_NONE: *out = true; return true;
    case J_STR:
    case J_BIG: *out = im__jstr_same(a->as.str, b->as.str); return im__jwork(run, *out ? a->as.str->n / 16 : 0);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE: return equal_seq(run, a->as.seq, b->as.seq, out);
    case J_DICT: return equal_dict(run, a->as.dict, b->as.dict, out);
    default: *out = a->as.seq == b->as.seq; return true;
    }
}

bool im__jequal(im__jrun *run, const im__jvalue *a, const im__jvalue *b, bool *out)
{
    if (im__jis_number(a) && im__jis_number(b)) {
        *out = order_numbers(a, b) == 0 && !isnan(im__jas_double(a)) && !isnan(im__jas_double(b));
        return true;
    }
    *out = false;
    if (a->type != b->type) return true;
    if (!im__jenter(run)) return false;
    bool ok = equal_same_type(run, a, b, out);
    im__jleave(run);
    return ok;
}

static bool order_seq(im__jrun *run, const im__jseq *a, const im__jseq *b, const char *op, int *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!im__jequal(run, &a->at[i], &b->at[i], &same)) return false;
        if (same) continue;
        if (!im__jenter(run)) return false;
        bool ok = im__jorder(run, &a->at[i], &b->at[i], op, out);
        im__jleave(run);
        return ok;
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool im__jorder(im__jrun *run, const im__jvalue *a, const im__jvalue *b, const char *op, int *out)
{
    if (a->type == J_UNDEFINED || b->type == J_UNDEFINED) return im__juse_undefined(run, a->type == J_UNDEFINED ? a : b);
    if (im__jis_number(a) && im__jis_number(b)) {
        *out = order_numbers(a, b);
        return im__jwork(run, 1);
    }
    if (a->type == b->type && a->type == J_STR) {
        *out = im__jstr_compare(a->as.str, b->as.str);
        return im__jwork(run, 1 + a->as.str->n / 64);
    }
    if (a->type == b->type && (a->type == J_LIST || a->type == J_TUPLE)) return order_seq(run, a->as.seq, b->as.seq, op, out);
    return im__jfail(run, "'%s' not supported between instances of '%s' and '%s'", op, im__jtype_name(a), im__jtype_name(b));
}
