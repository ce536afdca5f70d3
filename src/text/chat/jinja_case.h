/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IRONMULE_TEXT_JINJA_CASE_H
#define IRONMULE_TEXT_JINJA_CASE_H

#include "text/chat/jinja_text.h"

typedef enum im__jcase_kind { J_LOWER, J_UPPER, J_TITLE, J_CAPITALIZE, J_SWAPCASE } im__jcase_kind;

/* str.lower(), upper(), title(), capitalize(), swapcase(). */
bool im__jcase(im__jrun *run, const im__jstr *s, im__jcase_kind kind, im__jvalue *out);
bool im__jis_cased(uint32_t code); /* has upper and lower case */

#endif
