/* SPDX-License-Identifier: Apache-2.0
 * Expressions, by precedence: condition, or, and, not, comparison, + and -, ~, * / // %, **, unary, primary with its suffixes. */
#include "text/chat/jinja_parse.h"

#include "text/chat/jinja_text.h"

#define advance im__jparse_next
#define is_op im__jparse_is_op
#define is_name im__jparse_is_name
#define skip_op im__jparse_skip_op
#define expect_op im__jparse_expect_op
#define new_node im__jparse_node

static im__jnode *parse_or(im__jparser *p);
static im__jnode *parse_unary(im__jparser *p, bool with_filters);

typedef im__jnode *(*level)(im__jparser *p);

/* A kid list under construction. */
typedef struct kids {
    im__jnode **end;
} kids;

static void add(kids *k, im__jnode *node)
{
    *k->end = node;
    k->end = &node->next;
}

static im__jnode *wrap(im__jparser *p, im__jnode_kind kind, im__jnode *a)
{
    im__jnode *n = a != NULL ? new_node(p, kind) : NULL;
    if (n != NULL) {
        n->a = a;
        n->line = a->line;
    }
    return n;
}

/* ---- constants and primaries ---- */

static im__jnode *constant(im__jparser *p, im__jvalue value)
{
    im__jnode *n = new_node(p, N_CONST);
    if (n == NULL || !advance(p)) return NULL;
    n->value = value;
    return n;
}

static im__jnode *parse_strings(im__jparser *p)
{
    im__jtext t = {.run = p->run};
    im__jnode *n = new_node(p, N_CONST);
    while (n != NULL && p->tok.kind == T_STRING) {
        im__jtext_put(&t, p->tok.p, p->tok.n, J_FROM_TEMPLATE);
        if (!advance(p)) return NULL;
    }
    return n != NULL && im__jtext_done(&t, &n->value) ? n : NULL;
}

static im__jnode *parse_number(im__jparser *p)
{
    im__jvalue v = im__jfloat(0);
    if (p->tok.kind == T_FLOAT)
        v.as.f = im__jfloat_parse(p->tok.p, p->tok.n);
    else if (!im__jint_parse(p->run, p->tok.p, p->tok.n, J_FROM_TEMPLATE, &v))
        return NULL;
    return constant(p, v);
}

static im__jnode *parse_name(im__jparser *p)
{
    static const struct {
        const char *word;
        im__jvalue value;
    } words[] = {{"true", {.type = J_BOOL, .as.b = true}},
                 {"True", {.type = J_BOOL, .as.b = true}},
                 {"false", {.type = J_BOOL, .as.b = false}},
                 {"False", {.type = J_BOOL, .as.b = false}},
                 {"none", {.type = J_NONE}},
                 {"None", {.type = J_NONE}}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is_name(p, words[i].word)) return constant(p, words[i].value);
    im__jnode *n = new_node(p, N_NAME);
    if (n == NULL || (n->name = im__jparse_take_name(p)) == NULL) return NULL;
    if (p->macro != NULL) {
        p->macro->uses_caller |= n->name == p->tree->caller;
        p->macro->uses_varargs |= n->name == p->tree->varargs;
        p->macro->uses_kwargs |= n->name == p->tree->kwargs;
    }
    return n;
}

static im__jnode *parse_list(im__jparser *p)
{
    im__jnode *n = new_node(p, N_LIST);
    if (n == NULL || !advance(p)) return NULL;
    kids k = {&n->kids};
    while (!is_op(p, IM__OP(']', 0))) {
        if (n->kids != NULL && !expect_op(p, IM__OP(',', 0))) return NULL;
        if (is_op(p, IM__OP(']', 0))) break;
        im__jnode *item = im__jparse_expression(p);
        if (item == NULL) return NULL;
        add(&k, item);
    }
    return advance(p) ? n : NULL;
}

static im__jnode *parse_dict(im__jparser *p)
{
    im__jnode *n = new_node(p, N_DICT);
    if (n == NULL || !advance(p)) return NULL;
    kids k = {&n->kids};
    while (!is_op(p, IM__OP('}', 0))) {
        if (n->kids != NULL && !expect_op(p, IM__OP(',', 0))) return NULL;
        if (is_op(p, IM__OP('}', 0))) break;
        im__jnode *key = im__jparse_expression(p);
        if (key == NULL || !expect_op(p, IM__OP(':', 0))) return NULL;
        im__jnode *value = im__jparse_expression(p);
        if (value == NULL) return NULL;
        add(&k, key);
        add(&k, value);
    }
    return advance(p) ? n : NULL;
}

static im__jnode *parse_parens(im__jparser *p)
{
    if (!advance(p)) return NULL;
    im__jnode *n = im__jparse_tuple(p, (im__jtuple_rule){.in_parens = true});
    return n != NULL && expect_op(p, IM__OP(')', 0)) ? n : NULL;
}

static im__jnode *primary_of(im__jparser *p)
{
    switch (p->tok.kind) {
    case T_NAME: return parse_name(p);
    case T_STRING: return parse_strings(p);
    case T_INT:
    case T_FLOAT: return parse_number(p);
    case T_OP:
        if (is_op(p, IM__OP('(', 0))) return parse_parens(p);
        if (is_op(p, IM__OP('[', 0))) return parse_list(p);
        if (is_op(p, IM__OP('{', 0))) return parse_dict(p);
        break;
    default: break;
    }
    im__jparse_unexpected(p, "an expression");
    return NULL;
}

im__jnode *im__jparse_primary(im__jparser *p)
{
    if (!im__jparse_enter(p)) return NULL;
    im__jnode *n = primary_of(p);
    im__jleave(p->run);
    return n;
}

/* ---- suffixes: .name [item] (arguments) |filter is test ---- */

static im__jnode *parse_argument(im__jparser *p)
{
    unsigned how = J_ARG_POSITION;
    const im__jname *as = NULL;
    if (is_op(p, IM__OP('*', 0))) how = J_ARG_STAR;
    if (is_op(p, IM__OP('*', '*'))) how = J_ARG_STAR_STAR;
    if (how != J_ARG_POSITION && !advance(p)) return NULL;
    if (how == J_ARG_POSITION && p->tok.kind == T_NAME) {
        if (!im__jparse_peek(p)) return NULL;
        if (p->ahead.kind == T_OP && p->ahead.op == IM__OP('=', 0)) {
            how = J_ARG_NAMED;
            as = im__jparse_take_name(p);
            if (as == NULL || !advance(p)) return NULL;
        }
    }
    im__jnode *n = im__jparse_expression(p);
    if (n != NULL) {
        n->op = how;
        n->as = as;
    }
    return n;
}

/* The current token is "("; the arguments become kids of `call`. */
static bool parse_arguments(im__jparser *p, im__jnode *call)
{
    kids k = {&call->kids};
    bool named = false;
    if (!advance(p)) return false;
    while (!is_op(p, IM__OP(')', 0))) {
        if (call->kids != NULL && !expect_op(p, IM__OP(',', 0))) return false;
        if (is_op(p, IM__OP(')', 0))) break;
        im__jnode *arg = parse_argument(p);
        if (arg == NULL) return false;
        if (named && arg->op == J_ARG_POSITION) return im__jparse_unexpected(p, "no plain argument behind a named one");
        named = named || arg->op == J_ARG_NAMED || arg->op == J_ARG_STAR_STAR;
        add(&k, arg);
    }
    return advance(p);
}

static bool slice_part(im__jparser *p, im__jnode **out)
{
    if (is_op(p, IM__OP(':', 0)) || is_op(p, IM__OP(']', 0)) || is_op(p, IM__OP(',', 0))) return true;
    *out = im__jparse_expression(p);
    return *out != NULL;
}

static im__jnode *parse_subscript_part(im__jparser *p)
{
    im__jnode *first = NULL;
    if (!is_op(p, IM__OP(':', 0))) {
        first = im__jparse_expression(p);
        if (first == NULL || !is_op(p, IM__OP(':', 0))) return first;
    }
    im__jnode *slice = new_node(p, N_SLICE);
    if (slice == NULL || !advance(p)) return NULL;
    slice->a = first;
    if (!slice_part(p, &slice->b)) return NULL;
    if (skip_op(p, IM__OP(':', 0)) && !slice_part(p, &slice->c)) return NULL;
    return p->run->failed ? NULL : slice;
}

static im__jnode *parse_item(im__jparser *p, im__jnode *inner)
{
    im__jnode *n = wrap(p, N_ITEM, inner);
    if (n == NULL || !advance(p) || (n->b = parse_subscript_part(p)) == NULL) return NULL;
    if (is_op(p, IM__OP(',', 0))) {
        im__jnode *tuple = new_node(p, N_TUPLE);
        if (tuple == NULL) return NULL;
        tuple->kids = n->b;
        kids k = {&n->b->next};
        while (skip_op(p, IM__OP(',', 0))) {
            im__jnode *more = parse_subscript_part(p);
            if (more == NULL) return NULL;
            add(&k, more);
        }
        n->b = tuple;
    }
    return expect_op(p, IM__OP(']', 0)) ? n : NULL;
}

static im__jnode *parse_dot(im__jparser *p, im__jnode *inner)
{
    im__jnode *n = wrap(p, N_ATTR, inner);
    if (n == NULL || !advance(p)) return NULL;
    if (p->tok.kind == T_INT) {
        n->kind = N_ITEM;
        n->b = parse_number(p);
        return n->b != NULL ? n : NULL;
    }
    n->name = im__jparse_take_name(p);
    return n->name != NULL ? n : NULL;
}

static im__jnode *parse_call(im__jparser *p, im__jnode *inner)
{
    im__jnode *n = wrap(p, N_CALL, inner);
    return n != NULL && parse_arguments(p, n) ? n : NULL;
}

static im__jnode *parse_postfix(im__jparser *p, im__jnode *n)
{
    while (n != NULL) {
        if (is_op(p, IM__OP('.', 0)))
            n = parse_dot(p, n);
        else if (is_op(p, IM__OP('[', 0)))
            n = parse_item(p, n);
        else if (is_op(p, IM__OP('(', 0)))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static const im__jname *dotted_name(im__jparser *p)
{
    char text[128];
    const im__jname *part = im__jparse_take_name(p);
    if (part == NULL || !is_op(p, IM__OP('.', 0))) return part;
    size_t n = 0;
    for (;;) {
        if (part->n + 1 >= sizeof text - n) return im__jfail(p->run, "a name is too long"), NULL;
        memcpy(text + n, part->p, part->n);
        n += part->n;
        if (!skip_op(p, IM__OP('.', 0))) break;
        text[n++] = '.';
        if ((part = im__jparse_take_name(p)) == NULL) return NULL;
    }
    char *copy = im__jalloc(p->run, n);
    if (copy == NULL) return NULL;
    memcpy(copy, text, n);
    return im__jparse_name(p, copy, n);
}

im__jnode *im__jparse_filters(im__jparser *p, im__jnode *inner)
{
    do {
        im__jnode *n = new_node(p, N_FILTER);
        if (n == NULL || (n->name = dotted_name(p)) == NULL) return NULL;
        n->a = inner;
        if (is_op(p, IM__OP('(', 0)) && !parse_arguments(p, n)) return NULL;
        inner = n;
    } while (skip_op(p, IM__OP('|', 0)));
    return p->run->failed ? NULL : inner;
}

static bool is_content(const im__jnode *n)
{
    if (n->kind == N_NAME || n->kind == N_ATTR) return n->name->n == 7 && memcmp(n->name->p, "content", 7) == 0;
    return n->kind == N_ITEM && n->b->kind == N_CONST && im__jstr_is(&n->b->value, "content");
}

static bool starts_test_argument(const im__jparser *p)
{
    if (p->tok.kind == T_NAME) return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    return p->tok.kind == T_STRING || p->tok.kind == T_INT || p->tok.kind == T_FLOAT || is_op(p, IM__OP('[', 0)) ||
           is_op(p, IM__OP('{', 0));
}

static im__jnode *parse_test(im__jparser *p, im__jnode *inner)
{
    im__jnode *n = wrap(p, N_TEST, inner);
    if (n == NULL || !advance(p)) return NULL;
    bool negated = is_name(p, "not");
    if (negated && !advance(p)) return NULL;
    if ((n->name = dotted_name(p)) == NULL) return NULL;
    if (n->name->n == 4 && memcmp(n->name->p, "none", 4) == 0 && is_content(inner)) p->tree->asks_content_none = true;
    if (is_op(p, IM__OP('(', 0))) {
        if (!parse_arguments(p, n)) return NULL;
    } else if (starts_test_argument(p)) {
        if (is_name(p, "is")) return im__jparse_unexpected(p, "no second test behind a test"), NULL;
        n->kids = parse_postfix(p, im__jparse_primary(p));
        if (n->kids == NULL) return NULL;
    }
    return negated ? wrap(p, N_NOT, n) : n;
}

static im__jnode *parse_filter_suffix(im__jparser *p, im__jnode *n)
{
    while (n != NULL) {
        if (is_op(p, IM__OP('|', 0)))
            n = advance(p) ? im__jparse_filters(p, n) : NULL;
        else if (is_name(p, "is"))
            n = parse_test(p, n);
        else if (is_op(p, IM__OP('(', 0)))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static im__jnode *parse_sign(im__jparser *p, im__jnode_kind kind)
{
    if (!advance(p) || !im__jparse_enter(p)) return NULL;
    im__jnode *n = wrap(p, kind, parse_unary(p, false));
    im__jleave(p->run);
    return n;
}

static im__jnode *parse_unary(im__jparser *p, bool with_filters)
{
    im__jnode *n;
    if (is_op(p, IM__OP('-', 0)))
        n = parse_sign(p, N_NEGATE);
    else if (is_op(p, IM__OP('+', 0)))
        n = parse_sign(p, N_PLUS);
    else
        n = im__jparse_primary(p);
    n = parse_postfix(p, n);
    return with_filters ? parse_filter_suffix(p, n) : n;
}

static im__jnode *operand(im__jparser *p) { return parse_unary(p, true); }

/* first (op operand)*, as one flat node of `kind` when there is an operator at all. */
static im__jnode *chain(im__jparser *p, im__jnode_kind kind, const unsigned *ops, size_t op_count, level inner)
{
    im__jnode *first = inner(p), *all = NULL;
    kids k = {NULL};
    while (first != NULL) {
        size_t i = 0;
        while (i < op_count && !is_op(p, ops[i])) i++;
        if (i == op_count) break;
        if (all == NULL) {
            if ((all = new_node(p, kind)) == NULL) return NULL;
            k.end = &all->kids;
            add(&k, first);
        }
        im__jnode *right = advance(p) ? inner(p) : NULL;
        if (right == NULL) return NULL;
        right->op = ops[i];
        add(&k, right);
    }
    return all != NULL ? all : first;
}

static im__jnode *parse_power(im__jparser *p)
{
    static const unsigned ops[] = {IM__OP('*', '*')};
    return chain(p, N_MATH, ops, 1, operand);
}

static im__jnode *parse_product(im__jparser *p)
{
    static const unsigned ops[] = {IM__OP('*', 0), IM__OP('/', 0), IM__OP('/', '/'), IM__OP('%', 0)};
    return chain(p, N_MATH, ops, 4, parse_power);
}

static im__jnode *parse_concat(im__jparser *p)
{
    static const unsigned ops[] = {IM__OP('~', 0)};
    return chain(p, N_CONCAT, ops, 1, parse_product);
}

static im__jnode *parse_sum(im__jparser *p)
{
    static const unsigned ops[] = {IM__OP('+', 0), IM__OP('-', 0)};
    return chain(p, N_MATH, ops, 2, parse_concat);
}

/* The comparison operator at the current token, behind which the parser then stands; 0: none. */
static unsigned take_comparison(im__jparser *p)
{
    static const unsigned ops[] = {IM__OP('=', '='), IM__OP('!', '='), IM__OP('<', 0),
                                   IM__OP('<', '='), IM__OP('>', 0),   IM__OP('>', '=')};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (skip_op(p, ops[i])) return ops[i];
    if (is_name(p, "in")) return advance(p) ? J_OP_IN : 0;
    if (!is_name(p, "not") || !im__jparse_peek(p)) return 0;
    bool not_in = p->ahead.kind == T_NAME && p->ahead.n == 2 && memcmp(p->ahead.p, "in", 2) == 0;
    return not_in && advance(p) && advance(p) ? J_OP_NOT_IN : 0;
}

static im__jnode *parse_compare(im__jparser *p)
{
    im__jnode *first = parse_sum(p), *all = NULL;
    kids k = {NULL};
    unsigned op;
    while (first != NULL && (op = take_comparison(p)) != 0) {
        if (all == NULL) {
            if ((all = new_node(p, N_COMPARE)) == NULL) return NULL;
            k.end = &all->kids;
            add(&k, first);
        }
        im__jnode *right = parse_sum(p);
        if (right == NULL) return NULL;
        if (right->kind == N_CONST && right->value.type == J_NONE && is_content(first)) p->tree->asks_content_none = true;
        right->op = op;
        add(&k, right);
    }
    if (p->run->failed) return NULL;
    return all != NULL ? all : first;
}

static im__jnode *parse_not(im__jparser *p)
{
    if (!is_name(p, "not")) return parse_compare(p);
    if (!advance(p) || !im__jparse_enter(p)) return NULL;
    im__jnode *n = wrap(p, N_NOT, parse_not(p));
    im__jleave(p->run);
    return n;
}

static im__jnode *word_chain(im__jparser *p, im__jnode_kind kind, const char *word, level inner)
{
    im__jnode *first = inner(p), *all = NULL;
    kids k = {NULL};
    while (first != NULL && is_name(p, word)) {
        if (all == NULL) {
            if ((all = new_node(p, kind)) == NULL) return NULL;
            k.end = &all->kids;
            add(&k, first);
        }
        im__jnode *right = advance(p) ? inner(p) : NULL;
        if (right == NULL) return NULL;
        add(&k, right);
    }
    return all != NULL ? all : first;
}

static im__jnode *parse_and(im__jparser *p) { return word_chain(p, N_AND, "and", parse_not); }

static im__jnode *parse_or(im__jparser *p) { return word_chain(p, N_OR, "or", parse_and); }

static im__jnode *parse_condition(im__jparser *p)
{
    im__jnode *n = parse_or(p);
    while (n != NULL && is_name(p, "if")) {
        n = wrap(p, N_COND, n);
        if (n == NULL || !advance(p) || (n->b = parse_or(p)) == NULL) return NULL;
        if (is_name(p, "else") && (!advance(p) || (n->c = im__jparse_expression(p)) == NULL)) return NULL;
    }
    return n;
}

im__jnode *im__jparse_expression(im__jparser *p)
{
    if (!im__jparse_enter(p)) return NULL;
    im__jnode *n = parse_condition(p);
    im__jleave(p->run);
    return n;
}

static bool tuple_ends(const im__jparser *p, im__jtuple_rule rule)
{
    return p->tok.kind == T_VAR_END || p->tok.kind == T_BLOCK_END || is_op(p, IM__OP(')', 0)) ||
           (rule.end != NULL && is_name(p, rule.end));
}

im__jnode *im__jparse_tuple(im__jparser *p, im__jtuple_rule rule)
{
    im__jnode *tuple = NULL, *first = NULL;
    kids k = {&first};
    for (;;) {
        if (tuple_ends(p, rule)) break;
        im__jnode *n = rule.no_cond ? parse_or(p) : im__jparse_expression(p);
        if (n == NULL) return NULL;
        add(&k, n);
        if (!is_op(p, IM__OP(',', 0))) break;
        if (tuple == NULL && (tuple = new_node(p, N_TUPLE)) == NULL) return NULL;
        if (!advance(p)) return NULL;
    }
    if (tuple == NULL && first != NULL) return first;
    if (tuple == NULL && !rule.in_parens) return im__jparse_unexpected(p, "an expression"), NULL;
    if (tuple == NULL && (tuple = new_node(p, N_TUPLE)) == NULL) return NULL;
    tuple->kids = first;
    return tuple;
}
