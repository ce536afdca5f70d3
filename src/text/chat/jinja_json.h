/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON in and out of template values, as Python's json module does it: key order kept, a repeated key keeps its place and its last
 * value, 2.0 stays a float, integers of any size stay what they are.
 */
#ifndef IRONMULE_TEXT_JINJA_JSON_H
#define IRONMULE_TEXT_JINJA_JSON_H

#include "text/chat/jinja_text.h"

/* Reads the one value that p[0..n) spells (RFC 8259; UTF-8 and surrogates checked; at most 100 levels deep). All strings count as
 * text of the conversation; they may point into p, which must outlive the run. `name` says in errors what was read. */
bool im__jjson_read(im__jrun *run, const char *name, const char *p, size_t n, im__jvalue *out);

/* As above, but text that is not JSON is no failure: *valid says which it was. False only when a budget ran out. */
bool im__jjson_try(im__jrun *run, const char *p, size_t n, im__jvalue *out, bool *valid);

/* json.dumps(v, ensure_ascii, indent, separators, sort_keys). */
typedef struct im__jjson_style {
    bool ascii, sort_keys;
    bool indented;                      /* each entry on a line, behind `indent` for each level */
    const im__jstr *indent;             /* needed when indented */
    const im__jstr *item_sep, *key_sep; /* NULL: ", " (or "," when indented) and ": " */
} im__jjson_style;

bool im__jjson_write(im__jtext *t, const im__jvalue *v, const im__jjson_style *style);

#endif
