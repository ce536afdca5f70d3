/* SPDX-License-Identifier: Apache-2.0
 *
 * KV pages against a simple model: what a row can see has a page, no two sequences share one, nothing leaks, and the plan suffices.
 */
#include "base/mem.h"
#include "engine/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

enum { SEQUENCES = 4 };

typedef struct world {
    im__program p;
    im__kv_layer layer[3];
    im__kv kv;
    im__kv_seq seq[SEQUENCES];
    bool open[SEQUENCES];
    uint32_t context, chunk;
    size_t pages[IM__POOLS];
    im__kv_sizes sizes;
} world;

/* Layers: one that sees everything, one with a window, one with half of it; window 0: none with one. */
static void begin(world *w, uint32_t context, uint32_t chunk, uint32_t window)
{
    *w = (world){.context = context, .chunk = chunk};
    w->layer[0] = (im__kv_layer){.kv_heads = 1, .head_dim = 8};
    w->layer[1] = (im__kv_layer){.kv_heads = 2, .head_dim = 8, .window = window};
    w->layer[2] = (im__kv_layer){.kv_heads = 2, .head_dim = 8, .window = (window + 1) / 2};
    w->p = (im__program){.kv = w->layer, .kv_count = 3};
    im__kv_plan(&w->p, &(im__kv_needs){.context = context, .chunk = chunk, .sequences = SEQUENCES}, &w->sizes);
    for (int k = 0; k < IM__POOLS; k++) w->pages[k] = im__kv_memory_pages(&w->p, &w->sizes, (im__pool_kind)k);
    assert_int_equal(im__kv_new(&w->kv, &w->p, context, &w->sizes, NULL), IM_OK);
}

static void end(world *w)
{
    for (int i = 0; i < SEQUENCES; i++)
        if (w->open[i]) im__kv_seq_free(&w->kv, &w->seq[i]);
    for (int k = 0; k < IM__POOLS; k++) assert_int_equal(w->kv.pool[k].free_count, w->pages[k]);
    im__kv_free(&w->kv);
}

/* The pages that sequence s must have: those of positions begin .. end - 1. */
static void check_table(const world *w, int s, im__pool_kind k, size_t begin, size_t end, bool *taken, size_t *held)
{
    for (size_t i = 0; i < w->seq[s].entries; i++) {
        int32_t page = w->seq[s].table[k][i];
        if (i * IM__PAGE < end && (i + 1) * IM__PAGE > begin) assert_true(page >= 0);
        if (page < 0) continue;
        assert_true((size_t)page < w->pages[k]);
        assert_false(taken[page]);
        taken[page] = true;
        ++*held;
    }
}

/* `more`: rows that have been reserved for sequence `reserved` (-1: none) and are not computed yet. */
static void check(const world *w, int reserved, uint32_t more)
{
    for (int k = 0; k < IM__POOLS; k++) {
        bool taken[4096] = {false};
        size_t held = 0;
        if (w->pages[k] == 0) continue;
        for (int s = 0; s < SEQUENCES; s++) {
            if (!w->open[s]) continue;
            size_t length = w->seq[s].length, first = 0, end = length + (s == reserved ? more : 0);
            if (k == IM__POOL_WINDOW && length + 1 > w->kv.window) first = length + 1 - w->kv.window;
            size_t before = held;
            check_table(w, s, (im__pool_kind)k, first, end, taken, &held);
            /* No more than it can need: nothing behind the end, at most the part of a page before the window. */
            size_t most = (end + IM__PAGE - 1) / IM__PAGE - first / IM__PAGE;
            assert_true(held - before <= most);
        }
        assert_int_equal(held + w->kv.pool[k].free_count, w->pages[k]);
        for (size_t i = 0; i < w->kv.pool[k].free_count; i++) {
            int32_t page = w->kv.pool[k].free[i];
            assert_false(taken[page]);
            taken[page] = true;
        }
    }
}

static void grow(world *w, int s, uint32_t more)
{
    uint32_t left = w->context - w->seq[s].length;
    if (more > left) more = left;
    assert_true(im__kv_reserve(&w->kv, &w->seq[s], more)); /* the plan suffices */
    check(w, s, more);
    im__kv_advance(&w->kv, &w->seq[s], more);
    check(w, -1, 0);
}

static void random_life(uint32_t context, uint32_t chunk, uint32_t window, uint32_t seed)
{
    world w;
    begin(&w, context, chunk, window);
    for (int step = 0; step < 250; step++) {
        int s = (int)(next_random(&seed) % SEQUENCES);
        uint32_t what = next_random(&seed) % 12;
        if (!w.open[s]) {
            assert_int_equal(im__kv_seq_new(&w.seq[s], &w.kv, NULL), IM_OK);
            w.open[s] = true;
        } else if (what == 0) {
            im__kv_seq_free(&w.kv, &w.seq[s]);
            w.open[s] = false;
        } else {
            grow(&w, s, what < 6 ? chunk : 1 + next_random(&seed) % chunk);
        }
        check(&w, -1, 0);
    }
    end(&w);
}

static void sequences_never_share_or_leak(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 2, 31, 63, 64, 65, 100, 128, 500, 1 << 30}, chunks[] = {1, 7, 63, 64, 65, 200},
                          contexts[] = {2, 63, 64, 65, 300, 1000};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (size_t j = 0; j < sizeof chunks / sizeof *chunks; j++)
            for (size_t k = 0; k < sizeof contexts / sizeof *contexts; k++)
                if (chunks[j] <= contexts[k]) random_life(contexts[k], chunks[j], windows[i], (uint32_t)(i + 16 * j + 256 * k));
}

/* The window pool of a long sequence stays small: that is what it is for. */
static void windows_give_pages_back(void **state)
{
    (void)state;
    world w;
    begin(&w, 4000, 64, 100);
    assert_int_equal(im__kv_seq_new(&w.seq[0], &w.kv, NULL), IM_OK);
    w.open[0] = true;
    size_t most = w.pages[IM__POOL_WINDOW] / SEQUENCES;
    assert_true(most <= 4 && w.pages[IM__POOL_FULL] == (size_t)63 * SEQUENCES);
    while (w.seq[0].length < 4000) {
        grow(&w, 0, 50);
        assert_true(w.pages[IM__POOL_WINDOW] - w.kv.pool[IM__POOL_WINDOW].free_count <= most);
    }
    assert_int_equal(w.kv.pool[IM__POOL_FULL].free_count, w.pages[IM__POOL_FULL] - 63);
    end(&w);
}

static void more_than_there_is(void **state)
{
    (void)state;
    world w;
    begin(&w, 100, 64, 0);
    im__kv_seq *s = &w.seq[0];
    assert_int_equal(im__kv_seq_new(s, &w.kv, NULL), IM_OK);
    w.open[0] = true;
    assert_false(im__kv_reserve(&w.kv, s, 101));
    assert_false(im__kv_reserve(&w.kv, s, UINT32_MAX));
    grow(&w, 0, 99);
    assert_false(im__kv_reserve(&w.kv, s, 2));
    assert_true(im__kv_reserve(&w.kv, s, 1));
    im__kv_advance(&w.kv, s, 1);
    assert_false(im__kv_reserve(&w.kv, s, 1));
    /* An exhausted pool: refused, and what was taken on the way comes back with the sequence. */
    w.kv.pool[IM__POOL_FULL].free_count = 1;
    assert_int_equal(im__kv_seq_new(&w.seq[1], &w.kv, NULL), IM_OK);
    assert_false(im__kv_reserve(&w.kv, &w.seq[1], 100));
    im__kv_seq_free(&w.kv, &w.seq[1]);
    assert_int_equal(w.kv.pool[IM__POOL_FULL].free_count, 1);
    w.kv.pool[IM__POOL_FULL].free_count = w.pages[IM__POOL_FULL] - 2;
    end(&w);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    world w;
    im_error err;
    begin(&w, 1000, 64, 100);
    for (long n = 1; n <= 4; n++) {
        im__kv kv;
        im__alloc_fail_after(n);
        assert_int_equal(im__kv_new(&kv, &w.p, 1000, &w.sizes, &err), IM_ERR_MEMORY);
    }
    for (long n = 1; n <= 2; n++) {
        im__alloc_fail_after(n);
        assert_int_equal(im__kv_seq_new(&w.seq[0], &w.kv, &err), IM_ERR_MEMORY);
    }
    im__alloc_fail_after(0);
    end(&w);
}

static void check_sizes(im__kv_needs n, size_t full, size_t window, size_t cached_full, size_t cached_window)
{
    world w;
    im__kv_sizes s;
    begin(&w, 4096, 64, 100); /* pages of 2 KiB (full), 2 x 4 KiB (window) */
    assert_int_equal(im__kv_page_bytes(&w.p, IM__POOL_FULL), 2048);
    assert_int_equal(im__kv_page_bytes(&w.p, IM__POOL_WINDOW), 8192);
    im__kv_plan(&w.p, &n, &s);
    assert_int_equal(s.running[IM__POOL_FULL], full);
    assert_int_equal(s.running[IM__POOL_WINDOW], window);
    assert_int_equal(s.cached[IM__POOL_FULL], cached_full);
    assert_int_equal(s.cached[IM__POOL_WINDOW], cached_window);
    end(&w);
}

static void pools_are_as_large_as_needed(void **state)
{
    (void)state;
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4}, 256, 16, 0, 0);
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4, .tokens = 6401}, 101, 16, 0, 0);
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4, .tokens = 600}, 10, 10, 0, 0);
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4, .tokens = 1u << 30}, 256, 16, 0, 0);
    /* 64 pages of 2 KiB and 6 of 8 KiB for each conversation: 11 of the one kind for one of the other */
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4, .cache_bytes = (1760 << 10) + 1000}, 256, 16, 640, 60);
    check_sizes((im__kv_needs){.context = 4096, .chunk = 64, .sequences = 4, .cache_bytes = 1000}, 256, 16, 0, 0);
}

/* Whatever was in use before comes again first and needs no touch. */
static void pages_that_were_never_in_use(void **state)
{
    (void)state;
    static world w;
    begin(&w, 640, 64, 0);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 0), -1);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 2), 0);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 2), 1);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 2), -1);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_WINDOW, 2), -1); /* there are none */
    assert_int_equal(im__kv_seq_new(&w.seq[0], &w.kv, NULL), IM_OK);
    w.open[0] = true;
    assert_true(im__kv_reserve(&w.kv, &w.seq[0], 3 * IM__PAGE));
    assert_int_equal(w.seq[0].table[IM__POOL_FULL][2], 2);
    im__kv_advance(&w.kv, &w.seq[0], 3 * IM__PAGE);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 1), 3);
    im__kv_seq_free(&w.kv, &w.seq[0]);
    w.open[0] = false;
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 4), -1);
    for (int32_t page = 4; page < (int32_t)w.pages[IM__POOL_FULL]; page++)
        assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 1000), page);
    assert_int_equal(im__kv_next_untouched(&w.kv, IM__POOL_FULL, 1000), -1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_never_share_or_leak),
        cmocka_unit_test(windows_give_pages_back),
        cmocka_unit_test(more_than_there_is),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(pools_are_as_large_as_needed),
        cmocka_unit_test(pages_that_were_never_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
