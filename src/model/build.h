/* SPDX-License-Identifier: Apache-2.0
 *
 * Words that the families are written in. A builder remembers the first error; after it every word does nothing, so that a family reads as a
 * plain list and is checked once at its end.
 */
#ifndef IRONMULE_MODEL_BUILD_H
#define IRONMULE_MODEL_BUILD_H

#include "model/model.h"

typedef struct im__build {
    im__program *p;
    const im__source *s;
    const im__params *params;
    bool *used; /* [tensor_count] */
    im_status status;
    im_error *err;
    int layer; /* the layer being built: tensor names begin with blk.<layer>. */
    /* the usual values */
    int x, h, q, k, v, att, gate, up, logits;
} im__build;

/* Makes the usual values and returns a ready builder. Finish with im__build_end, which gives the status, checks the program and that no tensor is
 * left over. */
im_status im__build_begin(im__build *b, im__program *p, const im__source *s, const im__params *params, im_error *err);
im_status im__build_end(im__build *b);

/* A tensor of the present layer ("attn_q", "weight") or of the whole model (layer below 0). */
bool im__b_has(const im__build *b, const char *stem, const char *kind);
void im__b_require(im__build *b, const char *stem, const char *kind); /* one that the words below take only when it is there */

int im__b_rope_table(im__build *b, double base, double factor, bool adjacent, bool use_divisors);

void im__b_embed(im__build *b, float by);                                      /* x = embedding of the token */
void im__b_norm(im__build *b, int dst, int src, const char *stem, uint32_t n); /* n: width of a group */
void im__b_linear(im__build *b, int dst, int src, const char *stem);           /* with its bias, if the file has one */
void im__b_add(im__build *b, int dst, int src);

/* q, k, v from h; norms of q and k when the file has them; rotation, cache and attention; att = result. */
typedef struct im__attention_params {
    float scale, cap;
    uint32_t window;
    int rope;
} im__attention_params;
void im__b_attention_block(im__build *b, const im__attention_params *a);

/* h = down(f(gate(h)) * up(h)) */
void im__b_feed_forward(im__build *b, im__glu glu);

/* Last norm, output matrix (or the embedding when the file has none), cap of the logits. */
void im__b_head(im__build *b, float cap);

#endif
