/* SPDX-License-Identifier: Apache-2.0
 *
 * What every call of the library answers with. Part of the public door: ironmule.h includes it.
 *
 * A call that can fail returns an im_status and takes an optional im_error (NULL is allowed). On success the error is left
 * untouched; on failure it holds one line that says what went wrong, where (file, tensor, byte offset, line) and what to do.
 * The numbers are stable and part of the ABI.
 */
#ifndef IRONMULE_STATUS_H
#define IRONMULE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum im_status {
    IM_OK = 0,
    IM_ERR_ARGUMENT = 1,    /* the caller passed something that can never work */
    IM_ERR_IO = 2,          /* a file could not be opened, read or mapped */
    IM_ERR_FORMAT = 3,      /* a file is damaged, cut, or lies about itself */
    IM_ERR_UNSUPPORTED = 4, /* well-formed, but of a kind that this build does not know */
    IM_ERR_MEMORY = 5,      /* the plan does not fit, or an allocation failed */
    IM_ERR_CONTEXT = 6,     /* prompt longer than the context; the message has both numbers */
    IM_ERR_TEMPLATE = 7,    /* the chat template refused the conversation, or cannot be run */
    IM_ERR_NUMERIC = 8,     /* a logit is not a number */
    IM_ERR_CANCELLED = 9,   /* the caller cancelled */
    IM_ERR_INTERNAL = 10,   /* a promise of our own was broken; please report it */
    IM_ERR_TIMEOUT = 11,    /* the request's deadline passed */
    IM_ERR_BUSY = 12,       /* the queue is full, or the engine is closing: the same request may work later */
    IM_ERR_DEVICE = 13      /* a GPU, or its driver, failed; the engine cannot go on with it */
} im_status;

/* Longest message, with its terminating zero. Longer ones are cut at a character boundary and end in "...". */
#define IM_ERROR_MESSAGE_MAX 1024

/* Owned by the caller, usually on the stack; needs no clean-up. The message is always valid UTF-8. */
typedef struct im_error {
    im_status status;
    char message[IM_ERROR_MESSAGE_MAX];
} im_error;

#ifdef __cplusplus
}
#endif
#endif
