/* SPDX-License-Identifier: Apache-2.0 */
#include "body_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What "%.40s" cut inside a character goes. Everything else in a message is valid already. */
static void drop_halves(char *s)
{
    char *to = s;
    while (*s != 0) {
        unsigned char first = (unsigned char)*s;
        size_t want = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, have = 1;
        while (have < want && ((unsigned char)s[have] & 0xc0) == 0x80) have++;
        if (have == want) {
            memmove(to, s, have);
            to += have;
        }
        s += have;
    }
    *to = 0;
}

bool problem_set(problem *p, int status, const char *param, const char *code, const char *format, ...)
{
    va_list args;
    if (p->status != 0) return false;
    p->status = status;
    p->code = code;
    snprintf(p->param, sizeof p->param, "%s", param == NULL ? "" : param);
    va_start(args, format);
    vsnprintf(p->message, sizeof p->message, format, args);
    va_end(args);
    drop_halves(p->message);
    return false;
}

/* ---- the body ----------------------------------------------------------------------------------------------------------------------------- */

/* The key in front of the value that ends at `position`: `"key" : value`. */
static void key_before(const char *text, size_t position, char *out, size_t size)
{
    out[0] = 0;
    size_t end = position;
    while (end > 0 && text[end - 1] != ':') {
        if (strchr("\"{}[],", text[end - 1]) != NULL) return; /* not directly behind a key */
        end--;
    }
    while (end > 0 && text[end - 1] != '"') end--;
    if (end == 0) return;
    size_t begin = --end;
    while (begin > 0 && text[begin - 1] != '"') begin--;
    if (end - begin >= size) return;
    for (size_t i = begin; i < end; i++)
        if ((unsigned char)text[i] < ' ' || (unsigned char)text[i] >= 127) return;
    memcpy(out, text + begin, end - begin);
    out[end - begin] = 0;
}

/* jansson quotes the text near an error; nobody's prompt is sent back, nor bytes that are no UTF-8. */
static void describe(const char *text, size_t n, const json_error_t *why, problem *p)
{
    char key[64] = "", reason[JSON_ERROR_TEXT_LENGTH];
    snprintf(reason, sizeof reason, "%s", why->text);
    char *near = strstr(reason, " near ");
    if (near != NULL) *near = 0;
    for (char *c = reason; *c != 0; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127) *c = '?';
    size_t position = why->position > 0 ? (size_t)why->position : 0;
    if (json_error_code(why) == json_error_numeric_overflow) key_before(text, position < n ? position : n, key, sizeof key);
    problem_set(p, 400, key, "invalid_json", "the body is not valid JSON: line %d, column %d: %s%s%s", why->line, why->column,
                reason, key[0] != 0 ? ", in " : "", key);
}

json_t *body_object(const char *text, size_t n, problem *p)
{
    json_error_t why;
    if (n == 0 || text == NULL) {
        problem_set(p, 400, NULL, "invalid_json", "the body is empty; a JSON object is expected");
        return NULL;
    }
    json_t *doc = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (doc == NULL)
        describe(text, n, &why, p);
    else if (!json_is_object(doc))
        problem_set(p, 400, NULL, "invalid_json", "the body must be a JSON object");
    if (p->status == 0) return doc;
    json_decref(doc);
    return NULL;
}

/* ---- values -------------------------------------------------------------------------------------------------------------------------------- */

bool value_bool(const json_t *v, const char *name, bool *out, problem *p)
{
    if (!json_is_boolean(v)) return problem_set(p, 400, name, "invalid_type", "%s must be true or false", name);
    *out = json_is_true(v);
    return true;
}

bool value_int(const json_t *v, const char *name, int64_t lo, int64_t hi, int64_t *out, problem *p)
{
    double real = json_real_value(v);
    bool whole = json_is_integer(v) || (json_is_real(v) && real == floor(real) && fabs(real) < 9e15);
    if (!whole) return problem_set(p, 400, name, "invalid_type", "%s must be a whole number", name);
    int64_t number = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)real;
    if (number < lo)
        return problem_set(p, 400, name, "integer_below_min_value", "%s is %" PRId64 "; the least value is %" PRId64, name, number,
                           lo);
    if (number > hi)
        return problem_set(p, 400, name, "integer_above_max_value", "%s is %" PRId64 "; the greatest value is %" PRId64, name,
                           number, hi);
    *out = number;
    return true;
}

bool value_number(const json_t *v, const char *name, double lo, double hi, double *out, problem *p)
{
    if (!json_is_number(v)) return problem_set(p, 400, name, "invalid_type", "%s must be a number", name);
    double number = json_number_value(v);
    if (!(number >= lo && number <= hi))
        return problem_set(p, 400, name, "number_out_of_range", "%s is %g; it must lie between %g and %g", name, number, lo, hi);
    *out = number;
    return true;
}

bool value_text(const json_t *v, const char *name, const char **out, size_t *n, problem *p)
{
    if (!json_is_string(v)) return problem_set(p, 400, name, "invalid_type", "%s must be a text", name);
    *out = json_string_value(v);
    *n = json_string_length(v);
    return true;
}
