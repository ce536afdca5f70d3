/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions that the persistent decoder needs beyond C++. Shared memory is addressed by 32-bit numbers: one base in a register and constant offsets,
 * where the compiler would otherwise rebuild a generic base at every use. Without nvcc the emulator of the tests stands in.
 */
#pragma once

#include <cstdint>

typedef uint32_t u32;
typedef uint64_t u64;

#ifndef __CUDACC__
#include "decode_emulator.h"
#else

#include <cuda_fp16.h>

#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#define INLINE static __device__ __forceinline__
#define CONSTANT __host__ __device__ constexpr

/* ---- threads ---- */

INLINE int thread_id()
{
    int t;
    asm volatile("mov.u32 %0,%%tid.x;" : "=r"(t));
    return t;
}

/* Hides where x comes from, so that nothing derived from it is kept in registers from phase to phase. */
INLINE int fresh(int x)
{
    int t;
    asm volatile("mov.b32 %0,%1;" : "=r"(t) : "r"(x));
    return t;
}
INLINE u32 block_id() { return blockIdx.x; }
INLINE u32 block_count() { return gridDim.x; }
INLINE void bar_sync(int id, int threads) { asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(threads) : "memory"); }
INLINE void bar_arrive(int id, int threads) { asm volatile("bar.arrive %0,%1;" ::"r"(id), "r"(threads) : "memory"); }
INLINE void warp_sync() { __syncwarp(); }
INLINE void fence_device() { __threadfence(); }
INLINE void breathe() {}
/* The warp group that fetches gives registers to the others: 640 x 96 = 61,440 at the start; 512 x 112 + 128 x 32 fit, and more would wait for ever. */
INLINE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 32;"); }
INLINE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 112;"); }

/* ---- warps ---- */

INLINE float shfl(float x, int lane) { return __shfl_sync(~0u, x, lane); }
INLINE u32 shfl(u32 x, int lane) { return __shfl_sync(~0u, x, lane); }
INLINE float shfl_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
INLINE int shfl_xor(int x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
INLINE float shfl_up(float x, int by) { return __shfl_up_sync(~0u, x, by); }
INLINE u32 warp_max(u32 x) { return __reduce_max_sync(~0u, x); }
INLINE int warp_max(int x) { return __reduce_max_sync(~0u, x); }
INLINE int warp_sum(int x) { return __reduce_add_sync(~0u, x); }

/* ---- numbers ---- */

INLINE float f32_of(u32 bits) { return __uint_as_float(bits); }
INLINE u32 bits_of(float x) { return __float_as_uint(x); }
INLINE int round_even(float x) { return __float2int_rn(x); } /* 0 for NaN */
INLINE float f32_of_f16(u32 half) { return __half2float(__ushort_as_half((unsigned short)half)); }
INLINE u32 f16_of_f32(float x) { return __half_as_ushort(__float2half_rn(x)); }
INLINE float2 f32_of_f16x2(u32 two)
{
    __half2 h;
    memcpy(&h, &two, sizeof h);
    return __half22float2(h);
}
INLINE float rcp_approx(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
    return r;
}
INLINE float rsqrt_approx(float x)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
    return r;
}
/* c + the four products of bytes: w without sign, a with. */
INLINE int dot4_unsigned(u32 w, u32 a, int c)
{
    int d;
    asm("dp4a.u32.s32 %0,%1,%2,%3;" : "=r"(d) : "r"(w), "r"(a), "r"(c));
    return d;
}
INLINE int dot4(u32 w, u32 a, int c) { return __dp4a((int)w, (int)a, c); }

/* ---- device memory ---- */

/* Packets: one access each, so that a value and its tag cannot be torn apart. */
INLINE u64 packet_load(const u64 *p)
{
    u64 v;
    asm volatile("ld.relaxed.gpu.global.b64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
INLINE void packet_store(u64 *p, u64 v) { asm volatile("st.relaxed.gpu.global.b64 [%0],%1;" ::"l"(p), "l"(v) : "memory"); }
INLINE uint4 packet_load4(const uint4 *p)
{
    u64 a, b;
    asm volatile("{.reg .b128 t; ld.relaxed.gpu.global.b128 t,[%2]; mov.b128 {%0,%1},t;}" : "=l"(a), "=l"(b) : "l"(p) : "memory");
    return make_uint4((u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32));
}
INLINE void packet_store4(uint4 *p, u32 x, u32 y, u32 z, u32 w)
{
    asm volatile("{.reg .b128 t; mov.b128 t,{%1,%2}; st.relaxed.gpu.global.b128 [%0],t;}" ::"l"(p), "l"((u64)y << 32 | x),
                 "l"((u64)w << 32 | z)
                 : "memory");
}
INLINE void counter_add(u32 *p) { asm volatile("red.relaxed.gpu.global.add.u32 [%0],1;" ::"l"(p) : "memory"); }
INLINE u32 counter_load(const u32 *p)
{
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
INLINE void add64(unsigned long long *p, unsigned long long n) { atomicAdd(p, n); }
/* Past the first cache, which does not see what other blocks wrote. */
INLINE u32 load_shared_word(const void *p)
{
    u32 v;
    asm volatile("ld.global.cg.u32 %0,[%1];" : "=r"(v) : "l"(p));
    return v;
}
INLINE void prefetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
template <class T> INLINE T load_constant(const T *p) { return __ldg(p); }
INLINE void store_logit(float *p, float x) { __stcs(p, x); }
INLINE u64 cycles_now()
{
    u64 t;
    asm volatile("mov.u64 %0,%%clock64;" : "=l"(t));
    return t;
}
INLINE u64 clock_now() /* nanoseconds, the same on all multiprocessors */
{
    u64 t;
    asm volatile("mov.u64 %0,%%globaltimer;" : "=l"(t));
    return t;
}

/* ---- shared memory ---- */

/* Where dynamic shared memory begins: behind what the system keeps for itself, as in every kernel without static shared memory and clusters. As a constant it
 * costs no register and no instruction; the kernel checks it (memory_is_where). */
enum { MEMORY_BASE = 1024 };
extern __shared__ __align__(128) char im__decode_memory[];
INLINE bool memory_is_where() { return (u32)__cvta_generic_to_shared(im__decode_memory) == MEMORY_BASE; }
INLINE float lds_f(u32 a)
{
    float v;
    asm volatile("ld.shared.f32 %0,[%1];" : "=f"(v) : "r"(a));
    return v;
}
INLINE u32 lds_u(u32 a)
{
    u32 v;
    asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(a));
    return v;
}
/* Shared memory takes a thread's accesses, those to barriers too, in their order: no fence is needed between them (it would cost hundreds of cycles). */
INLINE u32 lds_volatile(u32 a)
{
    u32 v;
    asm volatile("ld.volatile.shared.u32 %0,[%1];" : "=r"(v) : "r"(a) : "memory");
    return v;
}
INLINE u32 lds_u16(u32 a)
{
    unsigned short v;
    asm volatile("ld.shared.u16 %0,[%1];" : "=h"(v) : "r"(a));
    return v;
}
INLINE int lds_s8(u32 a)
{
    int v;
    asm volatile("ld.shared.s8 %0,[%1];" : "=r"(v) : "r"(a));
    return v;
}
INLINE float2 lds_f2(u32 a)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "r"(a));
    return v;
}
INLINE uint2 lds_u2(u32 a)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
    return v;
}
INLINE float4 lds_f4(u32 a)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(a));
    return v;
}
INLINE uint4 lds_u4(u32 a)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a));
    return v;
}
INLINE void sts_f(u32 a, float v) { asm volatile("st.shared.f32 [%0],%1;" ::"r"(a), "f"(v) : "memory"); }
INLINE void sts_u(u32 a, u32 v) { asm volatile("st.shared.u32 [%0],%1;" ::"r"(a), "r"(v) : "memory"); }
INLINE void sts_volatile(u32 a, u32 v) { asm volatile("st.volatile.shared.u32 [%0],%1;" ::"r"(a), "r"(v) : "memory"); }
INLINE void sts_u8(u32 a, int v) { asm volatile("st.shared.u8 [%0],%1;" ::"r"(a), "r"(v) : "memory"); }
INLINE void sts_f2(u32 a, float x, float y) { asm volatile("st.shared.v2.f32 [%0],{%1,%2};" ::"r"(a), "f"(x), "f"(y) : "memory"); }
INLINE void sts_u4(u32 a, u32 x, u32 y, u32 z, u32 w)
{
    asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(a), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/* ---- barriers in shared memory, and copies that announce themselves there ---- */

INLINE void gate_init(u32 gate, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(gate), "r"(arrivals) : "memory");
}
INLINE void gates_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* Whether the turn of this parity is over: it must be the current turn or the one before. */
INLINE bool gate_passed(u32 gate, u32 parity)
{
    u32 ok;
    asm volatile("{.reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P,[%1],%2; selp.u32 %0,1,0,P;}"
                 : "=r"(ok)
                 : "r"(gate), "r"(parity)
                 : "memory");
    return ok;
}
/* The same without waiting inside the instruction, which does not return while the gate stays in a turn of that parity. */
INLINE bool gate_is_past(u32 gate, u32 parity)
{
    u32 ok;
    asm volatile("{.reg .pred P; mbarrier.test_wait.parity.shared::cta.b64 P,[%1],%2; selp.u32 %0,1,0,P;}"
                 : "=r"(ok)
                 : "r"(gate), "r"(parity)
                 : "memory");
    return ok;
}
INLINE void doze() { __nanosleep(32); }
INLINE void gate_arrive(u32 gate) { asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(gate) : "memory"); }
/* The one arrival that a turn wants, and bytes that must have come before it ends. */
INLINE void copy_expect(u32 gate, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(gate), "r"(bytes) : "memory");
}
/* Weights pass through the second cache once: packets, keys and values stay. */
INLINE void copy_begin(u32 to, const void *from, u32 bytes, u32 gate)
{
    asm volatile(
        "{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%2],[%3],%1,[%0],policy;}" ::"r"(gate),
        "r"(bytes), "r"(to), "l"(from)
        : "memory");
}

#endif
