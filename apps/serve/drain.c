/* SPDX-License-Identifier: Apache-2.0 */
#include "drain.h"

#include "conn.h"
#include "job.h"
#include "listener.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static void on_drain_deadline(evutil_socket_t fd, short what, void *user)
{
    server *s = user;
    (void)fd;
    (void)what;
    journal_say(&s->journal, IM_LOG_WARNING, "the deadline is over: %zu requests are cut short", s->job_count);
    for (job *j = s->jobs; j != NULL; j = j->next) job_cancel(j);
    /* Their answers still go out; then nothing holds the server any more. */
    const struct timeval last = {.tv_sec = 2};
    event_base_loopexit(s->base, &last);
}

static void close_idle(server *s)
{
    for (conn *c = s->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (conn_is_idle(c)) conn_close(c, NULL);
    }
}

static void begin(server *s, int number)
{
    struct timeval limit = {.tv_sec = (time_t)s->o->drain_s};
    s->draining = number;
    journal_say(&s->journal, IM_LOG_INFO,
                "signal %d: no new connections; %zu requests may take %.0f s more. A second signal leaves at once", number,
                s->job_count, s->o->drain_s);
    listener_notify("STOPPING=1");
    listener_close(s);
    if (limit.tv_sec == 0) limit.tv_usec = 1000;
    evtimer_add(s->drain_timer, &limit);
    close_idle(s);
    server_maybe_done(s);
}

static void on_signal(evutil_socket_t number, short what, void *user)
{
    server *s = user;
    (void)what;
    if (s->draining != 0 || s->loading) { /* an unfinished load cannot be waited for */
        bool second = s->draining != 0;
        journal_say(&s->journal, IM_LOG_INFO, second ? "second signal: leaving at once" : "signal %d while loading: leaving",
                    (int)number);
        if (s->unix_made != NULL) unlink(s->unix_made);
        if (s->loading) pthread_detach(s->loader);
        _exit(second ? 128 + (int)number : 0);
    }
    begin(s, (int)number);
}

bool drain_open(server *s)
{
    s->on_term = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->on_int = evsignal_new(s->base, SIGINT, on_signal, s);
    s->drain_timer = evtimer_new(s->base, on_drain_deadline, s);
    return s->on_term != NULL && s->on_int != NULL && s->drain_timer != NULL && event_add(s->on_term, NULL) == 0 &&
           event_add(s->on_int, NULL) == 0;
}

void drain_close(server *s)
{
    if (s->on_term != NULL) event_free(s->on_term);
    if (s->on_int != NULL) event_free(s->on_int);
    if (s->drain_timer != NULL) event_free(s->drain_timer);
    s->on_term = s->on_int = s->drain_timer = NULL;
}

void server_maybe_done(server *s)
{
    if (s->draining == 0 || s->job_count > 0) return;
    for (const conn *c = s->conns; c != NULL; c = c->next)
        if (!conn_is_idle(c)) return;
    event_base_loopbreak(s->base);
}
