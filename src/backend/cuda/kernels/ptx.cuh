/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions that CUDA C++ has no word for, each beside what it means in C++ (for the emulator of the tests, which compiles kernels for the processor).
 */
#ifndef IRONMULE_CUDA_PTX_CUH
#define IRONMULE_CUDA_PTX_CUH

#include <stdint.h>

#define IM__DEVICE static __device__ __forceinline__

/* ---- dependent launches: a kernel may start while the one before it ends (sm_90; elsewhere nothing) ---- */

/* Before this, nothing may be read that an earlier kernel writes. */
IM__DEVICE void im__earlier_kernels_wait(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may start its own preparations. */
IM__DEVICE void im__next_kernel_start(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- memory ---- */

/* Sixteen, eight, four, two bytes of what no kernel writes, read once: not kept in the first cache; issued in the order of the text. */
IM__DEVICE uint4 im__stream_16(const void *p)
{
#ifdef __CUDACC__
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
#else
    return *(const uint4 *)p;
#endif
}

IM__DEVICE uint2 im__stream_8(const void *p)
{
#ifdef __CUDACC__
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
#else
    return *(const uint2 *)p;
#endif
}

IM__DEVICE uint32_t im__stream_4(const void *p)
{
#ifdef __CUDACC__
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0,[%1];" : "=r"(v) : "l"(p));
    return v;
#else
    return *(const uint32_t *)p;
#endif
}

IM__DEVICE uint32_t im__stream_2(const void *p)
{
#ifdef __CUDACC__
    uint16_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0,[%1];" : "=h"(v) : "l"(p));
    return v;
#else
    return *(const uint16_t *)p;
#endif
}

/* As above, of one signed byte. */
IM__DEVICE int im__stream_s8(const void *p)
{
#ifdef __CUDACC__
    int v;
    asm volatile("ld.global.nc.L1::no_allocate.s8 %0,[%1];" : "=r"(v) : "l"(p));
    return v;
#else
    return *(const int8_t *)p;
#endif
}

/* ---- barriers of a part of the block: `threads` of them meet, a multiple of 32; id 1 .. 15 ---- */

IM__DEVICE void im__bar_sync(uint32_t id, uint32_t threads)
{
#ifdef __CUDACC__
    asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(threads) : "memory");
#else
    simt_bar_sync(id, threads);
#endif
}

/* ---- products of bytes ---- */

/* c + four products: w without sign, a with. */
IM__DEVICE int im__dot4_unsigned(uint32_t w, uint32_t a, int c)
{
#ifdef __CUDACC__
    int d;
    asm("dp4a.u32.s32 %0,%1,%2,%3;" : "=r"(d) : "r"(w), "r"(a), "r"(c));
    return d;
#else
    for (int i = 0; i < 32; i += 8) c += (int)(w >> i & 255) * (int8_t)(a >> i);
    return c;
#endif
}

/* Both with sign. */
IM__DEVICE int im__dot4(uint32_t w, uint32_t a, int c) { return __dp4a((int)w, (int)a, c); }

#endif
