/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies into shared memory that go on beside the thread (from compute capability 8.0 on; elsewhere they are done at once). A thread's copies since its last commit are
 * a group; im__copy_wait<N> waits for all of its groups but the last N, and only for its own.
 */
#ifndef IRONMULE_CUDA_COPY_CUH
#define IRONMULE_CUDA_COPY_CUH

#include "backend/cuda/kernels/ptx.cuh"

/* Both aligned to 16 bytes. */
IM__DEVICE void im__copy_16(void *to, const void *from)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}

IM__DEVICE void im__copy_commit(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int N> IM__DEVICE void im__copy_wait(void)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif
