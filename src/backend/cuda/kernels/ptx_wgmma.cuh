/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous products of a warp group (compute capability 9.0a), barriers in shared memory that count bytes, and copies that they count, each with a counterpart for
 * the emulator of tests/simt.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_PTX_WGMMA_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_PTX_WGMMA_CUH

#include "backend/cuda/kernels/ptx_mma.cuh"

/* ---- products: c = a b, 64 rows (16 a warp, fragments as in ptx_mma.cuh) by n columns, 32 signed bytes deep -------------------------------------
 *
 * b: lines of 128 bytes, one a column, in blocks of 8 lines; piece p of 16 bytes of line l lies at p ^ (l % 8). The first line lies at a multiple of 1,024 bytes; the
 * 32 bytes begin at `at` bytes in the line. c: c[4j ..] is the fragment of columns 8j ...
 * In this order: im__group_begin, im__group_multiply, im__group_commit, im__group_wait; c and a must not be touched between. */

#ifdef __CUDACC__

__device__ __forceinline__ void im__group_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void im__group_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Until all committed products but the newest `newer` are there. The compiler must not read c, one of those, earlier. */
template <int newer, int n> __device__ __forceinline__ void im__group_wait(int (&c)[n])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(newer) : "memory");
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+r"(c[i])::"memory");
}

/* The compiler must not move uses of c beyond this. */
template <int n> __device__ __forceinline__ void im__group_hold(int (&c)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+r"(c[i])::"memory");
}

__device__ __forceinline__ uint64_t im__group_lines(im__shared_at first, int at)
{
    return (uint64_t)((first + (uint32_t)at) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define IM__C8(i)                                                                                                                  \
    "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), "+r"(c[i + 7])
#define IM__AB "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b)

__device__ __forceinline__ void im__group_multiply_(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, {%4, %5, "
                 "%6, %7}, %8, p;}"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : IM__AB);
}

__device__ __forceinline__ void im__group_multiply_(int (&c)[8], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7"
                 "}, {%8, %9, %10, %11}, %12, p;}"
                 : IM__C8(0)
                 : IM__AB);
}

__device__ __forceinline__ void im__group_multiply_(int (&c)[16], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                 "}, {%16, %17, %18, %19}, %20, p;}"
                 : IM__C8(0), IM__C8(8)
                 : IM__AB);
}

__device__ __forceinline__ void im__group_multiply_(int (&c)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, p;}"
                 : IM__C8(0), IM__C8(8), IM__C8(16), IM__C8(24)
                 : IM__AB);
}

__device__ __forceinline__ void im__group_multiply_(int (&c)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, {%64, %65, %66, %67}, %68, p;}"
                 : IM__C8(0), IM__C8(8), IM__C8(16), IM__C8(24), IM__C8(32), IM__C8(40), IM__C8(48), IM__C8(56)
                 : IM__AB);
}

#undef IM__C8
#undef IM__AB

template <int n>
__device__ __forceinline__ void im__group_multiply(int (&c)[n], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   im__shared_at lines, int at)
{
    im__group_multiply_(c, a0, a1, a2, a3, im__group_lines(lines, at));
}

#else

static inline void im__group_begin(void) {}
static inline void im__group_commit(void) {}
template <int newer, int n> static inline void im__group_wait(int (&)[n]) {}
template <int n> static inline void im__group_hold(int (&)[n]) {}

template <int n>
static inline void im__group_multiply(int (&c)[n], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, im__shared_at lines, int at)
{
    const unsigned lane = simt_lane();
    uint64_t first[32];
    memcpy(first, simt_meet(~0u, "wgmma", (uint64_t)a1 << 32 | a0), sizeof first);
    const uint64_t *second = simt_meet(~0u, "wgmma", (uint64_t)a3 << 32 | a2);
    for (int i = 0; i < n; i++) {
        const int column = i / 4 * 8 + (int)lane % 4 * 2 + i % 2, shift = i % 4 < 2 ? 0 : 32;
        c[i] = 0;
        for (int k = 0; k < 8; k++) {
            const unsigned from = lane / 4 * 4 + (unsigned)k % 4;
            const uint32_t w = (uint32_t)((k < 4 ? first[from] : second[from]) >> shift);
            int32_t x;
            const int byte = at + 4 * k;
            memcpy(&x, lines + column * 128 + ((byte / 16 ^ column) & 7) * 16 + byte % 16, 4);
            c[i] = __dp4a((int)w, x, c[i]);
        }
    }
}

#endif

/* Hides where x comes from, so that nothing derived from it is kept in registers. */
__device__ __forceinline__ uint32_t im__fresh(uint32_t x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* ---- barriers: a phase ends when `count` threads have arrived and all bytes announced in it are there -------------------------------------------- */

typedef uint64_t im__barrier;

#ifdef __CUDACC__

__device__ __forceinline__ void im__barrier_init(im__barrier *b, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(im__shared_of(b)), "r"(count) : "memory");
}

/* After all im__barrier_init, in the thread that made them, before the block meets. */
__device__ __forceinline__ void im__barriers_made(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void im__barrier_arrive(im__barrier *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(im__shared_of(b)) : "memory");
}

/* Arrives when all of this thread's copies by im__copy_16 and im__copy_4 so far are there. */
__device__ __forceinline__ void im__barrier_arrive_copied(im__barrier *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(im__shared_of(b)) : "memory");
}

/* Announces bytes; the caller arrives besides. */
__device__ __forceinline__ void im__barrier_expect(im__barrier *b, uint32_t bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(im__shared_of(b)), "r"(bytes) : "memory");
}

/* Until the phase of this parity has ended: 0 for the first. */
__device__ __forceinline__ void im__barrier_wait(im__barrier *b, uint32_t parity)
{
    asm volatile(
        "{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra there; bra again; there: }" ::"r"(
            im__shared_of(b)),
        "r"(parity)
        : "memory");
}

/* Bytes (a multiple of 16, both addresses too) that the barrier counts. */
__device__ __forceinline__ void im__copy_counted(im__shared_at to, const void *from, uint32_t bytes, im__barrier *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(im__shared_of(b))
                 : "memory");
}

/* What this thread knows to be written to shared memory (its own, or what a barrier told it) becomes visible to its products. */
__device__ __forceinline__ void im__written_for_groups(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int count> __device__ __forceinline__ void im__fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void im__more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

#else

/* Threads expected (16 bits), still missing (16), phases ended (32). */
static inline void im__barrier_init(im__barrier *b, uint32_t count) { *b = count | (uint64_t)count << 16; }
static inline void im__barriers_made(void) {}
static inline void im__barrier_arrive(im__barrier *b)
{
    const uint64_t count = *b & 0xffff, missing = (*b >> 16 & 0xffff) - 1, phase = *b >> 32;
    *b = missing ? count | missing << 16 | phase << 32 : count | count << 16 | (phase + 1) << 32;
}
static inline void im__barrier_arrive_copied(im__barrier *b) { im__barrier_arrive(b); }
static inline void im__barrier_expect(im__barrier *, uint32_t) {}
static inline void im__barrier_wait(im__barrier *b, uint32_t parity)
{
    while ((*(volatile im__barrier *)b >> 32 & 1) == parity) simt_yield();
}
static inline void im__copy_counted(im__shared_at to, const void *from, uint32_t bytes, im__barrier *) { memcpy(to, from, bytes); }
static inline void im__written_for_groups(void) {}
template <int> static inline void im__fewer_registers(void) {}
template <int> static inline void im__more_registers(void) {}

#endif
#endif
