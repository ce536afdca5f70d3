/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of the prefix cache: which files there are, how large, how long unused; reading, writing and removing them. What is in them is none of its business.
 *
 * A file is called NAME-POOL.kvpage, NAME 32 hexadecimal digits; what is being written is called writing.kvpage; `lock` is held by the engine that uses the folder
 * and says by its fingerprint whose files these are: those of another are removed when the folder is opened. Files with any other name are left alone.
 * The list is in memory; time of use is also the files' time of modification, so that it survives. im__folder_has and im__folder_bytes may be called from any thread and wait
 * for no disk, everything else from one thread.
 */
#ifndef IRONMULE_ENGINE_PAGE_FOLDER_H
#define IRONMULE_ENGINE_PAGE_FOLDER_H

#include "engine/prefix.h"

typedef struct im__folder im__folder;

/* *dropped: files that were there and are of no use. Errors: IM_ERR_IO with the folder and why it cannot be used. */
im_status im__folder_open(im__folder **out, const char *path, uint64_t limit, const unsigned char fingerprint[16], size_t *dropped,
                          im_error *err);
void im__folder_close(im__folder *f);

bool im__folder_has(im__folder *f, im__pool_kind pool, const im__page_name *name);
uint64_t im__folder_bytes(im__folder *f);

/* Reads a file that must have exactly n bytes. */
bool im__folder_read(im__folder *f, im__pool_kind pool, const im__page_name *name, void *bytes, size_t n);
/* Makes room by removing what has not been used for longest. IM_ERR_IO: with the system's reason; the folder is as before. */
im_status im__folder_write(im__folder *f, im__pool_kind pool, const im__page_name *name, const void *bytes, size_t n,
                           im_error *err);
/* It has been used now. false: it is not there. */
bool im__folder_touch(im__folder *f, im__pool_kind pool, const im__page_name *name);
void im__folder_drop(im__folder *f, im__pool_kind pool, const im__page_name *name);

#endif
