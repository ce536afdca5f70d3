/* SPDX-License-Identifier: Apache-2.0
 *
 * One file on its way into the cache. A job is stepped by the loop of hub_fetch; it waits for the blob's lock, reads what an earlier run left,
 * fetches the rest, checks the digest and gives the blob its name.
 */
#ifndef IRONMULE_HUB_JOB_H
#define IRONMULE_HUB_JOB_H

#include "hub/hub_digest.h"
#include "hub/hub_transfer.h"

typedef enum job_state {
    JOB_NEW,     /* has not begun */
    JOB_LOCKED,  /* another process has the blob */
    JOB_READING, /* what an earlier run left goes into the digest */
    JOB_READY,   /* may be given to libcurl */
    JOB_FETCHING,
    JOB_PAUSED, /* until `resume` */
    JOB_DONE,
    JOB_FAILED
} job_state;

typedef struct hub_job {
    const hub_env *env;
    const hub_id *id;
    const hub_hooks *hooks;
    const hub_listing *listing;
    const hub_file *file;
    job_state state;
    im_status status; /* of JOB_FAILED */
    im_error *err;    /* the fetch's: the first failure stands there */
    hub_transfer transfer;
    hub_digest *digest;
    char *blob, *partial; /* paths */
    int lock, fd;         /* -1: none */
    uint64_t have, read;  /* bytes on disk; of those in the digest */
    uint64_t fetched;     /* over the network */
    uint64_t most;        /* that `have` has been: only beyond it is there progress */
    uint64_t ignored;     /* bytes of this answer that are no part of a file */
    double resume;        /* seconds on the monotonic clock */
    bool begun_earlier;   /* some bytes are from an earlier run: if the digest is wrong, it may be their fault */
    bool accepted;        /* the head of the answer was looked at */
    int short_ends;       /* how often the server has ended before the file did */
    im_status trouble;    /* what made the sink refuse bytes */
} hub_job;

im_status job_open(hub_job *j, const hub_env *e, const hub_id *id, const hub_listing *l, const hub_file *f, const hub_hooks *h,
                   im_error *err);
void job_close(hub_job *j); /* what has arrived stays for the next run */

double job_clock(void); /* seconds */

/* Goes on as far as it can without the network. `may_start`: a place among the running transfers is free. */
void job_step(hub_job *j, bool may_start);
/* libcurl is done with the transfer. */
void job_ended(hub_job *j, CURLcode code);

static inline bool job_is_over(const hub_job *j) { return j->state == JOB_DONE || j->state == JOB_FAILED; }
/* Holds the lock, and wants one of the few places. */
static inline bool job_is_running(const hub_job *j) { return j->state >= JOB_READING && j->state <= JOB_PAUSED; }

#endif
