/* SPDX-License-Identifier: Apache-2.0
 *
 * The end: the first SIGTERM or SIGINT stops taking connections and lets what is running finish, up to a deadline; the second one leaves at once.
 */
#ifndef IRONMULE_SERVE_DRAIN_H
#define IRONMULE_SERVE_DRAIN_H

#include "server.h"

bool drain_open(server *s); /* sets the signal handlers */
void drain_close(server *s);

#endif
