/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks once a second, while there is something to compute, whether the engine's present step has come to an end in time. Reports only: health, metrics, log. Also
 * tells a supervisor that asked for it (WATCHDOG_USEC) that the loop is alive and no step is stuck.
 */
#ifndef IRONMULE_SERVE_WATCHDOG_H
#define IRONMULE_SERVE_WATCHDOG_H

#include "server.h"

bool watchdog_open(server *s);
void watchdog_close(server *s);

#endif
