/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_parse.h"

#include "text/chat/jinja_text.h"

#include <stdio.h>

#define advance im__jparse_next
#define is_op im__jparse_is_op
#define is_name im__jparse_is_name
#define skip_op im__jparse_skip_op
#define expect_op im__jparse_expect_op
#define new_node im__jparse_node

/* ---- tokens ---- */

bool im__jparse_next(im__jparser *p)
{
    if (p->has_ahead) {
        p->tok = p->ahead;
        p->has_ahead = false;
        return true;
    }
    return im__jlexer_next(&p->lex, &p->tok);
}

bool im__jparse_peek(im__jparser *p)
{
    if (!p->has_ahead && !im__jlexer_next(&p->lex, &p->ahead)) return false;
    p->has_ahead = true;
    return true;
}

bool im__jparse_is_op(const im__jparser *p, unsigned op) { return p->tok.kind == T_OP && p->tok.op == op; }

bool im__jparse_is_name(const im__jparser *p, const char *name)
{
    return p->tok.kind == T_NAME && p->tok.n == strlen(name) && memcmp(p->tok.p, name, p->tok.n) == 0;
}

bool im__jparse_skip_op(im__jparser *p, unsigned op) { return is_op(p, op) && advance(p); }

bool im__jparse_expect_op(im__jparser *p, unsigned op)
{
    char wanted[8];
    if (is_op(p, op)) return advance(p);
    snprintf(wanted, sizeof wanted, "'%c'", (char)(op >> 8));
    return im__jparse_unexpected(p, wanted);
}

bool im__jparse_enter(im__jparser *p)
{
    p->run->line = p->tok.line;
    return im__jenter(p->run);
}

bool im__jparse_unexpected(im__jparser *p, const char *wanted)
{
    static const char *const kinds[] = {[T_END] = "the end of the template",
                                        [T_TEXT] = "text",
                                        [T_BLOCK_BEGIN] = "'{%'",
                                        [T_BLOCK_END] = "'%}'",
                                        [T_VAR_BEGIN] = "'{{'",
                                        [T_VAR_END] = "'}}'"};
    const im__jtoken *t = &p->tok;
    int n = t->n > 60 ? 60 : (int)t->n;
    p->run->line = t->line;
    if (t->kind == T_OP)
        return im__jfail(p->run, "expected %s, got '%c%.*s'", wanted, (char)(t->op >> 8), (t->op & 255) != 0,
                         &(char){(char)(t->op & 255)});
    if (t->kind >= T_NAME) return im__jfail(p->run, "expected %s, got '%.*s'", wanted, n, t->p);
    return im__jfail(p->run, "expected %s, got %s", wanted, kinds[t->kind]);
}

const im__jname *im__jparse_name(im__jparser *p, const char *s, size_t n)
{
    uint64_t hash = 5381;
    for (size_t i = 0; i < n; i++) hash = hash * 33 + (unsigned char)s[i];
    im__jname **bucket = &p->names[(hash ^ (hash >> 16)) % IM__JNAME_BUCKETS];
    for (im__jname *name = *bucket; name != NULL; name = name->next)
        if (name->hash == hash && name->n == n && memcmp(name->p, s, n) == 0) return name;
    im__jname *name = im__jalloc(p->run, sizeof *name);
    if (name == NULL) return NULL;
    *name = (im__jname){.p = s, .n = n, .hash = hash, .next = *bucket};
    *bucket = name;
    return name;
}

const im__jname *im__jparse_take_name(im__jparser *p)
{
    if (p->tok.kind != T_NAME) return im__jparse_unexpected(p, "a name"), NULL;
    const im__jname *name = im__jparse_name(p, p->tok.p, p->tok.n);
    return name != NULL && advance(p) ? name : NULL;
}

im__jnode *im__jparse_node(im__jparser *p, im__jnode_kind kind)
{
    im__jnode *n = im__jalloc(p->run, sizeof *n);
    if (n == NULL) return NULL;
    n->kind = (uint8_t)kind;
    n->line = p->tok.line;
    return n;
}

/* ---- bodies ---- */

static bool parse_body(im__jparser *p, const char *const *ends, im__jnode **out);

static bool at_one_of(const im__jparser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (is_name(p, *ends)) return true;
    return false;
}

static bool expect_block_end(im__jparser *p)
{
    if (p->tok.kind != T_BLOCK_END) return im__jparse_unexpected(p, "'%}'");
    return advance(p);
}

/* "%}" (or ":" and that), the body, and then the parser stands on the word of `ends` that closes it. */
static bool parse_block(im__jparser *p, const char *const *ends, im__jnode **out)
{
    skip_op(p, IM__OP(':', 0));
    return !p->run->failed && expect_block_end(p) && parse_body(p, ends, out);
}

/* The same when one word closes it, which is skipped. */
static bool parse_block_to(im__jparser *p, const char *end, im__jnode **out)
{
    const char *const ends[] = {end, NULL};
    return parse_block(p, ends, out) && advance(p);
}

/* ---- targets of assignments ---- */

static im__jnode *parse_target_name(im__jparser *p)
{
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None", NULL};
    if (at_one_of(p, reserved)) return im__jparse_unexpected(p, "a name to assign to"), NULL;
    im__jnode *n = new_node(p, N_NAME);
    if (n == NULL || (n->name = im__jparse_take_name(p)) == NULL) return NULL;
    return n;
}

static im__jnode *parse_target_list(im__jparser *p, const char *end, bool in_set);

static im__jnode *parse_one_target(im__jparser *p, bool in_set)
{
    if (is_op(p, IM__OP('(', 0))) {
        if (!advance(p) || !im__jparse_enter(p)) return NULL;
        im__jnode *n = parse_target_list(p, NULL, in_set);
        im__jleave(p->run);
        return n != NULL && expect_op(p, IM__OP(')', 0)) ? n : NULL;
    }
    im__jnode *n = parse_target_name(p);
    if (n == NULL || !in_set || !is_op(p, IM__OP('.', 0))) return n;
    n->kind = N_NS_SET;
    if (!advance(p)) return NULL;
    const im__jname *attribute = im__jparse_take_name(p);
    if (attribute == NULL) return NULL;
    return im__jstr_new(p->run, attribute->p, attribute->n, J_FROM_TEMPLATE, &n->value) ? n : NULL;
}

static im__jnode *parse_target_list(im__jparser *p, const char *end, bool in_set)
{
    im__jnode *first = parse_one_target(p, in_set), *tuple = NULL;
    if (first == NULL || !is_op(p, IM__OP(',', 0))) return first;
    if ((tuple = new_node(p, N_TUPLE)) == NULL) return NULL;
    tuple->kids = first;
    for (im__jnode *last = first; skip_op(p, IM__OP(',', 0)); last = last->next) {
        if (p->tok.kind == T_BLOCK_END || is_op(p, IM__OP(')', 0)) || is_op(p, IM__OP('=', 0)) || (end && is_name(p, end))) break;
        if ((last->next = parse_one_target(p, in_set)) == NULL) return NULL;
    }
    return p->run->failed ? NULL : tuple;
}

/* ---- statements; each starts on the token behind its word and stops on its "%}" ---- */

static bool parse_branches(im__jparser *p, im__jnode *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (im__jnode **end = &n->kids;; end = &(*end)->next) {
        im__jnode *branch = *end = new_node(p, N_BRANCH);
        if (branch == NULL) return false;
        branch->a = im__jparse_tuple(p, (im__jtuple_rule){.no_cond = true});
        if (branch->a == NULL || !parse_block(p, ends, &branch->body)) return false;
        bool more = is_name(p, "elif"), otherwise = is_name(p, "else");
        if (!advance(p)) return false;
        if (more) continue;
        if (!otherwise) return true;
        im__jnode *last = branch->next = new_node(p, N_BRANCH);
        return last != NULL && parse_block_to(p, "endif", &last->body);
    }
}

static bool parse_for(im__jparser *p, im__jnode *n)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    n->a = parse_target_list(p, "in", false);
    if (n->a == NULL) return false;
    if (!is_name(p, "in")) return im__jparse_unexpected(p, "'in'");
    if (!advance(p)) return false;
    n->b = im__jparse_tuple(p, (im__jtuple_rule){.no_cond = true, .end = "recursive"});
    if (n->b == NULL) return false;
    if (is_name(p, "if") && (!advance(p) || (n->c = im__jparse_expression(p)) == NULL)) return false;
    n->recursive = is_name(p, "recursive");
    if (n->recursive && !advance(p)) return false;
    p->loops++;
    bool ok = parse_block(p, ends, &n->body);
    p->loops--;
    if (!ok) return false;
    bool otherwise = is_name(p, "else");
    return advance(p) && (!otherwise || parse_block_to(p, "endfor", &n->other));
}

static bool parse_set(im__jparser *p, im__jnode *n)
{
    n->a = parse_target_list(p, NULL, true);
    if (n->a == NULL) return false;
    if (skip_op(p, IM__OP('=', 0))) {
        n->b = im__jparse_tuple(p, (im__jtuple_rule){0});
        return n->b != NULL;
    }
    n->kind = N_SET_BLOCK;
    if (skip_op(p, IM__OP('|', 0)) && (n->b = im__jparse_filters(p, NULL)) == NULL) return false;
    return !p->run->failed && parse_block_to(p, "endset", &n->body);
}

static bool parse_signature(im__jparser *p, im__jnode *macro)
{
    bool defaults = false;
    if (!expect_op(p, IM__OP('(', 0))) return false;
    for (im__jnode **end = &macro->kids; !is_op(p, IM__OP(')', 0)); end = &(*end)->next) {
        if (macro->kids != NULL && !expect_op(p, IM__OP(',', 0))) return false;
        if (is_op(p, IM__OP(')', 0))) break;
        im__jnode *param = *end = parse_target_name(p);
        if (param == NULL) return false;
        param->kind = N_PARAM;
        bool has_default = skip_op(p, IM__OP('=', 0));
        if (p->run->failed || (has_default && (param->a = im__jparse_expression(p)) == NULL)) return false;
        if (defaults && !has_default) return im__jparse_unexpected(p, "a default for each parameter behind one that has it");
        defaults = has_default;
    }
    return advance(p);
}

/* Body of a macro (or of a call block): no loop around it can be left from inside. */
static bool parse_macro_body(im__jparser *p, im__jnode *macro, const char *end)
{
    im__jnode *outer = p->macro;
    unsigned loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    bool ok = parse_block_to(p, end, &macro->body);
    p->macro = outer;
    p->loops = loops;
    if (outer != NULL) {
        outer->uses_caller |= macro->uses_caller;
        outer->uses_varargs |= macro->uses_varargs;
        outer->uses_kwargs |= macro->uses_kwargs;
    }
    return ok;
}

static bool parse_macro(im__jparser *p, im__jnode *n)
{
    im__jnode *name = parse_target_name(p);
    if (name == NULL) return false;
    n->name = name->name;
    return parse_signature(p, n) && parse_macro_body(p, n, "endmacro");
}

static bool parse_call_block(im__jparser *p, im__jnode *n)
{
    n->b = new_node(p, N_MACRO);
    if (n->b == NULL) return false;
    n->b->name = p->tree->caller;
    if (is_op(p, IM__OP('(', 0)) && !parse_signature(p, n->b)) return false;
    n->a = im__jparse_expression(p);
    if (n->a == NULL) return false;
    if (n->a->kind != N_CALL) return im__jparse_unexpected(p, "the call of a macro");
    return parse_macro_body(p, n->b, "endcall");
}

static bool parse_filter_block(im__jparser *p, im__jnode *n)
{
    n->b = im__jparse_filters(p, NULL);
    return n->b != NULL && parse_block_to(p, "endfilter", &n->body);
}

static bool parse_with(im__jparser *p, im__jnode *n)
{
    for (im__jnode **end = &n->kids; p->tok.kind != T_BLOCK_END; end = &(*end)->next) {
        if (n->kids != NULL && !expect_op(p, IM__OP(',', 0))) return false;
        im__jnode *set = *end = new_node(p, N_SET);
        if (set == NULL || (set->a = parse_one_target(p, false)) == NULL) return false;
        if (!expect_op(p, IM__OP('=', 0)) || (set->b = im__jparse_expression(p)) == NULL) return false;
    }
    return parse_block_to(p, "endwith", &n->body);
}

static bool parse_generation(im__jparser *p, im__jnode *n)
{
    unsigned loops = p->loops;
    p->loops = 0;
    bool ok = parse_block_to(p, "endgeneration", &n->body);
    p->loops = loops;
    return ok;
}

static bool parse_jump(im__jparser *p, im__jnode *n)
{
    p->run->line = n->line;
    return p->loops > 0 || im__jfail(p->run, "'%s' outside of a loop", n->kind == N_BREAK ? "break" : "continue");
}

typedef struct statement {
    const char *word;
    im__jnode_kind kind;
    bool (*parse)(im__jparser *p, im__jnode *n);
} statement;

static const statement statements[] = {
    {"if", N_IF, parse_branches},
    {"for", N_FOR, parse_for},
    {"set", N_SET, parse_set},
    {"macro", N_MACRO, parse_macro},
    {"call", N_CALL_BLOCK, parse_call_block},
    {"filter", N_FILTER_BLOCK, parse_filter_block},
    {"with", N_WITH, parse_with},
    {"generation", N_SCOPE, parse_generation},
    {"break", N_BREAK, parse_jump},
    {"continue", N_CONTINUE, parse_jump},
};

static bool unknown_tag(im__jparser *p)
{
    static const char *const others[] = {"include",    "import", "from",  "extends", "block",
                                         "autoescape", "do",     "trans", "debug",   NULL};
    int n = p->tok.n > 60 ? 60 : (int)p->tok.n;
    p->run->line = p->tok.line;
    if (p->tok.kind != T_NAME) return im__jparse_unexpected(p, "the name of a tag");
    if (at_one_of(p, others)) return im__jfail(p->run, "the tag '%.*s' is not supported", n, p->tok.p);
    return im__jfail(p->run, "unknown or unexpected tag '%.*s'", n, p->tok.p);
}

static im__jnode *parse_statement(im__jparser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!is_name(p, statements[i].word)) continue;
        im__jnode *n = new_node(p, statements[i].kind);
        if (n == NULL || !advance(p) || !im__jparse_enter(p)) return NULL;
        bool ok = statements[i].parse(p, n);
        im__jleave(p->run);
        return ok ? n : NULL;
    }
    unknown_tag(p);
    return NULL;
}

static im__jnode *parse_output(im__jparser *p)
{
    im__jnode *n = new_node(p, N_OUTPUT);
    if (n == NULL || !advance(p)) return NULL;
    n->a = im__jparse_tuple(p, (im__jtuple_rule){0});
    if (n->a == NULL) return NULL;
    if (p->tok.kind != T_VAR_END) return im__jparse_unexpected(p, "'}}'"), NULL;
    return advance(p) ? n : NULL;
}

static im__jnode *parse_text(im__jparser *p)
{
    im__jnode *n = new_node(p, N_TEXT);
    if (n == NULL || !im__jstr_new(p->run, p->tok.p, p->tok.n, J_FROM_TEMPLATE, &n->value)) return NULL;
    return advance(p) ? n : NULL;
}

static bool parse_body(im__jparser *p, const char *const *ends, im__jnode **out)
{
    unsigned opened = p->tok.line;
    while (p->tok.kind != T_END) {
        im__jnode *n;
        if (p->tok.kind == T_TEXT) {
            n = parse_text(p);
        } else if (p->tok.kind == T_VAR_BEGIN) {
            n = parse_output(p);
        } else {
            if (!advance(p)) return false;
            if (at_one_of(p, ends)) return true;
            n = parse_statement(p);
            if (n != NULL && !expect_block_end(p)) return false;
        }
        if (n == NULL) return false;
        *out = n;
        out = &n->next;
    }
    if (ends == NULL) return true;
    p->run->line = p->tok.line;
    return im__jfail(p->run, "the template ends, but '%s' is missing for the tag that ends on line %u", ends[0], opened);
}

bool im__jparse(im__jrun *run, const char *source, size_t n, im__jtree *out)
{
    im__jparser *p = im__jalloc(run, sizeof *p);
    if (p == NULL) return false;
    *p = (im__jparser){.run = run, .tree = out};
    *out = (im__jtree){0};
    out->loop = im__jparse_name(p, "loop", 4);
    out->caller = im__jparse_name(p, "caller", 6);
    out->varargs = im__jparse_name(p, "varargs", 7);
    out->kwargs = im__jparse_name(p, "kwargs", 6);
    return !run->failed && im__jlexer_start(&p->lex, run, source, n) && advance(p) && parse_body(p, NULL, &out->body);
}
