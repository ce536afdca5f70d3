/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON (RFC 8259) read in place. A text is checked once, whole; then values are spans of it that are walked without allocation and without further errors:
 *
 *     IM__TRY(im__json_check(text, n, "config.json", &root, err));
 *     if (im__json_member(root, "layers", &v) == 1 && im__json_u64(v, &layers)) ...
 *     for (im__json_items i = im__json_items_of(root); im__json_next(&i, &key, &value);) ...
 *
 * The text must outlive its spans. Reading a member costs time linear in its object. All functions are pure: any number of threads may read one text.
 */
#ifndef IRONMULE_BASE_JSON_H
#define IRONMULE_BASE_JSON_H

#include "base/error.h"
#include "base/mem.h"

#define IM__JSON_DEPTH 64 /* levels of arrays and objects; deeper texts are refused */

/* One value: its bytes in the text, of a string with the quotes. {NULL, 0}: no value. */
typedef struct im__json {
    const char *ptr;
    size_t len;
} im__json;

typedef enum im__json_kind {
    IM__JSON_NONE, /* no value */
    IM__JSON_NULL,
    IM__JSON_FALSE,
    IM__JSON_TRUE,
    IM__JSON_NUMBER,
    IM__JSON_STRING,
    IM__JSON_ARRAY,
    IM__JSON_OBJECT
} im__json_kind;

/* *root = the one value that the text holds. Refused with IM_ERR_FORMAT, `name`, the byte and the reason: text that is not JSON or not UTF-8, control
 * characters and lone surrogates in strings, too many levels, anything behind the value. Time linear in n, no memory. */
im_status im__json_check(const char *text, size_t n, const char *name, im__json *root, im_error *err);

im__json_kind im__json_kind_of(im__json v);
const char *im__json_kind_name(im__json v); /* "a string", "no value" ...: for messages */

/* The members of an object or the elements of an array in order; none for other values. */
typedef struct im__json_items {
    const char *at, *end;
    bool named;
} im__json_items;
im__json_items im__json_items_of(im__json v);
/* False at the end. *key is that of an object's member (a string), no value in an array; NULL allowed. */
bool im__json_next(im__json_items *i, im__json *key, im__json *value);

/* Large values need not be stepped over, which costs a look at each of their bytes, before they are read: the array or object that comes next is entered, and
 * left again, wherever its items stand. im__json_enter gives false, and does nothing, when it is neither or nothing comes. */
im__json im__json_key(const im__json_items *i); /* of the member that comes next; no value in an array and at the end */
bool im__json_enter(im__json_items *i, im__json_items *inside);
void im__json_leave(im__json_items *i, im__json_items *inside);

/* The member of this name: returns how many there are, 0, 1 or 2 for more than one; *out is the first, or no value. */
int im__json_member(im__json object, const char *name, im__json *out);

/* Each gives false and leaves *out alone when the value is not of the kind. */
bool im__json_u64(im__json v, uint64_t *out);  /* digits alone (no sign, fraction or exponent) that fit */
bool im__json_double(im__json v, double *out); /* any number; infinite when it is beyond the range */
bool im__json_bool(im__json v, bool *out);

/* The bytes that a string stands for. */
bool im__json_is(im__json v, const char *text); /* is the value this string? */
bool im__json_text(im__json v, im__buf *out);   /* appends them; false: no string (memory: see out->failed) */
bool im__json_copy(im__json v, char *out,
                   size_t size);              /* terminated; false: no string, a zero byte inside, or longer than size - 1 */
int im__json_compare(im__json a, im__json b); /* of two strings, by bytes, as memcmp orders them */

#endif
