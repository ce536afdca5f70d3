/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages in the memory of the host, by name, as the bytes of page files (page_file.h): where pages of a device that has less of it stay when they must make room there. What
 * has not been used for longest goes when more than the limit would be held.
 *
 * im__shelf_has, im__shelf_touch, im__shelf_bytes and im__shelf_now: any thread. Everything else: one thread.
 */
#ifndef IRONMULE_ENGINE_PAGE_SHELF_H
#define IRONMULE_ENGINE_PAGE_SHELF_H

#include "engine/prefix.h"

typedef struct im__shelf im__shelf;

/* limit: bytes; memory is taken as pages come. */
im_status im__shelf_new(im__shelf **out, uint64_t limit, im_error *err);
void im__shelf_free(im__shelf *s);

bool im__shelf_has(im__shelf *s, im__pool_kind pool, const im__page_name *name);
bool im__shelf_touch(im__shelf *s, im__pool_kind pool, const im__page_name *name); /* it is the latest now; false: not there */
uint64_t im__shelf_bytes(im__shelf *s);
/* For im__shelf_put: what is put or touched from now on is later than this. */
uint64_t im__shelf_now(im__shelf *s);

/* The n bytes that were put there under the name, until the next put or drop; NULL: none, or not as many. */
const void *im__shelf_get(im__shelf *s, im__pool_kind pool, const im__page_name *name, size_t n);
/* A copy, in place of what has the name. Only what was not used after `since` makes room for it: the end of a text is not worth its beginning. false: there is no room so,
 * or no memory. */
bool im__shelf_put(im__shelf *s, im__pool_kind pool, const im__page_name *name, const void *bytes, size_t n, uint64_t since);
void im__shelf_drop(im__shelf *s, im__pool_kind pool, const im__page_name *name);

#endif
