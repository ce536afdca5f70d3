/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating point on the library's threads, started by a program that has set an environment of its own.
 */
#include "backend/cpu/team.h"
#include "base/thread.h"
#include "hostile_floats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static void *look(void *seen)
{
    *(bool *)seen = subnormals_are_kept() && sums_round_to_nearest();
    return NULL;
}

static void a_thread_begins_by_default(void **state)
{
    (void)state;
    pthread_t thread;
    bool good = false;
    hostile_floats();
    bool started = im__thread_start(&thread, look, &good);
    friendly_floats();
    assert_true(started);
    pthread_join(thread, NULL);
    assert_true(good);
}

typedef struct count {
    atomic_int of_members, wrong;
} count;

static void member_looks(void *ctx, size_t phase, size_t unit, int thread)
{
    (void)phase, (void)unit;
    count *c = ctx;
    nanosleep(&(struct timespec){0, 100000}, NULL); /* so that every member gets some */
    if (thread == 0) return;                        /* the caller's own */
    atomic_fetch_add(&c->of_members, 1);
    if (!subnormals_are_kept() || !sums_round_to_nearest()) atomic_fetch_add(&c->wrong, 1);
}

static void members_of_a_team_begin_by_default(void **state)
{
    (void)state;
    im__team *team;
    im_error err;
    count c = {0};
    uint32_t units = 100;
    hostile_floats();
    im_status status = im__team_new(&team, 3, 1, &err);
    for (int runs = 0; status == IM_OK && runs < 1000 && atomic_load(&c.of_members) < 20; runs++)
        im__team_run(team, 1, &units, member_looks, &c, NULL);
    friendly_floats();
    assert_int_equal(status, IM_OK);
    im__team_free(team);
    assert_true(atomic_load(&c.of_members) >= 20);
    assert_int_equal(atomic_load(&c.wrong), 0);
}

static void the_caller_gets_its_environment_back(void **state)
{
    (void)state;
    im__float_state saved;
    hostile_floats();
    bool hostile = !sums_round_to_nearest();
    im__float_enter(&saved);
    bool inside = subnormals_are_kept() && sums_round_to_nearest();
    im__float_leave(&saved);
    bool kept = subnormals_are_kept(), nearest = sums_round_to_nearest();
    friendly_floats();
    assert_true(hostile && inside && !nearest);
#if defined(__x86_64__) || defined(__aarch64__)
    assert_false(kept);
#else
    (void)kept;
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_begins_by_default),
        cmocka_unit_test(members_of_a_team_begin_by_default),
        cmocka_unit_test(the_caller_gets_its_environment_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
