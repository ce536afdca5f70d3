/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads for work that would hold the event loop up: one takes small tasks, the other large ones, so that a body of a megabyte never keeps a short question
 * waiting. Tasks of a lane are done in order.
 */
#ifndef IRONMULE_SERVE_WORKER_H
#define IRONMULE_SERVE_WORKER_H

#include <pthread.h>
#include <stdbool.h>

/* First member of whatever is to be done. */
typedef struct task {
    struct task *next;
    void (*run)(struct task *task); /* on the worker's thread; owns the task */
} task;

typedef struct worker_lane {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    task *first, **last;
    bool closing, started;
    pthread_t thread;
} worker_lane;

typedef struct worker_pool {
    worker_lane small, large;
} worker_pool;

bool worker_open(worker_pool *w);
void worker_close(worker_pool *w); /* does what is queued, then joins */
void worker_do(worker_pool *w, task *t, bool large);

#endif
