/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the libraries of others. jansson's values and libevent's buffers are put together by many small calls, and what one of them could not add is simply
 * missing afterwards. So the failure of an allocation is noted for its thread, and whoever has put something together asks once at the end.
 */
#ifndef IRONMULE_SERVE_MEMORY_H
#define IRONMULE_SERVE_MEMORY_H

#include <stdbool.h>

/* Before any other use of the two libraries; a reserve is taken for those of their calls that do not bear a failure. */
void memory_watch(void);
void memory_unwatch(void);

/* Something else that this thread was putting together lacks a part for want of memory. */
void memory_lacked(void);

/* Was there no memory for something that this thread wanted of them, since the last call? */
bool memory_was_short(void);

/* Is the reserve used up, and cannot be had again? Then nothing new is begun. */
bool memory_is_short(void);

#endif
