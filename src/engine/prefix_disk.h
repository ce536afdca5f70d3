/* SPDX-License-Identifier: Apache-2.0
 *
 * The further tiers of the prefix cache: memory of the host behind that of a GPU (page_shelf.h), and files of pages (page_file.h) in a private folder; one or both. They are
 * written and read by a thread of its own, so that no step waits for a disk or a copy.
 *
 * A file appears under its name only when it is whole (written beside, synchronised, renamed), and everything in it is checked when it is read, so neither a kill nor a crash
 * nor somebody else's file can give a wrong page. Files that are not right are removed when they have one of our names, and counted. The least recently used files go
 * when the folder would exceed its limit. A lock file keeps a second engine out.
 *
 * How to use, on the engine's thread: im__disk_reach asks what there is; a job names pages of one text that nobody writes and that stay where they are until
 * im__disk_finished hands the job back. Somebody waits for what is loaded: that goes first, also in the middle of storing.
 */
#ifndef IRONMULE_ENGINE_PREFIX_DISK_H
#define IRONMULE_ENGINE_PREFIX_DISK_H

#include "engine/page_file.h"

#include <stdatomic.h>

typedef struct im__disk im__disk;

typedef struct im__disk_options {
    const char *folder; /* made if it is not there; must belong to this user alone. NULL: none */
    uint64_t limit;     /* bytes */
    uint64_t host;      /* bytes of the host's memory; 0: none */
    unsigned char fingerprint[16];
    im__backend *backend;
    size_t page_bytes[IM__POOLS];
    size_t most_pages;        /* of a text */
    void (*news)(void *user); /* on the disk's thread: a job is finished */
    void (*log)(void *user, im_log_level level, const char *line);
    void *user;
} im__disk_options;

typedef struct im__disk_counts {
    uint64_t hits, writes, dropped, bytes;       /* of the folder */
    uint64_t host_hits, host_writes, host_bytes; /* of the host's memory */
} im__disk_counts;

typedef struct im__disk_job im__disk_job;
struct im__disk_job {
    bool load;
    size_t begin, end;              /* pages of the text that are meant */
    const int32_t *ids;             /* [end * IM__PAGE] */
    const im__page_name *name;      /* [end] */
    const int32_t *page[IM__POOLS]; /* [end] where a page is, or is to come; -1: none wanted */
    atomic_bool cancel;             /* set by anybody: the rest is left */
    uint64_t since;                 /* on the disk's thread: when it has begun, by the shelf's clock */
    size_t done;                    /* result: all wanted pages begin .. done - 1 are there */
    im__disk_job *next;
};

/* Errors: IM_ERR_IO when the folder cannot be used, or another engine uses it; IM_ERR_MEMORY. */
im_status im__disk_open(im__disk **out, const im__disk_options *o, im_error *err);
/* Waits for its thread: what is to be stored is stored, for some seconds; what is to be loaded is not. */
void im__disk_stop(im__disk *d);
void im__disk_close(im__disk *d); /* stops as well */

/* Is the page in one of the tiers? A file may be damaged still. Waits for no disk. */
bool im__disk_has(im__disk *d, im__pool_kind pool, const im__page_name *name);
/* The pages of these `end` names are in use, though not taken from here: they stay on the shelf for longer. Any thread. */
void im__disk_use(im__disk *d, const im__page_name *name, size_t end);
void im__disk_submit(im__disk *d, im__disk_job *job);
im__disk_job *im__disk_finished(im__disk *d); /* a list */
im__disk_counts im__disk_count(im__disk *d);

#endif
