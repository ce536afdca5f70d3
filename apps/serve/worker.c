/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include <signal.h>
#include <stddef.h>

static task *take(worker_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->first == NULL && !lane->closing) pthread_cond_wait(&lane->filled, &lane->lock);
    task *t = lane->first;
    if (t != NULL) lane->first = t->next;
    if (lane->first == NULL) lane->last = &lane->first;
    pthread_mutex_unlock(&lane->lock);
    return t;
}

static void *work(void *argument)
{
    for (task *t = take(argument); t != NULL; t = take(argument)) t->run(t);
    return NULL;
}

static bool open_lane(worker_lane *lane)
{
    sigset_t all, before;
    *lane = (worker_lane){.first = NULL};
    lane->last = &lane->first;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->filled, NULL);
    sigfillset(&all); /* signals are the loop's business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lane->started = pthread_create(&lane->thread, NULL, work, lane) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return lane->started;
}

static void close_lane(worker_lane *lane)
{
    if (lane->last == NULL) return;
    pthread_mutex_lock(&lane->lock);
    lane->closing = true;
    pthread_cond_signal(&lane->filled);
    pthread_mutex_unlock(&lane->lock);
    if (lane->started) pthread_join(lane->thread, NULL);
    pthread_cond_destroy(&lane->filled);
    pthread_mutex_destroy(&lane->lock);
    *lane = (worker_lane){.first = NULL};
}

bool worker_open(worker_pool *w) { return open_lane(&w->small) && open_lane(&w->large); }

void worker_close(worker_pool *w)
{
    close_lane(&w->small);
    close_lane(&w->large);
}

void worker_do(worker_pool *w, task *t, bool large)
{
    worker_lane *lane = large ? &w->large : &w->small;
    t->next = NULL;
    pthread_mutex_lock(&lane->lock);
    *lane->last = t;
    lane->last = &t->next;
    pthread_cond_signal(&lane->filled);
    pthread_mutex_unlock(&lane->lock);
}
