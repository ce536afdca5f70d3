/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder on the emulator: a few tokens of small models, several blocks alive at once, against the interpreter bit for bit. The cache is full of NaN
 * at first; models are chosen so that chunks, groups, windows, pages and tiles end unevenly.
 */
#include "simt_test.h"

#define IM__DECODE_EARLY /* the ring turns often, two blocks of keys are many */
#include "backend/cuda/kernels/decode_step.cuh"
#include <cstdint>

static void *rig_take(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 128, bytes + 128) != 0) abort();
    memset(p, 0, bytes + 128);
    return p;
}
static void rig_put(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void rig_give(void *memory) { free(memory); }

#include "decode_rig.h"

extern "C" {
#include "num/dtype.h"
#include "ops/interpret.h"
}

#define SAME(form) IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form
#define SMALL_4 384, 2, 1, 640, SAME(4_HALF), IM__CUDA_4_HALF
#define SMALL_5 384, 2, 2, 640, SAME(5_HALF), IM__CUDA_8_HALF
#define SMALL_K 512, 4, 2, 2304, SAME(4_SUPER_MIN), IM__CUDA_6_SUPER_16
#define SMALL_MIX                                                                                                                  \
    384, 2, 1, 768, IM__CUDA_5_HALF, IM__CUDA_8_HALF, IM__CUDA_4_SUPER_MIN, IM__CUDA_4_SUPER_MIN, IM__CUDA_6_SUPER_16,             \
        IM__CUDA_8_HALF
#define SMALL_MIX_K                                                                                                                \
    512, 4, 2, 768, IM__CUDA_4_SUPER_MIN, IM__CUDA_6_SUPER_16, IM__CUDA_4_SUPER_MIN, IM__CUDA_4_SUPER_MIN, IM__CUDA_6_SUPER_16,    \
        IM__CUDA_6_SUPER_16
static const im__decode_shape shapes[] = {
    {"4", SMALL_4}, {"5", SMALL_5}, {"k", SMALL_K}, {"mix", SMALL_MIX}, {"mix k", SMALL_MIX_K}};

static void compare(decode_rig &r, const float *expected, uint32_t t)
{
    const float *got = r.args.logits + (size_t)t * r.args.vocab;
    for (uint32_t i = 0; i < r.args.vocab; i++)
        if (memcmp(&got[i], &expected[i], 4) != 0)
            fail_msg("token %u, logit %u: %.9g, expected %.9g", t, i, (double)got[i], (double)expected[i]);
}

static int32_t best_of(const float *logits, uint32_t n)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = (int32_t)i;
    return best;
}

/* `launches` launches of `tokens` tokens from position 0 on. */
template <class S> static void run(const decode_dims &d, uint32_t blocks, uint32_t launches, uint32_t tokens, unsigned order)
{
    im__program p;
    decode_rig r;
    im__interpreter *judge;
    im_error err;
    decode_program(&p, &d, 7);
    assert_int_equal(im__program_check(&p, &err), IM_OK);
    assert_true(rig_make(r, &p, shapes, sizeof shapes / sizeof *shapes, blocks, launches * tokens + 64, tokens, 0xff));
    assert_int_equal(im__interpreter_new(&judge, &p, launches * tokens + 64, &err), IM_OK);
    std::vector<float> expected(d.vocab);
    int32_t token = 5;
    simt_order = order;
    for (uint32_t n = 0; n < launches; n++) {
        rig_aim(r, token, (int)(n * tokens), tokens, true);
        simt_launch_together(dim3(r.plan.blocks), dim3(IM__DECODE_THREADS), S::BYTES, [&] { decode<S>(r.args); });
        assert_int_equal(*r.args.failed, 0);
        for (uint32_t t = 0; t < tokens; t++) {
            im__interpret(judge, token, expected.data());
            compare(r, expected.data(), t);
            token = best_of(expected.data(), d.vocab);
            assert_int_equal(r.args.chosen[t], token);
        }
        rig_launched(r);
    }
    im__interpreter_free(judge);
    rig_clear(r);
    decode_program_clear(&p);
}

static void test_4_bits(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 1, 640, 2, 200, 40, 2, IM__Q4_0, IM__Q4_0, false, 0, 0, 0, 0};
    run<shape<SMALL_4>>(d, 9, 2, 34, 0);
}
static void test_other_order(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 1, 640, 2, 300, 3, 2, IM__Q4_0, IM__Q4_0, false, 0, 0, 0, 0};
    run<shape<SMALL_4>>(d, 10, 1, 4, 1);
    run<shape<SMALL_4>>(d, 8, 2, 2, 12345);
}
static void test_5_bits(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 2, 640, 2, 333, 5, 3, IM__Q5_0, IM__Q8_0, false, 0, 0, 0, 0};
    run<shape<SMALL_5>>(d, 12, 1, 8, 0);
}
static void test_k(void **state)
{
    (void)state;
    const decode_dims d = {512, 4, 2, 2304, 2, 512, 5, 2, IM__Q4_K, IM__Q6_K, false, 0, 0, 0, 0};
    run<shape<SMALL_K>>(d, 20, 1, 8, 0);
}

/* What K files are made of: values and the down product have another type in some layers. */
static void test_mixed(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 1, 768, 4, 333, 5, 3, IM__Q5_0, IM__Q8_0, false, IM__Q8_0, IM__Q4_K, IM__Q4_K, IM__Q6_K};
    run<shape<SMALL_MIX>>(d, 12, 1, 3, 0);
    const decode_dims k = {512, 4, 2, 768, 2, 333, 5, 2, IM__Q4_K, IM__Q6_K, false, IM__Q6_K, IM__Q4_K, IM__Q4_K, IM__Q6_K};
    run<shape<SMALL_MIX_K>>(k, 16, 1, 3, 0);
}

/* ---- merging at any depth ---- */

/* All groups of the heads of a row, from parts that are there already. */
template <class S> static void merge_alone(const im__decode_args &a, float *out)
{
    block<S> b = {a, 0, 0, thread_id(), 0, 0};
    block_begin(b);
    if (b.me >= WORKERS) return;
    layer_store_at(b, 0, layer_word_of(b, 0));
    sync_all(b);
    const sight s = sight_of(b);
    for (int n = (int)block_id(); n < S::HEADS * HEAD_GROUPS; n += (int)block_count()) {
        sync_all(b);
        const float x = merge_group(b, s, n / HEAD_GROUPS, n % HEAD_GROUPS);
        if (b.me < 32) out[n * 32 + b.me] = x;
    }
}

struct state {
    float m, l, o;
};
static void join_state(state &all, const state &s)
{
    const float m = s.m > all.m ? s.m : all.m, alpha = im__exp(all.m - m), beta = im__exp(s.m - m);
    all = {m, fmaf(all.l, alpha, s.l * beta), fmaf(all.o, alpha, s.o * beta)};
}

static float drawn(uint32_t &random, float low, float high)
{
    random = random * 1664525u + 1013904223u;
    return low + (high - low) * (float)(random >> 8) * 0x1p-24f;
}

/* `part`: [block][head][258] values without tags. */
static float merged_plainly(const std::vector<float> &part, int heads, int head, int dimension, int first, int blocks)
{
    const state nothing = {-INFINITY, 0, 0};
    state all = nothing, span = nothing;
    for (int k = 0; k < blocks; k++) {
        const float *x = &part[(size_t)(k * heads + head) * IM__DECODE_PART_PACKETS];
        join_state(span, {x[256], x[257], x[dimension]});
        if ((first + k + 1) % 16 != 0 && k + 1 < blocks) continue;
        join_state(all, span);
        span = nothing;
    }
    return all.o / all.l;
}

template <class S> static void merge_at(int position, uint32_t window, uint32_t blocks)
{
    const int low = window != 0 && position >= (int)window ? position + 1 - (int)window : 0, first = low / 64,
              count = position / 64 - first + 1;
    im__decode_layer layer = {};
    std::vector<im__decode_share> share(blocks);
    im__decode_args a = {};
    layer.window = window;
    a.layer = &layer, a.share = share.data(), a.layers = 1, a.tokens = 1, a.position = position, a.tag = IM__DECODE_TAGS;
    a.most_items = (uint32_t)(count * S::HEADS);
    std::vector<float> part((size_t)a.most_items * IM__DECODE_PART_PACKETS), out(S::HEADS * 256, 0.0f);
    std::vector<uint64_t> packets(part.size() * 2);
    uint32_t random = 7, failed = 0;
    for (size_t i = 0; i < part.size(); i++) {
        const size_t k = i % IM__DECODE_PART_PACKETS;
        part[i] = k == 256 ? drawn(random, -20, 20) : k == 257 ? drawn(random, 1, 64) : drawn(random, -30, 30);
        packets[i] = (uint64_t)a.tag << 32 | __float_as_uint(part[i]);
    }
    a.part = packets.data(), a.failed = &failed;
    simt_launch_together(dim3(blocks), dim3(IM__DECODE_THREADS), S::BYTES, [&] { merge_alone<S>(a, out.data()); });
    assert_int_equal(failed, 0);
    for (int i = 0; i < S::HEADS * 256; i++) {
        const float expected = merged_plainly(part, S::HEADS, i / 256, i % 256, first, count);
        if (memcmp(&out[i], &expected, 4) != 0)
            fail_msg("position %d, value %d: %.9g, expected %.9g", position, i, (double)out[i], (double)expected);
    }
}

static void test_merging(void **)
{
    static const int positions[] = {0, 63, 700, 1023, 1024, 5000, 16383, 16384, 33000, 70001};
    for (int position : positions) merge_at<shape<SMALL_K>>(position, 0, 3);
    for (int position : positions) merge_at<shape<SMALL_4>>(position, 1024, 5);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_4_bits), cmocka_unit_test(test_other_order), cmocka_unit_test(test_5_bits),
        cmocka_unit_test(test_k),      cmocka_unit_test(test_mixed),       cmocka_unit_test(test_merging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
