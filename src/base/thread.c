/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/mem.h"

#include <signal.h>

typedef struct start {
    void *(*main)(void *);
    void *argument;
} start;

static void *thread_main(void *given)
{
    start s = *(start *)given;
    im__free(given);
    im__float_reset();
    return s.main(s.argument);
}

/* A fault belongs to the thread that makes it; blocked, it would end the program without a word to its handlers. */
static void all_but_faults(sigset_t *set)
{
    sigfillset(set);
    sigdelset(set, SIGSEGV);
    sigdelset(set, SIGBUS);
    sigdelset(set, SIGFPE);
    sigdelset(set, SIGILL);
    sigdelset(set, SIGTRAP);
    sigdelset(set, SIGABRT);
}

bool im__thread_start(pthread_t *out, void *(*main)(void *), void *argument)
{
    sigset_t blocked, before;
    start *s = im__calloc(1, sizeof *s);
    if (s == NULL) return false;
    *s = (start){main, argument};
    all_but_faults(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* a new thread begins with the mask of its maker */
    bool started = pthread_create(out, NULL, thread_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) im__free(s);
    return started;
}

void im__float_enter(im__float_state *saved)
{
    fegetenv(saved);
    im__float_reset();
}

/* Rounding, traps and flags; where the machine has them, flush to zero and subnormals as zero too. */
void im__float_reset(void) { fesetenv(FE_DFL_ENV); }

void im__float_leave(const im__float_state *saved) { fesetenv(saved); }
