/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 2 and Gemma 3 (text). Norms before and behind both halves of a layer; embeddings times sqrt(width); layers with a sliding window between layers that see
 * everything: every second one in Gemma 2, every sixth in Gemma 3, whose window layers turn with a base of their own and are never scaled.
 * What the file leaves out is fixed by the published models: see the constants.
 */
#include "model/families.h"

#include <math.h>

/* Gemma 2 27B (46 layers) and Gemma 3 27B (62 layers) scale queries by width / heads in place of the head's size. */
static float query_scale(const im__params *m, uint32_t layers_of_27b)
{
    if (m->attention_scale > 0) return m->attention_scale;
    float n = m->layers == layers_of_27b ? (float)m->embd / (float)m->heads : (float)m->head_dim;
    return 1.0f / sqrtf(n);
}

static void layer(im__build *b, const im__attention_params *a)
{
    const im__params *m = b->params;
    im__b_norm(b, b->h, b->x, "attn_norm", m->embd);
    im__b_attention_block(b, a);
    im__b_norm(b, b->h, b->h, "post_attention_norm", m->embd);
    im__b_add(b, b->x, b->h);
    im__b_norm(b, b->h, b->x, "ffn_norm", m->embd);
    im__b_feed_forward(b, IM__GLU_GELU);
    im__b_norm(b, b->h, b->h, "post_ffw_norm", m->embd);
    im__b_add(b, b->x, b->h);
}

/* Attention of the layers that see everything, and of those with a window. */
typedef struct kinds {
    im__attention_params global, local;
    uint32_t every; /* layers every, 2 every ... (1-based) are global */
    float final_cap;
    bool norms; /* of q and k: without them the file is damaged */
} kinds;

static void layers(im__build *b, const kinds *k)
{
    im__b_embed(b, sqrtf((float)b->params->embd));
    for (b->layer = 0; b->layer < (int)b->params->layers; b->layer++) {
        if (k->norms) im__b_require(b, "attn_q_norm", "weight");
        if (k->norms) im__b_require(b, "attn_k_norm", "weight");
        layer(b, ((uint32_t)b->layer + 1) % k->every == 0 ? &k->global : &k->local);
    }
    im__b_head(b, k->final_cap);
}

im_status im__family_gemma2(im__program *p, const im__source *s, const im__params *m, im_error *err)
{
    im__build b;
    double base = m->rope_base > 0 ? m->rope_base : 10000.0;
    if (im__build_begin(&b, p, s, m, err) == IM_OK) {
        kinds k = {.every = m->window_every > 0 ? m->window_every : 2, .final_cap = m->final_cap < 0 ? 30.0f : m->final_cap};
        k.global.scale = query_scale(m, 46);
        k.global.cap = m->attention_cap < 0 ? 50.0f : m->attention_cap;
        k.global.rope = im__b_rope_table(&b, base, m->rope_factor, false, false);
        k.local = k.global;
        k.local.window = m->window > 0 ? m->window : 4096;
        layers(&b, &k);
    }
    return im__build_end(&b);
}

im_status im__family_gemma3(im__program *p, const im__source *s, const im__params *m, im_error *err)
{
    im__build b;
    double base = m->rope_base > 0 ? m->rope_base : 1e6, base_local = m->rope_base_swa > 0 ? m->rope_base_swa : 1e4;
    if (m->window == 0)
        return im__fail(err, IM_ERR_FORMAT, "%s: gemma3 without a sliding window (key gemma3.attention.sliding_window)", s->path);
    if (im__build_begin(&b, p, s, m, err) == IM_OK) {
        kinds k = {.every = m->window_every > 0 ? m->window_every : 6, .final_cap = m->final_cap, .norms = true};
        k.global.scale = query_scale(m, 62);
        k.global.cap = m->attention_cap < 0 ? 0 : m->attention_cap;
        k.global.rope = im__b_rope_table(&b, base, m->rope_factor, false, false);
        k.local = k.global;
        k.local.rope = im__b_rope_table(&b, base_local, 1.0, false, false);
        k.local.window = m->window;
        layers(&b, &k);
    }
    return im__build_end(&b);
}
