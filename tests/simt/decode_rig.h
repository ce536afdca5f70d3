/* SPDX-License-Identifier: Apache-2.0
 *
 * A program made ready for the persistent decoder, in C++, for tests on the emulator and on a device: packed weights, lists, packets, cache. The including file
 * says what device memory is:
 *
 *     void *rig_take(size_t bytes);                                 zeroed
 *     void rig_put(void *to, const void *from, size_t bytes);
 *     void rig_give(void *memory);
 *     #define RIG_FILL f         f(to, &matrix) makes up the units of a matrix of a model without weights (optional)
 */
#ifndef IRONMULE_TESTS_DECODE_RIG_H
#define IRONMULE_TESTS_DECODE_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
#include "backend/cuda/decode_plan.h"
#include "decode_model.h"
#include "num/real.h"
}

struct decode_rig {
    const im__program *p;
    im__decode_model model;
    im__decode_plan plan;
    im__decode_args args;
    std::vector<void *> memory, caches;
    size_t cache_bytes; /* of each cache: the smaller one */
    size_t pages, most_tokens;
    float *rope;
};

inline void *rig_zeroed(decode_rig &r, size_t bytes)
{
    r.memory.push_back(rig_take(bytes));
    return r.memory.back();
}

template <class T> const T *rig_copy(decode_rig &r, const T *from, size_t count)
{
    void *to = rig_zeroed(r, count * sizeof(T));
    rig_put(to, from, count * sizeof(T));
    return (const T *)to;
}

inline im__cuda_matrix rig_matrix(decode_rig &r, int index)
{
    const im__weight *w = &r.p->matrix[index].w;
    im__cuda_matrix m = decode_matrix(w);
#ifdef RIG_FILL
    if (w->data == NULL) { /* a model without weights: any will do */
        m.data = (const uint8_t *)rig_zeroed(r, decode_packed_bytes(&m));
        RIG_FILL((void *)m.data, &m);
        return m;
    }
#endif
    std::vector<uint8_t> bytes(decode_packed_bytes(&m));
    decode_pack(w, &m, bytes.data());
    m.data = rig_copy(r, bytes.data(), bytes.size());
    return m;
}

inline const float *rig_vector(decode_rig &r, int index) { return rig_copy(r, r.p->vector[index].data, r.p->vector[index].n); }

/* Pages of both pools lie in an order of their own. */
inline int32_t rig_page(const decode_rig &r, size_t p) { return (int32_t)((p * 7 + 3) % r.pages); }

/* One pool for all layers without, and one for all with a window: pages of 64 positions, filled with `fill`. */
inline void rig_cache(decode_rig &r, std::vector<im__decode_layer> &layer, int fill)
{
    const size_t head = 64 * 256, half = head * r.model.shape->kv_heads;
    size_t layers[2] = {0, 0}, before[2] = {0, 0};
    for (uint32_t l = 0; l < r.model.layers; l++) layers[r.p->kv[r.model.layer[l].cache].window != 0]++;
    uint16_t *pool[2];
    for (int k = 0; k < 2; k++) {
        const size_t bytes = r.pages * layers[k] * 2 * half * 2 + 16;
        pool[k] = (uint16_t *)rig_zeroed(r, bytes);
        r.caches.push_back(pool[k]);
        r.cache_bytes = k == 0 || bytes < r.cache_bytes ? bytes : r.cache_bytes;
        if (fill != 0) {
            std::vector<char> poison(bytes, (char)fill);
            rig_put(pool[k], poison.data(), bytes);
        }
        std::vector<int32_t> table(r.pages);
        for (size_t p = 0; p < r.pages; p++) table[p] = rig_page(r, p);
        r.args.pages[k] = rig_copy(r, table.data(), table.size());
    }
    for (uint32_t l = 0; l < r.model.layers; l++) {
        im__decode_layer &to = layer[l];
        to.window = r.p->kv[r.model.layer[l].cache].window;
        to.pool = to.window != 0;
        to.page_stride = layers[to.pool] * 2 * half;
        to.keys = pool[to.pool] + before[to.pool]++ * 2 * half;
        to.values = to.keys + half;
    }
}

inline void rig_packets(decode_rig &r)
{
    const im__decode_shape *s = r.model.shape;
    const size_t row = s->width / 32 * IM__DECODE_TILE_PACKETS * 16;
    im__decode_args &a = r.args;
    a.most_items = (uint32_t)(s->heads * r.pages);
    a.qkv = (uint64_t *)rig_zeroed(r, 2 * (s->heads + 2 * s->kv_heads) * 256 * 8);
    a.part = (uint64_t *)rig_zeroed(r, (size_t)2 * a.most_items * IM__DECODE_PART_PACKETS * 8);
    a.merged = rig_zeroed(r, 2 * s->heads * 24 * 16);
    a.out_rows = rig_zeroed(r, 2 * row);
    a.down_rows = rig_zeroed(r, 2 * s->width / 16 * IM__DECODE_PIECE_PACKETS * 16);
    a.hidden = rig_zeroed(r, 2 * s->hidden / 32 * 3 * 16);
    a.best = rig_zeroed(r, 2 * IM__DECODE_MOST_BLOCKS * 16);
    a.counter = (uint32_t *)rig_zeroed(r, IM__DECODE_COUNTERS * IM__DECODE_COUNTER_STRIDE * 4);
    a.clamped = (unsigned long long *)rig_zeroed(r, 8);
    a.failed = (uint32_t *)rig_zeroed(r, 4);
}

/* False, with a message, when the program does not fit. */
inline bool rig_make(decode_rig &r, const im__program *p, const im__decode_shape *shapes, size_t count, uint32_t blocks,
                     size_t positions, size_t most_tokens, int fill)
{
    im_error err;
    memset(&err, 0, sizeof err);
    r.p = p;
    memset(&r.args, 0, sizeof r.args);
    r.pages = (positions + 63) / 64;
    r.most_tokens = most_tokens;
    bool fits = im__decode_match(&r.model, p, shapes, count, &err) == IM_OK;
    if (!fits) {
        printf("%s\n", err.message);
        return false;
    }
    std::vector<im__decode_weights> weights(r.model.layers);
    std::vector<im__decode_layer> layer(r.model.layers);
    im__cuda_matrix head = rig_matrix(r, r.model.head);
    for (uint32_t l = 0; l < r.model.layers; l++) {
        const im__decode_layer_parts &of = r.model.layer[l];
        weights[l] = {rig_matrix(r, of.q),    rig_matrix(r, of.k),  rig_matrix(r, of.v),   rig_matrix(r, of.out),
                      rig_matrix(r, of.gate), rig_matrix(r, of.up), rig_matrix(r, of.down)};
        memset(&layer[l], 0, sizeof layer[l]);
        layer[l].attn_norm = rig_vector(r, of.attn_norm), layer[l].q_norm = rig_vector(r, of.q_norm);
        layer[l].k_norm = rig_vector(r, of.k_norm), layer[l].post_attn_norm = rig_vector(r, of.post_attn_norm);
        layer[l].ffn_norm = rig_vector(r, of.ffn_norm), layer[l].post_ffn_norm = rig_vector(r, of.post_ffn_norm);
        layer[l].rope = of.rope, layer[l].other = of.other;
    }
    if (im__decode_plan_make(&r.plan, r.model.shape, weights.data(), r.model.layers, &head, blocks, &err) != IM_OK) {
        printf("%s\n", err.message);
        return false;
    }
    im__decode_args &a = r.args;
    rig_cache(r, layer, fill);
    rig_packets(r);
    a.units = rig_copy(r, r.plan.unit, r.plan.units);
    a.share = rig_copy(r, r.plan.share, r.plan.blocks);
    a.layer = rig_copy(r, layer.data(), layer.size());
    a.final_norm = rig_vector(r, r.model.final_norm);
    a.embed = rig_matrix(r, r.model.embed);
    a.layers = r.model.layers, a.vocab = r.model.vocab;
    a.embed_scale = r.model.embed_scale, a.eps = r.model.eps, a.attention_scale = r.model.attention_scale;
    memcpy(a.announcers, r.plan.announcers, sizeof a.announcers);
    a.logits = (float *)rig_zeroed(r, most_tokens * a.vocab * 4);
    a.chosen = (int32_t *)rig_zeroed(r, most_tokens * 4);
    a.rope = r.rope = (float *)rig_zeroed(r, most_tokens * 512 * 4);
    a.tag = IM__DECODE_TAGS;
    return true;
}

/* What a launch of `tokens` from `position` on needs; then launch with r.args, and afterwards call rig_launched. */
inline void rig_aim(decode_rig &r, int token, int position, uint32_t tokens, bool keep_all)
{
    std::vector<float> rope(tokens * 512);
    for (uint32_t t = 0; t < tokens; t++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 128 && r.model.rope[k] != IM__NONE; i++)
                im__rope_angle(position + (int)t, r.p->rope[r.model.rope[k]].frequency[i], &rope[(t * 2 + k) * 256 + 2 * i],
                               &rope[(t * 2 + k) * 256 + 2 * i + 1]);
    rig_put(r.rope, rope.data(), rope.size() * 4);
    r.args.token = token, r.args.position = position, r.args.tokens = tokens, r.args.keep_all = keep_all;
}
inline void rig_launched(decode_rig &r) { r.args.tag += IM__DECODE_TAGS * r.args.tokens; }

inline void rig_clear(decode_rig &r)
{
    for (void *m : r.memory) rig_give(m);
    im__decode_plan_clear(&r.plan);
    im__decode_model_clear(&r.model);
}

#endif
