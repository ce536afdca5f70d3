/* SPDX-License-Identifier: Apache-2.0 */
#include "checkern.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_SECONDS 600

static ck_test *running; /* of the child, for its signal handler */

static const char *what(int signal_number)
{
    switch (signal_number) {
    case SIGSEGV:
    case SIGBUS: return "touches memory it must not";
    case SIGILL:
    case SIGTRAP: return "executes an illegal instruction";
    case SIGFPE: return "raises an arithmetic trap";
    case SIGALRM: return "does not end";
    default: return "aborts";
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    char where[128] = "";
    if (number == SIGSEGV || number == SIGBUS) ck_arena_locate(&running->arena, info->si_addr, where, sizeof where);
    ck_fail(running, "%s%s%s", what(number), *where ? ": " : "", where);
    running->result->finished = true;
    _exit(0);
}

static void catch_signals(void)
{
    static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGALRM, SIGABRT};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) sigaction(caught[i], &action, NULL);
    alarm(LIMIT_SECONDS);
}

static void child(const ck_subject *s, ck_mode mode, uint64_t seed, ck_result *result)
{
    static ck_test t;
    ck_subject reference = ck_reference(s->family);
    t.mode = mode, t.seed = seed, t.family = s->family, t.subject = s, t.reference = &reference, t.result = result;
    result->digest = 0xcbf29ce484222325u;
    running = &t;
    catch_signals();
    s->family->cases(&t);
    ck_arena_clear(&t.arena);
    result->finished = true;
    _exit(0);
}

void ck_isolate(const ck_subject *s, ck_mode mode, uint64_t seed, ck_result *out)
{
    ck_result *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(out, 0, sizeof *out);
    if (shared == MAP_FAILED) return; /* not finished: counts as failed */
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) child(s, mode, seed, shared);
    int status = 0;
    if (pid > 0) waitpid(pid, &status, 0);
    *out = *shared;
    munmap(shared, sizeof *shared);
    if (out->finished && out->failed == 0 && out->cases == out->declined) {
        out->failed++;
        snprintf(out->first, sizeof out->first, "no case was run");
    }
    if (out->finished) return;
    if (out->failed++ == 0)
        snprintf(out->first, sizeof out->first, "%s: its process ended (status 0x%x)", out->label, (unsigned)status);
}
