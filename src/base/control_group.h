/* SPDX-License-Identifier: Apache-2.0
 *
 * What the control groups of this process allow: containers and services live in them. Its own group and those above it count, of version 2 and 1.
 * `root` stands in front of /proc and /sys: "", or for tests a folder.
 */
#ifndef IRONMULE_BASE_CONTROL_GROUP_H
#define IRONMULE_BASE_CONTROL_GROUP_H

#include <stdint.h>

/* Processor time in cores, rounded up; 0: no limit. */
int im__group_cores(const char *root);

/* Bytes that may still be taken; files that are kept in memory only for speed count as free. UINT64_MAX: no limit. */
uint64_t im__group_memory(const char *root);

#endif
