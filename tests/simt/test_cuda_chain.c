/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA backend with the persistent decoder, both emulated: tokens that a step chooses one after the other are those of the interpreter, what they leave in the
 * cache gives its logits, and a decoder that loses itself in the middle is done without.
 */
#include "backend/backend.h"
#include "backend/cuda/kernels/matmul_many.h"
#include "decode_model.h"
#include "emulated_decoder.h"
#include "emulated_kernels.h"
#include "num/dtype.h"
#include "ops/interpret.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 300, CONTEXT = 192, CHAIN = 5, ROWS = 24, MOST_KERNELS = 512 };

typedef struct game {
    im__program p;
    im__backend *b;
    float logits[(CHAIN + 1) * VOCAB], expected[ROWS][VOCAB];
    int32_t choice[CHAIN + 1], token[ROWS + 1], position;
    uint32_t chained;
} game;

static const int32_t pages[] = {2, 0, 1};
static fake_kernel kernels[MOST_KERNELS];

/* What a device of 9.0 has beside, which nobody can emulate; rows that come alone do not meet it. */
#define SHAPE(form, shape) {"im_matmul_many_" #form "_" #shape, NULL, {0}},
#define FORM(form, number) IM__MANY_90_EACH_SHAPE(SHAPE, form)
static const fake_kernel beside[] = {IM__MANY_FORMS(FORM)};
enum { BESIDE = sizeof beside / sizeof *beside };

/* Before a backend takes the weights, whose memory it may give back. */
static void interpret(game *g)
{
    im__interpreter *judge;
    im_error err;
    im__ops ops;
    int changes = 0;
    im__ops_c(&ops);
    assert_int_equal(im__interpreter_new(&judge, &g->p, ROWS, &err), IM_OK);
    g->token[0] = 7;
    for (int i = 0; i < ROWS; i++) {
        im__interpret(judge, g->token[i], g->expected[i]);
        g->token[i + 1] = ops.argmax(g->expected[i], VOCAB);
    }
    im__interpreter_free(judge);
    for (int i = 0; i < ROWS; i++) changes += g->token[i] != g->token[i + 1];
    assert_true(changes > ROWS / 2); /* or it would not matter which token is fed */
}

/* The next row, and up to `chain` more. */
static void step(game *g, uint32_t chain, bool choice_only)
{
    im_error err;
    const im__row row = {g->token[g->position], g->position, 0, true};
    const im__seq_tables tables = {{pages, pages}};
    const im__step s = {.row = &row,
                        .rows = 1,
                        .seq = &tables,
                        .seqs = 1,
                        .logits = g->logits,
                        .choice = g->choice,
                        .choice_only = choice_only,
                        .chain = chain,
                        .chained = &g->chained};
    g->chained = 0;
    if (g->b->run(g->b, &s, &err) != IM_OK) fail_msg("position %d: %s", g->position, err.message);
    if (!choice_only) assert_memory_equal(g->logits, g->expected[g->position], VOCAB * sizeof(float));
    for (uint32_t i = 0; i <= g->chained; i++) assert_int_equal(g->choice[i], g->token[++g->position]);
    assert_true(g->position < ROWS);
}

static void open_game(game *g)
{
    const decode_dims d = {640, 4, 1, 2048, 2, VOCAB, 40, 2, IM__Q4_0, IM__Q4_0, false, 0, 0, 0, 0};
    size_t count;
    im_error err;
    const im__backend_options o = {
        .threads = 1, .max_rows = 8, .max_logit_rows = CHAIN + 1, .context = CONTEXT, .sequences = 1, .pages = {3, 3}};
    const fake_kernel *all = emulated_kernels(&count);
    assert_true(count + BESIDE < MOST_KERNELS);
    memcpy(kernels, all, count * sizeof *kernels);
    memcpy(kernels + count, beside, sizeof beside);
    kernels[count + BESIDE] = emulated_decoder;
    *g = (game){.chained = 0};
    decode_program(&g->p, &d, 12);
    interpret(g);
    emulated_decoder_lost = false;
    fake_driver_start(kernels, count + BESIDE + 1, (fake_device){90, 20, (size_t)1 << 30, 1});
    if (im__backend_cuda_open(&g->b, &g->p, &o, &err) != IM_OK) fail_msg("%s", err.message);
    assert_non_null(strstr(g->b->describe(g->b), "persistent decoder"));
}

static void close_game(game *g)
{
    g->b->close(g->b);
    assert_int_equal(fake_driver_live(), 0);
    fake_driver_stop();
    decode_program_clear(&g->p);
}

static void chains_are_the_tokens_one_by_one(void **state)
{
    game g;
    (void)state;
    open_game(&g);
    step(&g, 0, true);
    step(&g, 3, true);
    assert_int_equal(g.chained, 3);
    step(&g, 2, false); /* whoever wants logits gets one row */
    assert_int_equal(g.chained, 0);
    step(&g, 40, true); /* as many as there is room for */
    assert_int_equal(g.chained, CHAIN);
    step(&g, 1, true);
    assert_int_equal(g.chained, 1);
    step(&g, 0, false);
    close_game(&g);
}

static void a_lost_decoder_is_done_without(void **state)
{
    game g;
    (void)state;
    open_game(&g);
    step(&g, 3, true);
    assert_int_equal(g.chained, 3);
    emulated_decoder_lost = true;
    step(&g, 3, true); /* launches give the row, and only the row */
    assert_int_equal(g.chained, 0);
    step(&g, 3, false);
    step(&g, 3, true);
    assert_int_equal(g.chained, 0);
    close_game(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_the_tokens_one_by_one),
        cmocka_unit_test(a_lost_decoder_is_done_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
