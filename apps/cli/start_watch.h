/* SPDX-License-Identifier: Apache-2.0
 *
 * A small process beside the server that `start` runs: it waits until the server answers, says where, and opens the browser.
 */
#ifndef IRONMULE_CLI_START_WATCH_H
#define IRONMULE_CLI_START_WATCH_H

#include <stdbool.h>

typedef struct watch_options {
    const char *host; /* that the server listens on; NULL: 127.0.0.1 */
    const char *model;
    int port;
    bool tls, browser, json;
} watch_options;

/* `first`, or the next of twenty ports that nobody listens on. */
int watch_free_port(int first);

/* To be called before this process has threads. When it ends, or calls watch_end, the watching ends too. */
void watch_begin(const watch_options *o);
void watch_end(void);

#endif
