/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetching from the Hub. Only these two calls use the network, and only a user's explicit wish may lead here. Built without libcurl or OpenSSL both
 * say so (no_net.c).
 *
 * The token goes to the endpoint's host alone, never to a host that it redirects to; neither a token nor a signed address is ever part of a message.
 */
#ifndef IRONMULE_HUB_NET_H
#define IRONMULE_HUB_NET_H

#include "hub/hub_env.h"
#include "hub/hub_listing.h"

typedef struct hub_progress {
    uint64_t total, done, fetched; /* bytes: of all files; here already; over the network in this run */
    double rate;                   /* bytes a second, smoothed; 0: not known yet */
    size_t files, files_done;
    bool waiting; /* for another process, which fetches the same */
} hub_progress;

/* Called on the calling thread. */
typedef struct hub_hooks {
    void *user;
    bool (*stop)(
        void *user); /* asked several times a second: true ends the call with IM_ERR_CANCELLED, in a state that can be resumed */
    void (*progress)(void *user, const hub_progress *p);
    void (*note)(void *user, const char *line); /* what an impatient reader should know: why it waits, that it begins anew */
} hub_hooks;

/* NULL, or what this build lacks. */
const char *hub_net_missing(void);

/* The files of the revision, from the Hub. IM_ERR_ARGUMENT: there is no such model or revision, or it is not open to this token. */
im_status hub_list(hub_listing *out, const hub_env *e, const hub_id *id, const hub_hooks *h, im_error *err);

/* Brings the chosen files into the cache: what is there is left, what was begun is resumed, what arrives is checked by size and digest before it gets its
 * name. Several at a time; a file that another process fetches is waited for. The snapshot's links and the ref are made when all files are there. */
im_status hub_fetch(const hub_env *e, const hub_id *id, const hub_listing *l, const hub_choice *c, const hub_hooks *h,
                    im_error *err);

#endif
