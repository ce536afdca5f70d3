/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction sets this machine and its operating system offer.
 */
#include "backend/cpu/kernels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const names[IM__CPU_LEVELS] = {"c", "avx2", "avx512", "neon", "i8mm"};

const char *im__cpu_level_name(im__cpu_level level) { return names[level]; }

bool im__cpu_level_parse(const char *name, im__cpu_level *out)
{
    for (int level = 0; level < IM__CPU_LEVELS; level++)
        if (strcmp(name, names[level]) == 0) {
            *out = (im__cpu_level)level;
            return true;
        }
    return false;
}

#if defined(__x86_64__)
enum { STATE_AVX = 0x06, STATE_AVX512 = 0xe6 }; /* parts of the registers that the operating system saves */

/* Bits of XCR0; 0 where the operating system does not use XSAVE. */
static unsigned saved_state(unsigned leaf1_ecx)
{
    if (!(leaf1_ecx & bit_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool machine_has(im__cpu_level level)
{
    const unsigned need1 = bit_AVX | bit_FMA | bit_F16C;
    const unsigned need512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    unsigned a, b, c, d, leaf7_ebx, leaf7_ecx;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid_count(7, 0, &a, &leaf7_ebx, &leaf7_ecx, &d)) return false;
    unsigned state = saved_state(c);
    bool avx2 = (c & need1) == need1 && (leaf7_ebx & bit_AVX2) && (state & STATE_AVX) == STATE_AVX;
    if (level == IM__CPU_AVX2) return avx2;
    return level == IM__CPU_AVX512 && avx2 && (leaf7_ebx & need512) == need512 && (leaf7_ecx & bit_AVX512VNNI) &&
           (state & STATE_AVX512) == STATE_AVX512;
}
#elif defined(__aarch64__) && defined(__linux__)
static bool machine_has(im__cpu_level level)
{
    const unsigned long halves = 1ul << 10, dot_product = 1ul << 20,
                        matrix = 1ul << 13; /* ASIMDHP, ASIMDDP; I8MM in the second word */
    bool neon = (getauxval(AT_HWCAP) & (halves | dot_product)) == (halves | dot_product);
    if (level == IM__CPU_NEON) return neon;
    return level == IM__CPU_I8MM && neon && (getauxval(AT_HWCAP2) & matrix);
}
#else
static bool machine_has(im__cpu_level level)
{
    (void)level;
    return false;
}
#endif

bool im__cpu_has(im__cpu_level level) { return level == IM__CPU_C || machine_has(level); }

im__cpu_level im__cpu_best(void)
{
    int level = IM__CPU_LEVELS - 1;
    while (!im__cpu_has((im__cpu_level)level)) level--;
    return (im__cpu_level)level;
}
