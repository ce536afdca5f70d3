/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_error.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of the character at s when it is well-formed UTF-8 and no control character, otherwise 0. */
static size_t character(const unsigned char *s)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;
    if (n == 1) return s[0] >= ' ' && s[0] != 127;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : n; /* U+0080 .. U+009F control terminals too */
}

void hub_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != 0;) {
        size_t n = character(c);
        if (n == 0) *c = '?';
        c += n == 0 ? 1 : n;
    }
}

im_status hub_fail(im_error *err, im_status status, const char *format, ...)
{
    va_list args;
    if (err == NULL) return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    hub_clean(err->message);
    return status;
}

im_status hub_no_memory(im_error *err) { return hub_fail(err, IM_ERR_MEMORY, "out of memory"); }
