/* SPDX-License-Identifier: Apache-2.0
 *
 * The team of threads: every unit exactly once, phases in order, nobody waits for a thread that holds nothing, cancelling, sleeping, and what
 * is left behind.
 */
#include "backend/cpu/team.h"
#include "base/machine.h"
#include "base/mem.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define RUNS 200
#else
#define RUNS 2000
#endif

enum { PHASES = 40, MOST_UNITS = 60, MOST_THREADS = 16 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* What the units of a run note down. Assertions of cmocka belong to the main thread, so others count what is wrong. */
typedef struct record {
    const uint32_t *units;
    atomic_uint seen[PHASES][MOST_UNITS], done[PHASES];
    atomic_bool busy[MOST_THREADS]; /* this number is at work */
    atomic_int early, twice, shared, outside;
    int threads;
    uint32_t delay; /* 0: none; else about one unit in so many sleeps */
    atomic_uint ticket;
    atomic_bool cancel;
    size_t cancel_phase; /* SIZE_MAX: never */
} record;

static void nap(long microseconds)
{
    struct timespec t = {0, microseconds * 1000};
    nanosleep(&t, NULL);
}

static void unit(void *ctx, size_t phase, size_t index, int thread)
{
    record *r = ctx;
    if (thread < 0 || thread >= r->threads || index >= r->units[phase]) {
        atomic_fetch_add(&r->outside, 1);
        return;
    }
    if (atomic_exchange(&r->busy[thread], true)) atomic_fetch_add(&r->shared, 1);
    if (phase > 0 && atomic_load(&r->done[phase - 1]) != r->units[phase - 1]) atomic_fetch_add(&r->early, 1);
    if (atomic_fetch_add(&r->seen[phase][index], 1) != 0) atomic_fetch_add(&r->twice, 1);
    if (phase == r->cancel_phase) atomic_store(&r->cancel, true);
    uint32_t ticket = atomic_fetch_add(&r->ticket, 2654435761u);
    if (r->delay > 0 && (ticket >> 7) % r->delay == 0) nap(200 + (long)(ticket % 400));
    atomic_fetch_add(&r->done[phase], 1);
    atomic_store(&r->busy[thread], false);
}

/* One run with random phases; after it every unit was computed once, or with cancel_phase none behind that phase. */
static void run_once(im__team *team, uint32_t *random, uint32_t delay, bool cancelled)
{
    static record r;
    uint32_t units[PHASES];
    size_t phases = 1 + next_random(random) % PHASES;
    r = (record){
        .units = units, .threads = im__team_threads(team), .delay = delay, .cancel_phase = SIZE_MAX, .ticket = next_random(random)};
    for (size_t i = 0; i < phases; i++) units[i] = next_random(random) % 4 == 0 ? 0 : next_random(random) % MOST_UNITS;
    if (cancelled) {
        r.cancel_phase = next_random(random) % phases;
        units[r.cancel_phase] = 1 + next_random(random) % (MOST_UNITS - 1);
    }
    assert_int_equal(im__team_run(team, phases, units, unit, &r, &r.cancel), !cancelled);
    for (size_t i = 0; i < phases; i++) {
        if (cancelled && i >= r.cancel_phase) {
            if (i > r.cancel_phase) assert_int_equal(atomic_load(&r.done[i]), 0);
            continue;
        }
        assert_int_equal(atomic_load(&r.done[i]), units[i]);
        for (size_t u = 0; u < units[i]; u++) assert_int_equal(atomic_load(&r.seen[i][u]), 1);
    }
    assert_int_equal(atomic_load(&r.early) + atomic_load(&r.twice) + atomic_load(&r.shared) + atomic_load(&r.outside), 0);
}

static im__team *team_of(int threads)
{
    im__team *team = NULL;
    assert_int_equal(im__team_new(&team, threads, PHASES, NULL), IM_OK);
    assert_int_equal(im__team_threads(team), threads);
    return team;
}

static void every_unit_once_in_order(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 5, MOST_THREADS};
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        im__team *team = team_of(threads[i]);
        for (int run = 0; run < RUNS / (threads[i] < 4 ? 1 : 8); run++) run_once(team, &random, 0, false);
        im__team_free(team);
    }
}

static void threads_that_are_held_up(void **state)
{
    (void)state;
    uint32_t random = 2;
    for (int threads = 2; threads <= 4; threads++) {
        im__team *team = team_of(threads);
        for (int run = 0; run < 15; run++) run_once(team, &random, 40, false);
        im__team_free(team);
    }
}

static void pauses_between_runs(void **state)
{
    (void)state;
    uint32_t random = 3;
    im__team *team = team_of(3);
    for (int run = 0; run < 60; run++) { /* long enough to fall asleep, or just about */
        nap((long)(next_random(&random) % 1500));
        run_once(team, &random, 0, false);
    }
    im__team_free(team);
}

static void cancelled_runs(void **state)
{
    (void)state;
    uint32_t random = 4;
    for (int threads = 1; threads <= 4; threads++) {
        im__team *team = team_of(threads);
        for (int run = 0; run < RUNS / 20; run++) run_once(team, &random, 0, run % 2 == 0);
        im__team_free(team);
    }
}

/* ---- a thread that is put aside ------------------------------------------------------------------------------------------------------ */

enum { SLOW = 200 }; /* milliseconds */

static void one_slow_unit(void *ctx, size_t phase, size_t index, int thread)
{
    double *finished = ctx;
    (void)phase;
    (void)thread;
    if (index == 0) nap(SLOW * 1000L);
    finished[index] = im__now_ms();
}

/* The others do all the rest meanwhile. */
static void a_slow_thread_holds_up_one_unit(void **state)
{
    (void)state;
    double finished[100];
    uint32_t units = 100;
    im__team *team = team_of(2);
    assert_true(im__team_run(team, 1, &units, one_slow_unit, finished, NULL));
    for (size_t i = 1; i < 100; i++) assert_true(finished[i] < finished[0]);
    im__team_free(team);
}

/* Two units that wait for each other, so that two threads must have come; the second of them is slow. */
typedef struct meeting {
    atomic_int here;
    atomic_int missed;
} meeting;

static void meet(void *ctx, size_t phase, size_t index, int thread)
{
    meeting *m = ctx;
    (void)phase;
    (void)index;
    atomic_fetch_add(&m->here, 1);
    double began = im__now_ms();
    while (atomic_load(&m->here) < 2 && im__now_ms() - began < 5000) nap(100);
    if (atomic_load(&m->here) < 2) atomic_fetch_add(&m->missed, 1);
    if (thread != 0) nap(20000);
}

/* Members that sleep wake up for a run; the caller sleeps behind its own units and is woken by the last one. */
static void sleepers_are_woken(void **state)
{
    (void)state;
    uint32_t units = 2;
    im__team *team = team_of(2);
    for (int i = 0; i < 8; i++) {
        meeting m = {0};
        nap(i % 2 == 0 ? 30000 : 10);
        assert_true(im__team_run(team, 1, &units, meet, &m, NULL));
        assert_int_equal(atomic_load(&m.missed), 0);
    }
    im__team_free(team);
}

/* ---- rest ----------------------------------------------------------------------------------------------------------------------------- */

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void an_idle_team_uses_no_processor(void **state)
{
    (void)state;
    uint32_t random = 5;
    im__team *team = team_of(4);
    run_once(team, &random, 0, false);
    nap(50000);
    double before = cpu_ms();
    nap(400000);
    assert_true(cpu_ms() - before < 20);
    im__team_free(team);
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) closedir(d);
    return n;
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (int i = 0; i < 50; i++) im__team_free(team_of(1 + i % 6));
    im__team_free(NULL);
    /* A thread that has been joined may be listed for a moment more, before as well as after. */
    for (int i = 0; i < 200 && entries("/proc/self/task") > threads; i++) nap(5000);
    assert_true(entries("/proc/self/task") <= threads);
    assert_int_equal(entries("/proc/self/fd"), files);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    int failures = 0;
    im_status status = IM_ERR_MEMORY;
    while (status != IM_OK) {
        im__team *team = NULL;
        im_error err;
        im__alloc_fail_after(failures + 1);
        status = im__team_new(&team, 4, PHASES, &err);
        im__alloc_fail_after(0);
        if (status == IM_OK) {
            uint32_t random = 6;
            run_once(team, &random, 0, false);
            im__team_free(team);
        } else {
            assert_int_equal(status, IM_ERR_MEMORY);
            assert_null(team);
            failures++;
        }
        assert_true(failures < 100);
    }
    assert_true(failures >= 6); /* itself, phases, members, three threads */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_once_in_order),
        cmocka_unit_test(threads_that_are_held_up),
        cmocka_unit_test(pauses_between_runs),
        cmocka_unit_test(cancelled_runs),
        cmocka_unit_test(a_slow_thread_holds_up_one_unit),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(an_idle_team_uses_no_processor),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
