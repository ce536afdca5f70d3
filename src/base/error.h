/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling in an im_error. Every failing path says so through im__fail, which returns the status it was given:
 *
 *     if (count > limit) return im__fail(err, IM_ERR_FORMAT, "%s: %llu keys, but ...", path, count);
 */
#ifndef IRONMULE_BASE_ERROR_H
#define IRONMULE_BASE_ERROR_H

#include <ironmule/status.h>
#include <stdarg.h>

#if defined(__GNUC__)
#define IM__PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define IM__PRINTF(f, a)
#endif

/* Returns `status`. Writes the formatted message into `err` (NULL allowed); bytes that are not valid UTF-8 (a name out of a
 * hostile file) and control characters are shown as \xNN, a message that is too long is cut and ends in "...". */
im_status im__fail(im_error *err, im_status status, const char *format, ...) IM__PRINTF(3, 4);
im_status im__failv(im_error *err, im_status status, const char *format, va_list args) IM__PRINTF(3, 0);

#define IM__TRY(expression)                                                                                                        \
    do {                                                                                                                           \
        im_status im__try_status = (expression);                                                                                   \
        if (im__try_status != IM_OK) return im__try_status;                                                                        \
    } while (0)

#endif
