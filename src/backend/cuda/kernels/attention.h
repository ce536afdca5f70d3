/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over KV pages (contract, section 4): what the host needs to launch the kernels of attention.cu and attention_many.cu.
 *
 * im_attention_few   rows one by one, the keys of each cut into blocks that spread over the device. Any head size, either type of cache, any number of rows.
 * im_attention_many  tiles of neighbouring rows of one sequence that go through the keys together. Only what im__attention_many_fits says.
 *
 * A step's rows are either in a tile or single. A sequence with at least IM__ATTENTION_TILE_PAYS neighbouring rows in a step becomes tiles of up to
 * im__attention_tile_rows rows; all other rows are singles. A layer that the tile kernel cannot do runs im_attention_few with `every` set.
 * Keys and values of a page, and the pool, must be aligned to 16 bytes. Both kernels take one im__cuda_attention by value.
 */
#ifndef IRONMULE_CUDA_ATTENTION_H
#define IRONMULE_CUDA_ATTENTION_H

#include "backend/cuda/abi.h"

#include <stdint.h>

#ifdef __CUDACC__
#define IM__SHAPE static constexpr __host__ __device__ inline
#elif defined(__cplusplus)
#define IM__SHAPE static constexpr inline
#else
#define IM__SHAPE static inline
#endif

enum {
    IM__ATTENTION_PAGE = 64,          /* keys of a page and of a block */
    IM__ATTENTION_SPAN = 16,          /* blocks of a span */
    IM__ATTENTION_TILE_PAYS = 64,     /* fewer neighbouring rows are singles */
    IM__ATTENTION_FEW_HEADS = 4,      /* query heads of a KV head that a block of im_attention_few takes at most */
    IM__ATTENTION_COUNTERS = 1 << 17, /* words at the beginning of the scratch */
    IM__ATTENTION_SPLIT_ROWS = 128,   /* with more rows, none is split over several blocks of the grid */
    IM__ATTENTION_MANY_THREADS = 256
};

IM__SHAPE uint32_t im__attention_ceil(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

/* ---- im_attention_few ----------------------------------------------------------------------------------------------------------------
 *
 * Kernels im_attention_few_<how>_<heads>: `staged` 1 2 3 4 copies pages of a binary16 cache into shared memory, `half` 1 4 and `float` 1 4 read the cache where it
 * is. The grid does not depend on the step: the kernel spreads what there is to do over the blocks that it has. */

/* How many query heads a block takes: they share the reading of keys and values. All that share a KV head, four at most, where there is work for all processors;
 * else fewer, so that it is done sooner. rows, most_keys: of the step, or the most that a graph of launches is for. */
IM__SHAPE uint32_t im__attention_few_heads(uint32_t heads, uint32_t kv_heads, int staged, uint32_t rows, uint32_t most_keys,
                                           uint32_t window, uint32_t processors)
{
    uint32_t sharing = heads / kv_heads, pieces = im__attention_ceil(sharing, IM__ATTENTION_FEW_HEADS),
             each = im__attention_ceil(sharing, pieces);
    uint64_t blocks =
        (uint64_t)rows * kv_heads * im__attention_ceil(window != 0 && window < most_keys ? window : most_keys, IM__ATTENTION_PAGE);
    uint32_t fewer = 1;
    while (fewer < each && blocks * im__attention_ceil(sharing, fewer) > 2 * (uint64_t)processors) fewer *= 2;
    if (fewer > each) fewer = each;
    return staged || fewer == 1 ? fewer : (uint32_t)IM__ATTENTION_FEW_HEADS;
}

/* A warp for 64 elements of the head. */
IM__SHAPE uint32_t im__attention_few_threads(uint32_t head_dim) { return 32 * im__attention_ceil(head_dim, 64); }

/* Bytes of dynamic shared memory. */
IM__SHAPE uint32_t im__attention_few_shared(uint32_t head_dim, uint32_t each, int staged)
{
    uint32_t chunks = im__attention_ceil(head_dim, 64), stage = staged ? 2 * head_dim * IM__ATTENTION_PAGE * 2 : 0;
    uint32_t sums = chunks < 2 ? each * 128 : chunks * each * 64;
    return stage + 4 * (each * ((head_dim + 3) / 4 * 4) + sums + 2 * each + 16);
}

/* Whether pages are staged: a binary16 cache, asynchronous copies (compute capability 8.0) and room for a block. */
IM__SHAPE int im__attention_few_staged(uint32_t is_f32, uint32_t head_dim, uint32_t capability, uint32_t shared_of_block)
{
    return !is_f32 && capability >= 80 && im__attention_few_shared(head_dim, IM__ATTENTION_FEW_HEADS, 1) <= shared_of_block;
}

/* Blocks of the grid for a device of `processors` with `shared_of_processor` bytes of shared memory each. */
IM__SHAPE uint32_t im__attention_few_blocks(uint32_t processors, uint32_t shared_of_processor, uint32_t head_dim, uint32_t each,
                                            int staged)
{
    uint32_t most = 32 / im__attention_ceil(head_dim, 64),
             fit = shared_of_processor / (im__attention_few_shared(head_dim, each, staged) + 1024);
    if (most > 12) most = 12;
    if (fit < 1) fit = 1;
    return processors * (fit < most ? fit : most);
}

/* Spans that a row can see. */
IM__SHAPE uint32_t im__attention_spans(uint32_t keys, uint32_t window)
{
    uint32_t all = im__attention_ceil(keys, 1024), seen = window / 1024 + 2;
    return window != 0 && seen < all ? seen : all;
}

/* The scratch, in floats. First the counters, which every launch leaves as it found them, zeros. Then for each block of the grid what it knows of a span that
 * another block began (15 states of blocks of keys at most), then the states of spans, [row][KV head, piece of its heads][span]. A state is, for each of the
 * `each` heads, the head's values and then m and l. One scratch serves all layers of a stream of launches. */
IM__SHAPE uint64_t im__attention_partial_floats(uint32_t rows, uint32_t most_keys, uint32_t window, uint32_t heads,
                                                uint32_t kv_heads, uint32_t head_dim, uint32_t each, uint32_t blocks)
{
    uint64_t state = (uint64_t)each * (head_dim + 2), pieces = im__attention_ceil(heads / kv_heads, each);
    uint64_t spans = (uint64_t)rows * kv_heads * pieces * im__attention_spans(most_keys, window);
    return IM__ATTENTION_COUNTERS + state * ((uint64_t)blocks * (IM__ATTENTION_SPAN - 1) + spans);
}

/* ---- im_attention_many -----------------------------------------------------------------------------------------------------------------
 *
 * Kernels im_attention_many_<head size>_<queries>: so many queries (rows times the query heads of a KV head) that a block of the grid takes together. There are those
 * of im__attention_many_queries(head size), its half, and for heads of 128 and 256 its quarter; fewer need less shared memory and fill more processors. */

IM__SHAPE uint32_t im__attention_many_queries(uint32_t head_dim)
{
    return head_dim == 256 ? 64 : head_dim == 64 ? 256 : head_dim == 80 || head_dim == 96 || head_dim == 128 ? 128 : 0;
}

/* Whether there is a kernel for the shape: otherwise im_attention_few does all rows. */
IM__SHAPE int im__attention_many_fits(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t is_f32)
{
    return !is_f32 && heads / kv_heads <= 16 && im__attention_many_queries(head_dim) != 0;
}

/* Bytes of dynamic shared memory. */
IM__SHAPE uint32_t im__attention_many_shared(uint32_t head_dim, uint32_t queries)
{
    uint32_t each = IM__ATTENTION_MANY_THREADS / queries, split = head_dim % 64 == 0 ? head_dim / 64 : 1;
    uint32_t sums = split * queries * (64 + (each > 4 ? each : 4)), weights = queries + (each == 1 ? 0 : each <= 8 ? 32 / each : 4);
    if (head_dim % 64 == 0 && head_dim * queries == 16384 && sums < head_dim * 64) sums = head_dim * 64;
    return 4 * (head_dim * queries + head_dim * 64 + sums + 64 * weights + 10 * queries + 4);
}

/* Rows of a tile of the host, for layers of this shape; the tiles of a step have the least of its layers. */
IM__SHAPE uint32_t im__attention_tile_rows(uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
    uint32_t rows = im__attention_many_queries(head_dim) / (heads / kv_heads);
    return rows < 1 ? 1 : rows;
}

/* Blocks of the grid that take up to `tiles` tiles; those beyond what a step has end at once. */
IM__SHAPE uint32_t im__attention_many_blocks(uint32_t tiles, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t queries)
{
    return tiles * kv_heads * im__attention_ceil(im__attention_tile_rows(heads, kv_heads, head_dim), queries / (heads / kv_heads));
}

/* The kernels of a head size by their number `way`: the most queries, half, a quarter; how many there are. */
IM__SHAPE uint32_t im__attention_many_ways(uint32_t head_dim) { return head_dim == 80 || head_dim == 96 ? 2 : 3; }

/* Blocks of keys that the `late`-th tile from the end, cut into parts of `rows` rows, goes through, where `keys` is the largest position of the tiles + 1. */
IM__SHAPE uint32_t im__attention_many_keys(uint32_t late, uint32_t rows, uint32_t keys, uint32_t window)
{
    uint32_t behind = late * rows, end = keys > behind ? keys - behind : 1,
             begin = window != 0 && end > window + rows ? end - window - rows : 0;
    return (end - 1) / IM__ATTENTION_PAGE - begin / IM__ATTENTION_PAGE + 1;
}

/* About how long way `way` takes for `tiles` full tiles of one sequence: in blocks of keys of the widest way. Late tiles come first and see most keys; a second
 * round goes to whoever is ready. Measured on an H200: a block of half the queries takes 0.6 of the time, of a quarter 0.42. */
IM__SHAPE float im__attention_many_time(uint32_t way, uint32_t tiles, uint32_t keys, uint32_t window, uint32_t heads,
                                        uint32_t kv_heads, uint32_t head_dim, uint32_t processors)
{
    const float cost[3] = {1.0f, 0.6f, 0.42f};
    uint32_t rows = (im__attention_many_queries(head_dim) >> way) / (heads / kv_heads);
    uint32_t parts = rows == 0 ? 0 : tiles * im__attention_ceil(im__attention_tile_rows(heads, kv_heads, head_dim), rows),
             units = parts * kv_heads;
    uint64_t all = 0;
    uint32_t longest = 0;
    if (units == 0) return 1e30f;
    for (uint32_t i = 0; i < parts; i++) all += (uint64_t)kv_heads * im__attention_many_keys(i, rows, keys, window);
    for (uint32_t i = processors; i < units && i < 2 * processors; i++) {
        uint32_t two = im__attention_many_keys(i / kv_heads, rows, keys, window) +
                       im__attention_many_keys((2 * processors - 1 - i) / kv_heads, rows, keys, window);
        if (two > longest) longest = two;
    }
    if (im__attention_many_keys(0, rows, keys, window) > longest) longest = im__attention_many_keys(0, rows, keys, window);
    float even = (float)all / (float)processors;
    if (units > 2 * processors) even += 0.5f * (float)all / (float)units;
    return cost[way] * ((float)longest > even ? (float)longest : even);
}

/* The way that takes least time; keys: the largest position of the tiles + 1. */
IM__SHAPE uint32_t im__attention_many_way(uint32_t tiles, uint32_t keys, uint32_t window, uint32_t heads, uint32_t kv_heads,
                                          uint32_t head_dim, uint32_t processors)
{
    uint32_t best = 0;
    for (uint32_t way = 1; way < im__attention_many_ways(head_dim); way++)
        if (im__attention_many_time(way, tiles, keys, window, heads, kv_heads, head_dim, processors) <
            im__attention_many_time(best, tiles, keys, window, heads, kv_heads, head_dim, processors))
            best = way;
    return best;
}

#endif
