/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of the Hub on disk, in the layout that other tools share:
 *
 *     ROOT/models--ORG--NAME/blobs/DIGEST                     contents, named by digest
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/path/of/file    links to blobs
 *     ROOT/models--ORG--NAME/refs/main                        the commit that a branch or tag meant when it was last asked
 *     ROOT/.locks/models--ORG--NAME/DIGEST.lock               flock(2): one process at a time fetches a blob
 *
 * A revision is the commit in refs, or a commit itself; never a guess among the snapshots. Nothing here uses the network.
 */
#ifndef IRONMULE_HUB_CACHE_H
#define IRONMULE_HUB_CACHE_H

#include "hub/hub_listing.h"

/* "ROOT/models--org--name/REST"; NULL: out of memory. Free with free. */
char *hub_cache_path(const char *root, const char *name, const char *rest);

/* Folder of the snapshot that the id means, and its commit. IM_ERR_IO: it is not here; the message says what is. */
im_status hub_cache_snapshot(char **folder, char commit[41], const char *root, const hub_id *id, im_error *err);

/* The files of a snapshot (links followed; what leads nowhere is left out), sorted by path. */
im_status hub_cache_files(hub_listing *out, const char *folder, im_error *err);

/* What a name means in the cache alone: *path is a GGUF file (the first shard of a split one) or a folder. Free with free. */
im_status hub_cache_find(char **path, char commit[41], const char *root, const hub_id *id, im_error *err);

/* A model in the cache: one call for each snapshot. `refs`: those that mean it, separated by blanks. */
typedef void hub_cache_visit(void *user, const char *name, const char *commit, const char *refs, const char *folder);
void hub_cache_walk(const char *root, hub_cache_visit *visit, void *user);

/* Takes the lock of a blob; *fd is closed to give it back. IM_ERR_BUSY: another process has it. */
im_status hub_cache_lock(int *fd, const char *root, const char *name, const char *etag, im_error *err);

/* snapshots/COMMIT/PATH becomes a link to the blob; what stands there already and is the same stays. */
im_status hub_cache_link(const char *root, const hub_id *id, const char *commit, const hub_file *f, im_error *err);

/* refs/REVISION := commit, for a revision that is no commit itself. */
im_status hub_cache_set_ref(const char *root, const hub_id *id, const char *commit, im_error *err);

/* Makes all folders above `path`. */
im_status hub_make_folders(const char *path, im_error *err);

/* Removes the snapshot and those of its blobs that no other snapshot links to, then what became empty; *bytes is what that frees. */
im_status hub_cache_remove(const char *root, const hub_id *id, const char *commit, uint64_t *bytes, im_error *err);

#endif
