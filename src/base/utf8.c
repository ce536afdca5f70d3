/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* Bounds of the second byte for each lead byte: Table 3-7 of the Unicode standard ("well-formed UTF-8 byte sequences"). */
static size_t sequence_length(unsigned char lead, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead == 0xe0) *lo = 0xa0;
    if (lead == 0xed) *hi = 0x9f;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    if (lead == 0xf0) *lo = 0x90;
    if (lead == 0xf4) *hi = 0x8f;
    if (lead >= 0xf0 && lead <= 0xf4) return 4;
    return 0;
}

/* How many of the n bytes form a valid beginning of one character whose full length is *want. */
static size_t valid_prefix(const char *s, size_t n, size_t *want)
{
    unsigned char lo, hi;
    if (n == 0) return *want = 0;
    *want = sequence_length((unsigned char)s[0], &lo, &hi);
    if (*want == 0) return 0;
    size_t have = 1;
    while (have < *want && have < n) {
        unsigned char b = (unsigned char)s[have];
        if (b < lo || b > hi) break;
        lo = 0x80;
        hi = 0xbf;
        have++;
    }
    return have;
}

size_t im__utf8_decode(const char *s, size_t n, uint32_t *code)
{
    static const unsigned char lead_mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t want;
    size_t have = valid_prefix(s, n, &want);
    *code = 0;
    if (want == 0 || have < want) return 0;
    uint32_t c = (unsigned char)s[0] & lead_mask[want];
    for (size_t i = 1; i < want; i++) c = (c << 6) | ((unsigned char)s[i] & 0x3f);
    *code = c;
    return want;
}

size_t im__utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | (code >> 6));
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        if (code >= 0xd800 && code <= 0xdfff) return 0;
        out[0] = (char)(0xe0 | (code >> 12));
        out[1] = (char)(0x80 | ((code >> 6) & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    if (code > 0x10ffff) return 0;
    out[0] = (char)(0xf0 | (code >> 18));
    out[1] = (char)(0x80 | ((code >> 12) & 0x3f));
    out[2] = (char)(0x80 | ((code >> 6) & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool im__utf8_valid(const char *s, size_t n)
{
    uint32_t code;
    while (n > 0) {
        size_t len = im__utf8_decode(s, n, &code);
        if (len == 0) return false;
        s += len;
        n -= len;
    }
    return true;
}

size_t im__utf8_incomplete_tail(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t want;
        size_t have = valid_prefix(s + n - back, back, &want);
        if (want > 0) return have == back && have < want ? back : 0;
    }
    return 0;
}
