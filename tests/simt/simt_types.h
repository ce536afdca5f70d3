/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector types, conversions, byte products and atomics as CUDA names them, for simt.h.
 */
#ifndef IRONMULE_SIMT_TYPES_H
#define IRONMULE_SIMT_TYPES_H

#define SIMT_VECTOR(name, type, bytes2, bytes4)                                                                                    \
    struct __align__(bytes2) name##2 { type x, y; };                                                                               \
    struct __align__(bytes4) name##4 { type x, y, z, w; };                                                                         \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                                        \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
SIMT_VECTOR(int, int, 8, 16)
SIMT_VECTOR(uint, unsigned, 8, 16)
SIMT_VECTOR(float, float, 8, 16)
SIMT_VECTOR(short, short, 4, 8)
SIMT_VECTOR(ushort, unsigned short, 4, 8)
SIMT_VECTOR(char, signed char, 2, 4)
SIMT_VECTOR(uchar, unsigned char, 2, 4)
#undef SIMT_VECTOR
struct __align__(16) double2 { double x, y; };
static inline double2 make_double2(double x, double y) { return {x, y}; }

/* ---- numbers ---- */

static inline float __uint_as_float(unsigned x) { return im__f32_of_bits(x); }
static inline float __int_as_float(int x) { return im__f32_of_bits((uint32_t)x); }
static inline unsigned __float_as_uint(float x) { return im__bits_of_f32(x); }
static inline int __float_as_int(float x) { return (int)im__bits_of_f32(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __int2float_rn(int x) { return (float)x; }
static inline int __float2int_rn(float x)
{
    if (x != x) return 0;
    return x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int)rintf(x);
}
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = select >> 4 * i & 15, byte = (unsigned)(both >> 8 * (s & 7)) & 255;
        r |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8) sum += (unsigned)((int8_t)(a >> i) * (int8_t)(b >> i));
    return (int)sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}

/* ---- half ---- */

struct __half {
    uint16_t bits;
};
struct __align__(4) __half2 { __half x, y; };
static inline float __half2float(__half h) { return im__f32_of_f16(h.bits); }
static inline __half __float2half_rn(float x) { return {im__f16_of_f32(x)}; }
static inline __half __ushort_as_half(unsigned short x) { return {x}; }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }

/* ---- memory ---- */

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcg(T *p, T x) { *p = x; }
template <class T> void __stcs(T *p, T x) { *p = x; }
template <class T, class V, class F> T simt_atomic(T *p, V x, F step)
{
    T old = *p;
    *p = step(old, (T)x);
    return old;
}
template <class T, class V> T atomicAdd(T *p, V x)
{
    return simt_atomic(p, x, [](T a, T b) { return (T)(a + b); });
}
template <class T, class V> T atomicMax(T *p, V x)
{
    return simt_atomic(p, x, [](T a, T b) { return a > b ? a : b; });
}
template <class T, class V> T atomicMin(T *p, V x)
{
    return simt_atomic(p, x, [](T a, T b) { return a < b ? a : b; });
}
template <class T, class V> T atomicOr(T *p, V x)
{
    return simt_atomic(p, x, [](T a, T b) { return (T)(a | b); });
}
template <class T, class V> T atomicExch(T *p, V x)
{
    return simt_atomic(p, x, [](T, T b) { return b; });
}
template <class T> T atomicCAS(T *p, T expected, T x)
{
    T old = *p;
    if (old == expected) *p = x;
    return old;
}

#endif
