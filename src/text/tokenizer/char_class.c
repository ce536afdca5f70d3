/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/char_class.h"

#include "base/utf8.h"

#include <utf8proc.h>

/* Characters of Unicode 15.1 and 16.0, for a utf8proc that ends at 15.0. */
static const struct {
    uint32_t first, last;
    uint8_t category;
} newer[] = {
    {0x897, 0x897, UTF8PROC_CATEGORY_MN},     {0x1b4e, 0x1b4f, UTF8PROC_CATEGORY_PO},   {0x1b7f, 0x1b7f, UTF8PROC_CATEGORY_PO},
    {0x1c89, 0x1c89, UTF8PROC_CATEGORY_LU},   {0x1c8a, 0x1c8a, UTF8PROC_CATEGORY_LL},   {0x2427, 0x2429, UTF8PROC_CATEGORY_SO},
    {0x2ffc, 0x2fff, UTF8PROC_CATEGORY_SO},   {0x31e4, 0x31e5, UTF8PROC_CATEGORY_SO},   {0x31ef, 0x31ef, UTF8PROC_CATEGORY_SO},
    {0xa7cb, 0xa7cc, UTF8PROC_CATEGORY_LU},   {0xa7cd, 0xa7cd, UTF8PROC_CATEGORY_LL},   {0xa7da, 0xa7da, UTF8PROC_CATEGORY_LU},
    {0xa7db, 0xa7db, UTF8PROC_CATEGORY_LL},   {0xa7dc, 0xa7dc, UTF8PROC_CATEGORY_LU},   {0x105c0, 0x105f3, UTF8PROC_CATEGORY_LO},
    {0x10d40, 0x10d49, UTF8PROC_CATEGORY_ND}, {0x10d4a, 0x10d4d, UTF8PROC_CATEGORY_LO}, {0x10d4e, 0x10d4e, UTF8PROC_CATEGORY_LM},
    {0x10d4f, 0x10d4f, UTF8PROC_CATEGORY_LO}, {0x10d50, 0x10d65, UTF8PROC_CATEGORY_LU}, {0x10d69, 0x10d6d, UTF8PROC_CATEGORY_MN},
    {0x10d6e, 0x10d6e, UTF8PROC_CATEGORY_PD}, {0x10d6f, 0x10d6f, UTF8PROC_CATEGORY_LM}, {0x10d70, 0x10d85, UTF8PROC_CATEGORY_LL},
    {0x10d8e, 0x10d8f, UTF8PROC_CATEGORY_SM}, {0x10ec2, 0x10ec4, UTF8PROC_CATEGORY_LO}, {0x10efc, 0x10efc, UTF8PROC_CATEGORY_MN},
    {0x11380, 0x11389, UTF8PROC_CATEGORY_LO}, {0x1138b, 0x1138b, UTF8PROC_CATEGORY_LO}, {0x1138e, 0x1138e, UTF8PROC_CATEGORY_LO},
    {0x11390, 0x113b5, UTF8PROC_CATEGORY_LO}, {0x113b7, 0x113b7, UTF8PROC_CATEGORY_LO}, {0x113b8, 0x113ba, UTF8PROC_CATEGORY_MC},
    {0x113bb, 0x113c0, UTF8PROC_CATEGORY_MN}, {0x113c2, 0x113c2, UTF8PROC_CATEGORY_MC}, {0x113c5, 0x113c5, UTF8PROC_CATEGORY_MC},
    {0x113c7, 0x113ca, UTF8PROC_CATEGORY_MC}, {0x113cc, 0x113cd, UTF8PROC_CATEGORY_MC}, {0x113ce, 0x113ce, UTF8PROC_CATEGORY_MN},
    {0x113cf, 0x113cf, UTF8PROC_CATEGORY_MC}, {0x113d0, 0x113d0, UTF8PROC_CATEGORY_MN}, {0x113d1, 0x113d1, UTF8PROC_CATEGORY_LO},
    {0x113d2, 0x113d2, UTF8PROC_CATEGORY_MN}, {0x113d3, 0x113d3, UTF8PROC_CATEGORY_LO}, {0x113d4, 0x113d5, UTF8PROC_CATEGORY_PO},
    {0x113d7, 0x113d8, UTF8PROC_CATEGORY_PO}, {0x113e1, 0x113e2, UTF8PROC_CATEGORY_MN}, {0x116d0, 0x116e3, UTF8PROC_CATEGORY_ND},
    {0x11bc0, 0x11be0, UTF8PROC_CATEGORY_LO}, {0x11be1, 0x11be1, UTF8PROC_CATEGORY_PO}, {0x11bf0, 0x11bf9, UTF8PROC_CATEGORY_ND},
    {0x11f5a, 0x11f5a, UTF8PROC_CATEGORY_MN}, {0x13460, 0x143fa, UTF8PROC_CATEGORY_LO}, {0x16100, 0x1611d, UTF8PROC_CATEGORY_LO},
    {0x1611e, 0x16129, UTF8PROC_CATEGORY_MN}, {0x1612a, 0x1612c, UTF8PROC_CATEGORY_MC}, {0x1612d, 0x1612f, UTF8PROC_CATEGORY_MN},
    {0x16130, 0x16139, UTF8PROC_CATEGORY_ND}, {0x16d40, 0x16d42, UTF8PROC_CATEGORY_LM}, {0x16d43, 0x16d6a, UTF8PROC_CATEGORY_LO},
    {0x16d6b, 0x16d6c, UTF8PROC_CATEGORY_LM}, {0x16d6d, 0x16d6f, UTF8PROC_CATEGORY_PO}, {0x16d70, 0x16d79, UTF8PROC_CATEGORY_ND},
    {0x18cff, 0x18cff, UTF8PROC_CATEGORY_LO}, {0x1cc00, 0x1ccef, UTF8PROC_CATEGORY_SO}, {0x1ccf0, 0x1ccf9, UTF8PROC_CATEGORY_ND},
    {0x1cd00, 0x1ceb3, UTF8PROC_CATEGORY_SO}, {0x1e5d0, 0x1e5ed, UTF8PROC_CATEGORY_LO}, {0x1e5ee, 0x1e5ef, UTF8PROC_CATEGORY_MN},
    {0x1e5f0, 0x1e5f0, UTF8PROC_CATEGORY_LO}, {0x1e5f1, 0x1e5fa, UTF8PROC_CATEGORY_ND}, {0x1e5ff, 0x1e5ff, UTF8PROC_CATEGORY_PO},
    {0x1f8b2, 0x1f8bb, UTF8PROC_CATEGORY_SO}, {0x1f8c0, 0x1f8c1, UTF8PROC_CATEGORY_SO}, {0x1fa89, 0x1fa89, UTF8PROC_CATEGORY_SO},
    {0x1fa8f, 0x1fa8f, UTF8PROC_CATEGORY_SO}, {0x1fabe, 0x1fabe, UTF8PROC_CATEGORY_SO}, {0x1fac6, 0x1fac6, UTF8PROC_CATEGORY_SO},
    {0x1fadc, 0x1fadc, UTF8PROC_CATEGORY_SO}, {0x1fadf, 0x1fadf, UTF8PROC_CATEGORY_SO}, {0x1fae9, 0x1fae9, UTF8PROC_CATEGORY_SO},
    {0x1fbcb, 0x1fbef, UTF8PROC_CATEGORY_SO}, {0x2ebf0, 0x2ee5d, UTF8PROC_CATEGORY_LO},
};

/* Categories of ASCII, which most texts are made of. */
static const uint8_t ascii[128] = {
    26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26,
    23, 18, 18, 18, 20, 18, 18, 18, 14, 15, 18, 19, 18, 13, 18, 18, 9,  9,  9,  9,  9,  9,  9,  9,  9,  9,  18, 18, 19, 19, 19, 18,
    18, 1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  1,  14, 18, 15, 21, 12,
    21, 2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  14, 19, 15, 19, 26};

static uint32_t newer_category(uint32_t code)
{
    size_t lo = 0, hi = sizeof newer / sizeof *newer;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (newer[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof newer / sizeof *newer && newer[lo].first <= code ? newer[lo].category : UTF8PROC_CATEGORY_CN;
}

static uint32_t class_of(uint32_t code)
{
    uint32_t category = code < 128 ? ascii[code] : (uint32_t)utf8proc_category((utf8proc_int32_t)code);
    if (category == UTF8PROC_CATEGORY_CN) category = newer_category(code);
    uint32_t cls = 1u << category;
    uint32_t separators = 1u << UTF8PROC_CATEGORY_ZS | 1u << UTF8PROC_CATEGORY_ZL | 1u << UTF8PROC_CATEGORY_ZP;
    if ((cls & separators) != 0 || (code >= 9 && code <= 13) || code == 0x85) cls |= IM__CC_SPACE;
    if (code == 10 || code == 13) cls |= IM__CC_NEWLINE;
    return cls;
}

im__char im__char_at(const char *s, size_t n)
{
    im__char c = {0, 0, 0};
    if (n == 0) return c;
    if ((unsigned char)*s < 128)
        c = (im__char){(unsigned char)*s, 0, 1};
    else
        c.bytes = (uint32_t)im__utf8_decode(s, n, &c.code);
    if (c.bytes == 0) return (im__char){0xfffd, IM__CC_CN, 1};
    c.cls = class_of(c.code);
    return c;
}

im__char im__char_before(const char *s, size_t n)
{
    for (size_t len = 1; len <= 4 && len <= n; len++) {
        if (((unsigned char)s[n - len] & 0xc0) == 0x80) continue;
        im__char c = im__char_at(s + n - len, len);
        if (c.bytes == len) return c;
        break;
    }
    return n == 0 ? (im__char){0, 0, 0} : (im__char){0xfffd, IM__CC_CN, 1};
}

bool im__char_is_word(const im__char *c)
{
    const uint32_t word = IM__CC_LETTER | IM__CC_MARK | IM__CC_DIGIT | 1u << UTF8PROC_CATEGORY_NL | 1u << UTF8PROC_CATEGORY_PC;
    bool joiner = c->code == 0x200c || c->code == 0x200d;
    bool circled = (c->code >= 0x24b6 && c->code <= 0x24e9) || (c->code >= 0x1f130 && c->code <= 0x1f149) ||
                   (c->code >= 0x1f150 && c->code <= 0x1f169) || (c->code >= 0x1f170 && c->code <= 0x1f189);
    return (c->cls & word) != 0 || joiner || circled;
}
