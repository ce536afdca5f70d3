/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model on disk is, and whether it can run here. Its metadata is read and checked; no weight is.
 */
#ifndef IRONMULE_STORE_FACTS_H
#define IRONMULE_STORE_FACTS_H

#include <ironmule/ironmule.h>
#include <jansson.h>

typedef struct model_facts {
    const char *format; /* "gguf", "safetensors" */
    char family[64], quantisation[64], licence[64];
    uint64_t bytes;      /* of its files */
    uint64_t parameters; /* 0: not known */
    uint32_t made_for;   /* positions; 0: not known */
    uint32_t context;    /* positions that `need` counts */
    uint64_t need;       /* bytes of memory; 0: not known */
    uint64_t available;  /* on this machine, now; 0: not known */
    bool runs;
    char why[IM_ERROR_MESSAGE_MAX]; /* when it does not */
} model_facts;

/* `context` 0: what the program takes by itself. */
void model_facts_read(model_facts *out, const char *path, uint32_t context);

/* Adds them to the object. */
void model_facts_json(json_t *to, const model_facts *f);

#endif
