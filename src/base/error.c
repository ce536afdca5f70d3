/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Copies `raw` into the error, replacing what a terminal or a JSON writer could choke on. */
static void set_message(im_error *err, const char *raw, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t const room = sizeof err->message - 4; /* three dots and the terminating zero */
    size_t out = 0, in = 0;
    while (in < n) {
        uint32_t code;
        size_t len = im__utf8_decode(raw + in, n - in, &code);
        int plain = len > 0 && (code >= 0x20 || code == '\n' || code == '\t') && (code < 0x7f || code >= 0xa0);
        size_t need = plain ? len : 4;
        if (out + need > room) {
            memcpy(err->message + out, "...", 3);
            out += 3;
            break;
        }
        if (plain) {
            memcpy(err->message + out, raw + in, len);
        } else {
            unsigned char byte = (unsigned char)raw[in];
            char shown[4] = {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
            memcpy(err->message + out, shown, 4);
        }
        out += need;
        in += plain ? len : 1;
    }
    err->message[out] = 0;
}

im_status im__failv(im_error *err, im_status status, const char *format, va_list args)
{
    char raw[2 * IM_ERROR_MESSAGE_MAX];
    if (err == NULL) return status;
    int n = vsnprintf(raw, sizeof raw, format, args);
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof raw) n = (int)sizeof raw - 1;
    err->status = status;
    set_message(err, raw, (size_t)n);
    return status;
}

im_status im__fail(im_error *err, im_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    im__failv(err, status, format, args);
    va_end(args);
    return status;
}
