/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode normalisation form C of text that may be broken or hostile: linear time also for endless runs of combining marks.
 */
#ifndef IRONMULE_TEXT_NFC_H
#define IRONMULE_TEXT_NFC_H

#include "base/mem.h"

/* True when the text is surely in NFC already: nothing at or above U+0300 in it. */
bool im__nfc_is_trivial(const char *text, size_t n);

/* Appends the NFC of text[0..n) to `out`; bytes that are not UTF-8 stay as they are. On exhaustion out->failed is set. */
void im__nfc_append(im__buf *out, const char *text, size_t n);

#endif
