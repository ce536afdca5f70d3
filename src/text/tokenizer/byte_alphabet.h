/* SPDX-License-Identifier: Apache-2.0
 *
 * The alphabet of byte-level BPE: each byte is written as one printable character, itself where it is one in Latin-1, else a
 * character from U+0100 on.
 */
#ifndef IRONMULE_TEXT_BYTE_ALPHABET_H
#define IRONMULE_TEXT_BYTE_ALPHABET_H

#include <stdint.h>

static inline int im__byte_is_printable(unsigned b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae; }

/* Code point that stands for the byte: below U+0144. */
static inline uint32_t im__byte_to_code(unsigned b)
{
    if (im__byte_is_printable(b)) return b;
    if (b < 0x21) return 0x100 + b;
    if (b < 0xa1) return 0x121 + (b - 0x7f);
    return 0x143; /* 0xad */
}

/* The byte that the code point stands for, -1 for none. */
static inline int im__byte_from_code(uint32_t code)
{
    if (code < 0x100) return im__byte_is_printable(code) ? (int)code : -1;
    if (code < 0x121) return (int)(code - 0x100);
    if (code < 0x143) return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}

#endif
