/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder on the emulator: a few tokens of small models, several blocks alive at once, against the interpreter bit for bit. The cache is full of NaN
 * at first; models are chosen so that chunks, groups, windows, pages and tiles end unevenly.
 */
#include "simt_test.h"

#define IM__DECODE_FEW_SLOTS /* the ring turns often */
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

#define SMALL_4 384, 2, 1, 640, IM__CUDA_4_HALF, IM__CUDA_4_HALF
#define SMALL_5 384, 2, 2, 640, IM__CUDA_5_HALF, IM__CUDA_8_HALF
#define SMALL_K 512, 4, 2, 768, IM__CUDA_4_SUPER_MIN, IM__CUDA_6_SUPER_16
static const im__decode_shape shapes[] = {{"4", SMALL_4}, {"5", SMALL_5}, {"k", SMALL_K}};

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
    assert_true(rig_make(r, &p, shapes, 3, blocks, launches * tokens + 64, tokens, 0xff));
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
    const decode_dims d = {384, 2, 1, 640, 2, 200, 40, 2, IM__Q4_0, IM__Q4_0, false};
    run<shape<SMALL_4>>(d, 9, 2, 34, 0);
}
static void test_other_order(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 1, 640, 2, 300, 3, 2, IM__Q4_0, IM__Q4_0, false};
    run<shape<SMALL_4>>(d, 10, 1, 4, 1);
    run<shape<SMALL_4>>(d, 8, 2, 2, 12345);
}
static void test_5_bits(void **state)
{
    (void)state;
    const decode_dims d = {384, 2, 2, 640, 2, 333, 5, 3, IM__Q5_0, IM__Q8_0, false};
    run<shape<SMALL_5>>(d, 12, 1, 8, 0);
}
static void test_k(void **state)
{
    (void)state;
    const decode_dims d = {512, 4, 2, 768, 2, 512, 5, 2, IM__Q4_K, IM__Q6_K, false};
    run<shape<SMALL_K>>(d, 16, 1, 8, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_4_bits),
        cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_5_bits),
        cmocka_unit_test(test_k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
