/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says about the Hub, in the variables that other tools read too: HF_ENDPOINT, HF_TOKEN (HUGGING_FACE_HUB_TOKEN) or the
 * token's file (HF_TOKEN_PATH, $HF_HOME/token), HF_HUB_CACHE (HUGGINGFACE_HUB_CACHE), HF_HOME, XDG_CACHE_HOME, HF_HUB_OFFLINE
 * (TRANSFORMERS_OFFLINE), HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_DOWNLOAD_TIMEOUT.
 */
#ifndef IRONMULE_HUB_ENV_H
#define IRONMULE_HUB_ENV_H

#include "hub/hub_error.h"

#include <stdbool.h>

typedef struct hub_env {
    char *cache;      /* the cache's root */
    char *endpoint;   /* "https://huggingface.co", without a slash at its end */
    char *token;      /* NULL: none. Never printed */
    char *token_file; /* where it may stand */
    bool offline;
    double stall_s; /* a transfer that brings nothing for so long is begun anew */
} hub_env;

/* IM_ERR_ARGUMENT: a variable cannot mean anything; it is named. */
im_status hub_env_read(hub_env *out, im_error *err);
void hub_env_free(hub_env *e);

#endif
