/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU backend against the interpreter: whatever the program, the phases, the threads, the level, the cut into steps and the company in
 * them, every logit has the interpreter's bits.
 */
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/lower.h"
#include "model/model.h"
#include "ops/interpret.h"
#include "random_program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROGRAMS = 28, SEQUENCES = 3, MOST_POSITIONS = 150, MOST_ROWS = 48, PAGES = (MOST_POSITIONS + IM__PAGE - 1) / IM__PAGE };

/* What the interpreter says of every position of every sequence. */
typedef struct truth {
    const im__program *p;
    uint32_t length[SEQUENCES];
    int32_t token[SEQUENCES][MOST_POSITIONS];
    float *logits; /* [SEQUENCES][MOST_POSITIONS][vocab] */
} truth;

static float *logits_at(const truth *t, int s, uint32_t position)
{
    return t->logits + ((size_t)s * MOST_POSITIONS + position) * t->p->vocab;
}

static void interpret(truth *t, const im__program *p, uint32_t most, uint32_t *random)
{
    *t = (truth){.p = p, .logits = calloc((size_t)SEQUENCES * MOST_POSITIONS * p->vocab, sizeof(float))};
    assert_non_null(t->logits);
    for (int s = 0; s < SEQUENCES; s++) {
        im__interpreter *i = NULL;
        t->length[s] = 1 + random_below(random, most);
        assert_int_equal(im__interpreter_new(&i, p, t->length[s], NULL), IM_OK);
        for (uint32_t n = 0; n < t->length[s]; n++) {
            t->token[s][n] = (int32_t)random_below(random, p->vocab);
            im__interpret(i, t->token[s][n], logits_at(t, s, n));
        }
        im__interpreter_free(i);
    }
}

/* ---- the same through the backend ------------------------------------------------------------------------------------------------------- */

typedef struct player {
    const truth *t;
    im__backend *backend;
    uint32_t random, done[SEQUENCES];
    int32_t table[IM__POOLS][SEQUENCES][PAGES];
    im__row row[MOST_ROWS];
    im__seq_tables tables[SEQUENCES];
    int seq_of[MOST_ROWS]; /* of each row that wants logits */
    uint32_t position_of[MOST_ROWS];
    size_t rows, wanted;
    float *logits;
} player;

/* Pages in any order, none twice. */
static void deal_pages(player *w)
{
    for (int k = 0; k < IM__POOLS; k++) {
        int32_t deck[SEQUENCES * PAGES];
        for (int32_t i = 0; i < SEQUENCES * PAGES; i++) {
            int32_t j = (int32_t)random_below(&w->random, (uint32_t)i + 1);
            deck[i] = deck[j];
            deck[j] = i;
        }
        memcpy(w->table[k], deck, sizeof deck);
    }
}

static void add_rows(player *w, int s, uint32_t n, uint32_t seq)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = w->done[s]++;
        bool wants = random_below(&w->random, 3) == 0 || w->done[s] == w->t->length[s];
        w->row[w->rows++] = (im__row){w->t->token[s][position], (int32_t)position, seq, wants};
        if (!wants) continue;
        w->seq_of[w->wanted] = s;
        w->position_of[w->wanted++] = position;
    }
}

/* Some rows of some sequences, in any order of sequences. */
static uint32_t make_step(player *w)
{
    uint32_t members = 0, first = random_below(&w->random, SEQUENCES);
    w->rows = w->wanted = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        int s = (int)((first + i) % SEQUENCES);
        uint32_t left = w->t->length[s] - w->done[s], room = (uint32_t)(MOST_ROWS - w->rows);
        uint32_t most = random_below(&w->random, 2) == 0 ? 1 : 20, n = random_below(&w->random, most + 1);
        if (n > left) n = left;
        if (n > room) n = room;
        if (n == 0) continue;
        for (int k = 0; k < IM__POOLS; k++) w->tables[members].pages[k] = w->table[k][s];
        add_rows(w, s, n, members++);
    }
    return members;
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static bool finished(const player *w)
{
    for (int s = 0; s < SEQUENCES; s++)
        if (w->done[s] < w->t->length[s]) return false;
    return true;
}

static void play(const truth *t, const char *level, int threads, uint32_t seed)
{
    im__backend_options o = {.threads = threads,
                             .cpu_level = level,
                             .max_rows = MOST_ROWS,
                             .max_logit_rows = MOST_ROWS,
                             .pages = {SEQUENCES * PAGES, SEQUENCES * PAGES}};
    player w = {.t = t, .random = seed, .logits = calloc((size_t)MOST_ROWS * t->p->vocab, sizeof(float))};
    im_error err;
    if (im__backend_cpu_open(&w.backend, t->p, &o, &err) != IM_OK) fail_msg("%s", err.message);
    deal_pages(&w);
    while (!finished(&w)) {
        uint32_t members = make_step(&w);
        if (w.rows == 0) continue;
        im__step step = {.row = w.row, .rows = w.rows, .seq = w.tables, .seqs = members, .logits = w.logits};
        assert_int_equal(w.backend->run(w.backend, &step, &err), IM_OK);
        for (size_t i = 0; i < w.wanted; i++)
            if (!same(w.logits + i * t->p->vocab, logits_at(t, w.seq_of[i], w.position_of[i]), t->p->vocab))
                fail_msg("%s at level %s with %d threads: sequence %d, position %u", t->p->arch, level, threads, w.seq_of[i],
                         w.position_of[i]);
    }
    w.backend->close(w.backend);
    free(w.logits);
}

static void play_all(const im__program *p, uint32_t most, uint32_t seed)
{
    static const char *const levels[] = {"c", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"};
    truth t;
    interpret(&t, p, most, &seed);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        im__cpu_level level;
        if (im__cpu_level_parse(levels[l], &level) && im__cpu_has(level))
            play(&t, levels[l], 1 + (int)((seed + l) % 3), seed + (uint32_t)l);
    }
    free(t.logits);
}

static void random_programs(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < PROGRAMS; seed++) {
        im__program p;
        im_error err;
        random_program(&p, seed);
        if (im__program_check(&p, &err) != IM_OK) fail_msg("%s", err.message);
        play_all(&p, seed % 7 == 0 ? MOST_POSITIONS : 25, seed);
        random_program_clear(&p);
    }
}

static void a_model_file(void **state)
{
    (void)state;
    im__source *s = NULL;
    im__program p;
    assert_int_equal(im__source_open(&s, IM_TEST_DATA "/zoo/arch-tiny.gguf", NULL), IM_OK);
    assert_int_equal(im__program_read(s, &p, NULL), IM_OK);
    play_all(&p, 100, 1);
    im__program_clear(&p);
    im__source_close(s);
}

/* The numbers must be such that a difference would show. */
static void random_programs_are_lively(void **state)
{
    (void)state;
    int lively = 0;
    for (uint32_t seed = 0; seed < PROGRAMS; seed++) {
        im__program p;
        truth t;
        uint32_t random = seed;
        random_program(&p, seed);
        interpret(&t, &p, 4, &random);
        const float *first = logits_at(&t, 0, 0);
        bool finite = true, varied = false;
        for (uint32_t i = 0; i < p.vocab; i++) finite = finite && isfinite(first[i]), varied = varied || first[i] != first[0];
        lively += finite && varied;
        free(t.logits);
        random_program_clear(&p);
    }
    assert_true(lively > PROGRAMS * 5 / 6);
}

/* ---- phases ----------------------------------------------------------------------------------------------------------------------------- */

static void check_phases(const im__program *p)
{
    im__lowered l;
    size_t ops = 0;
    assert_int_equal(im__lower(p, &l, NULL), IM_OK);
    bool selected = false;
    for (size_t i = 0; i < l.phase_count; i++) {
        const im__phase *phase = &l.phase[i];
        assert_int_equal(phase->selected, selected);
        if (phase->kind != IM__PHASE_ROWS && phase->kind != IM__PHASE_MATMUL) assert_int_equal(phase->count, 1);
        for (size_t a = phase->first; a < phase->first + phase->count; a++) {
            const im__op *op = l.action[a].op;
            if (op == NULL) continue;
            assert_ptr_equal(op, &p->op[ops++]); /* in the order of the program */
            for (size_t b = phase->first; phase->kind == IM__PHASE_MATMUL && b < a; b++) {
                const im__op *before = l.action[b].op;
                assert_true(before->dst != op->src && before->dst != op->dst && before->src != op->dst);
            }
        }
        selected = selected || phase->kind == IM__PHASE_SELECT;
    }
    assert_int_equal(ops, p->op_count);
    im__lowered_clear(&l);
}

static void phases_keep_the_order(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 200; seed++) {
        im__program p;
        random_program(&p, seed);
        check_phases(&p);
        random_program_clear(&p);
    }
}

/* A layer of the usual shape: products of the same rows share a phase and one quantisation, narrow and wide ones together. */
static void a_layer_has_few_phases(void **state)
{
    (void)state;
    im__source *s = NULL;
    im__program p;
    im__lowered l;
    size_t matmuls = 0, quantised = 0, wide = 0;
    assert_int_equal(im__source_open(&s, IM_TEST_DATA "/zoo/arch-tiny.gguf", NULL), IM_OK);
    assert_int_equal(im__program_read(s, &p, NULL), IM_OK);
    assert_int_equal(im__lower(&p, &l, NULL), IM_OK);
    for (size_t i = 0; i < l.phase_count; i++) matmuls += l.phase[i].kind == IM__PHASE_MATMUL;
    for (size_t i = 0; i < l.action_count; i++) {
        quantised += l.action[i].op == NULL;
        wide += l.action[i].wide;
    }
    assert_int_equal(matmuls, 2 * 4 + 1); /* q k v, output, gate up, down; the head */
    assert_int_equal(quantised, 2 * 4 + 1);
    assert_int_equal(wide, 2 + 1); /* what k and v read, and the head */
    im__lowered_clear(&l);
    im__program_clear(&p);
    im__source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_are_lively), cmocka_unit_test(random_programs),        cmocka_unit_test(a_model_file),
        cmocka_unit_test(phases_keep_the_order),      cmocka_unit_test(a_layer_has_few_phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
