/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict reading of a JSON body, and of single values with the limits that the API promises. Whatever is wrong becomes a problem: what to tell the client, and which
 * field it is about. Runs on the workers' threads.
 */
#ifndef IRONMULE_SERVE_BODY_JSON_H
#define IRONMULE_SERVE_BODY_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start with {0}; status 0: nothing is wrong. The first problem stays. */
typedef struct problem {
    int status;
    const char *code;   /* static, or NULL */
    char param[128];    /* "": none */
    char message[1100]; /* valid UTF-8 */
} problem;

/* Always false, so that it can be returned. */
bool problem_set(problem *p, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The body as an object; NULL and a problem when it is anything else: bytes that are no UTF-8, half a surrogate pair, a key twice, more behind the object. */
json_t *body_object(const char *text, size_t n, problem *p);

/* Values. `name` is the field as it is called in problems. */
bool value_bool(const json_t *v, const char *name, bool *out, problem *p);
/* A whole number, also one written as 10.0. */
bool value_int(const json_t *v, const char *name, int64_t lo, int64_t hi, int64_t *out, problem *p);
bool value_number(const json_t *v, const char *name, double lo, double hi, double *out, problem *p);
bool value_text(const json_t *v, const char *name, const char **out, size_t *n, problem *p);

#endif
