/* SPDX-License-Identifier: Apache-2.0
 *
 * "..." % values, "...".format(values), strftime.
 */
#ifndef IRONMULE_TEXT_JINJA_FORMAT_H
#define IRONMULE_TEXT_JINJA_FORMAT_H

#include "text/chat/jinja_eval.h"

bool im__jformat_percent(im__jrun *run, const im__jstr *format, const im__jvalue *values, im__jvalue *out);
bool im__jformat_braces(im__jrun *run, const im__jstr *format, const im__jargs *args, im__jvalue *out);
/* `now`: seconds since 1970 in local time. English names, whatever the locale. */
bool im__jformat_time(im__jrun *run, const im__jstr *format, int64_t now, im__jvalue *out);

#endif
