/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings of templates. Every byte knows whether it came from the template or from the conversation, and keeps that through all
 * string work: whoever makes a new string puts it together from pieces of the old ones with an im__jtext.
 */
#ifndef IRONMULE_TEXT_JINJA_TEXT_H
#define IRONMULE_TEXT_JINJA_TEXT_H

#include "text/chat/jinja_value.h"

/* A text being put together. Start with {.run = run}; a failed append sets run->failed and is seen by im__jtext_done. */
typedef struct im__jtext {
    im__jrun *run;
    char *data;
    uint8_t *mark; /* NULL while all bytes are of `origin` */
    size_t n, cap;
    uint8_t origin;
} im__jtext;

void im__jtext_put(im__jtext *t, const char *p, size_t n, uint8_t origin);
void im__jtext_puts(im__jtext *t, const char *s); /* text of the template's making */
void im__jtext_printf(im__jtext *t, const char *format, ...) IM__PRINTF(2, 3);
void im__jtext_code(im__jtext *t, uint32_t code, uint8_t origin);
void im__jtext_add(im__jtext *t, const im__jstr *s);
void im__jtext_slice(im__jtext *t, const im__jstr *s, size_t from, size_t to); /* bytes [from, to) */
bool im__jtext_done(const im__jtext *t, im__jvalue *out);

bool im__jstr_new(im__jrun *run, const char *p, size_t n, uint8_t origin, im__jvalue *out); /* p is kept, not copied */
bool im__jstr_static(im__jrun *run, const char *s, im__jvalue *out);
bool im__jstr_sub(im__jrun *run, const im__jstr *s, size_t from, size_t to, im__jvalue *out); /* shares the bytes */
/* a + b; linear over a chain of appends to the same text. */
bool im__jstr_concat(im__jrun *run, const im__jstr *a, const im__jstr *b, im__jvalue *out);
bool im__jstr_safe(im__jrun *run, const im__jvalue *v, im__jvalue *out); /* the string v, marked safe */
bool im__jstr_escape(im__jrun *run, const im__jstr *s, im__jvalue *out); /* & < > ' " as HTML has them; the result is safe */
uint8_t im__jstr_origin(const im__jstr *s, size_t at);                   /* of byte `at`; of an empty string J_FROM_TEMPLATE */
bool im__jstr_is(const im__jvalue *v, const char *s);                    /* v is the string s */
bool im__jstr_same(const im__jstr *a, const im__jstr *b);
int im__jstr_compare(const im__jstr *a, const im__jstr *b);

/* Characters. Positions are bytes at character boundaries. */
size_t im__jstr_length(const im__jstr *s);                /* in characters */
size_t im__jstr_offset(const im__jstr *s, size_t index);  /* byte of character `index`, s->n when beyond the end */
size_t im__jstr_step(const char *p, uint32_t *code);      /* the character at p and its length; p is valid UTF-8 */
size_t im__jstr_step_back(const char *p, uint32_t *code); /* the character that ends before p */
size_t im__jstr_find(const im__jstr *s, const im__jstr *what, size_t from,
                     size_t to); /* byte, or SIZE_MAX; all within [from, to) */
size_t im__jstr_rfind(const im__jstr *s, const im__jstr *what, size_t from, size_t to);
bool im__jstr_at(const im__jstr *s, size_t at, const im__jstr *what); /* `what` stands at byte `at` */
bool im__jis_space(uint32_t code);                                    /* as Python's str.isspace */
/* The byte range left after stripping: `chars` NULL strips white space. */
void im__jstr_strip(const im__jstr *s, const im__jstr *chars, bool left, bool right, size_t *from, size_t *to);

/* str(v), repr(v); put into `t`. False on failure. */
bool im__jput_str(im__jtext *t, const im__jvalue *v);
bool im__jput_repr(im__jtext *t, const im__jvalue *v);
bool im__jto_str(im__jrun *run, const im__jvalue *v, im__jvalue *out); /* str(v), v itself when a string */

/* Python's shortest text for a double ("1.0", "1e+100", "nan"); at most 32 bytes with the zero. */
void im__jfloat_text(double f, char out[32]);
/* As snprintf("%.*X") with X one of e f g E F G and alternate form, whatever the locale. */
int im__jfloat_format(char *out, size_t size, char kind, int precision, bool alternate, double f);
double im__jfloat_parse(const char *p, size_t n); /* p[0..n) is a decimal number, n < 4096 */
/* An integer in decimal digits (sign allowed, no blanks): J_INT, or J_BIG when it does not fit. */
bool im__jint_parse(im__jrun *run, const char *p, size_t n, uint8_t origin, im__jvalue *out);

#endif
