/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the filter table share.
 */
#ifndef IRONMULE_TEXT_JINJA_FILTERS_H
#define IRONMULE_TEXT_JINJA_FILTERS_H

#include "text/chat/jinja_eval.h"

const im__jbuiltin *im__jfind_text_filter(const char *name, size_t n);

/* Calls a method of str on self (made a string first) with the given arguments. */
bool im__jcall_str_method(const im__jcall *c, const char *method, const im__jvalue *arg, size_t count, im__jvalue *out);

#endif
