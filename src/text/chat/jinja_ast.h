/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree that a template is parsed to. Chains of one precedence are flat (a list of kids), so that long ones need no depth.
 */
#ifndef IRONMULE_TEXT_JINJA_AST_H
#define IRONMULE_TEXT_JINJA_AST_H

#include "text/chat/jinja_value.h"

typedef enum im__jnode_kind {
    /* expressions */
    N_CONST,   /* value */
    N_NAME,    /* name */
    N_LIST,    /* kids */
    N_TUPLE,   /* kids */
    N_DICT,    /* kids: key, value, key, value ... */
    N_CONCAT,  /* kids */
    N_MATH,    /* kids; op of each kid but the first joins it to what is left of it */
    N_COMPARE, /* the same */
    N_AND,     /* kids */
    N_OR,      /* kids */
    N_NOT,     /* a */
    N_NEGATE,  /* a */
    N_PLUS,    /* a */
    N_COND,    /* a if b else c (NULL: undefined) */
    N_ATTR,    /* a.name */
    N_ITEM,    /* a[b] */
    N_SLICE,   /* only as b of N_ITEM: a:b:c, each may be NULL */
    N_CALL,    /* a(kids) */
    N_FILTER,  /* a | name(kids); a is NULL in a filter block */
    N_TEST,    /* a is name(kids) */
    /* statements */
    N_TEXT,         /* value */
    N_OUTPUT,       /* a */
    N_IF,           /* kids: each an N_BRANCH */
    N_BRANCH,       /* a: condition (NULL: else), body */
    N_FOR,          /* a: target, b: iterable, c: filter or NULL, body, other: else */
    N_SET,          /* a: target, b: value */
    N_SET_BLOCK,    /* a: target, b: N_FILTER chain or NULL, body */
    N_MACRO,        /* name, kids: N_PARAM, body */
    N_PARAM,        /* name, a: default or NULL */
    N_CALL_BLOCK,   /* a: N_CALL, b: an N_MACRO that is the caller */
    N_FILTER_BLOCK, /* b: N_FILTER chain, body */
    N_WITH,         /* kids: N_SET, body */
    N_SCOPE,        /* body (a generation block) */
    N_NS_SET,       /* target of N_SET only: a.name of a namespace; name, value: attribute */
    N_BREAK,
    N_CONTINUE
} im__jnode_kind;

/* How an argument of a call is passed: op of the kid. */
enum { J_ARG_POSITION = 0, J_ARG_NAMED = 1, J_ARG_STAR = 2, J_ARG_STAR_STAR = 3 };

/* Operators of N_MATH and N_COMPARE are IM__OP() of the lexer; "in" and "not in": */
enum { J_OP_IN = 1, J_OP_NOT_IN = 2 };

/* Names are interned: two equal names are the same pointer. */
typedef struct im__jname {
    const char *p;
    size_t n;
    uint64_t hash;
    struct im__jname *next;
} im__jname;

typedef struct im__jnode im__jnode;
struct im__jnode {
    uint8_t kind;
    bool uses_caller, uses_varargs, uses_kwargs; /* N_MACRO */
    bool recursive;                              /* N_FOR */
    unsigned line, op;
    const im__jname *name, *as; /* as: the name a keyword argument is passed under */
    im__jvalue value;
    im__jnode *a, *b, *c;
    im__jnode *kids, *body, *other; /* first of a list */
    im__jnode *next;                /* of the list this node is in */
};

typedef struct im__jtree {
    im__jnode *body;
    const im__jname *loop, *caller, *varargs, *kwargs;
    bool asks_content_none; /* the template tests whether some .content is none */
} im__jtree;

/* Parses a template into the arena of `run`, whose limits.depth bounds the nesting. */
bool im__jparse(im__jrun *run, const char *source, size_t n, im__jtree *out);

#endif
