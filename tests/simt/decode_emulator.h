/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels/decode_port.cuh for the emulator of simt.h: what the PTX there does, on the processor. Copies arrive late and in any order, while others
 * wait; polls let others run.
 */
#ifndef IRONMULE_DECODE_EMULATOR_H
#define IRONMULE_DECODE_EMULATOR_H

#include "simt.h"

#include <vector>

#define UNROLL
#define ROLL
#define INLINE static inline
#define CONSTANT constexpr

INLINE int thread_id() { return (int)simt_here->linear; }
INLINE int fresh(int x) { return x; }
INLINE u32 block_id() { return blockIdx.x; }
INLINE u32 block_count() { return gridDim.x; }
INLINE void bar_sync(int id, int threads) { simt_bar_sync((unsigned)id, (unsigned)threads); }
INLINE void bar_arrive(int id, int threads) { simt_bar_arrive((unsigned)id, (unsigned)threads); }
INLINE void warp_sync() { __syncwarp(); }
INLINE void fence_device() {}
INLINE void copies_go_on(void);
INLINE void breathe()
{
    copies_go_on();
    simt_yield();
}
INLINE void fewer_registers() {}
INLINE void more_registers() {}

INLINE float shfl(float x, int lane) { return __shfl_sync(~0u, x, lane); }
INLINE u32 shfl(u32 x, int lane) { return __shfl_sync(~0u, x, lane); }
INLINE float shfl_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
INLINE int shfl_xor(int x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
INLINE float shfl_up(float x, int by) { return __shfl_up_sync(~0u, x, (unsigned)by); }
INLINE u32 warp_max(u32 x) { return __reduce_max_sync(~0u, x); }
INLINE int warp_max(int x) { return __reduce_max_sync(~0u, x); }
INLINE int warp_sum(int x) { return __reduce_add_sync(~0u, x); }

INLINE float f32_of(u32 bits) { return __uint_as_float(bits); }
INLINE u32 bits_of(float x) { return __float_as_uint(x); }
INLINE int round_even(float x) { return __float2int_rn(x); }
INLINE float f32_of_f16(u32 half) { return im__f32_of_f16((uint16_t)half); }
INLINE u32 f16_of_f32(float x) { return im__f16_of_f32(x); }
INLINE float2 f32_of_f16x2(u32 two) { return {im__f32_of_f16((uint16_t)two), im__f32_of_f16((uint16_t)(two >> 16))}; }
INLINE float rcp_approx(float x) { return 1.0f / x; }
INLINE float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
INLINE int dot4_unsigned(u32 w, u32 a, int c)
{
    for (int i = 0; i < 32; i += 8) c += (int)(w >> i & 255) * (int8_t)(a >> i);
    return c;
}
INLINE int dot4(u32 w, u32 a, int c) { return __dp4a((int)w, (int)a, c); }

INLINE u64 packet_load(const u64 *p) { return *(const volatile u64 *)p; }
INLINE void packet_store(u64 *p, u64 v) { *(volatile u64 *)p = v; }
INLINE uint4 packet_load4(const uint4 *p) { return *p; }
INLINE void packet_store4(uint4 *p, u32 x, u32 y, u32 z, u32 w) { *p = {x, y, z, w}; }
INLINE void counter_add(u32 *p) { ++*(volatile u32 *)p; }
INLINE u32 counter_load(const u32 *p) { return *(const volatile u32 *)p; }
INLINE void add64(unsigned long long *p, unsigned long long n) { *p += n; }
INLINE u32 load_shared_word(const void *p) { return *(const volatile u32 *)p; }
INLINE void prefetch_line(const void *) {}
template <class T> INLINE T load_constant(const T *p) { return *p; }
INLINE void store_logit(float *p, float x) { *p = x; }
INLINE u64 cycles_now() { return 1; }
INLINE u64 clock_now() { return 0; }

INLINE char *shared_at(u32 a) { return (char *)simt_dynamic() + a; }
template <class T> INLINE T shared_get(u32 a)
{
    T v;
    memcpy(&v, shared_at(a), sizeof v);
    return v;
}
template <class T> INLINE void shared_put(u32 a, T v) { memcpy(shared_at(a), &v, sizeof v); }
enum { MEMORY_BASE = 0 };
INLINE bool memory_is_where() { return true; }
INLINE float lds_f(u32 a) { return shared_get<float>(a); }
INLINE u32 lds_u(u32 a) { return shared_get<u32>(a); }
INLINE u32 lds_volatile(u32 a) { return shared_get<u32>(a); }
INLINE u32 lds_u16(u32 a) { return shared_get<uint16_t>(a); }
INLINE int lds_s8(u32 a) { return shared_get<int8_t>(a); }
INLINE float2 lds_f2(u32 a) { return shared_get<float2>(a); }
INLINE uint2 lds_u2(u32 a) { return shared_get<uint2>(a); }
INLINE float4 lds_f4(u32 a) { return shared_get<float4>(a); }
INLINE uint4 lds_u4(u32 a) { return shared_get<uint4>(a); }
INLINE void sts_f(u32 a, float v) { shared_put(a, v); }
INLINE void sts_u(u32 a, u32 v) { shared_put(a, v); }
INLINE void sts_volatile(u32 a, u32 v) { shared_put(a, v); }
INLINE void sts_u8(u32 a, int v) { shared_put(a, (uint8_t)v); }
INLINE void sts_f2(u32 a, float x, float y) { shared_put(a, make_float2(x, y)); }
INLINE void sts_u4(u32 a, u32 x, u32 y, u32 z, u32 w) { shared_put(a, make_uint4(x, y, z, w)); }

/* A barrier: arrivals wanted, arrivals missing in this turn, turns (of which only odd and even count), bytes missing. */
struct emulated_gate {
    uint8_t wanted, missing;
    uint16_t turns;
    int32_t bytes;
};
INLINE void gate_change(char *gate, int arrivals, int bytes)
{
    emulated_gate g;
    memcpy(&g, gate, sizeof g);
    g.missing = (uint8_t)(g.missing - arrivals);
    g.bytes += bytes;
    if (g.missing == 0 && g.bytes == 0) g.missing = g.wanted, g.turns++;
    memcpy(gate, &g, sizeof g);
}
INLINE void gate_init(u32 gate, u32 arrivals) { shared_put(gate, emulated_gate{(uint8_t)arrivals, (uint8_t)arrivals, 0, 0}); }
INLINE void gates_ready() {}
INLINE bool gate_passed(u32 gate, u32 parity) { return (shared_get<emulated_gate>(gate).turns & 1u) != parity; }
INLINE bool gate_is_past(u32 gate, u32 parity) { return gate_passed(gate, parity); }
INLINE void doze() {}
INLINE void gate_arrive(u32 gate) { gate_change(shared_at(gate), 1, 0); }
INLINE void copy_expect(u32 gate, u32 bytes) { gate_change(shared_at(gate), 1, (int)bytes); }

struct emulated_copy {
    char *to, *gate;
    const void *from;
    u32 bytes;
};
static std::vector<emulated_copy> emulated_copies;
static u32 emulated_chance = 1;

INLINE void copy_begin(u32 to, const void *from, u32 bytes, u32 gate)
{
    emulated_copies.push_back({shared_at(to), shared_at(gate), from, bytes});
}

/* Each vain poll ends a copy, one of those under way, with a chance of 1 in 16. */
INLINE void copies_go_on(void)
{
    emulated_chance = emulated_chance * 1664525u + 1013904223u;
    if (emulated_copies.empty() || emulated_chance >> 28 != 0) return;
    emulated_copy &c = emulated_copies[(emulated_chance >> 8) % emulated_copies.size()];
    memcpy(c.to, c.from, c.bytes);
    gate_change(c.gate, 0, -(int)c.bytes);
    c = emulated_copies.back();
    emulated_copies.pop_back();
}

#endif
