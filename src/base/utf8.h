/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef IRONMULE_BASE_UTF8_H
#define IRONMULE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the character at `s` and its code point; 0 when the bytes there are not a whole valid character or n is 0. */
size_t im__utf8_decode(const char *s, size_t n, uint32_t *code);

/* Writes `code` (a valid scalar value) to `out` (room for 4) and returns its length; 0 for a surrogate or beyond U+10FFFF. */
size_t im__utf8_encode(uint32_t code, char out[4]);

bool im__utf8_valid(const char *s, size_t n);

/* Number of bytes at the end of `s` that begin a valid character which may still be completed by further bytes (0 to 3).
 * A streaming writer holds these back. */
size_t im__utf8_incomplete_tail(const char *s, size_t n);

#endif
