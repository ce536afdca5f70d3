/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of one revision of one model, as the Hub's metadata or a snapshot in the cache lists them, and the choice of those that are needed.
 */
#ifndef IRONMULE_HUB_LISTING_H
#define IRONMULE_HUB_LISTING_H

#include "hub/hub_error.h"
#include "hub/hub_id.h"

#include <stdint.h>

typedef struct hub_file {
    char *path; /* inside the revision; safe (hub_path_is_safe) */
    uint64_t size;
    char
        etag[65]; /* SHA-256 of an LFS file, git's SHA-1 of any other: the blob's name in the cache; "" in a listing of the cache */
} hub_file;

typedef struct hub_listing {
    char commit[41];
    char licence[64]; /* as the model's card says; "": it does not */
    hub_file *file;
    size_t count;
} hub_listing;

void hub_listing_free(hub_listing *l);

/* Appends; path is copied. */
im_status hub_listing_add(hub_listing *l, const char *path, uint64_t size, const char *etag, im_error *err);

/* Reads the Hub's answer about a revision (with blobs=true). Refuses names that would leave the folder, and files without a digest. */
im_status hub_listing_parse(hub_listing *out, const char *json, size_t n, const hub_id *id, im_error *err);

typedef struct hub_choice {
    size_t *index; /* of the files chosen */
    size_t count;
    uint64_t bytes;
    size_t model; /* index of the file that is the model (a GGUF, the first of a split one); SIZE_MAX: the folder is */
} hub_choice;

void hub_choice_free(hub_choice *c);

/* Which files? With patterns (NULL-terminated; as a shell's, against the path and the name): those that match. Otherwise with a tag: that GGUF
 * file, with all its shards. Otherwise a folder's weights, configuration and tokenizer, or the only GGUF model. Several GGUF models and no tag: an error that
 * lists them. */
im_status hub_choose(hub_choice *out, const hub_listing *l, const hub_id *id, const char *const *patterns, im_error *err);

/* "4.1 GB", "98 MB", "12 bytes" */
const char *hub_bytes(char *out, size_t size, uint64_t bytes);

#endif
