/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    const char *stored, *role;
} pair;

static const pair whole[] = {{"embed_tokens", "token_embd"}, {"norm", "output_norm"}};

static const pair in_layer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

/* One name stands for two places. */
static const pair norms[] = {{"post_attention_layernorm", "ffn_norm"}};
static const pair gemma_norms[] = {{"post_attention_layernorm", "post_attention_norm"},
                                   {"pre_feedforward_layernorm", "ffn_norm"},
                                   {"post_feedforward_layernorm", "post_ffw_norm"}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The other name of the first n bytes of `name`; NULL: not in the list. */
static const char *other(const pair *list, size_t count, const char *name, size_t n, bool to_role)
{
    for (size_t i = 0; i < count; i++) {
        const char *from = to_role ? list[i].stored : list[i].role;
        if (strlen(from) == n && memcmp(from, name, n) == 0) return to_role ? list[i].role : list[i].stored;
    }
    return NULL;
}

static const char *other_in_layer(const im__hf *f, const char *name, size_t n, bool to_role)
{
    const char *found = other(in_layer, COUNT(in_layer), name, n, to_role);
    if (found != NULL) return found;
    return f->gemma ? other(gemma_norms, COUNT(gemma_norms), name, n, to_role) : other(norms, COUNT(norms), name, n, to_role);
}

static const char *behind(const char *name, const char *start)
{
    size_t n = strlen(start);
    return strncmp(name, start, n) == 0 ? name + n : NULL;
}

void im__hf_find_prefix(im__hf *f)
{
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model."};
    char name[64];
    f->prefix = "model.";
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (im__st_folder_find(f->weights, name) != NULL) f->prefix = prefixes[i];
    }
    f->head = im__st_folder_find(f->weights, "language_model.lm_head.weight") != NULL ? "language_model.lm_head." : "lm_head.";
}

bool im__hf_ignores(const im__hf *f, const char *stored)
{
    static const char *const parts[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                        "model.multi_modal_projector."};
    static const char tables[] = "rotary_emb.inv_freq"; /* computed from the configuration */
    size_t n = strlen(stored), tail = sizeof tables - 1;
    for (size_t i = 0; f->nested && i < COUNT(parts); i++)
        if (behind(stored, parts[i]) != NULL) return true;
    if (f->tied && behind(stored, f->head) != NULL) return true;
    return n > tail && strcmp(stored + n - tail, tables) == 0;
}

/* "layers.12.": the number; *rest: what is behind. -1: another form. */
static int layer_of(const char *name, const char *start, const char **rest)
{
    const char *p = behind(name, start);
    char *end;
    if (p == NULL || *p < '0' || *p > '9' || (p[0] == '0' && p[1] != '.') || strspn(p, "0123456789") > 6) return -1;
    long layer = strtol(p, &end, 10);
    if (*end != '.') return -1;
    *rest = end + 1;
    return (int)layer;
}

void im__hf_role(const im__hf *f, const char *stored, char role[IM__ROLE_MAX])
{
    const char *rest = behind(stored, f->prefix), *kind = strrchr(stored, '.'), *name, *in;
    int layer = rest == NULL ? -1 : layer_of(rest, "layers.", &in);
    const char *head = behind(stored, f->head);
    if (head != NULL && kind == head - 1) {
        snprintf(role, IM__ROLE_MAX, "output.%.40s", head);
        return;
    }
    if (layer >= 0 && kind >= in && (name = other_in_layer(f, in, (size_t)(kind - in), true)) != NULL) {
        snprintf(role, IM__ROLE_MAX, "blk.%d.%s%.20s", layer, name, kind);
        return;
    }
    if (layer < 0 && rest != NULL && kind >= rest &&
        (name = other(whole, COUNT(whole), rest, (size_t)(kind - rest), true)) != NULL) {
        snprintf(role, IM__ROLE_MAX, "%s%.20s", name, kind);
        return;
    }
    snprintf(role, IM__ROLE_MAX, "%.*s", IM__ROLE_MAX - 1, stored);
}

const char *im__hf_label(const im__hf *f, const char *role, char out[128])
{
    const char *rest = role, *kind = strrchr(role, '.'), *name = NULL, *end = behind(role, "output.");
    int layer = layer_of(role, "blk.", &rest);
    if (kind != NULL && layer >= 0 && kind >= rest) name = other_in_layer(f, rest, (size_t)(kind - rest), false);
    if (kind != NULL && layer < 0) name = other(whole, COUNT(whole), role, (size_t)(kind - role), false);
    if (end != NULL)
        snprintf(out, 128, "%s%s", f->head, end);
    else if (name == NULL)
        snprintf(out, 128, "%s", role);
    else if (layer >= 0)
        snprintf(out, 128, "%slayers.%d.%s%s", f->prefix, layer, name, kind);
    else
        snprintf(out, 128, "%s%s%s", f->prefix, name, kind);
    return out;
}
