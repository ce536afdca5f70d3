/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache against a simple model of memory: every position of a page remembers which text was computed there. Whatever is shared, kept and evicted, a row
 * must see its own text, nothing leaks, nothing exceeds its limit.
 */
#include "base/mem.h"
#include "engine/prefix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 4, CONTEXT = 640, ENTRIES = CONTEXT / IM__PAGE, MOST_PAGES = 400 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef struct text {
    int32_t ids[CONTEXT];
    uint64_t until[CONTEXT]; /* identity of ids[0 .. i] */
    im__page_name name[ENTRIES];
} text;

typedef struct world {
    im__program p;
    im__kv_layer layer[2];
    im__kv kv;
    im__kv_sizes sizes;
    im__prefix *cache;
    im__kv_seq seq[SEQUENCES];
    bool open[SEQUENCES];
    text text[SEQUENCES];
    size_t end[SEQUENCES];  /* positions that may be taken */
    size_t most[SEQUENCES]; /* pages of them */
    uint64_t content[IM__POOLS][MOST_PAGES][IM__PAGE];
    uint32_t random, chunk;
    size_t taken, copied; /* pages, positions of others */
} world;

static void identify(text *t)
{
    uint64_t h = 1;
    for (size_t i = 0; i < CONTEXT; i++) t->until[i] = h = (h ^ (uint64_t)t->ids[i]) * 0x9e3779b97f4a7c15u + i + 1;
    im__page_names(t->ids, 0, ENTRIES, t->name);
}

/* Texts that often begin alike and part at page boundaries and in between. */
static void write_text(world *w, text *t)
{
    uint32_t branch = next_random(&w->random) % 3;
    for (size_t i = 0; i < CONTEXT; i++) {
        if (i % 32 == 0 && next_random(&w->random) % 6 == 0) branch = next_random(&w->random) % 3;
        t->ids[i] = (int32_t)(branch * 1000 + i % 7);
    }
    identify(t);
}

static void begin(world *w, uint32_t window, uint32_t chunk, uint64_t cache_bytes)
{
    memset(w, 0, sizeof *w);
    w->random = window + chunk + (uint32_t)cache_bytes;
    w->chunk = chunk;
    w->layer[0] = (im__kv_layer){.kv_heads = 1, .head_dim = 8};
    w->layer[1] = (im__kv_layer){.kv_heads = 1, .head_dim = 8, .window = window};
    w->p = (im__program){.kv = w->layer, .kv_count = 2};
    im__kv_plan(&w->p, &(im__kv_needs){.context = CONTEXT, .chunk = chunk, .sequences = SEQUENCES, .cache_bytes = cache_bytes},
                &w->sizes);
    assert_int_equal(im__kv_new(&w->kv, &w->p, CONTEXT, &w->sizes, NULL), IM_OK);
    assert_int_equal(im__prefix_new(&w->cache, &w->kv, &w->sizes, NULL), IM_OK);
    for (int k = 0; k < IM__POOLS; k++) assert_true(w->kv.pool[k].pages < MOST_PAGES);
}

/* What each sequence sees is its own text; pages are held by as many as have them; the rest is free or kept. */
static void check(const world *w)
{
    for (int k = 0; k < IM__POOLS; k++) {
        const im__kv_pool *pool = &w->kv.pool[k];
        uint32_t holders[MOST_PAGES] = {0};
        size_t held = 0;
        if (pool->pages == 0) continue;
        for (int s = 0; s < SEQUENCES; s++) {
            const im__kv_seq *seq = &w->seq[s];
            if (!w->open[s]) continue;
            for (size_t i = 0; i < ENTRIES; i++)
                if (seq->table[k][i] >= 0) holders[seq->table[k][i]]++;
            size_t first = k == IM__POOL_WINDOW && seq->length + 1 > w->kv.window ? seq->length + 1 - w->kv.window : 0;
            for (size_t i = first; i < seq->length; i++) {
                int32_t page = seq->table[k][i / IM__PAGE];
                assert_true(page >= 0 && w->content[k][page][i % IM__PAGE] == w->text[s].until[i]);
            }
        }
        for (size_t i = 0; i < pool->pages; i++) {
            assert_int_equal(holders[i], pool->holders[i]);
            held += holders[i] > 0;
        }
        size_t kept = pool->pages - pool->free_count - held;
        assert_true(kept <= w->sizes.cached[k]);
        if (k == IM__POOL_FULL) assert_int_equal(kept, im__prefix_idle(w->cache));
    }
}

static void compute(world *w, int s, uint32_t n)
{
    im__kv_seq *seq = &w->seq[s];
    if (n > CONTEXT - seq->length) n = CONTEXT - seq->length;
    assert_true(im__kv_reserve(&w->kv, seq, n)); /* whatever is kept, there is room */
    for (size_t i = seq->length; i < seq->length + n; i++)
        for (int k = 0; k < IM__POOLS; k++) {
            int32_t page = seq->table[k][i / IM__PAGE];
            if (w->kv.pool[k].pages == 0) continue;
            assert_int_equal(w->kv.pool[k].holders[page], 1); /* what others see is not written */
            w->content[k][page][i % IM__PAGE] = w->text[s].until[i];
        }
    im__prefix_name(w->cache, seq, (seq->length + n) / IM__PAGE, w->text[s].ids, w->text[s].name);
    im__kv_advance(&w->kv, seq, n);
}

static im__prefix_found look(world *w, int s)
{
    im__prefix_found found = im__prefix_attach(w->cache, &w->seq[s], w->text[s].ids, w->text[s].name, w->most[s]);
    assert_true(found.taken == w->seq[s].named && found.taken <= found.pages && found.pages <= w->most[s]);
    return found;
}

static im__prefix_part look_for_part(world *w, int s)
{
    im__kv_seq *seq = &w->seq[s];
    uint32_t before = seq->length;
    im__prefix_part part = im__prefix_attach_part(w->cache, seq, w->text[s].ids, w->end[s]);
    assert_true(seq->length == before + part.positions && seq->length <= w->end[s]);
    for (int k = 0; k < IM__POOLS; k++) {
        assert_true(part.from[k] < 0 || w->kv.pool[k].holders[part.to[k]] == 1);
        if (part.from[k] >= 0) memcpy(w->content[k][part.to[k]], w->content[k][part.from[k]], sizeof w->content[k][0]);
    }
    w->copied += part.positions;
    return part;
}

/* What a request does at the boundary of a page. */
static void attach(world *w, int s)
{
    const im__kv_seq *seq = &w->seq[s];
    if (seq->length % IM__PAGE == 0 && seq->named < w->most[s]) w->taken += look(w, s).taken;
    if (seq->length % IM__PAGE == 0 && seq->length < w->end[s]) look_for_part(w, s);
}

static void enter(world *w, int s)
{
    assert_int_equal(im__kv_seq_new(&w->seq[s], &w->kv, NULL), IM_OK);
    w->open[s] = true;
    attach(w, s);
}

static void leave(world *w, int s)
{
    im__prefix_end_of_turn(w->cache, &w->seq[s], w->seq[s].named * IM__PAGE);
    im__prefix_leave_tail(w->cache, &w->seq[s], w->text[s].ids);
    im__kv_seq_free(&w->kv, &w->seq[s]);
    w->open[s] = false;
}

static void end(world *w)
{
    for (int s = 0; s < SEQUENCES; s++)
        if (w->open[s]) im__kv_seq_free(&w->kv, &w->seq[s]);
    memset(w->open, 0, sizeof w->open);
    check(w);
    im__prefix_free(w->cache);
    im__kv_free(&w->kv);
}

static void act(world *w, int s)
{
    uint32_t what = next_random(&w->random) % 16;
    if (!w->open[s]) {
        write_text(w, &w->text[s]);
        w->end[s] = next_random(&w->random) % CONTEXT;
        w->most[s] = w->end[s] / IM__PAGE;
        enter(w, s);
    } else if (what == 0 || w->seq[s].length == CONTEXT) {
        leave(w, s);
    } else if (what < 8) {
        attach(w, s);
        compute(w, s, what < 4 ? w->chunk : 1 + next_random(&w->random) % w->chunk);
    } else {
        size_t left = IM__PAGE - w->seq[s].length % IM__PAGE;
        compute(w, s, left < w->chunk ? (uint32_t)left : w->chunk);
    }
}

static void rows_see_their_own_text(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 64, 65, 100, 200, 5000}, chunks[] = {1, 17, 64, 300};
    static const uint64_t bytes[] = {1, 10000, 60000, 400000};
    static world w;
    for (size_t i = 0; i < 7; i++)
        for (size_t j = 0; j < 4; j++)
            for (size_t k = 0; k < 4; k++) {
                begin(&w, windows[i], chunks[j], bytes[k]);
                for (int step = 0; step < 400; step++) {
                    act(&w, (int)(next_random(&w.random) % SEQUENCES));
                    check(&w);
                }
                if (bytes[k] == 400000 && chunks[j] >= 64) assert_true(w.taken > 20 && w.copied > 300);
                end(&w);
            }
}

/* Computes all of sequence s from where it stands. */
static void compute_to(world *w, int s, uint32_t end)
{
    while (w->seq[s].length < end) {
        uint32_t n = end - w->seq[s].length;
        compute(w, s, n < w->chunk ? n : w->chunk);
    }
}

/* The text of s is that of `like` up to position `same`. */
static void begin_like(world *w, int s, int like, size_t same, size_t most)
{
    w->text[s] = w->text[like];
    for (size_t i = same; i < CONTEXT; i++) w->text[s].ids[i] = 7000 + (int32_t)i;
    identify(&w->text[s]);
    w->most[s] = most;
    w->end[s] = most * IM__PAGE + IM__PAGE - 1;
    assert_int_equal(im__kv_seq_new(&w->seq[s], &w->kv, NULL), IM_OK);
    w->open[s] = true;
}

static void reasons_of_a_miss(void **state)
{
    (void)state;
    static world w;
    begin(&w, 0, 64, 400000);
    write_text(&w, &w.text[0]);
    begin_like(&w, 0, 0, CONTEXT, 9);
    im__prefix_found found = look(&w, 0);
    assert_true(found.taken == 0 && found.pages == 0 && found.miss == IM_MISS_NEW);
    compute_to(&w, 0, 600);
    leave(&w, 0);
    begin_like(&w, 1, 0, CONTEXT, 9);
    assert_int_equal(look(&w, 1).taken, 9);
    begin_like(&w, 2, 0, 5 * IM__PAGE + 63, 9);
    found = look(&w, 2);
    assert_true(found.taken == 5 && found.miss == IM_MISS_DIVERGED);
    begin_like(&w, 3, 0, 63, 9);
    found = look(&w, 3);
    assert_true(found.taken == 0 && found.miss == IM_MISS_NEW);
    end(&w);
    begin(&w, 0, 64, 2 * 2048); /* two pages */
    write_text(&w, &w.text[0]);
    begin_like(&w, 0, 0, CONTEXT, 9);
    compute_to(&w, 0, 600);
    leave(&w, 0);
    begin_like(&w, 1, 0, CONTEXT, 9);
    found = look(&w, 1);
    assert_true(found.taken == 1 && found.pages == 1 && found.miss == IM_MISS_EVICTED); /* half of the memory is for windows */
    end(&w);
}

/* Sequence s of length `end` leaves its text. */
static void leave_text(world *w, int s, int like, size_t same, uint32_t end)
{
    begin_like(w, s, like, same, 9);
    attach(w, s);
    compute_to(w, s, end);
    leave(w, s);
}

static void parts_of_pages(void **state)
{
    (void)state;
    static world w;
    for (uint32_t window = 0; window <= 100; window += 100) {
        begin(&w, window, 64, 400000);
        write_text(&w, &w.text[0]);
        leave_text(&w, 0, 0, CONTEXT, 150);
        assert_int_equal(im__prefix_idle(w.cache), 3);
        /* in a tail, as far as the text is known, the same, and allowed */
        begin_like(&w, 1, 0, CONTEXT, 9);
        assert_int_equal(look(&w, 1).taken, 2);
        assert_int_equal(look_for_part(&w, 1).positions, 22);
        check(&w);
        begin_like(&w, 2, 0, 140, 9);
        assert_int_equal(look(&w, 2).taken, 2);
        assert_int_equal(look_for_part(&w, 2).positions, 12);
        check(&w);
        compute_to(&w, 2, 320);
        check(&w);
        leave(&w, 2);
        begin_like(&w, 2, 0, CONTEXT, 2);
        w.end[2] = 2 * IM__PAGE + 9;
        assert_int_equal(look(&w, 2).taken, 2);
        assert_int_equal(look_for_part(&w, 2).positions, 9);
        leave(&w, 2);
        /* in the middle of a full page, also of the first one */
        begin_like(&w, 3, 0, IM__PAGE + 40, 9);
        assert_int_equal(look(&w, 3).taken, 1);
        assert_int_equal(look_for_part(&w, 3).positions, 40);
        compute_to(&w, 3, 200);
        check(&w);
        leave(&w, 3);
        begin_like(&w, 3, 0, 30, 9);
        assert_int_equal(look(&w, 3).taken, 0);
        assert_int_equal(look_for_part(&w, 3).positions, 30);
        leave(&w, 3);
        /* too little, and another text */
        begin_like(&w, 3, 0, IM__PART_LEAST - 1, 9);
        assert_int_equal(look_for_part(&w, 3).positions, 0);
        w.text[3] = w.text[0];
        w.text[3].ids[0]++;
        assert_int_equal(look_for_part(&w, 3).positions, 0);
        end(&w);
    }
}

/* A conversation: each tail makes room for what continues it, and one that says nothing new is not kept. */
static void tails_that_are_continued(void **state)
{
    (void)state;
    static world w;
    begin(&w, 100, 64, 400000);
    write_text(&w, &w.text[0]);
    static const uint32_t ends[] = {20, 50, 50, 30, 64, 70, 71, 100, 200}, kept[] = {1, 1, 1, 1, 1, 1, 1, 2, 4};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        begin_like(&w, 0, 0, CONTEXT, 9);
        w.end[0] = ends[i] - 1;
        w.most[0] = w.end[0] / IM__PAGE;
        attach(&w, 0);
        compute_to(&w, 0, ends[i]);
        leave(&w, 0);
        check(&w);
        assert_int_equal(im__prefix_idle(w.cache), kept[i]);
    }
    leave_text(&w, 1, 0, 195, 210); /* another end: both stay */
    assert_int_equal(im__prefix_idle(w.cache), 5);
    leave_text(&w, 1, 0, 195, 250);
    assert_int_equal(im__prefix_idle(w.cache), 5);
    begin_like(&w, 2, 1, CONTEXT, 9);
    look(&w, 2);
    assert_int_equal(look_for_part(&w, 2).positions, 250 - 192);
    begin_like(&w, 3, 0, CONTEXT, 9);
    look(&w, 3);
    assert_int_equal(look_for_part(&w, 3).positions, 8);
    end(&w);
}

/* What is used stays: the tail that was copied outlasts one that was left later. */
static void tails_go_by_last_use(void **state)
{
    (void)state;
    static world w;
    begin(&w, 0, 64, 2 * 3 * 2048); /* half of it is for windows, which this model has not: three pages */
    assert_int_equal(w.sizes.cached[IM__POOL_FULL], 3);
    for (int s = 0; s < 4; s++) {
        write_text(&w, &w.text[s]);
        for (size_t i = 0; i < CONTEXT; i++) w.text[s].ids[i] += 10000 * s;
        identify(&w.text[s]);
    }
    for (int s = 0; s < 3; s++) leave_text(&w, s, s, CONTEXT, 40);
    begin_like(&w, 0, 0, CONTEXT, 9);
    assert_int_equal(look_for_part(&w, 0).positions, 40);
    im__kv_seq_free(&w.kv, &w.seq[0]);
    w.open[0] = false;
    leave_text(&w, 3, 3, CONTEXT, 40); /* takes the room of text 1 */
    for (int s = 0; s < 4; s++) {
        begin_like(&w, s, s, CONTEXT, 9);
        assert_int_equal(look_for_part(&w, s).positions, s == 1 ? 0 : 40);
    }
    check(&w);
    end(&w);
}

/* Ends of turns stay although what was read later pushes older pages of windows out. */
static void windows_at_ends_of_turns_stay(void **state)
{
    (void)state;
    static world w;
    begin(&w, 100, 64, 20 * 2048);
    assert_int_equal(w.sizes.cached[IM__POOL_WINDOW], 7);
    write_text(&w, &w.text[0]);
    begin_like(&w, 0, 0, CONTEXT, 9);
    compute_to(&w, 0, 192);
    im__prefix_end_of_turn(w.cache, &w.seq[0], 192); /* pages 1 and 2, and page 0 for going on at 128 */
    compute_to(&w, 0, 600);
    leave(&w, 0);
    begin_like(&w, 3, 0, 0, 9);
    compute_to(&w, 3, 600);
    begin_like(&w, 1, 0, 192, 9);
    assert_int_equal(look(&w, 1).taken, 3);
    im__kv_seq_free(&w.kv, &w.seq[1]);
    begin_like(&w, 2, 0, 192, 2);
    assert_int_equal(look(&w, 2).taken, 2);
    begin_like(&w, 1, 0, CONTEXT, 9);
    assert_int_equal(look(&w, 1).taken, 9);
    assert_int_equal(look_for_part(&w, 1).positions, 600 - 576);
    end(&w);
}

static void windows_that_are_gone(void **state)
{
    (void)state;
    static world w;
    begin(&w, 100, 64, 28 * 2048);
    write_text(&w, &w.text[0]);
    begin_like(&w, 0, 0, CONTEXT, 9);
    compute_to(&w, 0, 600);
    leave(&w, 0);
    /* Another text takes the room of windows. */
    size_t pages = w.sizes.cached[IM__POOL_WINDOW];
    assert_true(pages >= 4 && pages < 14);
    begin_like(&w, 1, 0, 0, 9);
    compute_to(&w, 1, 600);
    leave(&w, 1);
    begin_like(&w, 2, 0, 4 * IM__PAGE, 9);
    im__prefix_found found = look(&w, 2);
    assert_true(found.pages == 4 && found.taken == 0 && found.miss == IM_MISS_WINDOW);
    compute_to(&w, 2, 300); /* and it puts them there again */
    im__prefix_end_of_turn(w.cache, &w.seq[2], 4 * IM__PAGE);
    leave(&w, 2);
    begin_like(&w, 3, 0, 4 * IM__PAGE, 9);
    assert_int_equal(look(&w, 3).taken, 4);
    check(&w);
    end(&w);
}

/* Two texts whose pages have the same names, as if the hash had collided. */
static void names_only_find(void **state)
{
    (void)state;
    static world w;
    begin(&w, 100, 64, 400000);
    write_text(&w, &w.text[0]);
    begin_like(&w, 0, 0, CONTEXT, 9);
    compute_to(&w, 0, 600);
    begin_like(&w, 1, 0, 3 * IM__PAGE, 9);
    memcpy(w.text[1].name, w.text[0].name, sizeof w.text[0].name);
    assert_int_equal(look(&w, 1).taken, 3);
    compute_to(&w, 1, 600);
    check(&w);
    /* The same ids behind another beginning. */
    begin_like(&w, 2, 0, CONTEXT, 9);
    w.text[2].ids[0]++;
    identify(&w.text[2]);
    memcpy(w.text[2].name, w.text[0].name, sizeof w.text[0].name);
    assert_int_equal(look(&w, 2).taken, 0);
    compute_to(&w, 2, 600);
    check(&w);
    end(&w);
}

static void a_name_is_the_whole_text(void **state)
{
    (void)state;
    static text t, u;
    for (size_t i = 0; i < CONTEXT; i++) t.ids[i] = (int32_t)i % 5;
    identify(&t);
    for (size_t i = 0; i < 200; i += 13) {
        u = t;
        u.ids[i] ^= 1;
        identify(&u);
        for (size_t k = 0; k < ENTRIES; k++)
            assert_int_equal(memcmp(&t.name[k], &u.name[k], sizeof t.name[k]) == 0, k < i / IM__PAGE);
    }
    u = t;
    im__page_names(u.ids, 3, 6, u.name); /* from where it was left */
    assert_memory_equal(u.name, t.name, sizeof u.name);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    static world w;
    im_error err;
    begin(&w, 100, 64, 100000);
    for (long n = 1; n <= 5; n++) {
        im__prefix *c = NULL;
        im__alloc_fail_after(n);
        assert_int_equal(im__prefix_new(&c, &w.kv, &w.sizes, &err), IM_ERR_MEMORY);
    }
    im__alloc_fail_after(0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_see_their_own_text),  cmocka_unit_test(reasons_of_a_miss),
        cmocka_unit_test(parts_of_pages),           cmocka_unit_test(tails_that_are_continued),
        cmocka_unit_test(tails_go_by_last_use),     cmocka_unit_test(windows_at_ends_of_turns_stay),
        cmocka_unit_test(windows_that_are_gone),    cmocka_unit_test(names_only_find),
        cmocka_unit_test(a_name_is_the_whole_text), cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
