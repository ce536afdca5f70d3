/* SPDX-License-Identifier: Apache-2.0 */
#include "mailbox.h"

#include "memory.h"

#include <math.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define TURN_MS 2 /* of reading; then connections have their turn */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* What was not read stands in front of what has come since. */
static void put_back(mailbox *m, letter *l)
{
    const uint64_t one = 1;
    letter **end = &l->next;
    while (*end != NULL) end = &(*end)->next;
    pthread_mutex_lock(&m->lock);
    *end = m->first;
    if (m->first == NULL) m->last = end;
    m->first = l;
    pthread_mutex_unlock(&m->lock);
    ssize_t unheard = write(m->wake, &one, sizeof one);
    (void)unheard;
}

static void read_letters(mailbox *m, double until)
{
    uint64_t count;
    ssize_t got = read(m->wake, &count, sizeof count);
    (void)got; /* nothing to count: the list is the truth */
    pthread_mutex_lock(&m->lock);
    letter *l = m->first;
    m->first = NULL;
    m->last = &m->first;
    pthread_mutex_unlock(&m->lock);
    while (l != NULL) {
        letter *next = l->next;
        memory_was_short(); /* what others lacked is no matter to it */
        l->read(l, m->user);
        l = next;
        if (l != NULL && now_ms() > until) {
            put_back(m, l);
            return;
        }
    }
}

void mailbox_empty(mailbox *m) { read_letters(m, INFINITY); }

static void on_wake(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    read_letters(user, now_ms() + TURN_MS);
}

bool mailbox_open(mailbox *m, struct event_base *base, void *user)
{
    *m = (mailbox){.user = user};
    m->last = &m->first;
    pthread_mutex_init(&m->lock, NULL);
    m->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    m->event = m->wake < 0 ? NULL : event_new(base, m->wake, EV_READ | EV_PERSIST, on_wake, m);
    return m->event != NULL && event_add(m->event, NULL) == 0;
}

void mailbox_close(mailbox *m)
{
    if (m->event != NULL) {
        mailbox_empty(m);
        event_free(m->event);
    }
    if (m->wake >= 0) close(m->wake);
    pthread_mutex_destroy(&m->lock);
    *m = (mailbox){.wake = -1};
}

void mailbox_post(mailbox *m, letter *l)
{
    const uint64_t one = 1;
    l->next = NULL;
    pthread_mutex_lock(&m->lock);
    bool asleep = m->first == NULL;
    *m->last = l;
    m->last = &l->next;
    if (asleep) { /* inside the lock: when the loop has read this letter, nobody touches the descriptor any more */
        ssize_t unheard = write(m->wake, &one, sizeof one);
        (void)unheard; /* fails only when the counter is full, and then the loop wakes anyway */
    }
    pthread_mutex_unlock(&m->lock);
}
