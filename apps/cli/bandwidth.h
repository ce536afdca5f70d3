/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast this machine reads memory: the limit of an answer's speed.
 */
#ifndef IRONMULE_CLI_BANDWIDTH_H
#define IRONMULE_CLI_BANDWIDTH_H

/* Best of some passes of `threads` threads over memory that no cache holds, bytes a second; 0 when memory is short. Takes about a second. */
double read_bandwidth(int threads);

#endif
