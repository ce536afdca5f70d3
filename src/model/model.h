/* SPDX-License-Identifier: Apache-2.0
 *
 * From a checked file to what the engine runs: vocabulary, chat template and program. One file a family (family_*.c) turns metadata into a program; a new
 * family is a new list, not a new forward pass.
 */
#ifndef IRONMULE_MODEL_MODEL_H
#define IRONMULE_MODEL_MODEL_H

#include "base/error.h"
#include "format/gguf.h"
#include "ops/program.h"
#include "text/chat/template.h"
#include "text/tokenizer/tokenizer.h"

/* What the program builders need of the metadata, read and bounded by im__params_read. */
typedef struct im__params {
    char arch[IM__NAME_MAX];
    uint32_t layers, embd, heads, head_dim, context, vocab, rot_dim;
    uint32_t *ff, *kv_heads; /* [layers] */
    uint32_t window;         /* 0: none */
    uint32_t window_every;   /* gemma: each such layer (1-based) sees everything; 0: not given */
    float eps, attention_scale /* 0: not given */, attention_cap, final_cap; /* caps below 0: not given */
    double rope_base, rope_base_swa;                                         /* 0: not given */
    double rope_factor;                                                      /* linear scaling of positions; 1: none */
} im__params;

/* Errors: IM_ERR_FORMAT or IM_ERR_UNSUPPORTED naming the key. im__params_clear frees the arrays. */
im_status im__params_read(const im__gguf *g, im__params *out, im_error *err);
void im__params_clear(im__params *p);

/* A family: how the architecture of this name becomes a program. */
typedef struct im__family {
    const char *arch;
    im_status (*build)(im__program *p, const im__gguf *g, const im__params *params, im_error *err);
} im__family;
const im__family *im__family_find(const char *arch, size_t n); /* NULL: unknown */
void im__family_names(im__buf *out);                           /* "gemma2, gemma3, llama, qwen2, qwen3" */

/* Reads the vocabulary of a file. `pre`: force this pre-tokeniser (NULL: the file's). *out is the caller's. Arrays made on the way
 * live in *keep until the tokenizer is gone. */
typedef struct im__vocab_arrays {
    im__gguf_string *token, *merge;
    float *score;
    int32_t *type;
    int32_t end[2]; /* ids of the eot and eom keys */
} im__vocab_arrays;
im_status im__vocabulary_read(const im__gguf *g, const char *pre, im__tokenizer **out, im__vocab_arrays *keep, im_error *err);
void im__vocab_arrays_clear(im__vocab_arrays *a);

/* Builds the program of the file: every tensor that the architecture needs is there, of the right shape and of a type that runs, and
 * no tensor is left over. */
im_status im__program_read(const im__gguf *g, im__program *out, im_error *err);

#endif
