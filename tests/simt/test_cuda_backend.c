/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend on a fake driver. With the emulated kernels: whatever the program and the cut into steps, every logit has the interpreter's bits. With kernels
 * that do nothing: whichever call of the driver fails, the error says so and nothing is left behind.
 */
#include "backend/backend.h"
#include "backend/cuda/cuda_check.h"
#include "emulated_kernels.h"
#include "ops/interpret.h"
#include "random_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROGRAMS = 24, SEQUENCES = 3, POSITIONS = 72, ROWS = 40, PAGES = (POSITIONS + IM__PAGE - 1) / IM__PAGE };

/* What the interpreter says of every position of every sequence, and how far the backend has come. */
typedef struct game {
    const im__program *p;
    uint32_t random, length[SEQUENCES], done[SEQUENCES];
    int32_t token[SEQUENCES][POSITIONS];
    float *truth; /* [SEQUENCES][POSITIONS][vocab] */
    int32_t table[IM__POOLS][SEQUENCES][PAGES];
    im__row row[ROWS];
    im__seq_tables tables[SEQUENCES];
    const float *expected[ROWS]; /* of each row that wants logits */
    int32_t choice[ROWS];
    float *logits;
    size_t rows, wanted, seqs;
} game;

static void interpret(game *g)
{
    g->truth = calloc((size_t)SEQUENCES * POSITIONS * g->p->vocab, sizeof(float));
    g->logits = calloc((size_t)ROWS * g->p->vocab, sizeof(float));
    assert_true(g->truth != NULL && g->logits != NULL);
    for (int s = 0; s < SEQUENCES; s++) {
        im__interpreter *i = NULL;
        g->length[s] = 1 + random_below(&g->random, POSITIONS);
        assert_int_equal(im__interpreter_new(&i, g->p, g->length[s], NULL), IM_OK);
        for (uint32_t n = 0; n < g->length[s]; n++) {
            g->token[s][n] = (int32_t)random_below(&g->random, g->p->vocab);
            im__interpret(i, g->token[s][n], g->truth + ((size_t)s * POSITIONS + n) * g->p->vocab);
        }
        im__interpreter_free(i);
    }
}

/* Pages in any order, none twice. */
static void deal_pages(game *g)
{
    for (int k = 0; k < IM__POOLS; k++) {
        int32_t deck[SEQUENCES * PAGES];
        for (int32_t i = 0; i < SEQUENCES * PAGES; i++) {
            int32_t j = (int32_t)random_below(&g->random, (uint32_t)i + 1);
            deck[i] = deck[j];
            deck[j] = i;
        }
        memcpy(g->table[k], deck, sizeof deck);
    }
}

static void add_rows(game *g, int s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = g->done[s]++;
        bool wants = random_below(&g->random, 3) == 0 || g->done[s] == g->length[s];
        g->row[g->rows++] = (im__row){g->token[s][position], (int32_t)position, (uint32_t)g->seqs, wants};
        if (wants) g->expected[g->wanted++] = g->truth + ((size_t)s * POSITIONS + position) * g->p->vocab;
    }
    for (int k = 0; k < IM__POOLS; k++) g->tables[g->seqs].pages[k] = g->table[k][s];
    g->seqs++;
}

/* Some rows of some sequences, in any order of sequences. */
static void make_step(game *g)
{
    uint32_t first = random_below(&g->random, SEQUENCES), most = random_below(&g->random, 2) == 0 ? 1 : 24;
    g->rows = g->wanted = g->seqs = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        int s = (int)((first + i) % SEQUENCES);
        uint32_t left = g->length[s] - g->done[s], room = (uint32_t)(ROWS - g->rows), n = 1 + random_below(&g->random, most);
        if (n > left) n = left;
        if (n > room) n = room;
        if (n > 0) add_rows(g, s, n);
    }
}

static bool finished(const game *g)
{
    for (int s = 0; s < SEQUENCES; s++)
        if (g->done[s] < g->length[s]) return false;
    return true;
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static im__backend_options options_of(void)
{
    return (im__backend_options){.threads = 2,
                                 .max_rows = ROWS,
                                 .max_logit_rows = ROWS,
                                 .context = POSITIONS,
                                 .sequences = SEQUENCES,
                                 .pages = {SEQUENCES * PAGES, SEQUENCES * PAGES}};
}

static void check_answer(const game *g, const im__backend *b, bool choice_only, unsigned seed)
{
    for (size_t i = 0; i < g->wanted; i++) {
        if (!choice_only && !same(g->logits + i * g->p->vocab, g->expected[i], g->p->vocab))
            fail_msg("program %u: logits of row %zu of %zu differ", seed, i, g->wanted);
        if (g->choice[i] != b->argmax(g->expected[i], g->p->vocab)) fail_msg("program %u: another token is chosen", seed);
    }
}

static void play(game *g, im__backend *b, unsigned seed)
{
    im_error err;
    deal_pages(g);
    memset(g->done, 0, sizeof g->done);
    while (!finished(g)) {
        make_step(g);
        bool choice_only = random_below(&g->random, 4) == 0;
        im__step step = {.row = g->row,
                         .rows = g->rows,
                         .seq = g->tables,
                         .seqs = g->seqs,
                         .logits = g->logits,
                         .choice = g->choice,
                         .choice_only = choice_only};
        if (b->run(b, &step, &err) != IM_OK) fail_msg("program %u: %s", seed, err.message);
        check_answer(g, b, choice_only, seed);
    }
}

static void play_program(unsigned seed, int capability)
{
    size_t count;
    const fake_kernel *kernels = emulated_kernels(&count);
    im__program p;
    im__backend *b;
    im_error err;
    im__memory_plan plan;
    im__backend_options o = options_of();
    random_program(&p, seed);
    game g = {.p = &p, .random = seed + 1};
    interpret(&g);
    fake_driver_start(kernels, count, (fake_device){capability, 3, (size_t)1 << 30, 1});
    if (im__backend_cuda_plan(&p, &o, &plan, &err) != IM_OK) fail_msg("program %u: %s", seed, err.message);
    assert_int_equal(fake_driver_live(), 0);
    if (im__backend_cuda_open(&b, &p, &o, &err) != IM_OK) fail_msg("program %u: %s", seed, err.message);
    play(&g, b, seed);

    b->close(b);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
    free(g.truth);
    free(g.logits);
    random_program_clear(&p);
}

static void every_program_has_the_bits_of_the_interpreter(void **state)
{
    (void)state;
    long replays = 0;
    for (unsigned seed = 0; seed < PROGRAMS; seed++) {
        play_program(seed, seed % 2 == 0 ? 100 : 75);
        replays += fake_driver_replays();
    }
    assert_true(replays > 0);
}

/* ---- failures ------------------------------------------------------------------------------------------------------------------------ */

/* Opens, computes some steps, closes. How it went; *steps: those that were computed. */
static im_status short_life(const im__program *p, int *steps, im_error *err)
{
    im__backend *b = NULL;
    im__backend_options o = options_of();
    const int32_t pages[PAGES] = {0, 1};
    const im__seq_tables tables = {{pages, pages}};
    float *logits = calloc(p->vocab, sizeof *logits);
    char *page = calloc(1, im__kv_page_bytes(p, IM__POOL_FULL) + 1);
    assert_true(logits != NULL && page != NULL);
    *steps = 0;
    im_status status = im__backend_cuda_open(&b, p, &o, err);
    for (int i = 0; i < 4 && status == IM_OK; i++) {
        im__row row = {.token = 1, .position = i, .wants_logits = true};
        int32_t choice;
        im__step step = {.row = &row, .rows = 1, .seq = &tables, .seqs = 1, .logits = logits, .choice = &choice};
        bool moved = i != 2 || (b->page_read(b, IM__POOL_FULL, 0, page) && b->page_write(b, IM__POOL_FULL, 1, page));
        if (i == 1) b->page_copy(b, IM__POOL_FULL, 0, 1);
        status = b->run(b, &step, err);
        assert_true(moved || status == IM_ERR_DEVICE); /* a page that could not be moved ends it */
        if (status == IM_OK) ++*steps;
        im_error again;
        if (status != IM_OK) assert_int_equal(b->run(b, &step, &again), IM_ERR_DEVICE);
    }
    if (b != NULL) b->close(b);
    free(logits);
    free(page);
    return status;
}

static void a_call_that_fails_is_an_error_and_nothing_is_left(void **state)
{
    (void)state;
    const fake_device device = {90, 3, (size_t)1 << 30, 1};
    const im__cuda_result results[] = {IM__CUDA_ERROR_ILLEGAL_ADDRESS, IM__CUDA_ERROR_OUT_OF_MEMORY};
    im__program p;
    random_program(&p, 3);
    int steps;
    im_error err = {IM_OK, ""};
    fake_driver_start(NULL, 0, device);
    if (short_life(&p, &steps, &err) != IM_OK) fail_msg("%s", err.message);
    assert_int_equal(steps, 4);
    long calls = fake_driver_calls(), failures = 0;
    for (size_t r = 0; r < 2; r++)
        for (long n = 1; n <= calls + 4; n++) {
            fake_driver_start(NULL, 0, device);
            fake_driver_fail(n, results[r]);
            err = (im_error){IM_OK, ""};
            im_status status = short_life(&p, &steps, &err);
            if (fake_driver_live() != 0) fail_msg("call %ld: %ld things are left: %s", n, fake_driver_live(), err.message);
            if (status == IM_OK) continue;
            failures++;
            if (status != IM_ERR_DEVICE && status != IM_ERR_MEMORY && status != IM_ERR_UNSUPPORTED)
                fail_msg("call %ld: %d %s", n, (int)status, err.message);
            assert_int_equal(err.status, status);
            assert_true(strlen(err.message) > 20);
        }
    assert_true(failures > calls);
    fake_driver_stop();
    random_program_clear(&p);
}

static void expect(const im__program *p, const im__backend_options *o, im_status status, const char *text)
{
    im__backend *b;
    im_error err;
    assert_int_equal(im__backend_cuda_open(&b, p, o, &err), status);
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.message, text);
    assert_int_equal(fake_driver_live(), 0);
}

static void what_cannot_be_served_is_said(void **state)
{
    (void)state;
    const fake_kernel none = {"im_none", NULL, {0}};
    im__program p;
    random_program(&p, 3);
    im__backend_options o = options_of();
    fake_driver_start(NULL, 0, (fake_device){90, 3, 1 << 20, 1});
    expect(&p, &o, IM_ERR_MEMORY, "MiB are needed");
    fake_driver_start(NULL, 0, (fake_device){61, 3, (size_t)1 << 30, 1});
    expect(&p, &o, IM_ERR_UNSUPPORTED, "capability 6.1");
    fake_driver_start(NULL, 0, (fake_device){90, 3, (size_t)1 << 30, 0});
    expect(&p, &o, IM_ERR_UNSUPPORTED, "no CUDA device");
    fake_driver_start(&none, 1, (fake_device){90, 3, (size_t)1 << 30, 1});
    expect(&p, &o, IM_ERR_UNSUPPORTED, "no kernel im_rows");
    fake_driver_start(NULL, 0, (fake_device){90, 3, (size_t)1 << 30, 2});
    o.device = 2;
    expect(&p, &o, IM_ERR_ARGUMENT, "no CUDA device 2; this machine has 2");
    o = options_of();
    o.context = (size_t)1 << 40;
    expect(&p, &o, IM_ERR_MEMORY, "");
    o = options_of();
    p.matrix[0].w.dtype = IM__AFFINE4_F;
    expect(&p, &o, IM_ERR_UNSUPPORTED, "matrix0: the CUDA kernels do not take AFFINE4_F");
    fake_driver_stop();
    random_program_clear(&p);
}

static void a_step_beyond_its_plan_is_refused(void **state)
{
    (void)state;
    im__program p;
    im__backend *b;
    im_error err;
    im__backend_options o = options_of();
    float logits[128];
    const int32_t pages[64] = {0};
    const im__seq_tables tables = {{pages, pages}};
    im__row row = {.token = 1, .position = 64 * IM__PAGE - 1, .wants_logits = true};
    im__step step = {.row = &row, .rows = 1, .seq = &tables, .seqs = 1, .logits = logits};
    random_program(&p, 3);
    fake_driver_start(NULL, 0, (fake_device){90, 3, (size_t)1 << 30, 1});
    assert_int_equal(im__backend_cuda_open(&b, &p, &o, &err), IM_OK);
    assert_int_equal(b->run(b, &step, &err), IM_ERR_INTERNAL);
    row = (im__row){.token = (int32_t)p.vocab, .position = 0};
    assert_int_equal(b->run(b, &step, &err), IM_ERR_INTERNAL);
    row = (im__row){.token = 1, .position = 0, .wants_logits = true};
    assert_int_equal(b->run(b, &step, &err), IM_OK);
    b->close(b);
    fake_driver_stop();
    random_program_clear(&p);
}

/* A program with layers of both kinds. */
static void program_of_two_pools(im__program *p)
{
    for (unsigned seed = 0;; seed++) {
        random_program(p, seed);
        if (im__kv_page_bytes(p, IM__POOL_FULL) > 0 && im__kv_page_bytes(p, IM__POOL_WINDOW) > 0) return;
        random_program_clear(p);
    }
}

static void all_sequences_may_be_at_their_end(void **state)
{
    (void)state;
    enum { ALL = 16, LONG = 5 };
    im__program p;
    im__backend *b;
    im_error err;
    int32_t pages[ALL][LONG], choice[ALL];
    im__seq_tables tables[ALL];
    im__row row[ALL];
    program_of_two_pools(&p);
    im__backend_options o = {.threads = 1,
                             .max_rows = ALL,
                             .max_logit_rows = ALL,
                             .context = LONG * IM__PAGE,
                             .sequences = ALL,
                             .pages = {ALL * LONG, ALL * LONG}};
    for (int i = 0; i < ALL; i++) {
        for (int k = 0; k < LONG; k++) pages[i][k] = i * LONG + k;
        tables[i] = (im__seq_tables){{pages[i], pages[i]}};
        row[i] = (im__row){.token = 1, .position = LONG * IM__PAGE - 1, .seq = (uint32_t)i, .wants_logits = true};
    }
    im__step step = {.row = row, .rows = ALL, .seq = tables, .seqs = ALL, .choice = choice, .choice_only = true};
    fake_driver_start(NULL, 0, (fake_device){90, 3, (size_t)1 << 30, 1});
    if (im__backend_cuda_open(&b, &p, &o, &err) != IM_OK) fail_msg("%s", err.message);
    if (b->run(b, &step, &err) != IM_OK) fail_msg("%s", err.message);
    b->close(b);
    fake_driver_stop();
    random_program_clear(&p);
}

/* Whoever gets a page after it was copied writes it from another thread, with another stream. */
static void a_copied_page_may_be_written_at_once(void **state)
{
    (void)state;
    im__program p;
    im__backend *b;
    im_error err;
    im__backend_options o = options_of();
    program_of_two_pools(&p);
    fake_driver_start(NULL, 0, (fake_device){90, 3, (size_t)1 << 30, 1});
    if (im__backend_cuda_open(&b, &p, &o, &err) != IM_OK) fail_msg("%s", err.message);
    for (int k = 0; k < IM__POOLS; k++) {
        size_t bytes = im__kv_page_bytes(&p, (im__pool_kind)k);
        char *first = calloc(1, bytes), *second = calloc(1, bytes), *got = calloc(1, bytes);
        assert_true(first != NULL && second != NULL && got != NULL);
        memset(first, 1, bytes);
        memset(second, 2, bytes);
        assert_true(b->page_write(b, (im__pool_kind)k, 0, first));
        b->page_copy(b, (im__pool_kind)k, 0, 1);
        assert_true(b->page_write(b, (im__pool_kind)k, 0, second));
        assert_true(b->page_read(b, (im__pool_kind)k, 1, got));
        assert_memory_equal(got, first, bytes);
        free(first);
        free(second);
        free(got);
    }
    b->close(b);
    fake_driver_stop();
    random_program_clear(&p);
}

static void the_self_check_passes_and_can_fail(void **state)
{
    (void)state;
    size_t count, checked = 0;
    im_error err;
    const fake_kernel *kernels = emulated_kernels(&count);
    fake_driver_start(kernels, count, (fake_device){86, 3, (size_t)1 << 30, 1});
    if (im__cuda_self_check(0, &checked, &err) != IM_OK) fail_msg("%s", err.message);
    assert_true(checked > 1000);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_start(NULL, 0, (fake_device){86, 3, (size_t)1 << 30, 1}); /* kernels that do nothing */
    assert_int_equal(im__cuda_self_check(0, &checked, &err), IM_ERR_INTERNAL);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sequences_may_be_at_their_end),
        cmocka_unit_test(a_copied_page_may_be_written_at_once),
        cmocka_unit_test(every_program_has_the_bits_of_the_interpreter),
        cmocka_unit_test(a_call_that_fails_is_an_error_and_nothing_is_left),
        cmocka_unit_test(what_cannot_be_served_is_said),
        cmocka_unit_test(a_step_beyond_its_plan_is_refused),
        cmocka_unit_test(the_self_check_passes_and_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
