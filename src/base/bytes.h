/* SPDX-License-Identifier: Apache-2.0
 *
 * Little-endian numbers at any address, on a machine of any byte order. Compilers turn each into one load.
 */
#ifndef IRONMULE_BASE_BYTES_H
#define IRONMULE_BASE_BYTES_H

#include <stdint.h>

static inline uint16_t im__load_u16(const uint8_t *p) { return (uint16_t)(p[0] | (p[1] << 8)); }

static inline uint32_t im__load_u32(const uint8_t *p) { return im__load_u16(p) | ((uint32_t)im__load_u16(p + 2) << 16); }

static inline uint64_t im__load_u64(const uint8_t *p) { return im__load_u32(p) | ((uint64_t)im__load_u32(p + 4) << 32); }

#endif
