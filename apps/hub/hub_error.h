/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the rooms beside the library: the library's own im_error, filled in here.
 */
#ifndef IRONMULE_HUB_ERROR_H
#define IRONMULE_HUB_ERROR_H

#include <ironmule/status.h>

/* Returns `status`; writes the message into `err` (NULL allowed). What is no printable ASCII in it becomes a question mark, unless it is UTF-8. */
im_status hub_fail(im_error *err, im_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
im_status hub_no_memory(im_error *err);

/* What may control a terminal, and what is no UTF-8, becomes question marks. */
void hub_clean(char *text);

#endif
