/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the parser: jinja_parse.c knows the statements, jinja_parse_expr.c the expressions.
 */
#ifndef IRONMULE_TEXT_JINJA_PARSE_H
#define IRONMULE_TEXT_JINJA_PARSE_H

#include "text/chat/jinja_ast.h"
#include "text/chat/jinja_lex.h"

#define IM__JNAME_BUCKETS 256

typedef struct im__jparser {
    im__jrun *run;
    im__jlexer lex;
    im__jtoken tok, ahead; /* the current token, and the one behind it when looked at */
    bool has_ahead;
    im__jtree *tree;
    im__jname *names[IM__JNAME_BUCKETS];
    im__jnode *macro; /* the macro being parsed, or NULL */
    unsigned loops;   /* that a break would leave */
} im__jparser;

bool im__jparse_next(im__jparser *p);
bool im__jparse_peek(im__jparser *p); /* fills p->ahead */
bool im__jparse_is_op(const im__jparser *p, unsigned op);
bool im__jparse_is_name(const im__jparser *p, const char *name);
bool im__jparse_skip_op(im__jparser *p, unsigned op); /* true when it was there; check run->failed later */
bool im__jparse_expect_op(im__jparser *p, unsigned op);
bool im__jparse_enter(im__jparser *p); /* one level deeper at the current token; pair with im__jleave when it returned true */
bool im__jparse_unexpected(im__jparser *p, const char *wanted); /* records the failure; returns false */
const im__jname *im__jparse_name(im__jparser *p, const char *s, size_t n);
const im__jname *im__jparse_take_name(im__jparser *p); /* the current token must be a name; NULL: failed */
im__jnode *im__jparse_node(im__jparser *p, im__jnode_kind kind);

/* Each returns NULL on failure. */
typedef struct im__jtuple_rule {
    bool no_cond;    /* "a if b else c" is not part of it */
    bool in_parens;  /* () is an empty tuple */
    const char *end; /* a name that ends it, or NULL */
} im__jtuple_rule;

im__jnode *im__jparse_tuple(im__jparser *p, im__jtuple_rule rule);
im__jnode *im__jparse_expression(im__jparser *p);
im__jnode *im__jparse_primary(im__jparser *p);
/* Parses filters: `first` at the current token (a name), then "| more" ones, applied to `inner` (may be NULL). */
im__jnode *im__jparse_filters(im__jparser *p, im__jnode *inner);

#endif
