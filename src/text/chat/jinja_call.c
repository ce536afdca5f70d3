/* SPDX-License-Identifier: Apache-2.0
 * Calling built-ins and macros. */
#include "text/chat/jinja_eval.h"

const im__jbuiltin *im__jfind_in(const im__jbuiltin *table, size_t count, const char *name, size_t n)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) return &table[i];
    return NULL;
}

/* ---- binding arguments to the names in `params` ---- */

typedef struct param {
    const char *name;
    size_t n;
    bool optional;
} param;

static size_t split_params(const char *params, param out[IM__JMAX_PARAMS])
{
    size_t count = 0;
    for (const char *p = params; *p != 0 && count < IM__JMAX_PARAMS;) {
        size_t n = strcspn(p, " ");
        bool optional = p[n - 1] == '?';
        out[count++] = (param){p, n - optional, optional};
        p += n;
        p += strspn(p, " ");
    }
    return count;
}

static bool bind_named(im__jrun *run, const im__jbuiltin *b, const param *params, size_t count, const im__jentry *e,
                       im__jvalue *arg)
{
    const im__jstr *key = e->key.as.str;
    size_t i = 0;
    while (i < count && (params[i].n != key->n || memcmp(params[i].name, key->p, key->n) != 0)) i++;
    if (i == count) return im__jfail(run, "%s() got an unexpected argument '%.*s'", b->name, im__jshown(key->n), key->p);
    if (!im__jabsent(&arg[i])) return im__jfail(run, "%s() got two values for '%.*s'", b->name, im__jshown(key->n), key->p);
    arg[i] = e->value;
    return true;
}

static bool bind(im__jrun *run, const im__jbuiltin *b, const im__jargs *args, im__jvalue arg[IM__JMAX_PARAMS])
{
    param params[IM__JMAX_PARAMS];
    size_t count = split_params(b->params, params);
    if (args->pos_count > count)
        return im__jfail(run, "%s() takes at most %zu argument(s), got %zu", b->name, count, args->pos_count);
    for (size_t i = 0; i < count; i++) arg[i] = i < args->pos_count ? args->pos[i] : (im__jvalue){.type = J_UNDEFINED};
    for (size_t i = 0; i < args->named_count; i++)
        if (!bind_named(run, b, params, count, &args->named[i], arg)) return false;
    for (size_t i = 0; i < count; i++)
        if (im__jabsent(&arg[i]) && !params[i].optional)
            return im__jfail(run, "%s() misses its argument '%.*s'", b->name, (int)params[i].n, params[i].name);
    return true;
}

static bool call_bound(im__jrun *run, const im__jbuiltin *b, const im__jvalue *self, const im__jargs *args, im__jvalue *out)
{
    im__jvalue arg[IM__JMAX_PARAMS];
    if (strcmp(b->params, "*") != 0 && !bind(run, b, args, arg)) return false;
    im__jcall c = {.run = run, .self = self, .arg = arg, .args = args};
    return b->fn(&c, out) && !run->failed;
}

bool im__jcall_builtin(im__jrun *run, const im__jbuiltin *b, const im__jvalue *self, const im__jargs *args, im__jvalue *out)
{
    if (!im__jenter(run)) return false;
    bool ok = call_bound(run, b, self, args, out);
    im__jleave(run);
    return ok;
}

static bool call_loop(im__jrun *run, const im__jvalue *fn, const im__jargs *args, im__jvalue *out)
{
    if (args->pos_count != 1 || args->named_count != 0) return im__jfail(run, "loop() takes one argument");
    return im__jloop_again(run, fn->as.loop, &args->pos[0], out);
}

/* A joiner gives "" the first time it is called, then its separator. */
static bool call_joiner(im__jrun *run, im__jcycle *joiner, im__jvalue *out)
{
    if (joiner->pos++ == 0) return im__jstr_static(run, "", out);
    *out = joiner->items;
    return true;
}

bool im__jcall_value(im__jrun *run, const im__jvalue *fn, const im__jargs *args, im__jvalue *out)
{
    if (fn->type == J_UNDEFINED) return im__juse_undefined(run, fn);
    if (fn->type == J_JOINER) return call_joiner(run, fn->as.cycle, out);
    if (fn->type != J_FUNCTION && fn->type != J_LOOP) return im__jfail(run, "'%s' object is not callable", im__jtype_name(fn));
    if (!im__jenter(run)) return false;
    bool ok;
    if (fn->type == J_LOOP)
        ok = call_loop(run, fn, args, out);
    else if (fn->as.func->builtin != NULL)
        ok = im__jcall_builtin(run, fn->as.func->builtin, &fn->as.func->self, args, out);
    else
        ok = im__jcall_macro(run, fn->as.func->macro, fn->as.func->scope, args, out);
    im__jleave(run);
    return ok;
}

bool im__jcall_filter(im__jrun *run, const char *name, size_t n, const im__jvalue *self, const im__jargs *args, im__jvalue *out)
{
    const im__jbuiltin *b = im__jfind_filter(name, n);
    if (b == NULL) return im__jfail(run, "no filter named '%.*s'", im__jshown(n), name);
    return im__jcall_builtin(run, b, self, args, out);
}

bool im__jcall_test(im__jrun *run, const char *name, size_t n, const im__jvalue *self, const im__jargs *args, bool *out)
{
    im__jvalue v;
    const im__jbuiltin *b = im__jfind_test(name, n);
    if (b == NULL) return im__jfail(run, "no test named '%.*s'", im__jshown(n), name);
    if (!im__jcall_builtin(run, b, self, args, &v)) return false;
    *out = im__jtruth(&v);
    return true;
}

/* ---- reading arguments ---- */

static bool wrong_type(const im__jcall *c, const char *wanted, size_t i)
{
    return im__jfail(c->run, "argument %zu must be %s, not %s", i + 1, wanted, im__jtype_name(&c->arg[i]));
}

bool im__jarg_int(const im__jcall *c, size_t i, int64_t fallback, int64_t *out)
{
    const im__jvalue *v = &c->arg[i];
    *out = fallback;
    if (im__jabsent(v)) return true;
    if (v->type != J_INT && v->type != J_BOOL) return wrong_type(c, "an integer", i);
    *out = v->type == J_INT ? v->as.i : v->as.b;
    return true;
}

bool im__jarg_str(const im__jcall *c, size_t i, const im__jstr **out)
{
    const im__jvalue *v = &c->arg[i];
    *out = v->type == J_STR ? v->as.str : NULL;
    return v->type == J_STR || im__jabsent(v) || v->type == J_NONE || wrong_type(c, "a string", i);
}

bool im__jarg_flag(const im__jcall *c, size_t i, bool fallback)
{
    return im__jabsent(&c->arg[i]) ? fallback : im__jtruth(&c->arg[i]);
}
