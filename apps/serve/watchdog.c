/* SPDX-License-Identifier: Apache-2.0 */
#include "watchdog.h"

#include "listener.h"

#include <stdlib.h>
#include <unistd.h>

static void on_watch(evutil_socket_t fd, short what, void *user)
{
    server *s = user;
    im_engine *engine = atomic_load(&s->engine);
    im_engine_stats stats = {.step_ms = 0};
    (void)fd;
    (void)what;
    if (engine != NULL) im_engine_get_stats(engine, &stats);
    bool stuck = stats.step_ms > s->o->stuck_s * 1e3;
    if (stuck && !s->stuck)
        journal_say(&s->journal, IM_LOG_WARNING, "watchdog: the present step has been running for %.0f s (%u running, %u queued)",
                    stats.step_ms / 1e3, stats.running, stats.queued);
    if (!stuck && s->stuck) journal_say(&s->journal, IM_LOG_INFO, "watchdog: the step has ended");
    s->stuck = stuck;
    if (s->job_count > 0 || stuck) evtimer_add(s->watch_timer, &(struct timeval){.tv_sec = 1});
}

static void on_notify(evutil_socket_t fd, short what, void *user)
{
    server *s = user;
    (void)fd;
    (void)what;
    if (!s->stuck) listener_notify("WATCHDOG=1");
}

bool watchdog_open(server *s)
{
    s->watch_timer = evtimer_new(s->base, on_watch, s);
    const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    long long us = period == NULL || (pid != NULL && atol(pid) != (long)getpid()) ? 0 : atoll(period) / 2;
    if (us > 0) {
        const struct timeval t = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
        s->notify_timer = event_new(s->base, -1, EV_PERSIST, on_notify, s);
        if (s->notify_timer == NULL || event_add(s->notify_timer, &t) != 0) return false;
    }
    return s->watch_timer != NULL;
}

void watchdog_close(server *s)
{
    if (s->watch_timer != NULL) event_free(s->watch_timer);
    if (s->notify_timer != NULL) event_free(s->notify_timer);
    s->watch_timer = s->notify_timer = NULL;
}
