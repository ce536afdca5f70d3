/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instruction sets this machine and its operating system offer.
 */
#include "backend/cpu/kernels.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const names[IM__CPU_LEVELS] = {"c", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"};

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
enum { STATE_AVX = 0x06, STATE_AVX512 = 0xe6, STATE_AMX = 0x600e6 }; /* parts of the registers that the operating system saves */

/* Bits of XCR0; 0 where the operating system does not use XSAVE. */
static unsigned saved_state(unsigned leaf1_ecx)
{
    if (!(leaf1_ecx & bit_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Tiles are given to a process that asks for them; asking again changes nothing. */
static bool tiles_allowed(void)
{
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM; part of the registers */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* What cpuid says; 0 for what it does not know. */
typedef struct features {
    unsigned leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, state;
} features;

static features read_features(void)
{
    features f = {0};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &f.leaf1_ecx, &d) || !__get_cpuid_count(7, 0, &a, &f.leaf7_ebx, &f.leaf7_ecx, &f.leaf7_edx))
        return f;
    if (a >= 1) __get_cpuid_count(7, 1, &f.leaf7_1_eax, &b, &c, &d);
    f.state = saved_state(f.leaf1_ecx);
    return f;
}

static bool all_of(unsigned have, unsigned need) { return (have & need) == need; }

static bool machine_has(im__cpu_level level)
{
    enum { AVXVNNI = 1 << 4, TILES_INT8 = 3 << 24 };
    const unsigned need512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    const features f = read_features();
    bool avx2 = all_of(f.leaf1_ecx, bit_AVX | bit_FMA | bit_F16C) && (f.leaf7_ebx & bit_AVX2) && all_of(f.state, STATE_AVX);
    bool avx512 = avx2 && all_of(f.leaf7_ebx, need512) && (f.leaf7_ecx & bit_AVX512VNNI) && all_of(f.state, STATE_AVX512);
    switch (level) {
    case IM__CPU_AVX2: return avx2;
    case IM__CPU_AVXVNNI: return avx2 && (f.leaf7_1_eax & AVXVNNI);
    case IM__CPU_AVX512: return avx512;
    case IM__CPU_AMX: return avx512 && all_of(f.leaf7_edx, TILES_INT8) && all_of(f.state, STATE_AMX) && tiles_allowed();
    default: return false;
    }
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

static unsigned find_levels(void)
{
    unsigned found = 1u << IM__CPU_C;
    for (int level = IM__CPU_C + 1; level < IM__CPU_LEVELS; level++)
        if (machine_has((im__cpu_level)level)) found |= 1u << level;
    return found;
}

/* A virtual machine may take long over cpuid: it is asked once. Threads that ask at the same time find the same. */
bool im__cpu_has(im__cpu_level level)
{
    static atomic_uint found;
    unsigned levels = atomic_load_explicit(&found, memory_order_relaxed);
    if (levels == 0) {
        levels = find_levels();
        atomic_store_explicit(&found, levels, memory_order_relaxed);
    }
    return levels >> level & 1;
}

im__cpu_level im__cpu_best(void)
{
    int level = IM__CPU_LEVELS - 1;
    while (!im__cpu_has((im__cpu_level)level)) level--;
    return (im__cpu_level)level;
}
