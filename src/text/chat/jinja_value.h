/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that templates work on, with the semantics of Python's, and the state of one render.
 *
 * Values are immutable once a template can see them (namespaces excepted) and live in the arena of the render. A function that can
 * fail returns bool: false means that im__jfail (or a budget) has already filled in the error of the run.
 */
#ifndef IRONMULE_TEXT_JINJA_VALUE_H
#define IRONMULE_TEXT_JINJA_VALUE_H

#include "base/error.h"
#include "text/chat/jinja_arena.h"

#include <stdint.h>
#include <string.h>

/* ---- the run ---- */

typedef struct im__jlimits {
    size_t memory;    /* bytes of the arena */
    size_t output;    /* bytes of rendered text */
    uint64_t steps;   /* nodes evaluated, and bytes worked on / 16 */
    unsigned depth;   /* nesting of evaluation; bounds the use of the C stack */
    size_t range_max; /* longest range(), 100,000 in Jinja's sandbox */
} im__jlimits;

typedef struct im__jrun {
    im__jarena arena;
    im__jlimits limits;
    uint64_t steps;
    unsigned depth;
    unsigned line; /* of the construct being evaluated */
    int64_t now;   /* for strftime_now */
    im_error *err;
    bool failed;
    const struct im__jdict *variables; /* messages, tools ...; found when no scope has the name */
    const struct im__jtree *tree;      /* the template being rendered */
} im__jrun;

/* Records the first failure as IM_ERR_TEMPLATE, with the line when run->line is not 0; returns false. */
bool im__jfail(im__jrun *run, const char *format, ...) IM__PRINTF(2, 3);
/* How many of n bytes an error shows, for %.*s. */
static inline int im__jshown(size_t n) { return n > 60 ? 60 : (int)n; }
/* Zeroed memory of the run, NULL with the failure recorded. */
void *im__jalloc(im__jrun *run, size_t n);
void *im__jalloc_array(im__jrun *run, size_t count, size_t size);
bool im__jwork(im__jrun *run, uint64_t steps); /* counts work against the budget */
bool im__jenter(im__jrun *run);                /* one level deeper; pair with im__jleave when it returned true */
void im__jleave(im__jrun *run);

/* ---- values ---- */

typedef enum im__jtype {
    J_UNDEFINED, /* as.undef says of what, NULL: "absent" inside calls */
    J_NONE,
    J_BOOL,
    J_INT,
    J_BIG, /* an integer beyond 64 bits, kept as the text that spelled it */
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_RANGE, /* a list that prints as range(...) */
    J_KEYS,  /* the views of a dict */
    J_VALUES,
    J_ITEMS,
    J_ITER, /* a generator, as map() and select() give: always true, no length, read once */
    J_DICT,
    J_NAMESPACE,
    J_FUNCTION, /* a global function, a bound method, a macro */
    J_LOOP,
    J_JOINER,
    J_CYCLER
} im__jtype;

/* Where a byte of text came from. */
enum { J_FROM_TEMPLATE = 0, J_FROM_INPUT = 1, J_FROM_TAG = 2 };

typedef struct im__jstr {
    const char *p; /* valid UTF-8 */
    size_t n;
    const uint8_t *mark; /* origin of each byte; NULL: all are of `origin` */
    uint8_t origin;
    bool safe;              /* Jinja's Markup, as the filters safe and escape give: "+" escapes what is added to it */
    struct im__jtext *home; /* the text it was built in, which may grow in place; or NULL */
} im__jstr;

typedef struct im__jvalue {
    im__jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        const im__jstr *str; /* J_STR, J_BIG */
        struct im__jseq *seq;
        struct im__jdict *dict; /* J_DICT, J_NAMESPACE */
        const struct im__jundef *undef;
        const struct im__jfunc *func;
        struct im__jloop *loop;
        struct im__jcycle *cycle; /* J_JOINER, J_CYCLER */
    } as;
} im__jvalue;

typedef struct im__jseq {
    im__jvalue *at;
    size_t n, cap;
    size_t next;         /* J_ITER: what is read next */
    int64_t start, step; /* J_RANGE */
    int64_t stop;
    bool pair; /* a (grouper, list) of groupby */
} im__jseq;

typedef struct im__jentry {
    im__jvalue key, value;
    uint64_t hash;
} im__jentry;

typedef struct im__jdict {
    im__jentry *at; /* in order of insertion */
    size_t n, cap;
    uint32_t *slots; /* open addressing: index + 1 into `at`; NULL while small */
    size_t slot_count;
} im__jdict;

typedef struct im__jcycle {
    im__jvalue items; /* J_CYCLER: tuple; J_JOINER: string */
    size_t pos;
} im__jcycle;

typedef enum im__jundef_kind { J_NO_NAME, J_NO_ATTRIBUTE, J_NO_ELEMENT, J_NO_PARAMETER, J_UNSAFE, J_HINT } im__jundef_kind;

typedef struct im__jundef {
    im__jundef_kind kind;
    im__jtype owner;  /* type of the object that lacks it */
    im__jvalue what;  /* name or key */
    const char *hint; /* J_HINT: the whole sentence */
} im__jundef;

/* Arguments of a call. */
typedef struct im__jargs {
    const im__jvalue *pos;
    size_t pos_count;
    const im__jentry *named; /* keys are J_STR */
    size_t named_count;
} im__jargs;

/* ---- making values ---- */

static inline im__jvalue im__jnone(void) { return (im__jvalue){.type = J_NONE}; }
static inline im__jvalue im__jbool(bool b) { return (im__jvalue){.type = J_BOOL, .as.b = b}; }
static inline im__jvalue im__jint(int64_t i) { return (im__jvalue){.type = J_INT, .as.i = i}; }
static inline im__jvalue im__jfloat(double f) { return (im__jvalue){.type = J_FLOAT, .as.f = f}; }
static inline im__jvalue im__jseq_value(im__jtype type, im__jseq *seq) { return (im__jvalue){.type = type, .as.seq = seq}; }

bool im__jundefined(im__jrun *run, im__jundef_kind kind, const im__jvalue *owner, const im__jvalue *what, im__jvalue *out);
bool im__juse_undefined(im__jrun *run, const im__jvalue *v); /* records "'x' is undefined" (or its like); returns false */

im__jseq *im__jseq_new(im__jrun *run, size_t expected);
bool im__jseq_push(im__jrun *run, im__jseq *seq, const im__jvalue *v);
bool im__jpair(im__jrun *run, const im__jvalue *a, const im__jvalue *b, im__jvalue *out); /* a tuple of two */

im__jdict *im__jdict_new(im__jrun *run);
/* Adds or replaces. False: not hashable, or no memory. */
bool im__jdict_set(im__jrun *run, im__jdict *d, const im__jvalue *key, const im__jvalue *value);
/* NULL when there is no such key (or it is not hashable). */
im__jvalue *im__jdict_get(im__jrun *run, const im__jdict *d, const im__jvalue *key);
im__jvalue *im__jdict_find(const im__jdict *d, const char *key, size_t n); /* by a string key */

/* ---- asking values ---- */

bool im__jtruth(const im__jvalue *v);
bool im__jequal(im__jrun *run, const im__jvalue *a, const im__jvalue *b, bool *out);
/* -1, 0 or 1, as Python's < sorts; fails for types that have no order, naming `op`. */
bool im__jorder(im__jrun *run, const im__jvalue *a, const im__jvalue *b, const char *op, int *out);
const char *im__jtype_name(const im__jvalue *v); /* as Python's type(v).__name__ */
bool im__jis_number(const im__jvalue *v);        /* bool, int, float */
bool im__jis_seq(const im__jvalue *v);           /* the types that have as.seq */
double im__jas_double(const im__jvalue *v);      /* of a number */
static inline bool im__jabsent(const im__jvalue *v) { return v->type == J_UNDEFINED && v->as.undef == NULL; }
/* len(v); fails when it has none. */
bool im__jlength(im__jrun *run, const im__jvalue *v, size_t *out);
/* What `for x in v` goes through, as a sequence that must not be changed. A J_ITER is used up by it. */
bool im__jiterate(im__jrun *run, const im__jvalue *v, im__jseq **out);

/* A stable sort by key, as Python's sorted(key=..., reverse=...); `index` says afterwards where each came from. */
typedef struct im__jsortable {
    im__jvalue key;
    size_t index;
} im__jsortable;

bool im__jsort(im__jrun *run, im__jsortable *items, size_t n, bool reverse);

#endif
