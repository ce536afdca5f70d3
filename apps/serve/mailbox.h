/* SPDX-License-Identifier: Apache-2.0
 *
 * How other threads reach the event loop: a list of letters and one descriptor that wakes the loop. Posting takes a short lock and at most one system call, and
 * never waits for the loop.
 */
#ifndef IRONMULE_SERVE_MAILBOX_H
#define IRONMULE_SERVE_MAILBOX_H

#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>

/* First member of whatever is posted. `read` is called on the loop's thread and owns the letter from there on. */
typedef struct letter {
    struct letter *next;
    void (*read)(struct letter *letter, void *user);
} letter;

typedef struct mailbox {
    pthread_mutex_t lock;
    letter *first, **last;
    int wake; /* eventfd */
    struct event *event;
    void *user;
} mailbox;

/* `user` is handed to every letter's read. */
bool mailbox_open(mailbox *m, struct event_base *base, void *user);
void mailbox_close(mailbox *m); /* nobody may post any more; letters left over are read first */
void mailbox_post(mailbox *m, letter *l);

/* Reads what is there now. */
void mailbox_empty(mailbox *m);

#endif
