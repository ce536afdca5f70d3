/* SPDX-License-Identifier: Apache-2.0
 * Tests ("x is name"). */
#include "text/chat/jinja_eval.h"
#include "text/chat/jinja_lex.h"

static bool give(im__jvalue *out, bool b)
{
    *out = im__jbool(b);
    return true;
}

static bool t_defined(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type != J_UNDEFINED); }
static bool t_undefined(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_UNDEFINED); }
static bool t_none(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_NONE); }
static bool t_boolean(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_BOOL); }
static bool t_true(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_BOOL && c->self->as.b); }
static bool t_false(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_BOOL && !c->self->as.b); }
static bool t_integer(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_INT || c->self->type == J_BIG); }
static bool t_float(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_FLOAT); }
static bool t_number(const im__jcall *c, im__jvalue *out) { return give(out, im__jis_number(c->self) || c->self->type == J_BIG); }
static bool t_string(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_STR); }
static bool t_mapping(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_DICT); }

static bool t_escaped(const im__jcall *c, im__jvalue *out) { return give(out, c->self->type == J_STR && c->self->as.str->safe); }

static bool t_callable(const im__jcall *c, im__jvalue *out)
{
    im__jtype t = c->self->type;
    return give(out, t == J_FUNCTION || t == J_LOOP || t == J_JOINER || t == J_UNDEFINED);
}

static bool t_sequence(const im__jcall *c, im__jvalue *out)
{
    im__jtype t = c->self->type;
    return give(out, t == J_STR || t == J_LIST || t == J_TUPLE || t == J_RANGE || t == J_DICT || t == J_UNDEFINED);
}

static bool t_iterable(const im__jcall *c, im__jvalue *out)
{
    im__jtype t = c->self->type;
    return give(out, im__jis_seq(c->self) || t == J_STR || t == J_DICT || t == J_UNDEFINED || t == J_LOOP);
}

static bool modulo(const im__jcall *c, const im__jvalue *by, im__jvalue *out)
{
    return im__jmath(c->run, IM__OP('%', 0), c->self, by, out);
}

static bool remainder_is(const im__jcall *c, const im__jvalue *by, int64_t wanted, im__jvalue *out)
{
    im__jvalue rest, target = im__jint(wanted);
    bool same;
    return modulo(c, by, &rest) && im__jequal(c->run, &rest, &target, &same) && give(out, same);
}

static bool t_divisibleby(const im__jcall *c, im__jvalue *out) { return remainder_is(c, &c->arg[0], 0, out); }

static bool t_even(const im__jcall *c, im__jvalue *out)
{
    im__jvalue two = im__jint(2);
    return remainder_is(c, &two, 0, out);
}

static bool t_odd(const im__jcall *c, im__jvalue *out)
{
    im__jvalue two = im__jint(2);
    return remainder_is(c, &two, 1, out);
}

static bool compare(const im__jcall *c, unsigned op, im__jvalue *out)
{
    bool holds;
    return im__jcompare(c->run, op, c->self, &c->arg[0], &holds) && give(out, holds);
}

static bool t_eq(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('=', '='), out); }
static bool t_ne(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('!', '='), out); }
static bool t_lt(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('<', 0), out); }
static bool t_le(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('<', '='), out); }
static bool t_gt(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('>', 0), out); }
static bool t_ge(const im__jcall *c, im__jvalue *out) { return compare(c, IM__OP('>', '='), out); }
static bool t_in(const im__jcall *c, im__jvalue *out) { return compare(c, J_OP_IN, out); }

/* Python's "is": strings and numbers are the same when type and value are. */
static bool t_sameas(const im__jcall *c, im__jvalue *out)
{
    const im__jvalue *a = c->self, *b = &c->arg[0];
    bool same = false;
    if (a->type != b->type) return give(out, false);
    if (im__jis_seq(a) || a->type == J_DICT || a->type == J_NAMESPACE || a->type == J_FUNCTION)
        return give(out, a->as.seq == b->as.seq);
    return im__jequal(c->run, a, b, &same) && give(out, same);
}

static bool case_is(const im__jcall *c, const char *method, im__jvalue *out)
{
    im__jvalue s;
    im__jargs none = {0};
    return im__jto_str(c->run, c->self, &s) &&
           im__jcall_builtin(c->run, im__jfind_method(&s, method, strlen(method)), &s, &none, out);
}

static bool t_lower(const im__jcall *c, im__jvalue *out) { return case_is(c, "islower", out); }
static bool t_upper(const im__jcall *c, im__jvalue *out) { return case_is(c, "isupper", out); }

static bool t_filter(const im__jcall *c, im__jvalue *out)
{
    return give(out, c->self->type == J_STR && im__jfind_filter(c->self->as.str->p, c->self->as.str->n) != NULL);
}

static bool t_test(const im__jcall *c, im__jvalue *out)
{
    return give(out, c->self->type == J_STR && im__jfind_test(c->self->as.str->p, c->self->as.str->n) != NULL);
}

static const im__jbuiltin tests[] = {
    {"defined", "", t_defined},     {"undefined", "", t_undefined},
    {"none", "", t_none},           {"boolean", "", t_boolean},
    {"true", "", t_true},           {"false", "", t_false},
    {"integer", "", t_integer},     {"float", "", t_float},
    {"number", "", t_number},       {"string", "", t_string},
    {"mapping", "", t_mapping},     {"sequence", "", t_sequence},
    {"iterable", "", t_iterable},   {"callable", "", t_callable},
    {"escaped", "", t_escaped},     {"divisibleby", "num", t_divisibleby},
    {"even", "", t_even},           {"odd", "", t_odd},
    {"eq", "other", t_eq},          {"==", "other", t_eq},
    {"equalto", "other", t_eq},     {"ne", "other", t_ne},
    {"!=", "other", t_ne},          {"lt", "other", t_lt},
    {"<", "other", t_lt},           {"lessthan", "other", t_lt},
    {"le", "other", t_le},          {"<=", "other", t_le},
    {"gt", "other", t_gt},          {">", "other", t_gt},
    {"greaterthan", "other", t_gt}, {"ge", "other", t_ge},
    {">=", "other", t_ge},          {"in", "seq", t_in},
    {"sameas", "other", t_sameas},  {"lower", "", t_lower},
    {"upper", "", t_upper},         {"filter", "", t_filter},
    {"test", "", t_test},
};

const im__jbuiltin *im__jfind_test(const char *name, size_t n)
{
    return im__jfind_in(tests, sizeof tests / sizeof tests[0], name, n);
}
