/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest of a file as it arrives: SHA-256 where the expected one has 64 digits, git's SHA-1 of a blob where it has 40.
 */
#ifndef IRONMULE_HUB_DIGEST_H
#define IRONMULE_HUB_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hub_digest hub_digest;

hub_digest *hub_digest_begin(const char *etag, uint64_t size); /* NULL: out of memory. `size`: of the whole file */
bool hub_digest_add(hub_digest *d, const void *data, size_t n);
bool hub_digest_matches(hub_digest *d, const char *etag); /* ends it; still to be freed */
void hub_digest_free(hub_digest *d);

#endif
