/* SPDX-License-Identifier: Apache-2.0
 *
 * Which path does what, and who may ask.
 */
#ifndef IRONMULE_SERVE_ROUTER_H
#define IRONMULE_SERVE_ROUTER_H

#include "conn.h"

struct route {
    const char *path;
    const char *label; /* in the metrics */
    bool post;         /* POST with a JSON body; otherwise GET and HEAD */
    bool open;         /* needs no key */
    bool while_down;   /* works while loading and draining */
    void (*handle)(conn *c);
};

/* Fills in c->route, c->refusal and what else the head of a request decides. */
void router_decide(conn *c);

/* The request is complete and was not refused. */
void router_handle(conn *c);

#endif
