/* SPDX-License-Identifier: Apache-2.0
 *
 * What kind of character stands at a place of a text: one bit per Unicode general category, and two more for the sets that
 * pre-tokeniser patterns ask for. Unicode 16.0, also where the installed utf8proc is older.
 */
#ifndef IRONMULE_TEXT_CHAR_CLASS_H
#define IRONMULE_TEXT_CHAR_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bit numbers are utf8proc's categories. */
enum {
    IM__CC_CN = 1u << 0, /* not assigned; also a byte that is not UTF-8 */
    IM__CC_LU = 1u << 1,
    IM__CC_LL = 1u << 2,
    IM__CC_LT = 1u << 3,
    IM__CC_LM = 1u << 4,
    IM__CC_LO = 1u << 5,
    IM__CC_LETTER = 0x3eu,      /* \p{L} */
    IM__CC_MARK = 7u << 6,      /* \p{M}: Mn Mc Me */
    IM__CC_NUMBER = 7u << 9,    /* \p{N}: Nd Nl No */
    IM__CC_DIGIT = 1u << 9,     /* \p{Nd} */
    IM__CC_PUNCT = 0x7fu << 12, /* \p{P}: Pc Pd Ps Pe Pi Pf Po */
    IM__CC_SYMBOL = 0xfu << 19, /* \p{S}: Sm Sc Sk So */
    IM__CC_SPACE = 1u << 30,    /* \s: the property White_Space */
    IM__CC_NEWLINE = 1u << 28   /* \r and \n; the bit of the category Cs, which valid text cannot have */
};

typedef struct im__char {
    uint32_t code;  /* 0xfffd for a byte that is not UTF-8 */
    uint32_t cls;   /* IM__CC bits */
    uint32_t bytes; /* 1 to 4; 0 at the end of the text */
} im__char;

/* The character at s[0..n). */
im__char im__char_at(const char *s, size_t n);

/* The character that ends at s[0..n). */
im__char im__char_before(const char *s, size_t n);

/* Letters, marks, digits, connecting signs and joiners: \w */
bool im__char_is_word(const im__char *c);

#endif
