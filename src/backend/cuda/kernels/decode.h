/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder: one kernel that takes one sequence through a number of greedy steps, a block a multiprocessor, all blocks alive at once.
 * What the host (cuda_decode.c) and the kernels (decode_*.cuh, decode_*.cu) say to each other; C11 and CUDA C++.
 *
 * A layer is five exchanges between blocks: queries, keys and values; attention of blocks of keys; rows of the attention's output; hidden groups; rows of the
 * down product. What is cheap (norms, quantising the residual) every block does for itself.
 */
#ifndef IRONMULE_BACKEND_CUDA_DECODE_H
#define IRONMULE_BACKEND_CUDA_DECODE_H

#include "../abi.h"

enum {
    IM__DECODE_WORKERS = 512,   /* threads that compute */
    IM__DECODE_THREADS = 640,   /* and a warp group that fetches weights */
    IM__DECODE_SHARED = 232448, /* bytes of shared memory that a block asks for: all that there is */
    IM__DECODE_HEAD_DIM = 256,  /* the only one there is */
    IM__DECODE_HEAD_WARPS = 16,
    IM__DECODE_FETCHERS = 4,        /* warps that fetch weights */
    IM__DECODE_TAGS = 128,          /* tags a token: more than layers + 2 */
    IM__DECODE_PART_PACKETS = 258,  /* of one head and block of keys: 256 values, maximum, sum */
    IM__DECODE_TILE_PACKETS = 11,   /* of 32 rows, three a packet */
    IM__DECODE_PIECE_PACKETS = 6,   /* of 16 rows */
    IM__DECODE_GROUP_PACKETS = 3,   /* of 32 quantised values and their scale */
    IM__DECODE_MOST_BLOCKS = 256,   /* blocks of the grid */
    IM__DECODE_COUNTER_STRIDE = 32, /* words from one counter to the next: a line each */
    IM__DECODE_COUNTERS = 8
};

/* The parts of a layer whose blocks announce their packets. */
enum { IM__DECODE_OUT, IM__DECODE_HIDDEN, IM__DECODE_DOWN, IM__DECODE_PARTS };

/* Tiles of 32 outputs that a block computes, of each matrix. Queries, keys and values count as one matrix; a tile of `gate` is one of gate and one of up; `down` counts
 * pieces of 16 outputs, which are taken as tiles if all of the block's make whole ones (IM__DECODE_WHOLE). */
typedef struct im__decode_range {
    uint32_t first, count;
} im__decode_range;

#define IM__DECODE_WHOLE(first, count) ((((first) | (count)) & 1) == 0)

typedef struct im__decode_share {
    im__decode_range qkv, out, gate, down, head;
    uint32_t first_unit, units; /* of the list: what the block reads for one token, in the order in which it wants it */
    uint32_t pad[4];
} im__decode_share;

/* An entry of the list of units: address | 16-byte words of the unit << 48. */
#define IM__DECODE_UNIT(address, bytes) ((uint64_t)(address) | (uint64_t)((bytes) / 16) << 48)

enum { IM__DECODE_OTHER_VALUES = 1, IM__DECODE_OTHER_DOWN = 2 };

typedef struct im__decode_layer {
    IM__DEV(const float) attn_norm; /* weights of the norms */
    IM__DEV(const float) q_norm;
    IM__DEV(const float) k_norm;
    IM__DEV(const float) post_attn_norm;
    IM__DEV(const float) ffn_norm;
    IM__DEV(const float) post_ffn_norm;
    IM__DEV(uint16_t) keys; /* pool + k_offset, pool + v_offset: binary16, as im__cuda_kv has them */
    IM__DEV(uint16_t) values;
    uint64_t page_stride; /* elements */
    uint32_t pool, window, rope;
    uint32_t other; /* IM__DECODE_OTHER_...: which weights have the second form that the shape names */
} im__decode_layer;

typedef struct im__decode_args {
    IM__DEV(const uint64_t) units;         /* lists of all blocks */
    IM__DEV(const im__decode_share) share; /* [blocks] */
    IM__DEV(const im__decode_layer) layer; /* [layers] */
    IM__DEV(const float) final_norm;
    im__cuda_matrix embed;

    /* Packets: two buffers each but `best`, zero at first. */
    IM__DEV(uint64_t) qkv;     /* [2][(heads + 2 kv_heads) * 256] {value, tag} */
    IM__DEV(uint64_t) part;    /* [2][most_items][IM__DECODE_PART_PACKETS] {value, tag} */
    IM__DEV(void) merged;      /* [2][heads * 8 * 3] 16 B */
    IM__DEV(void) out_rows;    /* [2][tiles of width][11] 16 B */
    IM__DEV(void) down_rows;   /* [2][pieces of width][6] 16 B */
    IM__DEV(void) hidden;      /* [2][groups of the hidden row][3] 16 B */
    IM__DEV(void) best;        /* [2][blocks] 16 B */
    IM__DEV(uint32_t) counter; /* [IM__DECODE_COUNTERS][IM__DECODE_COUNTER_STRIDE]: zero between launches */

    /* Of this launch. */
    IM__DEV(const float) rope; /* [tokens][2 tables][128 pairs] {cosine, sine} */
    IM__DEV(const int32_t) pages[IM__CUDA_POOLS];
    IM__DEV(float) logits;               /* [vocab] of the last token, or with keep_all [tokens][vocab] */
    IM__DEV(int32_t) chosen;             /* [tokens]: -1 where a logit was not a number; what follows means nothing */
    IM__DEV(unsigned long long) clamped; /* values of the cache that were clamped */
    IM__DEV(uint32_t) failed;            /* becomes 1 + block, and above 16 bits for what (wait_for), when something did not come */
    IM__DEV(unsigned long long) stamps;  /* [blocks][layers][16] times of the last token; kernels built with IM__DECODE_STAMPS */
    uint32_t layers, most_items;
    uint32_t announcers[IM__DECODE_PARTS]; /* blocks with tiles of out, gate, down */
    uint32_t tag;                          /* first of this launch, which uses IM__DECODE_TAGS * tokens; never 0 */
    int32_t token, position;               /* the first row */
    uint32_t tokens, keep_all;
    uint32_t vocab;
    float embed_scale, eps, attention_scale;
} im__decode_args;

#endif
