/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels share: widening what the cache stores, bulk copies, and which keys a row sees.
 */
#ifndef IRONMULE_CUDA_ATTENTION_CUH
#define IRONMULE_CUDA_ATTENTION_CUH

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/copy.cuh"
#include "backend/cuda/kernels/num.cuh"

/* ---- bulk copies ---- */

/* Compute capability 9.0: one thread asks for a piece of memory, and a gate (8 bytes of shared memory, as an address in it) opens when all its bytes have come. */
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define IM__BULK 1
#else
#define IM__BULK 0
#endif

IM__DEVICE void im__gate_make(void *gate)
{
#if IM__BULK
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(gate))
                 : "memory");
#else
    (void)gate;
#endif
}

IM__DEVICE void im__copy_bulk(void *to, const void *from, uint32_t bytes, void *gate)
{
#if IM__BULK
    uint32_t at = (uint32_t)__cvta_generic_to_shared(gate);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"(at)
                 : "memory");
#else
    (void)to, (void)from, (void)bytes, (void)gate;
#endif
}

/* turn: 0 for the first time that the gate opens, 1 for the second, 0 for the third ... */
IM__DEVICE void im__gate_wait(void *gate, uint32_t turn)
{
#if IM__BULK
    asm volatile("{.reg .pred p; again_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again_%=; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(gate)),
                 "r"(turn)
                 : "memory");
#else
    (void)gate, (void)turn;
#endif
}

/* ---- what blocks of the grid say to each other ---- */

/* What this thread and those that it has met have stored is seen by who reads behind such a fence. */
IM__DEVICE void im__fence_grid(void)
{
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 700
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
#endif
}

/* Two floats that another block of the grid has stored. */
IM__DEVICE float2 im__load_others(const float *from) { return __ldcg((const float2 *)from); }

/* What a binary16 cache and a binary32 cache are made of. */
typedef uint16_t im__half_bits;

/* Two neighbours, widened. */
IM__DEVICE float2 im__two(const im__half_bits *at)
{
    uint32_t w = *(const uint32_t *)at;
    return make_float2(im__widen(w & 0xffff), im__widen(w >> 16));
}

IM__DEVICE float2 im__two(const float *at) { return *(const float2 *)at; }

/* ---- rows --------------------------------------------------------------------------------------------------------------------------- */

/* One row and the keys that it sees. */
typedef struct im__seen {
    uint32_t r;           /* row of q and out */
    uint32_t begin, end;  /* keys */
    uint32_t first, last; /* blocks */
    const int32_t *table;
} im__seen;

IM__DEVICE im__seen im__row_sees(const im__cuda_attention &a, uint32_t r)
{
    const im__cuda_step &step = *a.step;
    const im__cuda_row &row = step.row[a.selected ? step.source[r] : r];
    im__seen s;
    s.r = r;
    s.end = (uint32_t)row.position + 1;
    s.begin = a.window != 0 && s.end > a.window ? s.end - a.window : 0;
    s.first = s.begin / IM__ATTENTION_PAGE;
    s.last = (s.end - 1) / IM__ATTENTION_PAGE;
    s.table = step.pages + row.table[a.kv.which];
    return s;
}

#endif
