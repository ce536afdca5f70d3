/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator itself: barriers, collectives, shared memory, blocks that wait for each other; and that each fault it promises to see stops the program.
 */
#include "simt.h"
#include "simt_test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void sum_kernel(const float *x, float *sums)
{
    typedef float row_of_1024[1024];
    IM__SHARED(row_of_1024, part);
    IM__DYNAMIC(float, more);
    unsigned t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned h = blockDim.x / 2; h >= 32; h /= 2) {
        if (t < h) part[t] += part[t + h];
        __syncthreads();
    }
    if (t < 32) {
        float s = part[t];
        for (int by = 16; by > 0; by /= 2) s += __shfl_xor_sync(~0u, s, by);
        more[t] = s;
        if (t == 0) sums[blockIdx.x] = more[0];
    }
}

static void sums_of_blocks(void **)
{
    enum { BLOCKS = 3, THREADS = 1024 };
    static float x[BLOCKS * THREADS], sums[BLOCKS];
    for (int i = 0; i < BLOCKS * THREADS; i++) x[i] = (float)(i % 7);
    for (simt_order = 0; simt_order < 4; simt_order++) {
        memset(sums, 0, sizeof sums);
        simt_launch(dim3(BLOCKS), dim3(THREADS), 128, [&] { sum_kernel(x, sums); });
        for (int b = 0; b < BLOCKS; b++) {
            float want = 0;
            for (int i = 0; i < THREADS; i++) want += x[b * THREADS + i];
            assert_true(sums[b] == want);
        }
    }
    simt_order = 0;
}

static void collectives(void **)
{
    static unsigned got[64][6];
    simt_launch(dim3(1), dim3(64), 0, [&] {
        unsigned t = threadIdx.x, l = t % 32;
        got[t][0] = __shfl_sync(~0u, t, 5);
        got[t][1] = __shfl_up_sync(~0u, t, 3);
        got[t][2] = __shfl_down_sync(~0u, t, 2, 8);
        got[t][3] = __ballot_sync(~0u, t % 3 == 0);
        if (l < 8)
            got[t][4] = __reduce_add_sync(0xffu, t); /* part of a warp */
        else
            got[t][4] = __reduce_max_sync(~0xffu, t);
        got[t][5] = __shfl_xor_sync(~0u, t, 4, 8);
    });
    for (unsigned t = 0; t < 64; t++) {
        unsigned l = t % 32, w = t - l, ballot = 0;
        for (unsigned i = 0; i < 32; i++) ballot |= (unsigned)((w + i) % 3 == 0) << i;
        assert_int_equal(got[t][0], w + 5);
        assert_int_equal(got[t][1], l < 3 ? t : t - 3);
        assert_int_equal(got[t][2], t % 8 < 6 ? t + 2 : t);
        assert_int_equal(got[t][3], ballot);
        assert_int_equal(got[t][4], l < 8 ? 8 * w + 28 : w + 31);
        assert_int_equal(got[t][5], t ^ 4);
    }
}

static void blocks_that_wait(void **)
{
    enum { BLOCKS = 5, TURNS = 20 };
    static unsigned arrived, seen[BLOCKS];
    arrived = 0;
    simt_launch_together(dim3(BLOCKS), dim3(32), 0, [&] {
        for (unsigned turn = 1; turn <= TURNS; turn++) {
            if (threadIdx.x == 0) {
                atomicAdd(&arrived, 1u);
                while (*(volatile unsigned *)&arrived < turn * BLOCKS) simt_yield();
            }
            __syncthreads();
        }
        seen[blockIdx.x] = arrived;
    });
    for (int b = 0; b < BLOCKS; b++) assert_true(seen[b] >= BLOCKS * TURNS);
}

static void named_barriers(void **)
{
    static int got[64];
    simt_launch(dim3(1), dim3(64), 0, [&] {
        typedef int row_of_32[32];
        IM__SHARED(row_of_32, box);
        if (threadIdx.x < 32) {
            box[threadIdx.x] = (int)threadIdx.x * 3;
            simt_bar_arrive(1, 64);
        } else {
            simt_bar_sync(1, 64);
            got[threadIdx.x] = box[63 - threadIdx.x];
        }
    });
    for (int t = 32; t < 64; t++) assert_int_equal(got[t], (63 - t) * 3);
}

static void arithmetic(void **)
{
    assert_int_equal(__dp4a((int)0x80ff017f, (int)0x02030405, 7), 7 + -128 * 2 + -1 * 3 + 1 * 4 + 127 * 5);
    assert_int_equal(__dp4a(0x80ff017fu, 0x02030405u, 7u), 7 + 128 * 2 + 255 * 3 + 1 * 4 + 127 * 5);
    assert_int_equal(__byte_perm(0x33221100, 0x77665584, 0x74c0), 0x7784ff00);
    assert_int_equal(__float2int_rn(2.5f), 2);
    assert_true(__half2float(__ushort_as_half(0x3c00)) == 1.0f);
}

/* Runs what must stop the program, in a process of its own. */
static bool stops(unsigned threads, void (*kernel)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
        simt_launch(dim3(1), dim3(threads), 16, [&] { kernel(); });
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void faults(void **)
{
    assert_false(stops(64, [] { __syncthreads(); }));
    assert_true(stops(64, [] {
        if (threadIdx.x < 32) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    }));
    assert_true(stops(64, [] {
        if (threadIdx.x % 32 != 3) __syncwarp();
    }));
    assert_true(stops(32, [] {
        if (threadIdx.x < 16)
            __syncwarp();
        else
            __syncthreads();
    }));
    assert_true(stops(32, [] {
        IM__DYNAMIC(char, bytes);
        bytes[16] = 0;
    }));
    assert_true(stops(32, [] {
        IM__DYNAMIC(unsigned, word);
        while (word[0] != 0) simt_yield();
    }));
    assert_true(stops(32, [] { simt_bar_sync(2, 64); }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_blocks), cmocka_unit_test(collectives), cmocka_unit_test(blocks_that_wait),
        cmocka_unit_test(named_barriers), cmocka_unit_test(arithmetic),  cmocka_unit_test(faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
