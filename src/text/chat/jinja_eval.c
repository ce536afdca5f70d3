/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_eval.h"

#include "text/chat/jinja_lex.h"

/* ---- names and literals ---- */

static bool eval_name(im__jrun *run, const im__jscope *scope, const im__jname *name, im__jvalue *out)
{
    for (; scope != NULL; scope = scope->parent)
        for (const im__jvar *v = scope->vars; v != NULL; v = v->next)
            if (v->name == name) {
                *out = v->value;
                return true;
            }
    const im__jvalue *v = im__jdict_find(run->variables, name->p, name->n);
    if (v != NULL) {
        *out = *v;
        return true;
    }
    const im__jbuiltin *b = im__jfind_global(name->p, name->n);
    if (b == NULL) {
        im__jvalue what;
        return im__jstr_new(run, name->p, name->n, J_FROM_TEMPLATE, &what) && im__jundefined(run, J_NO_NAME, NULL, &what, out);
    }
    im__jfunc *f = im__jalloc(run, sizeof *f);
    if (f == NULL) return false;
    f->builtin = b;
    *out = (im__jvalue){.type = J_FUNCTION, .as.func = f};
    return true;
}

static bool eval_seq(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jseq *seq = im__jseq_new(run, 0);
    if (seq == NULL) return false;
    for (const im__jnode *kid = n->kids; kid != NULL; kid = kid->next) {
        im__jvalue v;
        if (!im__jeval(run, scope, kid, &v) || !im__jseq_push(run, seq, &v)) return false;
    }
    *out = im__jseq_value(n->kind == N_LIST ? J_LIST : J_TUPLE, seq);
    return true;
}

static bool eval_dict(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jdict *d = im__jdict_new(run);
    if (d == NULL) return false;
    for (const im__jnode *kid = n->kids; kid != NULL; kid = kid->next->next) {
        im__jvalue key, value;
        if (!im__jeval(run, scope, kid, &key) || !im__jeval(run, scope, kid->next, &value)) return false;
        if (!im__jdict_set(run, d, &key, &value)) return false;
    }
    *out = (im__jvalue){.type = J_DICT, .as.dict = d};
    return true;
}

/* ---- operators ---- */

static bool eval_concat(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue all, v, s;
    if (!im__jeval(run, scope, n->kids, &v) || !im__jto_str(run, &v, &all)) return false;
    for (const im__jnode *kid = n->kids->next; kid != NULL; kid = kid->next) {
        if (!im__jeval(run, scope, kid, &v) || !im__jto_str(run, &v, &s)) return false;
        im__jvalue left = all;
        if (!im__jstr_concat(run, left.as.str, s.as.str, &all)) return false;
    }
    *out = all;
    return true;
}

static bool eval_math(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue left, right;
    if (!im__jeval(run, scope, n->kids, out)) return false;
    for (const im__jnode *kid = n->kids->next; kid != NULL; kid = kid->next) {
        left = *out;
        if (!im__jeval(run, scope, kid, &right)) return false;
        run->line = kid->line;
        if (!im__jmath(run, kid->op, &left, &right, out)) return false;
    }
    return true;
}

static bool eval_compare(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue left, right;
    bool holds = true;
    if (!im__jeval(run, scope, n->kids, &left)) return false;
    for (const im__jnode *kid = n->kids->next; kid != NULL && holds; kid = kid->next) {
        if (!im__jeval(run, scope, kid, &right)) return false;
        run->line = kid->line;
        if (!im__jcompare(run, kid->op, &left, &right, &holds)) return false;
        left = right;
    }
    *out = im__jbool(holds);
    return true;
}

/* The value of and/or is that of the operand that decided. */
static bool eval_and_or(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    for (const im__jnode *kid = n->kids; kid != NULL; kid = kid->next) {
        if (!im__jeval(run, scope, kid, out)) return false;
        if (im__jtruth(out) == (n->kind == N_OR)) break;
    }
    return true;
}

static bool eval_unary(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue v;
    if (!im__jeval(run, scope, n->a, &v)) return false;
    if (n->kind == N_NOT) {
        *out = im__jbool(!im__jtruth(&v));
        return true;
    }
    run->line = n->line;
    im__jvalue zero = im__jint(0);
    if (v.type == J_FLOAT) {
        *out = im__jfloat(n->kind == N_NEGATE ? -v.as.f : v.as.f);
        return true;
    }
    if (!im__jis_number(&v) && v.type != J_UNDEFINED)
        return im__jfail(run, "bad operand type for unary %c: '%s'", n->kind == N_NEGATE ? '-' : '+', im__jtype_name(&v));
    return im__jmath(run, n->kind == N_NEGATE ? IM__OP('-', 0) : IM__OP('+', 0), &zero, &v, out);
}

static bool eval_cond(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue test;
    if (!im__jeval(run, scope, n->b, &test)) return false;
    if (im__jtruth(&test)) return im__jeval(run, scope, n->a, out);
    if (n->c != NULL) return im__jeval(run, scope, n->c, out);
    im__jundef *u = im__jalloc(run, sizeof *u);
    if (u == NULL) return false;
    *u = (im__jundef){.kind = J_HINT, .hint = "an inline if without else was false, so its value is undefined"};
    *out = (im__jvalue){.type = J_UNDEFINED, .as.undef = u};
    return true;
}

/* ---- subscripts ---- */

static bool eval_slice(im__jrun *run, im__jscope *scope, const im__jvalue *obj, const im__jnode *n, im__jvalue *out)
{
    im__jvalue bounds[3] = {im__jnone(), im__jnone(), im__jnone()};
    const im__jnode *parts[3] = {n->a, n->b, n->c};
    for (int i = 0; i < 3; i++)
        if (parts[i] != NULL && !im__jeval(run, scope, parts[i], &bounds[i])) return false;
    run->line = n->line;
    return im__jget_slice(run, obj, bounds, out);
}

static bool eval_item(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue obj, key;
    if (!im__jeval(run, scope, n->a, &obj)) return false;
    if (n->b->kind == N_SLICE) return eval_slice(run, scope, &obj, n->b, out);
    if (!im__jeval(run, scope, n->b, &key)) return false;
    run->line = n->line;
    return im__jget_item(run, &obj, &key, out);
}

static bool eval_attr(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue obj;
    if (!im__jeval(run, scope, n->a, &obj)) return false;
    run->line = n->line;
    return im__jget_attr(run, &obj, n->name->p, n->name->n, out);
}

/* ---- calls ---- */

typedef struct arg_lists {
    im__jseq pos;
    im__jentry *named;
    size_t named_count, named_cap;
} arg_lists;

static bool add_named(im__jrun *run, arg_lists *l, const im__jvalue *key, const im__jvalue *value)
{
    for (size_t i = 0; i < l->named_count; i++)
        if (im__jstr_same(l->named[i].key.as.str, key->as.str))
            return im__jfail(run, "the argument '%.*s' is given twice", im__jshown(key->as.str->n), key->as.str->p);
    if (l->named_count == l->named_cap) {
        size_t cap = l->named_cap == 0 ? 4 : l->named_cap * 2;
        im__jentry *grown = im__jalloc_array(run, cap, sizeof *grown);
        if (grown == NULL) return false;
        if (l->named_count > 0) memcpy(grown, l->named, l->named_count * sizeof *grown);
        l->named = grown;
        l->named_cap = cap;
    }
    l->named[l->named_count++] = (im__jentry){.key = *key, .value = *value};
    return im__jwork(run, l->named_count);
}

static bool add_star(im__jrun *run, arg_lists *l, const im__jvalue *v)
{
    im__jseq *items;
    if (!im__jiterate(run, v, &items)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!im__jseq_push(run, &l->pos, &items->at[i])) return false;
    return true;
}

static bool add_star_star(im__jrun *run, arg_lists *l, const im__jvalue *v)
{
    if (v->type != J_DICT) return im__jfail(run, "argument after ** must be a dict, not %s", im__jtype_name(v));
    for (size_t i = 0; i < v->as.dict->n; i++) {
        const im__jentry *e = &v->as.dict->at[i];
        if (e->key.type != J_STR) return im__jfail(run, "keywords must be strings");
        if (!add_named(run, l, &e->key, &e->value)) return false;
    }
    return true;
}

bool im__jeval_args(im__jrun *run, im__jscope *scope, const im__jnode *kids, im__jargs *out)
{
    arg_lists l = {0};
    for (const im__jnode *kid = kids; kid != NULL; kid = kid->next) {
        im__jvalue v, key;
        if (!im__jeval(run, scope, kid, &v)) return false;
        bool ok = true;
        switch (kid->op) {
        case J_ARG_NAMED:
            ok = im__jstr_new(run, kid->as->p, kid->as->n, J_FROM_TEMPLATE, &key) && add_named(run, &l, &key, &v);
            break;
        case J_ARG_STAR: ok = add_star(run, &l, &v); break;
        case J_ARG_STAR_STAR: ok = add_star_star(run, &l, &v); break;
        default: ok = im__jseq_push(run, &l.pos, &v);
        }
        if (!ok) return false;
    }
    *out = (im__jargs){.pos = l.pos.at, .pos_count = l.pos.n, .named = l.named, .named_count = l.named_count};
    return true;
}

static bool eval_call(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue fn;
    im__jargs args;
    if (!im__jeval(run, scope, n->a, &fn) || !im__jeval_args(run, scope, n->kids, &args)) return false;
    run->line = n->line;
    return im__jcall_value(run, &fn, &args, out);
}

static bool eval_filter(im__jrun *run, im__jscope *scope, const im__jnode *n, const im__jvalue *input, im__jvalue *out)
{
    im__jargs args;
    if (!im__jeval_args(run, scope, n->kids, &args)) return false;
    run->line = n->line;
    return im__jcall_filter(run, n->name->p, n->name->n, input, &args, out);
}

bool im__jeval_filters(im__jrun *run, im__jscope *scope, const im__jnode *n, const im__jvalue *inner, im__jvalue *out)
{
    im__jvalue input = *inner;
    if (!im__jenter(run)) return false;
    bool ok = n->a == NULL || im__jeval_filters(run, scope, n->a, inner, &input);
    im__jleave(run);
    return ok && eval_filter(run, scope, n, &input, out);
}

static bool eval_filter_node(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue input;
    return im__jeval(run, scope, n->a, &input) && eval_filter(run, scope, n, &input, out);
}

static bool eval_test(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    im__jvalue v;
    im__jargs args;
    bool holds;
    if (!im__jeval(run, scope, n->a, &v) || !im__jeval_args(run, scope, n->kids, &args)) return false;
    run->line = n->line;
    if (!im__jcall_test(run, n->name->p, n->name->n, &v, &args, &holds)) return false;
    *out = im__jbool(holds);
    return true;
}

static bool eval_node(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    switch (n->kind) {
    case N_CONST: *out = n->value; return true;
    case N_NAME: return eval_name(run, scope, n->name, out);
    case N_LIST:
    case N_TUPLE: return eval_seq(run, scope, n, out);
    case N_DICT: return eval_dict(run, scope, n, out);
    case N_CONCAT: return eval_concat(run, scope, n, out);
    case N_MATH: return eval_math(run, scope, n, out);
    case N_COMPARE: return eval_compare(run, scope, n, out);
    case N_AND:
    case N_OR: return eval_and_or(run, scope, n, out);
    case N_NOT:
    case N_NEGATE:
    case N_PLUS: return eval_unary(run, scope, n, out);
    case N_COND: return eval_cond(run, scope, n, out);
    case N_ATTR: return eval_attr(run, scope, n, out);
    case N_ITEM: return eval_item(run, scope, n, out);
    case N_CALL: return eval_call(run, scope, n, out);
    case N_FILTER: return eval_filter_node(run, scope, n, out);
    case N_TEST: return eval_test(run, scope, n, out);
    default: return im__jfail(run, "a slice can only stand alone in brackets");
    }
}

bool im__jeval(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out)
{
    run->line = n->line;
    if (!im__jenter(run)) return false;
    bool ok = eval_node(run, scope, n, out);
    im__jleave(run);
    return ok && !run->failed;
}
