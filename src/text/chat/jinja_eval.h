/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a tree. jinja_eval.c has the expressions, jinja_exec.c the statements and macros, jinja_ops.c the operators, jinja_access.c
 * attributes and subscripts; the tables of built-in filters, tests, methods and global functions are searched by name.
 */
#ifndef IRONMULE_TEXT_JINJA_EVAL_H
#define IRONMULE_TEXT_JINJA_EVAL_H

#include "text/chat/jinja_ast.h"
#include "text/chat/jinja_text.h"

/* ---- scopes ---- */

typedef struct im__jvar {
    const im__jname *name;
    im__jvalue value;
    struct im__jvar *next;
} im__jvar;

typedef struct im__jscope {
    struct im__jscope *parent; /* read from, never written to */
    im__jvar *vars;
} im__jscope;

im__jscope *im__jscope_new(im__jrun *run, im__jscope *parent);
bool im__jscope_set(im__jrun *run, im__jscope *scope, const im__jname *name, const im__jvalue *value);

/* ---- statements ---- */

typedef enum im__jflow { J_GO_ON, J_BREAK, J_CONTINUE, J_FAILED } im__jflow;

im__jflow im__jexec(im__jrun *run, im__jscope *scope, const im__jnode *body, im__jtext *out);
/* The text that `body` gives in a scope of its own. */
bool im__jexec_text(im__jrun *run, im__jscope *scope, const im__jnode *body, im__jvalue *out);
bool im__jcall_macro(im__jrun *run, const im__jnode *macro, im__jscope *scope, const im__jargs *args, im__jvalue *out);
bool im__jloop_again(im__jrun *run, const struct im__jloop *loop, const im__jvalue *items, im__jvalue *out); /* loop(items) */
bool im__jloop_attribute(im__jrun *run, struct im__jloop *loop, const char *name, size_t n,
                         im__jvalue *out); /* absent: none such */
bool im__jloop_changed(im__jrun *run, struct im__jloop *loop, const im__jvalue *values, bool *out);
size_t im__jloop_index(const struct im__jloop *loop);

/* ---- expressions ---- */

bool im__jeval(im__jrun *run, im__jscope *scope, const im__jnode *n, im__jvalue *out);
/* Applies a chain of N_FILTER whose innermost input is `inner`. */
bool im__jeval_filters(im__jrun *run, im__jscope *scope, const im__jnode *n, const im__jvalue *inner, im__jvalue *out);
/* Arguments of N_CALL, N_FILTER or N_TEST. */
bool im__jeval_args(im__jrun *run, im__jscope *scope, const im__jnode *kids, im__jargs *out);

bool im__jmath(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b, im__jvalue *out);
bool im__jcompare(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b, bool *out);
bool im__jcontains(im__jrun *run, const im__jvalue *all, const im__jvalue *one, bool *out);

bool im__jget_attr(im__jrun *run, const im__jvalue *obj, const char *name, size_t n, im__jvalue *out);
bool im__jget_item(im__jrun *run, const im__jvalue *obj, const im__jvalue *key, im__jvalue *out);
/* obj[from:to:step]; each bound J_NONE or an integer. */
bool im__jget_slice(im__jrun *run, const im__jvalue *obj, const im__jvalue bounds[3], im__jvalue *out);
/* Follows "a.b.0" as the filters' attribute= does; an integer key counts as one part. */
bool im__jget_path(im__jrun *run, const im__jvalue *obj, const im__jvalue *path, im__jvalue *out);

/* ---- calls ---- */

typedef struct im__jcall {
    im__jrun *run;
    const im__jvalue *self; /* input of the filter, object of the method; NULL for global functions */
    const im__jvalue *arg;  /* one for each parameter of the built-in; im__jabsent when not given */
    const im__jargs *args;  /* all, as passed */
} im__jcall;

typedef struct im__jbuiltin {
    const char *name;
    const char *params; /* names, with ? behind those that may be absent: "old new count?"; "*": takes what comes */
    bool (*fn)(const im__jcall *c, im__jvalue *out);
} im__jbuiltin;

#define IM__JMAX_PARAMS 8

/* What J_FUNCTION points to. */
typedef struct im__jfunc {
    const im__jbuiltin *builtin; /* or NULL: a macro */
    im__jvalue self;
    const im__jnode *macro;
    im__jscope *scope; /* where the macro was defined */
} im__jfunc;

/* Each is searched for a name of n bytes; NULL: none such. */
const im__jbuiltin *im__jfind_filter(const char *name, size_t n);
const im__jbuiltin *im__jfind_test(const char *name, size_t n); /* these give J_BOOL */
const im__jbuiltin *im__jfind_method(const im__jvalue *self, const char *name, size_t n);
const im__jbuiltin *im__jfind_global(const char *name, size_t n);
const im__jbuiltin *im__jfind_in(const im__jbuiltin *table, size_t count, const char *name, size_t n);

bool im__jcall_builtin(im__jrun *run, const im__jbuiltin *b, const im__jvalue *self, const im__jargs *args, im__jvalue *out);
bool im__jcall_value(im__jrun *run, const im__jvalue *fn, const im__jargs *args, im__jvalue *out);
bool im__jcall_filter(im__jrun *run, const char *name, size_t n, const im__jvalue *self, const im__jargs *args, im__jvalue *out);
bool im__jcall_test(im__jrun *run, const char *name, size_t n, const im__jvalue *self, const im__jargs *args, bool *out);

/* Reading arguments; `fallback` when absent. They fail on a wrong type, naming the parameter. */
bool im__jarg_int(const im__jcall *c, size_t i, int64_t fallback, int64_t *out);
bool im__jarg_str(const im__jcall *c, size_t i, const im__jstr **out); /* absent or none: NULL */
bool im__jarg_flag(const im__jcall *c, size_t i, bool fallback);       /* truth */

#endif
