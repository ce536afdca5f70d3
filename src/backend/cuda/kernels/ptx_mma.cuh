/* SPDX-License-Identifier: Apache-2.0
 *
 * What tensor cores and their pipelines need beyond CUDA C++: integer products of fragments, loads of fragments, asynchronous copies. Each has a counterpart for older
 * chips and one for the emulator of tests/simt. Addresses in shared memory are im__shared_at.
 *
 * Fragments, by lane: a[0], a[1] are rows lane / 4 and 8 more of the 16-row operand, bytes 4 (lane % 4) .. + 3 of its first 16 columns; a[2], a[3] of the
 * next 16. b is column lane / 4 of the 8-column operand, the same bytes. c[0], c[1] are row lane / 4, columns 2 (lane % 4) and the next; c[2], c[3] row 8 more.
 */
#ifndef IRONMULE_BACKEND_CUDA_KERNELS_PTX_MMA_CUH
#define IRONMULE_BACKEND_CUDA_KERNELS_PTX_MMA_CUH

#include <stdint.h>

#ifdef __CUDACC__

typedef uint32_t im__shared_at;
__device__ __forceinline__ im__shared_at im__shared_of(void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

#if __CUDA_ARCH__ >= 800

/* c = a b + from: 32 columns of signed bytes. */
__device__ __forceinline__ void im__mma_32(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int from)
{
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(from));
}

/* The same of 16 columns. */
__device__ __forceinline__ void im__mma_16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b, int from)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b), "r"(from));
}

__device__ __forceinline__ void im__copy_16(im__shared_at to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void im__copy_4(im__shared_at to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void im__copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until at most `newer` committed groups are on their way. */
template <int newer> __device__ __forceinline__ void im__copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(newer) : "memory");
}

#else

__device__ __forceinline__ void im__mma_8x8(int &c0, int &c1, uint32_t a, uint32_t b, int from0, int from1)
{
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
                 : "=r"(c0), "=r"(c1)
                 : "r"(a), "r"(b), "r"(from0), "r"(from1));
}

__device__ __forceinline__ void im__mma_16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b, int from)
{
    im__mma_8x8(c[0], c[1], a0, b, from, from);
    im__mma_8x8(c[2], c[3], a1, b, from, from);
}

__device__ __forceinline__ void im__mma_32(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int from)
{
    im__mma_16(c, a[0], a[1], b[0], from);
    im__mma_8x8(c[0], c[1], a[2], b[1], c[0], c[1]);
    im__mma_8x8(c[2], c[3], a[3], b[1], c[2], c[3]);
}

__device__ __forceinline__ void im__copy_16(im__shared_at to, const void *from)
{
    uint4 v = __ldg((const uint4 *)from);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

__device__ __forceinline__ void im__copy_4(im__shared_at to, const void *from)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(__ldg((const uint32_t *)from)) : "memory");
}

__device__ __forceinline__ void im__copies_commit(void) {}
template <int newer> __device__ __forceinline__ void im__copies_wait(void) {}

#endif

/* Four blocks of 8 lines of 16 bytes, lane l giving the address of line l % 8 of block l / 8: x[i] = bytes 4 (lane % 4) .. + 3 of line lane / 4 of block i. */
__device__ __forceinline__ void im__load_blocks(uint32_t (&x)[4], im__shared_at line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(line)
                 : "memory");
}

#else

typedef uint8_t *im__shared_at;
static inline im__shared_at im__shared_of(void *p) { return (uint8_t *)p; }

/* c += a b, of 16 columns. */
static inline void im__mma_add(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    const unsigned lane = simt_lane();
    uint64_t rows[32];
    memcpy(rows, simt_meet(~0u, "mma", (uint64_t)a1 << 32 | a0), sizeof rows);
    const uint64_t *columns = simt_meet(~0u, "mma", b);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++) {
            uint32_t x = (uint32_t)(rows[lane / 4 * 4 + k] >> (i < 2 ? 0 : 32));
            c[i] = __dp4a((int)x, (int)(uint32_t)columns[(lane % 4 * 2 + i % 2) * 4 + k], c[i]);
        }
}

static inline void im__mma_16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b, int from)
{
    for (int &x : c) x = from;
    im__mma_add(c, a0, a1, b);
}

static inline void im__mma_32(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int from)
{
    im__mma_16(c, a[0], a[1], b[0], from);
    im__mma_add(c, a[2], a[3], b[1]);
}

static inline void im__copy_16(im__shared_at to, const void *from) { memcpy(to, from, 16); }
static inline void im__copy_4(im__shared_at to, const void *from) { memcpy(to, from, 4); }
static inline void im__copies_commit(void) {}
template <int newer> static inline void im__copies_wait(void) {}

static inline void im__load_blocks(uint32_t (&x)[4], im__shared_at line)
{
    const unsigned lane = simt_lane();
    const uint64_t *lines = simt_meet(~0u, "ldmatrix", (uint64_t)(uintptr_t)line);
    for (unsigned i = 0; i < 4; i++) memcpy(&x[i], (const uint8_t *)(uintptr_t)lines[8 * i + lane / 4] + 4 * (lane % 4), 4);
}

#endif
#endif
