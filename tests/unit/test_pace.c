/* SPDX-License-Identifier: Apache-2.0
 *
 * The pace of steps on made-up machines: within the budget, near it, unmoved by a single slow step, and never without progress.
 */
#include "engine/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint32_t seed;

static double noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (1 << 24);
}

/* A step that reads the weights, or computes, whichever is longer. */
typedef struct machine {
    double read_ms, row_ms, decode_ms, jitter;
} machine;

static double step_ms(const machine *m, size_t decodes, size_t rows)
{
    double work = (double)rows * m->row_ms + (double)decodes * m->decode_ms;
    return (work > m->read_ms ? work : m->read_ms) * (1 + m->jitter * noise());
}

/* Steps of a long prompt beside 4 answers; *worst: the longest of them, *mean: rows a step, both after the first `settle` ones. */
static void run(const machine *m, double budget, int steps, int settle, double *worst, double *mean)
{
    im__pace p = {0};
    size_t all = 0;
    *worst = 0;
    for (int i = 0; i < 10; i++) im__pace_note(&p, 4, 0, step_ms(m, 4, 0));
    for (int i = 0; i < steps; i++) {
        size_t rows = im__pace_rows(&p, budget);
        double ms = step_ms(m, 4, rows);
        assert_true(rows >= IM__PACE_LEAST && (rows < IM__PACE_TILE || rows % IM__PACE_TILE == 0));
        if (i % 37 == 36) ms *= 20; /* something else had the machine */
        if (i % 37 != 36 && i >= settle && ms > *worst) *worst = ms;
        if (i >= settle) all += rows;
        im__pace_note(&p, 4, rows, ms);
    }
    *mean = (double)all / (steps - settle);
}

static void steps_stay_within_the_budget(void **state)
{
    (void)state;
    static const machine machines[] = {{6, 0.2, 0.5, 0.1}, {6, 0.02, 0.1, 0}, {30, 0.5, 2, 0.1}, {1, 0.005, 0.01, 0.1}};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (double budget = 50; budget < 300; budget *= 2) {
            const machine *m = &machines[i];
            double worst, mean, ideal = (0.85 * budget - 4 * m->decode_ms) / m->row_ms; /* what is planned with */
            run(m, budget, 400, 12, &worst, &mean);
            if (worst > budget) fail_msg("machine %zu: %g of %g ms", i, worst, budget);
            if (mean < (ideal < 4096 ? ideal : 4096) * 0.6) fail_msg("machine %zu: %g of %g rows", i, mean, ideal);
        }
}

/* Attention: a row costs twice as much at the end of a prompt of 1800 as at its begin. Prompts follow on each other. */
static void the_depth_of_a_prompt(void **state)
{
    (void)state;
    for (double jitter = 0; jitter < 0.1; jitter += 0.04) {
        im__pace p = {0};
        double worst = 0;
        size_t steps = 0;
        for (int i = 0; i < 10; i++) im__pace_note(&p, 4, 0, 8);
        for (int prompt = 0; prompt < 50; prompt++)
            for (size_t at = 0; at < 1800;) {
                size_t rows = im__pace_rows(&p, 200), left = 1800 - at;
                if (rows > left) rows = left;
                double ms = (8 + 0.6 * (1 + (double)at / 1800) * (double)rows) * (1 + jitter * noise());
                if (prompt > 0 && ms > worst) worst = ms;
                im__pace_note(&p, 4, rows, ms);
                at += rows;
                steps++;
            }
        if (worst > 190) fail_msg("jitter %g: %g of 200 ms", jitter, worst);
        if (steps > 50 * 18) fail_msg("jitter %g: %zu steps for 50 prompts", jitter, steps);
    }
}

static void a_budget_that_cannot_be(void **state)
{
    (void)state;
    double worst, mean;
    run(&(machine){50, 2, 1, 0}, 10, 100, 8, &worst,
        &mean); /* reading the weights takes longer; what costs nothing beyond it is taken */
    assert_true(mean == IM__PACE_TILE && worst == 50);
    run(&(machine){5, 2, 5, 0.1}, 10, 100, 8, &worst, &mean); /* answers alone take 20 ms */
    assert_true(mean == IM__PACE_LEAST);
    run(&(machine){5, 2, 5, 0}, 48, 100, 8, &worst, &mean); /* 28 ms are left, with some margin */
    assert_true(mean >= 9 && mean <= 14 && worst <= 48);
    im__pace fresh = {0};
    assert_int_equal(im__pace_rows(&fresh, 1e9), IM__PACE_TILE); /* nothing is known yet */
}

/* What a prompt that was read alone has shown is enough for the first step beside an answer. */
static void a_prompt_read_alone_is_enough(void **state)
{
    (void)state;
    im__pace p = {0};
    for (int i = 0; i < 8; i++) im__pace_note(&p, 0, 256, 100);
    im__pace_note(&p, 1, 0, 10);
    size_t rows = im__pace_rows(&p, 60);
    assert_true(rows >= 90 && rows <= 128);
}

static void a_slower_machine_is_noticed(void **state)
{
    (void)state;
    im__pace p = {0};
    machine m = {6, 0.2, 0.5, 0};
    for (int i = 0; i < 100; i++) im__pace_note(&p, 4, 128, step_ms(&m, 4, 128));
    m.row_ms *= 4;
    for (int i = 0; i < 3; i++) {
        size_t rows = im__pace_rows(&p, 50);
        im__pace_note(&p, 4, rows, step_ms(&m, 4, rows));
    }
    assert_true(step_ms(&m, 4, im__pace_rows(&p, 50)) <= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_stay_within_the_budget), cmocka_unit_test(the_depth_of_a_prompt),
        cmocka_unit_test(a_budget_that_cannot_be),      cmocka_unit_test(a_prompt_read_alone_is_enough),
        cmocka_unit_test(a_slower_machine_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
