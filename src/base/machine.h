/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process may use of the machine.
 */
#ifndef IRONMULE_BASE_MACHINE_H
#define IRONMULE_BASE_MACHINE_H

#include <stdint.h>

/* Physical cores available: those of the affinity mask, hyper-threads of one core counted once, no more than the quota of the control group allows. At least 1. */
int im__machine_cores(void);

/* Bytes of memory that can be taken without swapping: what the system calls available, bounded by the control group. 0: unknown. */
uint64_t im__machine_memory(void);

/* Milliseconds of a clock that never goes back. */
double im__now_ms(void);

#endif
