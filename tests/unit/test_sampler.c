/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler: Philox against its published answers, the draw against a brute-force sampler that sorts everything, the frequencies against the
 * probabilities.
 */
#include "engine/logprob.h"
#include "engine/sampler.h"
#include "num/real.h"
#include "ops/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds) that belongs to the paper. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        im__philox4x32(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
    assert_int_equal(im__philox(0, 0), 0x6627e8d5);
}

/* Seed and token index go into key and counter, low words first. */
static void philox_words(void **state)
{
    (void)state;
    static const uint32_t counter[4] = {0x89abcdef, 0x01234567, 0, 0}, key[2] = {0x76543210, 0xfedcba98};
    uint32_t out[4];
    im__philox4x32(counter, key, out);
    assert_int_equal(im__philox(0xfedcba9876543210u, 0x0123456789abcdefu), out[0]);
}

/* ---- brute force -------------------------------------------------------------------------------------------------------------------- */

enum { MOST = 700 };

static int by_rank(const void *a, const void *b)
{
    const im__candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* What is left of the sorted candidates after each filter in turn. */
static size_t kept(const float *logits, size_t n, const im_sampling *s, im__candidate *sorted)
{
    float max = -INFINITY;
    double mass = 0, sum = 0;
    for (size_t i = 0; i < n; i++) max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < n; i++) sorted[i] = (im__candidate){im__exp((logits[i] - max) / s->temperature), (int32_t)i};
    qsort(sorted, n, sizeof *sorted, by_rank);
    while (n > 0 && sorted[n - 1].p == 0) n--;
    if (s->top_k > 0 && (size_t)s->top_k < n) n = (size_t)s->top_k;
    for (size_t i = 0; i < n; i++) mass += (double)sorted[i].p;
    size_t count = 0;
    while (count < n && (s->top_p >= 1 || sum < (double)s->top_p * mass)) sum += (double)sorted[count++].p;
    size_t all = count;
    for (count = 0; count < all && sorted[count].p >= s->min_p; count++) {
    }
    return count;
}

/* True when `id` is the one that the draw falls on; within 1e-9 of a border either side will do (sums may be rounded differently). */
static bool is_drawn(const im__candidate *sorted, size_t n, double u, int32_t id)
{
    double mass = 0, run = 0;
    for (size_t i = 0; i < n; i++) mass += (double)sorted[i].p;
    for (size_t i = 0; i < n; i++) {
        double before = run;
        run += (double)sorted[i].p;
        if (sorted[i].id == id) return before <= (u + 1e-9) * mass && run >= (u - 1e-9) * mass;
    }
    return false;
}

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-24f;
}

/* Logits with ties, far-away ones and some at minus infinity. */
static size_t make_logits(float *logits, uint32_t *state)
{
    size_t n = 1 + (size_t)(noise(state) * (MOST - 1));
    float spread = noise(state) * 20, step = noise(state) < 0.5f ? 1.0f : 0.001f;
    for (size_t i = 0; i < n; i++) {
        logits[i] = floorf(noise(state) * spread / step) * step;
        if (i > 0 && noise(state) < 0.05f) logits[i] = -INFINITY;
    }
    return n;
}

static im_sampling make_sampling(uint32_t *state)
{
    static const float temperature[] = {1, 0.7f, 2, 0.01f, 100}, top_p[] = {1, 0.95f, 0.5f, 1e-6f}, min_p[] = {0, 0, 0.05f, 0.9f};
    static const int32_t top_k[] = {0, 0, 1, 5, 40, MOST * 2};
    return (im_sampling){.temperature = temperature[(int)(noise(state) * 5)],
                         .top_k = top_k[(int)(noise(state) * 6)],
                         .top_p = top_p[(int)(noise(state) * 4)],
                         .min_p = min_p[(int)(noise(state) * 4)],
                         .seed = (uint64_t)(noise(state) * 1e9f)};
}

static void the_draw_is_that_of_a_full_sort(void **state)
{
    (void)state;
    static float logits[MOST];
    static im__candidate sorted[MOST], work[MOST];
    uint32_t random = 11;
    for (int i = 0; i < 4000; i++) {
        size_t n = make_logits(logits, &random);
        im_sampling s = make_sampling(&random);
        size_t count = kept(logits, n, &s, sorted);
        for (uint64_t index = 0; index < 4; index++) {
            double u = ((double)im__philox(s.seed, index) + 0.5) * 0x1p-32;
            int32_t id = im__sample(logits, n, &s, index, work);
            assert_true(is_drawn(sorted, count, u, id));
        }
    }
}

/* ---- frequencies ------------------------------------------------------------------------------------------------------------------------ */

/* Chi-square of `draws` draws against the probabilities; every id outside the expected ones must stay away. */
static double chi_square(const float *logits, size_t n, const im_sampling *s, const double *expected, int draws)
{
    static im__candidate work[MOST];
    static int seen[MOST];
    double chi = 0, total = 0;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < draws; i++) seen[im__sample(logits, n, s, (uint64_t)i, work)]++;
    for (size_t i = 0; i < n; i++) total += expected[i];
    for (size_t i = 0; i < n; i++) {
        double want = expected[i] / total * draws, off = seen[i] - want;
        if (want == 0)
            assert_int_equal(seen[i], 0);
        else
            chi += off * off / want;
    }
    return chi;
}

/* Critical values of chi-square at one in a hundred thousand; the seeds are fixed, so this fails always or never. */
static void frequencies_follow_the_probabilities(void **state)
{
    (void)state;
    static const float logits[8] = {1.0f, 2.0f, 0.5f, 2.0f, -1.0f, 3.0f, 0.0f, 1.5f};
    double p[8], top3[8] = {0};
    for (int seed = 1; seed <= 5; seed++) {
        im_sampling s = {.temperature = 1, .top_p = 1, .seed = (uint64_t)seed << 40 | 7};
        for (int i = 0; i < 8; i++) p[i] = exp((double)logits[i]);
        assert_true(chi_square(logits, 8, &s, p, 20000) < 35.3);
        s.temperature = 2.5f;
        for (int i = 0; i < 8; i++) p[i] = exp((double)logits[i] / 2.5);
        assert_true(chi_square(logits, 8, &s, p, 20000) < 35.3);
        s.top_k = 3;
        top3[1] = p[1], top3[3] = p[3], top3[5] = p[5];
        assert_true(chi_square(logits, 8, &s, top3, 20000) < 23.1);
    }
}

/* ---- edges -------------------------------------------------------------------------------------------------------------------------------- */

static void what_is_not_a_number(void **state)
{
    (void)state;
    static im__candidate work[4];
    im_sampling s = {.temperature = 1, .top_p = 1};
    const float nan_last[4] = {1, 2, 3, NAN}, nan_first[4] = {NAN, 2, 3, 1}, infinite[4] = {1, INFINITY, 2, 3},
                nothing[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, one[4] = {-INFINITY, -INFINITY, -3e38f, -INFINITY};
    assert_int_equal(im__sample(nan_last, 4, &s, 0, work), -1);
    assert_int_equal(im__sample(nan_first, 4, &s, 0, work), -1);
    assert_int_equal(im__sample(infinite, 4, &s, 0, work), -1);
    assert_int_equal(im__sample(nothing, 4, &s, 0, work), -1);
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(im__sample(one, 4, &s, i, work), 2);
}

static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    static im__candidate work[5];
    static const float logits[5] = {-1, 7, 3, 7, 7};
    im__ops ops;
    im__ops_c(&ops);
    assert_int_equal(ops.argmax(logits, 5), 1);
    for (uint64_t i = 0; i < 50; i++) {
        im_sampling one = {.temperature = 5, .top_k = 1, .top_p = 1}, small = {.temperature = 5, .top_p = 1e-6f};
        assert_int_equal(im__sample(logits, 5, &one, i, work), 1);
        assert_int_equal(im__sample(logits, 5, &small, i, work), 1);
        im_sampling cold = {.temperature = 1e-30f, .top_p = 1, .min_p = 0.5f};
        int32_t id = im__sample(logits, 5, &cold, i, work);
        assert_true(id == 1 || id == 3 || id == 4);
    }
}

/* ---- penalties and bias ---------------------------------------------------------------------------------------------------------------- */

static float edited(float x, size_t in_all, size_t in_answer, const im_sampling *s, int32_t id)
{
    if (in_all > 0 && x > 0)
        x /= s->repetition_penalty;
    else if (in_all > 0)
        x *= s->repetition_penalty;
    if (in_answer > 0) x -= (float)in_answer * s->frequency_penalty + s->presence_penalty;
    for (size_t i = 0; i < s->bias_count; i++)
        if (s->bias[i].id == id) x += s->bias[i].bias == -100 ? -INFINITY : s->bias[i].bias;
    return x;
}

static size_t occurrences(const int32_t *ids, size_t from, size_t to, int32_t id)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) n += ids[i] == id;
    return n;
}

static void edits_are_those_of_the_definition(void **state)
{
    (void)state;
    enum { N = 50, HISTORY = 80 };
    static const im_logit_bias bias[] = {{3, 1.5f}, {7, -100}, {3, 0.25f}, {49, 100}};
    static const float repetition[] = {1, 1.3f, 0.5f}, frequency[] = {0, 0.7f, -2}, presence[] = {0, 1.1f};
    float logits[N], out[N];
    int32_t ids[HISTORY];
    uint32_t mark[N] = {0}, random = 5;
    for (int i = 0; i < 18 * 4; i++) {
        im_sampling s = {.repetition_penalty = repetition[i % 3],
                         .frequency_penalty = frequency[i / 3 % 3],
                         .presence_penalty = presence[i / 9 % 2],
                         .bias = bias,
                         .bias_count = (size_t)(i / 18) % 2 * 4};
        im__history h = {.ids = ids, .prompt = (size_t)i % 30, .known = (size_t)(i % 30 + i % 50)};
        for (size_t k = 0; k < N; k++) logits[k] = (float)noise(&random) * 20 - 10;
        for (size_t k = 0; k < HISTORY; k++) ids[k] = (int32_t)(noise(&random) * N);
        assert_int_equal(im__sampling_edits(&s),
                         s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0 || s.bias_count > 0);
        im__logits_edit(out, logits, N, &s, &h, mark);
        for (int32_t id = 0; id < N; id++) {
            float want = edited(logits[id], occurrences(ids, 0, h.known, id), occurrences(ids, h.prompt, h.known, id), &s, id);
            assert_true(out[id] == want && mark[id] == 0);
        }
    }
}

/* Excluding a token does not hide that the model's numbers are broken. */
static void what_is_not_a_number_stays_so(void **state)
{
    (void)state;
    static const im_logit_bias bias[] = {{1, -100}};
    static const int32_t ids[] = {1, 1};
    float logits[] = {0, NAN, 2}, out[3];
    uint32_t mark[3] = {0};
    im_sampling s = {.repetition_penalty = 2, .presence_penalty = 1, .bias = bias, .bias_count = 1};
    im__logits_edit(out, logits, 3, &s, &(im__history){.ids = ids, .prompt = 1, .known = 2}, mark);
    assert_true(isnan(out[1]));
    logits[1] = 1e30f;
    im__logits_edit(out, logits, 3, &s, &(im__history){.ids = ids, .prompt = 1, .known = 2}, mark);
    assert_true(out[1] == -INFINITY && out[0] == 0 && out[2] == 2);
}

/* ---- the most likely ---------------------------------------------------------------------------------------------------------------------- */

static void the_top_is_that_of_a_full_sort(void **state)
{
    (void)state;
    enum { N = 60 };
    float logits[N];
    uint32_t random = 9;
    im_top_token top[IM__MOST_TOP];
    for (size_t n = 1; n <= N; n++) {
        for (size_t i = 0; i < n; i++) logits[i] = (float)(int)(noise(&random) * 12); /* with many equal ones */
        im__log_norm norm = im__log_norm_of(logits, n, 20);
        for (size_t most = 0; most <= IM__MOST_TOP; most++) {
            assert_int_equal(im__top_tokens(&norm, logits, n, most, top), most < n ? most : n);
            for (size_t k = 0; k < most && k < n; k++) {
                size_t before = 0;
                for (size_t i = 0; i < n; i++)
                    before += logits[i] > logits[top[k].id] || (logits[i] == logits[top[k].id] && (int32_t)i < top[k].id);
                assert_true(before == k && top[k].logprob == im__logprob(&norm, logits[top[k].id]));
            }
        }
    }
}

static bool accepted(float temperature, int32_t top_k, float top_p, float min_p)
{
    im_sampling s = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
    return im__sampling_check(&s, 100, NULL) == IM_OK;
}

static void parameters(void **state)
{
    (void)state;
    assert_true(accepted(0, 0, 1, 0) && accepted(100, INT32_MAX, 1e-9f, 0.99f));
    assert_false(accepted(-0.1f, 0, 1, 0) || accepted(100.1f, 0, 1, 0) || accepted(NAN, 0, 1, 0) || accepted(INFINITY, 0, 1, 0));
    assert_false(accepted(1, -1, 1, 0) || accepted(1, INT32_MIN, 1, 0));
    assert_false(accepted(1, 0, 0, 0) || accepted(1, 0, 1.01f, 0) || accepted(1, 0, NAN, 0) || accepted(1, 0, -1, 0));
    assert_false(accepted(1, 0, 1, 1) || accepted(1, 0, 1, -0.01f) || accepted(1, 0, 1, NAN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(philox_words),
        cmocka_unit_test(the_draw_is_that_of_a_full_sort),
        cmocka_unit_test(frequencies_follow_the_probabilities),
        cmocka_unit_test(what_is_not_a_number),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(edits_are_those_of_the_definition),
        cmocka_unit_test(what_is_not_a_number_stays_so),
        cmocka_unit_test(the_top_is_that_of_a_full_sort),
        cmocka_unit_test(parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
