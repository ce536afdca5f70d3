/* SPDX-License-Identifier: Apache-2.0
 *
 * Where layers lie in the pages of their pool: the same on every backend, so that a page may move from one to another.
 */
#include "backend/backend.h"

im__pool_kind im__kv_layer_pool(const im__program *p, size_t layer)
{
    return p->kv[layer].window > 0 ? IM__POOL_WINDOW : IM__POOL_FULL;
}

/* Of one page: a multiple of 128, so whatever the types before it, a layer lies at a whole number of its own elements. */
static size_t layer_bytes(const im__kv_layer *kv)
{
    return (size_t)2 * kv->kv_heads * kv->head_dim * IM__PAGE * im__kv_type_size(kv->type);
}

size_t im__kv_page_bytes(const im__program *p, im__pool_kind pool)
{
    size_t bytes = 0;
    for (size_t i = 0; i < p->kv_count; i++)
        if (im__kv_layer_pool(p, i) == pool) bytes += layer_bytes(&p->kv[i]);
    return bytes;
}

void im__kv_place_layers(const im__program *p, size_t *offset)
{
    size_t next[IM__POOLS] = {0};
    for (size_t i = 0; i < p->kv_count; i++) {
        size_t *at = &next[im__kv_layer_pool(p, i)];
        offset[i] = *at;
        *at += layer_bytes(&p->kv[i]);
    }
}

im_status im__kv_count_pools(const im__program *p, const size_t pages[IM__POOLS], size_t bytes[IM__POOLS], size_t *all,
                             im_error *err)
{
    *all = 0;
    for (int k = 0; k < IM__POOLS; k++)
        if (!im__mul(pages[k], im__kv_page_bytes(p, (im__pool_kind)k), &bytes[k]) || !im__add(*all, bytes[k], all))
            return im__fail(err, IM_ERR_MEMORY, "the KV cache exceeds the address space; a smaller context needs less");
    return IM_OK;
}
