/* SPDX-License-Identifier: Apache-2.0
 * Operators, with Python's arithmetic. Integers have 64 bits; a result beyond them is an error. */
#include "text/chat/jinja_eval.h"
#include "text/chat/jinja_format.h"
#include "text/chat/jinja_lex.h"

#include <math.h>

static bool mistyped(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b)
{
    if (a->type == J_UNDEFINED || b->type == J_UNDEFINED) return im__juse_undefined(run, a->type == J_UNDEFINED ? a : b);
    const im__jvalue *big = a->type == J_BIG ? a : b;
    if (big->type == J_BIG)
        return im__jfail(run, "cannot calculate with %.*s, beyond 64 bits", im__jshown(big->as.str->n), big->as.str->p);
    char shown[3] = {(char)(op >> 8), (char)(op & 255), 0};
    return im__jfail(run, "unsupported operand types for %s: '%s' and '%s'", shown, im__jtype_name(a), im__jtype_name(b));
}

static bool overflow(im__jrun *run) { return im__jfail(run, "an integer grows beyond 64 bits"); }

static bool multiply(int64_t a, int64_t b, int64_t *out)
{
    if (a != 0 && b != 0) {
        if ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN)) return false;
        if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a) : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a)) return false;
    }
    *out = a * b;
    return true;
}

static bool power(int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    if (base == 0 || base == 1 || exponent == 0) {
        *out = exponent == 0 ? 1 : base;
        return true;
    }
    if (base == -1) {
        *out = exponent % 2 != 0 ? -1 : 1;
        return true;
    }
    for (int64_t i = 0; i < exponent; i++)
        if (!multiply(*out, base, out)) return false;
    return true;
}

static bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder)
{
    if (a == INT64_MIN && b == -1) return false;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *quotient -= 1;
        *remainder += b;
    }
    return true;
}

static bool int_math(im__jrun *run, unsigned op, int64_t a, int64_t b, im__jvalue *out)
{
    int64_t r = 0, other = 0;
    bool fits = true;
    switch (op) {
    case IM__OP('+', 0):
        fits = b >= 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
        if (fits) r = a + b;
        break;
    case IM__OP('-', 0):
        fits = b >= 0 ? a >= INT64_MIN + b : a <= INT64_MAX + b;
        if (fits) r = a - b;
        break;
    case IM__OP('*', 0): fits = multiply(a, b, &r); break;
    case IM__OP('*', '*'): fits = power(a, b, &r); break;
    case IM__OP('/', '/'): fits = floor_divide(a, b, &r, &other); break;
    default: fits = floor_divide(a, b, &other, &r); break;
    }
    *out = im__jint(r);
    return fits || overflow(run);
}

/* Python's float % and //: the remainder has the sign of the divisor. */
static void float_divide(double a, double b, double *quotient, double *remainder)
{
    double r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) {
        r += b;
        q -= 1;
    }
    *remainder = r == 0 ? copysign(0, b) : r;
    double whole = floor(q);
    *quotient = q == 0 ? copysign(0, a / b) : q - whole > 0.5 ? whole + 1 : whole;
}

static bool float_math(im__jrun *run, unsigned op, double a, double b, im__jvalue *out)
{
    double q = 0, r = 0;
    bool divides = op == IM__OP('/', 0) || op == IM__OP('/', '/') || op == IM__OP('%', 0);
    if (divides && b == 0) return im__jfail(run, "division by zero");
    if (divides) float_divide(a, b, &q, &r);
    switch (op) {
    case IM__OP('+', 0): *out = im__jfloat(a + b); break;
    case IM__OP('-', 0): *out = im__jfloat(a - b); break;
    case IM__OP('*', 0): *out = im__jfloat(a * b); break;
    case IM__OP('/', 0): *out = im__jfloat(a / b); break;
    case IM__OP('/', '/'): *out = im__jfloat(q); break;
    case IM__OP('%', 0): *out = im__jfloat(r); break;
    default:
        if (a == 0 && b < 0) return im__jfail(run, "0 cannot be raised to a negative power");
        if (a < 0 && floor(b) != b) return im__jfail(run, "a negative number cannot be raised to a broken power");
        *out = im__jfloat(pow(a, b));
        if (isinf(out->as.f) && !isinf(a) && !isinf(b)) return im__jfail(run, "a float grows too large");
    }
    return true;
}

static bool number_math(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b, im__jvalue *out)
{
    bool floats = a->type == J_FLOAT || b->type == J_FLOAT || op == IM__OP('/', 0);
    int64_t y = b->type == J_BOOL ? b->as.b : b->as.i;
    if (floats || (op == IM__OP('*', '*') && y < 0)) return float_math(run, op, im__jas_double(a), im__jas_double(b), out);
    if ((op == IM__OP('/', '/') || op == IM__OP('%', 0)) && y == 0) return im__jfail(run, "integer division or modulo by zero");
    return int_math(run, op, a->type == J_BOOL ? a->as.b : a->as.i, y, out);
}

static bool join_seqs(im__jrun *run, const im__jvalue *a, const im__jvalue *b, im__jvalue *out)
{
    size_t n = a->as.seq->n + b->as.seq->n;
    im__jseq *seq = im__jwork(run, n) ? im__jseq_new(run, n) : NULL;
    if (seq == NULL) return false;
    if (a->as.seq->n > 0) memcpy(seq->at, a->as.seq->at, a->as.seq->n * sizeof *seq->at);
    if (b->as.seq->n > 0) memcpy(seq->at + a->as.seq->n, b->as.seq->at, b->as.seq->n * sizeof *seq->at);
    seq->n = n;
    *out = im__jseq_value(a->type, seq);
    return true;
}

static bool repeat_str(im__jrun *run, const im__jstr *s, int64_t times, im__jvalue *out)
{
    im__jtext t = {.run = run};
    if (times > 0 && s->n > 0 && (uint64_t)times > run->limits.memory / s->n) return im__jfail(run, "a string grows too large");
    for (int64_t i = 0; i < times && s->n > 0; i++) {
        im__jtext_add(&t, s);
        if (!im__jwork(run, 1)) return false;
    }
    return im__jtext_done(&t, out);
}

static bool repeat_seq(im__jrun *run, const im__jvalue *v, int64_t times, im__jvalue *out)
{
    im__jseq *seq = im__jseq_new(run, 0);
    for (int64_t i = 0; seq != NULL && i < times && v->as.seq->n > 0; i++)
        for (size_t k = 0; k < v->as.seq->n; k++)
            if (!im__jwork(run, 1) || !im__jseq_push(run, seq, &v->as.seq->at[k])) return false;
    *out = im__jseq_value(v->type, seq);
    return seq != NULL;
}

static bool repeat(im__jrun *run, const im__jvalue *v, const im__jvalue *count, im__jvalue *out)
{
    int64_t times = count->type == J_BOOL ? count->as.b : count->as.i;
    return v->type == J_STR ? repeat_str(run, v->as.str, times, out) : repeat_seq(run, v, times, out);
}

static bool is_int(const im__jvalue *v) { return v->type == J_INT || v->type == J_BOOL; }

static bool repeats(const im__jvalue *v) { return v->type == J_STR || v->type == J_LIST || v->type == J_TUPLE; }

/* What is added to a safe string is escaped, and the sum is safe. */
static bool add_strings(im__jrun *run, const im__jvalue *a, const im__jvalue *b, im__jvalue *out)
{
    im__jvalue x = *a, y = *b, sum;
    if (!a->as.str->safe && !b->as.str->safe) return im__jstr_concat(run, a->as.str, b->as.str, out);
    if (!a->as.str->safe && !im__jstr_escape(run, a->as.str, &x)) return false;
    if (!b->as.str->safe && !im__jstr_escape(run, b->as.str, &y)) return false;
    return im__jstr_concat(run, x.as.str, y.as.str, &sum) && im__jstr_safe(run, &sum, out);
}

bool im__jmath(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b, im__jvalue *out)
{
    if (im__jis_number(a) && im__jis_number(b)) return number_math(run, op, a, b, out);
    if (op == IM__OP('+', 0) && a->type == b->type) {
        if (a->type == J_STR) return add_strings(run, a, b, out);
        if (a->type == J_LIST || a->type == J_TUPLE) return join_seqs(run, a, b, out);
    }
    if (op == IM__OP('*', 0) && repeats(a) && is_int(b)) return repeat(run, a, b, out);
    if (op == IM__OP('*', 0) && repeats(b) && is_int(a)) return repeat(run, b, a, out);
    if (op == IM__OP('%', 0) && a->type == J_STR) return im__jformat_percent(run, a->as.str, b, out);
    return mistyped(run, op, a, b);
}

bool im__jcontains(im__jrun *run, const im__jvalue *all, const im__jvalue *one, bool *out)
{
    *out = false;
    if (all->type == J_STR) {
        if (one->type != J_STR) return im__jfail(run, "'in <string>' requires string as left operand, not %s", im__jtype_name(one));
        *out = im__jstr_find(all->as.str, one->as.str, 0, all->as.str->n) != SIZE_MAX;
        return im__jwork(run, all->as.str->n / 16);
    }
    if (all->type == J_DICT) {
        *out = im__jdict_get(run, all->as.dict, one) != NULL;
        if (one->type == J_LIST || one->type == J_DICT) return im__jfail(run, "unhashable type: '%s'", im__jtype_name(one));
        return !run->failed;
    }
    if (!im__jis_seq(all) && all->type != J_UNDEFINED)
        return im__jfail(run, "argument of type '%s' is not iterable", im__jtype_name(all));
    im__jseq *seq;
    if (!im__jiterate(run, all, &seq)) return false;
    size_t i = 0;
    for (; i < seq->n && !*out; i++)
        if (!im__jwork(run, 1) || !im__jequal(run, &seq->at[i], one, out)) return false;
    if (all->type == J_ITER) all->as.seq->next -= seq->n - i; /* only what was looked at is used up */
    return true;
}

static bool unordered(const im__jvalue *v) { return v->type == J_FLOAT && isnan(v->as.f); }

bool im__jcompare(im__jrun *run, unsigned op, const im__jvalue *a, const im__jvalue *b, bool *out)
{
    int order;
    char shown[3] = {(char)(op >> 8), (char)(op & 255), 0};
    switch (op) {
    case IM__OP('=', '='): return im__jequal(run, a, b, out);
    case IM__OP('!', '='):
        if (!im__jequal(run, a, b, out)) return false;
        *out = !*out;
        return true;
    case J_OP_IN: return im__jcontains(run, b, a, out);
    case J_OP_NOT_IN:
        if (!im__jcontains(run, b, a, out)) return false;
        *out = !*out;
        return true;
    default: break;
    }
    if (!im__jorder(run, a, b, shown, &order)) return false;
    switch (op) {
    case IM__OP('<', 0): *out = order < 0; break;
    case IM__OP('<', '='): *out = order <= 0; break;
    case IM__OP('>', 0): *out = order > 0; break;
    default: *out = order >= 0; break;
    }
    *out = *out && !unordered(a) && !unordered(b);
    return true;
}
