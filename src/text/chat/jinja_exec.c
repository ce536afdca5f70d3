/* SPDX-License-Identifier: Apache-2.0
 * Statements, macros and loops. */
#include "text/chat/jinja_eval.h"

/* ---- scopes ---- */

im__jscope *im__jscope_new(im__jrun *run, im__jscope *parent)
{
    im__jscope *s = im__jalloc(run, sizeof *s);
    if (s != NULL) s->parent = parent;
    return s;
}

bool im__jscope_set(im__jrun *run, im__jscope *scope, const im__jname *name, const im__jvalue *value)
{
    for (im__jvar *v = scope->vars; v != NULL; v = v->next)
        if (v->name == name) {
            v->value = *value;
            return true;
        }
    im__jvar *v = im__jalloc(run, sizeof *v);
    if (v == NULL) return false;
    *v = (im__jvar){.name = name, .value = *value, .next = scope->vars};
    scope->vars = v;
    return true;
}

static bool set_attribute(im__jrun *run, im__jscope *scope, const im__jnode *target, const im__jvalue *value)
{
    im__jnode name = {.kind = N_NAME, .name = target->name, .line = target->line};
    im__jvalue ns;
    if (!im__jeval(run, scope, &name, &ns)) return false;
    if (ns.type != J_NAMESPACE) return im__jfail(run, "cannot assign attribute on non-namespace object");
    if (target->value.as.str->p[0] == '_') return im__jfail(run, "a namespace cannot have an attribute that begins with _");
    return im__jdict_set(run, ns.as.dict, &target->value, value);
}

static bool assign(im__jrun *run, im__jscope *scope, const im__jnode *target, const im__jvalue *value)
{
    if (target->kind == N_NAME) return im__jscope_set(run, scope, target->name, value);
    if (target->kind == N_NS_SET) return set_attribute(run, scope, target, value);
    im__jseq *seq;
    size_t want = 0;
    if (!im__jiterate(run, value, &seq)) return false;
    for (const im__jnode *kid = target->kids; kid != NULL; kid = kid->next) want++;
    run->line = target->line;
    if (seq->n < want) return im__jfail(run, "not enough values to unpack (expected %zu, got %zu)", want, seq->n);
    if (seq->n > want) return im__jfail(run, "too many values to unpack (expected %zu)", want);
    const im__jvalue *item = seq->at;
    if (!im__jenter(run)) return false;
    bool ok = true;
    for (const im__jnode *kid = target->kids; ok && kid != NULL; kid = kid->next) ok = assign(run, scope, kid, item++);
    im__jleave(run);
    return ok;
}

bool im__jexec_text(im__jrun *run, im__jscope *scope, const im__jnode *body, im__jvalue *out)
{
    im__jtext text = {.run = run};
    im__jscope *inner = im__jscope_new(run, scope);
    return inner != NULL && im__jexec(run, inner, body, &text) != J_FAILED && im__jtext_done(&text, out);
}

/* ---- loops ---- */

typedef struct im__jloop {
    const im__jnode *node;
    const im__jnode *filter; /* NULL: none, or all of `items` have passed it */
    im__jscope *scope;       /* around the loop */
    const im__jseq *items;
    size_t pos; /* next of the items to look at */
    im__jvalue previous, current, upcoming;
    bool has_previous, has_upcoming, has_changed;
    size_t index, depth; /* from 0 */
    size_t length;
    bool length_known;
    im__jvalue changed; /* what loop.changed() saw last */
} im__jloop;

size_t im__jloop_index(const im__jloop *loop) { return loop->index; }

/* The next item that the filter of the loop lets through. */
static bool pull(im__jrun *run, im__jloop *loop, im__jvalue *out, bool *found)
{
    *found = false;
    while (loop->pos < loop->items->n && !*found) {
        *out = loop->items->at[loop->pos++];
        *found = true;
        if (!im__jwork(run, 1)) return false;
        if (loop->filter == NULL) continue;
        im__jvalue test;
        im__jscope *inner = im__jscope_new(run, loop->scope);
        if (inner == NULL || !assign(run, inner, loop->node->a, out) || !im__jeval(run, inner, loop->filter, &test)) return false;
        *found = im__jtruth(&test);
    }
    return true;
}

static bool look_ahead(im__jrun *run, im__jloop *loop)
{
    return loop->has_upcoming || pull(run, loop, &loop->upcoming, &loop->has_upcoming);
}

/* Filters what is left, so that its number is known. */
static bool find_length(im__jrun *run, im__jloop *loop)
{
    if (loop->length_known) return true;
    im__jseq *rest = im__jseq_new(run, 0);
    if (rest == NULL || !look_ahead(run, loop)) return false;
    size_t ahead = loop->has_upcoming;
    for (bool found = true; found;) {
        im__jvalue v;
        if (!pull(run, loop, &v, &found) || (found && !im__jseq_push(run, rest, &v))) return false;
    }
    loop->filter = NULL;
    loop->items = rest;
    loop->pos = 0;
    loop->length = loop->index + 1 + ahead + rest->n;
    loop->length_known = true;
    return true;
}

static bool loop_number(im__jrun *run, im__jloop *loop, const char *name, size_t n, im__jvalue *out)
{
    struct {
        const char *name;
        int64_t value;
        bool needs_length;
    } const all[] = {
        {"index", (int64_t)loop->index + 1, false},
        {"index0", (int64_t)loop->index, false},
        {"depth", (int64_t)loop->depth + 1, false},
        {"depth0", (int64_t)loop->depth, false},
        {"length", 0, true},
        {"revindex", -(int64_t)loop->index, true},
        {"revindex0", -(int64_t)loop->index - 1, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strlen(all[i].name) != n || memcmp(all[i].name, name, n) != 0) continue;
        if (all[i].needs_length && !find_length(run, loop)) return false;
        *out = im__jint(all[i].value + (all[i].needs_length ? (int64_t)loop->length : 0));
    }
    return true;
}

static bool neighbour(im__jrun *run, bool has, const im__jvalue *v, const char *hint, im__jvalue *out)
{
    if (has) {
        *out = *v;
        return true;
    }
    im__jundef *u = im__jalloc(run, sizeof *u);
    if (u == NULL) return false;
    *u = (im__jundef){.kind = J_HINT, .hint = hint};
    *out = (im__jvalue){.type = J_UNDEFINED, .as.undef = u};
    return true;
}

static bool name_is(const char *name, size_t n, const char *word) { return strlen(word) == n && memcmp(name, word, n) == 0; }

bool im__jloop_attribute(im__jrun *run, im__jloop *loop, const char *name, size_t n, im__jvalue *out)
{
    *out = (im__jvalue){.type = J_UNDEFINED};
    if (name_is(name, n, "first")) *out = im__jbool(loop->index == 0);
    if (name_is(name, n, "previtem")) return neighbour(run, loop->has_previous, &loop->previous, "there is no previous item", out);
    bool last = name_is(name, n, "last");
    if (last || name_is(name, n, "nextitem")) {
        if (!look_ahead(run, loop)) return false;
        if (!last) return neighbour(run, loop->has_upcoming, &loop->upcoming, "there is no next item", out);
        *out = im__jbool(!loop->has_upcoming);
    }
    return loop_number(run, loop, name, n, out);
}

bool im__jloop_changed(im__jrun *run, im__jloop *loop, const im__jvalue *values, bool *out)
{
    bool same = false;
    if (loop->has_changed && !im__jequal(run, &loop->changed, values, &same)) return false;
    loop->changed = *values;
    loop->has_changed = true;
    *out = !same;
    return true;
}

/* One pass of the body with `loop->current`. */
static im__jflow one_pass(im__jrun *run, im__jloop *loop, const im__jnode *node, im__jtext *out)
{
    im__jscope *inner = im__jscope_new(run, loop->scope);
    im__jvalue self = {.type = J_LOOP, .as.loop = loop};
    if (inner == NULL || !assign(run, inner, node->a, &loop->current)) return J_FAILED;
    if (!im__jscope_set(run, inner, run->tree->loop, &self)) return J_FAILED;
    return im__jexec(run, inner, node->body, out);
}

/* The else part runs when no pass came to its end, as in Jinja: a break or continue in the first pass counts as none. */
static im__jflow run_else(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    if (n->other == NULL) return J_GO_ON;
    im__jscope *inner = im__jscope_new(run, scope);
    return inner == NULL ? J_FAILED : im__jexec(run, inner, n->other, out);
}

static im__jflow run_loop(im__jrun *run, im__jscope *scope, const im__jnode *n, const im__jseq *items, size_t depth, im__jtext *out)
{
    bool completed = false;
    im__jloop *loop = im__jalloc(run, sizeof *loop);
    if (loop == NULL) return J_FAILED;
    *loop = (im__jloop){.node = n, .filter = n->c, .scope = scope, .items = items, .depth = depth, .length = items->n};
    loop->length_known = n->c == NULL;
    for (size_t passes = 0;; passes++) {
        im__jvalue v = loop->upcoming;
        bool found = loop->has_upcoming;
        if (!found && !pull(run, loop, &v, &found)) return J_FAILED;
        if (!found) break;
        loop->has_previous = passes > 0;
        loop->previous = loop->current;
        loop->current = v;
        loop->has_upcoming = false;
        loop->index = passes;
        im__jflow flow = one_pass(run, loop, n, out);
        if (flow == J_FAILED) return flow;
        if (flow == J_BREAK) break;
        completed = completed || flow == J_GO_ON;
    }
    return completed ? J_GO_ON : run_else(run, scope, n, out);
}

static im__jflow exec_for(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jvalue v;
    im__jseq *items;
    if (!im__jeval(run, scope, n->b, &v)) return J_FAILED;
    run->line = n->line;
    if (!im__jiterate(run, &v, &items)) return J_FAILED;
    return run_loop(run, scope, n, items, 0, out);
}

bool im__jloop_again(im__jrun *run, const im__jloop *loop, const im__jvalue *value, im__jvalue *out)
{
    im__jtext text = {.run = run};
    im__jseq *items;
    if (!loop->node->recursive) return im__jfail(run, "only a loop marked recursive can be called");
    if (!im__jiterate(run, value, &items)) return false;
    return run_loop(run, loop->scope, loop->node, items, loop->depth + 1, &text) != J_FAILED && im__jtext_done(&text, out);
}

/* ---- macros ---- */

static bool make_function(im__jrun *run, im__jscope *scope, const im__jnode *macro, im__jvalue *out)
{
    im__jfunc *f = im__jalloc(run, sizeof *f);
    if (f == NULL) return false;
    *f = (im__jfunc){.macro = macro, .scope = scope};
    *out = (im__jvalue){.type = J_FUNCTION, .as.func = f};
    return true;
}

static const im__jvalue *named_argument(const im__jargs *args, const im__jname *name)
{
    for (size_t i = 0; i < args->named_count; i++) {
        const im__jstr *key = args->named[i].key.as.str;
        if (key->n == name->n && memcmp(key->p, name->p, key->n) == 0) return &args->named[i].value;
    }
    return NULL;
}

/* The parameter that `key` names; NULL: none. */
static const im__jnode *parameter(const im__jnode *macro, const im__jstr *key)
{
    for (const im__jnode *p = macro->kids; p != NULL; p = p->next)
        if (p->name->n == key->n && memcmp(p->name->p, key->p, key->n) == 0) return p;
    return NULL;
}

/* Gives the macro what is left over: varargs, kwargs and caller, where its body asks for them. */
static bool bind_rest(im__jrun *run, im__jscope *inner, const im__jnode *macro, const im__jargs *args, size_t params)
{
    int n = macro->name->n > 60 ? 60 : (int)macro->name->n;
    im__jseq *more = im__jseq_new(run, 0);
    im__jdict *others = im__jdict_new(run);
    if (more == NULL || others == NULL) return false;
    for (size_t i = params; i < args->pos_count; i++)
        if (!im__jseq_push(run, more, &args->pos[i])) return false;
    for (size_t i = 0; i < args->named_count; i++) {
        const im__jentry *e = &args->named[i];
        if (parameter(macro, e->key.as.str) != NULL) continue;
        if (macro->uses_caller && im__jstr_is(&e->key, "caller")) continue;
        if (!im__jdict_set(run, others, &e->key, &e->value)) return false;
        if (!macro->uses_kwargs)
            return im__jfail(run, "macro '%.*s' takes no keyword argument '%.*s'", n, macro->name->p, im__jshown(e->key.as.str->n),
                             e->key.as.str->p);
    }
    if (more->n > 0 && !macro->uses_varargs)
        return im__jfail(run, "macro '%.*s' takes not more than %zu argument(s)", n, macro->name->p, params);
    im__jvalue v = im__jseq_value(J_TUPLE, more), d = {.type = J_DICT, .as.dict = others};
    const im__jvalue *caller = named_argument(args, run->tree->caller);
    im__jvalue what, none;
    if (!im__jstr_static(run, "caller", &what) || !im__jundefined(run, J_NO_NAME, NULL, &what, &none)) return false;
    return (!macro->uses_varargs || im__jscope_set(run, inner, run->tree->varargs, &v)) &&
           (!macro->uses_kwargs || im__jscope_set(run, inner, run->tree->kwargs, &d)) &&
           (!macro->uses_caller || im__jscope_set(run, inner, run->tree->caller, caller != NULL ? caller : &none));
}

static bool bind_parameter(im__jrun *run, im__jscope *inner, const im__jnode *p, const im__jargs *args, size_t index)
{
    im__jvalue v, what;
    const im__jvalue *named = named_argument(args, p->name);
    if (index < args->pos_count) {
        if (named != NULL) return im__jfail(run, "the argument '%.*s' is given twice", im__jshown(p->name->n), p->name->p);
        v = args->pos[index];
    } else if (named != NULL) {
        v = *named;
    } else if (p->a != NULL) {
        if (!im__jeval(run, inner, p->a, &v)) return false;
    } else if (!im__jstr_new(run, p->name->p, p->name->n, J_FROM_TEMPLATE, &what) ||
               !im__jundefined(run, J_NO_PARAMETER, NULL, &what, &v)) {
        return false;
    }
    return im__jscope_set(run, inner, p->name, &v);
}

bool im__jcall_macro(im__jrun *run, const im__jnode *macro, im__jscope *scope, const im__jargs *args, im__jvalue *out)
{
    im__jtext text = {.run = run};
    size_t params = 0;
    im__jscope *inner = im__jscope_new(run, scope);
    if (inner == NULL) return false;
    for (const im__jnode *p = macro->kids; p != NULL; p = p->next)
        if (!bind_parameter(run, inner, p, args, params++)) return false;
    if (!bind_rest(run, inner, macro, args, params)) return false;
    return im__jexec(run, inner, macro->body, &text) != J_FAILED && im__jtext_done(&text, out);
}

static bool exec_call_block(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jvalue fn, result;
    im__jargs args;
    if (!im__jeval(run, scope, n->a->a, &fn) || !im__jeval_args(run, scope, n->a->kids, &args)) return false;
    im__jentry *named = im__jalloc_array(run, args.named_count + 1, sizeof *named);
    if (named == NULL) return false;
    if (args.named_count > 0) memcpy(named, args.named, args.named_count * sizeof *named);
    im__jentry *caller = &named[args.named_count++];
    args.named = named;
    if (!im__jstr_static(run, "caller", &caller->key) || !make_function(run, scope, n->b, &caller->value)) return false;
    run->line = n->line;
    return im__jcall_value(run, &fn, &args, &result) && im__jput_str(out, &result);
}

/* ---- the other statements ---- */

static im__jflow exec_if(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    for (const im__jnode *branch = n->kids; branch != NULL; branch = branch->next) {
        im__jvalue test = im__jbool(true);
        if (branch->a != NULL && !im__jeval(run, scope, branch->a, &test)) return J_FAILED;
        if (im__jtruth(&test)) return im__jexec(run, scope, branch->body, out);
    }
    return J_GO_ON;
}

static bool exec_set_block(im__jrun *run, im__jscope *scope, const im__jnode *n)
{
    im__jvalue text, v;
    if (!im__jexec_text(run, scope, n->body, &text)) return false;
    v = text;
    if (n->b != NULL && !im__jeval_filters(run, scope, n->b, &text, &v)) return false;
    return assign(run, scope, n->a, &v);
}

static bool exec_filter_block(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jvalue text, v;
    return im__jexec_text(run, scope, n->body, &text) && im__jeval_filters(run, scope, n->b, &text, &v) && im__jput_str(out, &v);
}

static im__jflow exec_with(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jscope *inner = im__jscope_new(run, scope);
    if (inner == NULL) return J_FAILED;
    for (const im__jnode *set = n->kids; set != NULL; set = set->next) {
        im__jvalue v;
        if (!im__jeval(run, scope, set->b, &v) || !assign(run, inner, set->a, &v)) return J_FAILED;
    }
    return im__jexec(run, inner, n->body, out);
}

static bool exec_output(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jvalue v;
    return im__jeval(run, scope, n->a, &v) && im__jput_str(out, &v);
}

static bool exec_set(im__jrun *run, im__jscope *scope, const im__jnode *n)
{
    im__jvalue v;
    return im__jeval(run, scope, n->b, &v) && assign(run, scope, n->a, &v);
}

static bool exec_macro(im__jrun *run, im__jscope *scope, const im__jnode *n)
{
    im__jvalue fn;
    return make_function(run, scope, n, &fn) && im__jscope_set(run, scope, n->name, &fn);
}

static im__jflow exec_scope(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    im__jscope *inner = im__jscope_new(run, scope);
    return inner == NULL ? J_FAILED : im__jexec(run, inner, n->body, out);
}

static im__jflow flow_of(bool ok) { return ok ? J_GO_ON : J_FAILED; }

static im__jflow exec_one(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jtext *out)
{
    switch (n->kind) {
    case N_TEXT: im__jtext_add(out, n->value.as.str); return flow_of(!run->failed);
    case N_OUTPUT: return flow_of(exec_output(run, scope, n, out));
    case N_IF: return exec_if(run, scope, n, out);
    case N_FOR: return exec_for(run, scope, n, out);
    case N_SET: return flow_of(exec_set(run, scope, n));
    case N_SET_BLOCK: return flow_of(exec_set_block(run, scope, n));
    case N_MACRO: return flow_of(exec_macro(run, scope, n));
    case N_CALL_BLOCK: return flow_of(exec_call_block(run, scope, n, out));
    case N_FILTER_BLOCK: return flow_of(exec_filter_block(run, scope, n, out));
    case N_WITH: return exec_with(run, scope, n, out);
    case N_SCOPE: return exec_scope(run, scope, n, out);
    case N_BREAK: return J_BREAK;
    default: return J_CONTINUE;
    }
}

im__jflow im__jexec(im__jrun *run, im__jscope *scope, const im__jnode *body, im__jtext *out)
{
    im__jflow flow = J_GO_ON;
    if (!im__jenter(run)) return J_FAILED;
    for (const im__jnode *n = body; n != NULL && flow == J_GO_ON; n = n->next) {
        run->line = n->line;
        flow = exec_one(run, scope, n, out);
        if (out->n > run->limits.output) flow = flow_of(im__jfail(run, "more than %zu MiB of text", run->limits.output >> 20));
    }
    im__jleave(run);
    return flow;
}
