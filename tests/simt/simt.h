/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs CUDA kernels as C++ on the processor, so that their bits can be checked on any machine: include this, then the kernel's .cu, and
 *
 *     simt_launch(dim3(blocks), dim3(threads), dynamic_bytes, [&] { im_kernel(params); });
 *
 * Each thread of a block is a fibre, switched at barriers, shuffles and votes. One system thread runs everything, so results repeat. What stops the program with a
 * message: threads of a block at different __syncthreads, a collective whose mask names threads that never come, threads that wait for ever, and a
 * write beyond a piece of shared memory. Shared memory starts as NaN in each block. `simt_order` changes who runs first, which shows missing
 * barriers: a test runs each kernel with several.
 *
 * What kernels do differently from plain CUDA:
 *     IM__SHARED(type, name);     a __shared__ variable (a struct, or a typedef of an array) inside a function
 *     IM__DYNAMIC(type, name);    type *name = the dynamic shared memory, aligned to 128 bytes
 *     inline PTX                  only inside functions that have a counterpart here or in kernels/ptx.cuh
 * Blocks run one after the other, or all at once (simt_launch_together) for kernels whose blocks wait for each other; then each poll calls simt_yield()
 * (__nanosleep and the volatile loads here do).
 */
#ifndef IRONMULE_SIMT_H
#define IRONMULE_SIMT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "num/half.h"

#define __CUDA_ARCH__ 750 /* the oldest that kernels serve: what is newer has a fallback */
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define IM__SHARED(type, name) type &name = *simt_static<type>([] {})
#define IM__DYNAMIC(type, name) type *name = (type *)simt_dynamic()

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
typedef dim3 uint3;

/* ---- the machine ------------------------------------------------------------------------------------------------------------------ */

/* What a running thread sees. */
struct simt_thread {
    dim3 thread, block;
    unsigned linear; /* number in its block */
};
extern simt_thread *simt_here;
extern dim3 simt_grid, simt_block;
#define threadIdx (simt_here->thread)
#define blockIdx (simt_here->block)
#define blockDim simt_block
#define gridDim simt_grid

/* 0: threads run in rising order; 1: falling; more: shuffled by this seed, warp by warp. */
extern unsigned simt_order;

void simt_run(dim3 grid, dim3 block, size_t dynamic, bool together, void (*call)(void *), void *fn);

template <class F> void simt_launch(dim3 grid, dim3 block, size_t dynamic, F fn)
{
    simt_run(
        grid, block, dynamic, false, [](void *f) { (*(F *)f)(); }, &fn);
}

template <class F> void simt_launch_together(dim3 grid, dim3 block, size_t dynamic, F fn)
{
    simt_run(
        grid, block, dynamic, true, [](void *f) { (*(F *)f)(); }, &fn);
}

void *simt_dynamic(void);
void *simt_piece(const void *key, size_t bytes); /* the block's piece of shared memory of that name */

template <class T, class Key> T *simt_static(Key)
{
    static char name; /* one for each place in the text, because each lambda has a type of its own */
    return (T *)simt_piece(&name, sizeof(T));
}

/* ---- barriers --------------------------------------------------------------------------------------------------------------------- */

/* Lets all others run. For polls of what another thread will write. */
void simt_yield(void);

/* `where`: the place in the text; threads of a block must agree. threads 0: all that have not returned. */
void simt_barrier(unsigned id, unsigned threads, bool waits, const char *where);
#define SIMT_TEXT_(x) #x
#define SIMT_TEXT(x) SIMT_TEXT_(x)
#define SIMT_HERE __FILE__ ":" SIMT_TEXT(__LINE__)
#define __syncthreads() simt_barrier(0, 0, true, SIMT_HERE)
/* bar.sync and bar.arrive with a number and a count. */
static inline void simt_bar_sync(unsigned id, unsigned threads) { simt_barrier(id, threads, true, NULL); }
static inline void simt_bar_arrive(unsigned id, unsigned threads) { simt_barrier(id, threads, false, NULL); }

/* All threads of `mask` meet; returns what each lane gave. */
const uint64_t *simt_meet(unsigned mask, const char *what, uint64_t value);

static inline void __syncwarp(unsigned mask = ~0u) { simt_meet(mask, "__syncwarp", 0); }
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __nanosleep(unsigned) { simt_yield(); }
static inline unsigned simt_lane(void) { return simt_here->linear % 32; }

/* ---- warps ------------------------------------------------------------------------------------------------------------------------ */

template <class T> T simt_shuffle(unsigned mask, const char *what, T value, unsigned from)
{
    static_assert(sizeof(T) <= 8, "32 or 64 bits");
    uint64_t raw = 0;
    memcpy(&raw, &value, sizeof value);
    const uint64_t *all = simt_meet(mask, what, raw);
    if (from >= 32 || (mask >> from & 1) == 0) return value;
    memcpy(&value, &all[from], sizeof value);
    return value;
}

template <class T> T __shfl_sync(unsigned mask, T x, int lane, int width = 32)
{
    return simt_shuffle(mask, "__shfl_sync", x, (simt_lane() & ~(unsigned)(width - 1)) | ((unsigned)lane & (unsigned)(width - 1)));
}

template <class T> T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32)
{
    unsigned from = simt_lane() ^ (unsigned)by, mine = simt_lane() & ~(unsigned)(width - 1);
    return simt_shuffle(mask, "__shfl_xor_sync", x, from < mine + (unsigned)width ? from : simt_lane());
}

template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    unsigned inner = simt_lane() & (unsigned)(width - 1);
    return simt_shuffle(mask, "__shfl_up_sync", x, inner >= by ? simt_lane() - by : simt_lane());
}

template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    unsigned inner = simt_lane() & (unsigned)(width - 1);
    return simt_shuffle(mask, "__shfl_down_sync", x, inner + by < (unsigned)width ? simt_lane() + by : simt_lane());
}

template <class T, class F> T simt_reduce(unsigned mask, const char *what, T value, F step)
{
    const uint64_t *all = simt_meet(mask, what, (uint64_t)value);
    T sum = 0;
    bool first = true;
    for (unsigned l = 0; l < 32; l++) {
        if ((mask >> l & 1) == 0) continue;
        sum = first ? (T)all[l] : step(sum, (T)all[l]);
        first = false;
    }
    return sum;
}

template <class T> T __reduce_add_sync(unsigned mask, T x)
{
    return simt_reduce(mask, "__reduce_add_sync", x, [](T a, T b) { return (T)((unsigned)a + (unsigned)b); });
}
template <class T> T __reduce_max_sync(unsigned mask, T x)
{
    return simt_reduce(mask, "__reduce_max_sync", x, [](T a, T b) { return a > b ? a : b; });
}
template <class T> T __reduce_min_sync(unsigned mask, T x)
{
    return simt_reduce(mask, "__reduce_min_sync", x, [](T a, T b) { return a < b ? a : b; });
}
static inline unsigned __ballot_sync(unsigned mask, int yes)
{
    const uint64_t *all = simt_meet(mask, "__ballot_sync", yes != 0);
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; l++) votes |= (unsigned)((mask >> l & 1) != 0 && all[l] != 0) << l;
    return votes;
}
static inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) == mask; }

#include "simt_types.h"

#endif
