/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 2 and 3.x, Mistral, SmolLM ("llama"), Qwen 2 and 2.5 ("qwen2"), Qwen 3 ("qwen3"): one shape of layer. They differ in the pairs that the rotation turns
 * (GGUF stores Llama's Q and K rows permuted, so that neighbours turn together), in biases (Qwen 2) and in norms of q and k (Qwen 3), without which such a
 * file is damaged. The others take biases and norms when the file has them.
 */
#include "model/families.h"

#include <math.h>

/* What sets the architectures apart. */
typedef struct kind {
    bool adjacent; /* pairs that turn together */
    bool biases, norms;
} kind;

static void require(im__build *b, const kind *k)
{
    static const char *const biased[] = {"attn_q", "attn_k", "attn_v"}, *const normed[] = {"attn_q_norm", "attn_k_norm"};
    for (size_t i = 0; k->biases && i < 3; i++) im__b_require(b, biased[i], "bias");
    for (size_t i = 0; k->norms && i < 2; i++) im__b_require(b, normed[i], "weight");
}

static void layer(im__build *b, const im__attention_params *a)
{
    const im__params *m = b->params;
    im__b_norm(b, b->h, b->x, "attn_norm", m->embd);
    im__b_attention_block(b, a);
    im__b_add(b, b->x, b->h);
    im__b_norm(b, b->h, b->x, "ffn_norm", m->embd);
    im__b_feed_forward(b, IM__GLU_SILU);
    im__b_add(b, b->x, b->h);
}

static im_status build(im__program *p, const im__source *s, const im__params *m, const kind *k, im_error *err)
{
    im__build b;
    double base = m->rope_base > 0 ? m->rope_base : 10000.0;
    if (im__build_begin(&b, p, s, m, err) == IM_OK) {
        im__attention_params a = {.scale = m->attention_scale > 0 ? m->attention_scale : 1.0f / sqrtf((float)m->head_dim)};
        if (m->window_everywhere) a.window = m->window;
        im__b_embed(&b, 1.0f);
        a.rope = im__b_rope_table(&b, base, m->rope_factor, k->adjacent, true);
        for (b.layer = 0; b.layer < (int)m->layers; b.layer++) {
            require(&b, k);
            layer(&b, &a);
        }
        im__b_head(&b, 0);
    }
    return im__build_end(&b);
}

im_status im__family_llama(im__program *p, const im__source *s, const im__params *m, im_error *err)
{
    return build(p, s, m, &(kind){.adjacent = true}, err);
}

im_status im__family_qwen2(im__program *p, const im__source *s, const im__params *m, im_error *err)
{
    return build(p, s, m, &(kind){.biases = true}, err);
}

im_status im__family_qwen3(im__program *p, const im__source *s, const im__params *m, im_error *err)
{
    return build(p, s, m, &(kind){.norms = true}, err);
}
