/* SPDX-License-Identifier: Apache-2.0
 *
 * Invariants
 *  1. A counter holds (run << 32 | count). A thread that comes late from an earlier run fails every claim by the run number and goes back to waiting, so
 *     nothing is awaited from threads that hold no unit.
 *  2. fn and ctx are read only between a successful claim and the report of its unit: the run cannot end in between.
 *  3. Whoever makes a condition true (new run, phase complete) looks for sleepers after that; a sleeper announces itself before it looks at the condition
 *     (both sequentially consistent), so no wake-up is lost.
 */
#include "backend/cpu/team.h"

#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"

#include <sched.h>

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

/* Looks at a condition before sleeping: some tens of microseconds inside a run, where the next phase is near, longer between runs of a decode loop. */
#define SPINS_IN_RUN 600
#define SPINS_BETWEEN_RUNS 4000

/* A thread that shares its core is put aside when its slice (3 to 4 ms on Linux) is used up, most likely in the middle of a unit that all others then wait
 * for. So it gives the core away itself a little earlier, where it holds nothing; alone on its core it goes on at once. */
#define TURN_MS 2.0

typedef struct phase {
    _Alignas(64) atomic_uint_fast64_t next;
    _Alignas(64) atomic_uint_fast64_t done;
    atomic_uint_fast32_t units;
} phase;

typedef struct member {
    im__team *team;
    pthread_t thread;
    int index;
} member;

struct im__team {
    int threads;
    size_t max_phases;
    phase *phase;
    member *member; /* [threads - 1] */
    atomic_size_t phases;
    atomic_uint_fast64_t run; /* number of the present run, 0 before the first */
    atomic_bool leaving;
    atomic_int sleepers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    im__team_fn *fn;
    void *ctx;
    const atomic_bool *cancel;
};

#define RUN_OF(counter) ((counter) >> 32)
#define COUNT_OF(counter) ((counter)&0xffffffffu)

static bool phase_complete(im__team *t, size_t i, uint64_t run)
{
    uint64_t done = atomic_load(&t->phase[i].done);
    return RUN_OF(done) != run || COUNT_OF(done) >= atomic_load(&t->phase[i].units);
}

static bool run_is_new(im__team *t, size_t unused, uint64_t last)
{
    (void)unused;
    return atomic_load(&t->run) != last || atomic_load(&t->leaving);
}

static void wake_sleepers(im__team *t)
{
    if (atomic_load(&t->sleepers) == 0) return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void wait_for(im__team *t, bool (*condition)(im__team *, size_t, uint64_t), size_t i, uint64_t run, int spins)
{
    for (int s = 0; s < spins; s++) {
        if (condition(t, i, run)) return;
        PAUSE();
    }
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->sleepers, 1);
    while (!condition(t, i, run)) pthread_cond_wait(&t->wake, &t->lock);
    atomic_fetch_sub(&t->sleepers, 1);
    pthread_mutex_unlock(&t->lock);
}

/* Takes the next unit of phase i of this run; false when there is none left. */
static bool claim(im__team *t, size_t i, uint64_t run, size_t *unit)
{
    uint64_t next = atomic_load(&t->phase[i].next);
    for (;;) {
        if (RUN_OF(next) != run || COUNT_OF(next) >= atomic_load(&t->phase[i].units)) return false;
        if (atomic_compare_exchange_weak(&t->phase[i].next, &next, next + 1)) break;
    }
    *unit = COUNT_OF(next);
    return true;
}

static void give_way(void)
{
    static _Thread_local double turn_began;
    if (im__now_ms() - turn_began < TURN_MS) return;
    sched_yield();
    turn_began = im__now_ms();
}

static void work(im__team *t, uint64_t run, int thread)
{
    for (size_t i = 0; i < atomic_load_explicit(&t->phases, memory_order_relaxed); i++) {
        size_t unit;
        give_way();
        while (claim(t, i, run, &unit)) {
            /* A cancelled phase is counted through without being computed, so that nobody waits for it. */
            if (t->cancel == NULL || !atomic_load_explicit(t->cancel, memory_order_relaxed)) t->fn(t->ctx, i, unit, thread);
            uint64_t done = atomic_fetch_add(&t->phase[i].done, 1) + 1;
            if (COUNT_OF(done) == atomic_load(&t->phase[i].units)) wake_sleepers(t);
        }
        wait_for(t, phase_complete, i, run, SPINS_IN_RUN);
        if (atomic_load_explicit(&t->run, memory_order_relaxed) != run) return;
    }
}

static void *member_main(void *argument)
{
    member *m = argument;
    im__team *t = m->team;
    uint64_t last = 0;
    for (;;) {
        wait_for(t, run_is_new, 0, last, SPINS_BETWEEN_RUNS);
        if (atomic_load(&t->leaving)) return NULL;
        last = atomic_load(&t->run);
        work(t, last, m->index);
    }
}

bool im__team_run(im__team *t, size_t phases, const uint32_t *units, im__team_fn *fn, void *ctx, const atomic_bool *cancel)
{
    /* 32 bits of run number: a thread would have to sleep through four billion runs to mistake one for another. */
    uint64_t run = (atomic_load(&t->run) + 1) & 0xffffffffu;
    t->fn = fn;
    t->ctx = ctx;
    t->cancel = cancel;
    for (size_t i = 0; i < phases; i++) {
        /* Sealed first: a late thread of the run before that sees the new number of units must also see that its counter is gone. */
        atomic_store(&t->phase[i].next, run << 32 | 0xffffffffu);
        atomic_store(&t->phase[i].units, units[i]);
        atomic_store(&t->phase[i].done, run << 32);
        atomic_store(&t->phase[i].next, run << 32);
    }
    atomic_store_explicit(&t->phases, phases, memory_order_relaxed);
    atomic_store(&t->run, run);
    wake_sleepers(t);
    work(t, run, 0);
    return cancel == NULL || !atomic_load_explicit(cancel, memory_order_relaxed);
}

int im__team_threads(const im__team *t) { return t->threads; }

static void stop_members(im__team *t, int started)
{
    atomic_store(&t->leaving, true);
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < started; i++) pthread_join(t->member[i].thread, NULL);
}

static void release(im__team *t)
{
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    im__aligned_free(t->phase, t->max_phases * sizeof *t->phase);
    im__free(t->member);
    im__free(t);
}

im_status im__team_new(im__team **out, int threads, size_t max_phases, im_error *err)
{
    im__team *t = im__calloc(1, sizeof *t);
    if (t == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    t->threads = threads;
    t->max_phases = max_phases;
    t->phase = im__aligned_alloc(max_phases * sizeof *t->phase);
    t->member = im__calloc((size_t)threads, sizeof *t->member);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    int started = 0;
    bool good = t->phase != NULL && t->member != NULL;
    while (good && started < threads - 1) {
        t->member[started] = (member){.team = t, .index = started + 1};
        good = im__thread_start(&t->member[started].thread, member_main, &t->member[started]);
        if (good) started++;
    }
    if (good) {
        *out = t;
        return IM_OK;
    }
    stop_members(t, started);
    release(t);
    return im__fail(err, IM_ERR_MEMORY, "cannot start %d threads", threads);
}

void im__team_free(im__team *t)
{
    if (t == NULL) return;
    stop_members(t, t->threads - 1);
    release(t);
}
