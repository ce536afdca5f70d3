/* SPDX-License-Identifier: Apache-2.0
 * Global functions: Jinja's own, and those that transformers adds. */
#include "text/chat/jinja_eval.h"
#include "text/chat/jinja_format.h"

/* The conversation is refused by its template, whose sentence the user must see: no line number, nothing cut off before it. */
static bool g_raise_exception(const im__jcall *c, im__jvalue *out)
{
    if (!im__jto_str(c->run, &c->arg[0], out)) return false;
    if (!c->run->failed) {
        size_t n = out->as.str->n > IM_ERROR_MESSAGE_MAX ? IM_ERROR_MESSAGE_MAX : out->as.str->n;
        im__fail(c->run->err, IM_ERR_TEMPLATE, "the chat template refuses this conversation: %.*s", (int)n, out->as.str->p);
    }
    c->run->failed = true;
    return false;
}

static bool g_strftime_now(const im__jcall *c, im__jvalue *out)
{
    const im__jstr *format;
    if (!im__jarg_str(c, 0, &format)) return false;
    if (format == NULL) return im__jfail(c->run, "strftime_now: the format must be a string");
    return im__jformat_time(c->run, format, c->run->now, out);
}

/* The dict that dict(...) and namespace(...) are made of. */
static bool make_dict(const im__jcall *c, im__jvalue *out)
{
    im__jdict *d = im__jdict_new(c->run);
    if (d == NULL) return false;
    *out = (im__jvalue){.type = J_DICT, .as.dict = d};
    if (c->args->pos_count > 1) return im__jfail(c->run, "dict() takes at most one plain argument");
    if (c->args->pos_count == 1 && c->args->pos[0].type == J_DICT) {
        const im__jdict *from = c->args->pos[0].as.dict;
        for (size_t i = 0; i < from->n; i++)
            if (!im__jdict_set(c->run, d, &from->at[i].key, &from->at[i].value)) return false;
    } else if (c->args->pos_count == 1) {
        im__jseq *pairs, *pair;
        if (!im__jiterate(c->run, &c->args->pos[0], &pairs)) return false;
        for (size_t i = 0; i < pairs->n; i++) {
            if (!im__jiterate(c->run, &pairs->at[i], &pair)) return false;
            if (pair->n != 2) return im__jfail(c->run, "dict(): element %zu is no pair", i);
            if (!im__jdict_set(c->run, d, &pair->at[0], &pair->at[1])) return false;
        }
    }
    for (size_t i = 0; i < c->args->named_count; i++)
        if (!im__jdict_set(c->run, d, &c->args->named[i].key, &c->args->named[i].value)) return false;
    return true;
}

static bool g_namespace(const im__jcall *c, im__jvalue *out)
{
    if (!make_dict(c, out)) return false;
    for (size_t i = 0; i < out->as.dict->n; i++) {
        const im__jvalue *key = &out->as.dict->at[i].key;
        if (key->type == J_STR && key->as.str->n > 0 && key->as.str->p[0] == '_')
            return im__jfail(c->run, "a namespace cannot have an attribute that begins with _");
    }
    out->type = J_NAMESPACE;
    return true;
}

static bool g_range(const im__jcall *c, im__jvalue *out)
{
    int64_t a, b, step;
    if (!im__jarg_int(c, 0, 0, &a) || !im__jarg_int(c, 1, 0, &b) || !im__jarg_int(c, 2, 1, &step)) return false;
    if (im__jabsent(&c->arg[1])) {
        b = a;
        a = 0;
    }
    if (step == 0) return im__jfail(c->run, "range() step must not be zero");
    bool empty = step > 0 ? a >= b : a <= b;
    uint64_t span = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = empty ? 0 : (span - 1) / stride + 1;
    if (n > c->run->limits.range_max) return im__jfail(c->run, "range() is longer than %zu", c->run->limits.range_max);
    im__jseq *seq = im__jwork(c->run, n) ? im__jseq_new(c->run, (size_t)n) : NULL;
    if (seq == NULL) return false;
    seq->start = a;
    seq->stop = b;
    seq->step = step;
    for (uint64_t i = 0; i < n; i++) seq->at[seq->n++] = im__jint(a + (int64_t)i * step);
    *out = im__jseq_value(J_RANGE, seq);
    return true;
}

static bool make_cycle(const im__jcall *c, im__jtype type, const im__jvalue *items, im__jvalue *out)
{
    im__jcycle *cycle = im__jalloc(c->run, sizeof *cycle);
    if (cycle == NULL) return false;
    cycle->items = *items;
    *out = (im__jvalue){.type = type, .as.cycle = cycle};
    return true;
}

static bool g_joiner(const im__jcall *c, im__jvalue *out)
{
    im__jvalue sep = c->arg[0];
    if (im__jabsent(&sep) && !im__jstr_static(c->run, ", ", &sep)) return false;
    return make_cycle(c, J_JOINER, &sep, out);
}

static bool g_cycler(const im__jcall *c, im__jvalue *out)
{
    if (c->args->pos_count == 0) return im__jfail(c->run, "cycler(): at least one item has to be provided");
    im__jseq *seq = im__jseq_new(c->run, c->args->pos_count);
    if (seq == NULL) return false;
    memcpy(seq->at, c->args->pos, c->args->pos_count * sizeof *seq->at);
    seq->n = c->args->pos_count;
    im__jvalue items = im__jseq_value(J_TUPLE, seq);
    return make_cycle(c, J_CYCLER, &items, out);
}

static const im__jbuiltin globals[] = {
    {"raise_exception", "message", g_raise_exception},
    {"strftime_now", "format", g_strftime_now},
    {"namespace", "*", g_namespace},
    {"dict", "*", make_dict},
    {"range", "start stop? step?", g_range},
    {"joiner", "sep?", g_joiner},
    {"cycler", "*", g_cycler},
};

const im__jbuiltin *im__jfind_global(const char *name, size_t n)
{
    return im__jfind_in(globals, sizeof globals / sizeof globals[0], name, n);
}
