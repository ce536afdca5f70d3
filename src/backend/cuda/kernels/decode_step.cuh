/* SPDX-License-Identifier: Apache-2.0
 *
 * A launch of the persistent decoder: tokens, layers, the head and the choice of the next token.
 */
#pragma once

#include "decode_attention.cuh"

template <class S> INLINE bool is_speaker(const block<S> &b) { return b.me == WORKERS - 32; } /* the thread that announces */

/* ---- the products of a layer, with what comes before and after them ---- */

template <class S> INLINE void queries_keys_values(block<S> &b)
{
    constexpr int WIDE = S::QUERIES / 32, VALUES = WIDE + S::KEYS / 32; /* keys and values begin at these tiles */
    const int first = share_first(b, SHARE_QKV), tiles = share_count(b, SHARE_QKV), parity = parity_of(b);
    auto work = tasks_begin<S, S::CHUNKS, S::LAST, 1, 32>(b, tiles);
    const u32 next = layer_prefetch(b);
    const uint4 *row = b.layer == 0 ? (const uint4 *)0 : (const uint4 *)b.a.down_rows + (parity ^ 1) * S::PIECE_ROW_PACKETS;
    norm<S::FORM, S::VALUE_FORM, 16>(b, row, tag_of(b) - 1, IM__DECODE_DOWN, turn_of(b) * b.a.announcers[IM__DECODE_DOWN],
                                     earlier_vector(b, L_POST_FFN_NORM), layer_vector(b, L_ATTN_NORM), tiles > 0,
                                     first + tiles > WIDE);
    layer_store(b, next);
    stamp(b, 1);
    if (tiles > 0) {
        const bool other = S::VALUE_FORM != S::FORM && (layer_number(b, L_OTHER) & IM__DECODE_OTHER_VALUES) != 0;
        tasks_do<S::FORM, S::VALUE_FORM, 2>(b, work, max(WIDE - first, 0), other ? max(VALUES - first, 0) : tiles);
        const int id = fresh(b.me), lane = id & 31;
        u64 *to = b.a.qkv + (u64)parity * (S::QUERIES + 2 * S::KEYS) + first * 32 + lane;
        for (int i = id >> 5; i < tiles; i += WARPS) {
            float y = row_sum<S::CHUNKS>(part_of<S, S::CHUNKS, 1, 2, 32>(b, i, 0, 0, 0) + lane * 4, 128);
            if (first + i >= WIDE) y = y + row_sum<S::CHUNKS>(part_of<S, S::CHUNKS, 1, 2, 32>(b, i, 0, 1, 0) + lane * 4, 128);
            send(to + i * 32, y, tag_of(b));
        }
    }
    stamp(b, 2);
}

template <class S> INLINE void attention_output(block<S> &b)
{
    const int first = share_first(b, SHARE_OUT), tiles = share_count(b, SHARE_OUT), parity = parity_of(b);
    if (tiles == 0) return;
    auto work = tasks_begin<S, S::HEADS, 8, 1, 32>(b, tiles);
    merged_input(b);
    if (is_speaker(b)) announce(b, IM__DECODE_OUT);
    stamp(b, 5);
    tasks_do<S::OUT_FORM, S::OUT_FORM, 1>(b, work, 0, 0);
    const int id = fresh(b.me), lane = id & 31;
    for (int i = id >> 5; i < tiles; i += WARPS)
        send_rows<32>((uint4 *)b.a.out_rows + parity * S::ROW_PACKETS, first + i,
                      row_sum<S::HEADS>(part_of<S, S::HEADS, 1, 1, 32>(b, i, 0, 0, 0) + lane * 4, 128), lane, tag_of(b));
    stamp(b, 6);
}

template <class S> INLINE void gate_and_up(block<S> &b)
{
    const int first = share_first(b, SHARE_GATE), tiles = share_count(b, SHARE_GATE), parity = parity_of(b);
    auto work = tasks_begin<S, S::CHUNKS, S::LAST, 2, 32>(b, tiles);
    norm<S::FORM, S::FORM, 32>(b, (const uint4 *)b.a.out_rows + parity * S::ROW_PACKETS, tag_of(b), IM__DECODE_OUT,
                               (turn_of(b) + 1) * b.a.announcers[IM__DECODE_OUT], layer_vector(b, L_POST_ATTN_NORM),
                               layer_vector(b, L_FFN_NORM), tiles > 0, false);
    stamp(b, 7);
    if (tiles == 0) return;
    tasks_do<S::FORM, S::FORM, 1>(b, work, 0, 0);
    if (is_speaker(b)) announce(b, IM__DECODE_HIDDEN);
    stamp(b, 8);
    const int id = fresh(b.me), lane = id & 31;
    for (int i = id >> 5; i < tiles; i += WARPS) {
        float gate = row_sum<S::CHUNKS>(part_of<S, S::CHUNKS, 2, 1, 32>(b, i, 0, 0, 0) + lane * 4, 128);
        float up = row_sum<S::CHUNKS>(part_of<S, S::CHUNKS, 2, 1, 32>(b, i, 1, 0, 0) + lane * 4, 128);
        send_group(b, contract_gelu(gate) * up, (uint4 *)b.a.hidden + parity * S::HIDDEN_GROUPS * IM__DECODE_GROUP_PACKETS,
                   S::HIDDEN_GROUPS, first + i, tag_of(b));
    }
    stamp(b, 9);
}

/* The hidden row, for the down product. */
template <class S> INLINE void hidden_input(block<S> &b)
{
    await_announced(b, IM__DECODE_HIDDEN, (turn_of(b) + 1) * b.a.announcers[IM__DECODE_HIDDEN]);
    receive_groups<S::DOWN_FORM, S::DOWN_FORM2, S::HIDDEN_GROUPS>(
        b, (const uint4 *)b.a.hidden + parity_of(b) * S::HIDDEN_GROUPS * IM__DECODE_GROUP_PACKETS, tag_of(b));
    if (is_speaker(b)) announce(b, IM__DECODE_DOWN);
    stamp(b, 10);
}

template <class S> INLINE bool down_is_other(const block<S> &b)
{
    return S::DOWN_FORM2 != S::DOWN_FORM && (layer_number(b, L_OTHER) & IM__DECODE_OTHER_DOWN) != 0;
}

template <class S> INLINE void down_pieces(block<S> &b, int first, int pieces)
{
    auto work = tasks_begin<S, S::HIDDEN_CHUNKS, S::HIDDEN_LAST, 1, 16>(b, pieces);
    hidden_input(b);
    if (down_is_other(b))
        pieces_do<S::DOWN_FORM2>(b, work, first);
    else
        pieces_do<S::DOWN_FORM>(b, work, first);
    const int id = fresh(b.me), lane = id & 31;
    for (int i = id >> 5; i * 2 < pieces; i += WARPS) { /* two pieces a warp */
        const int piece = min(i * 2 + (lane >> 4), pieces - 1);
        const float y = row_sum<S::HIDDEN_CHUNKS>(part_of<S, S::HIDDEN_CHUNKS, 1, 1, 16>(b, piece, 0, 0, 0) + (lane & 15) * 4, 64);
        send_rows<16>((uint4 *)b.a.down_rows + parity_of(b) * S::PIECE_ROW_PACKETS, first + piece, y, lane, tag_of(b));
    }
}

template <class S> INLINE void down_tiles(block<S> &b, int first, int tiles)
{
    auto work = tasks_begin<S, S::HIDDEN_CHUNKS, S::HIDDEN_LAST, 1, 32>(b, tiles);
    hidden_input(b);
    if (down_is_other(b))
        tasks_do<S::DOWN_FORM2, S::DOWN_FORM2, 1>(b, work, 0, 0);
    else
        tasks_do<S::DOWN_FORM, S::DOWN_FORM, 1>(b, work, 0, 0);
    const int id = fresh(b.me), lane = id & 31;
    for (int i = id >> 5; i < tiles; i += WARPS) {
        const float y = row_sum<S::HIDDEN_CHUNKS>(part_of<S, S::HIDDEN_CHUNKS, 1, 1, 32>(b, i, 0, 0, 0) + lane * 4, 128);
        send_rows<16>((uint4 *)b.a.down_rows + parity_of(b) * S::PIECE_ROW_PACKETS, (first + i) * 2 + (lane >> 4), y, lane,
                      tag_of(b));
    }
}

template <class S> INLINE void down(block<S> &b)
{
    const int first = share_first(b, SHARE_DOWN), pieces = share_count(b, SHARE_DOWN);
    if (pieces == 0) return;
    if (IM__DECODE_WHOLE(first, pieces))
        down_tiles(b, first / 2, pieces / 2);
    else
        down_pieces(b, first, pieces);
    stamp(b, 11);
}

/* ---- the head ---- */

/* The best logit so far: the lowest token among the largest; -1 (with +infinity) when one is not a number. */
struct candidate {
    float logit;
    int token;
};

INLINE void prefer(candidate &best, float logit, int token)
{
    if (logit > best.logit || (logit == best.logit && token < best.token)) best = {logit, token};
}

INLINE void prefer_in_warp(candidate &best)
{
    for (int h = 16; h > 0; h >>= 1) prefer(best, shfl_xor(best.logit, h), shfl_xor(best.token, h));
}

/* One warp, one unit of `groups` groups, two planes. */
template <class S> INLINE void head_chunk(block<S> &b, u32 unit, int chunk, int groups, float (&sum)[1][2])
{
    constexpr int G = takes_registers(S::HEAD_FORM) ? 2 : 4;
    const int lane = fresh(b.me) & 31;
    ROLL for (int first = 0; first < groups; first += G)
    {
        const u32 acts = b.memory + S::O_ACTS + chunk * CHUNK_BYTES + first * RECORD;
        products<S::HEAD_FORM, G, 1, 2> x;
        multiply(x, &unit, groups, first, S::LAST % G == 0 ? G : groups - first, lane, acts, S::CHUNKS * CHUNK_BYTES);
        chain(x, sum);
    }
}

/* Warps that take part in a round of up to 16 tiles. A multiple of FETCHERS (the last tile is read again), so that all units of a warp come from one fetching warp,
 * in order: else a warp could be a ring's length ahead of what another fetching warp has brought, and the gates would not tell turns apart. */
INLINE int head_width(int tiles) { return min((int)WARPS, (tiles + FETCHERS - 1) / FETCHERS * FETCHERS); }

/* A tile of the head belongs to one warp. Units come in the order chunk, tile, for 16 tiles at a time: so the warps need not wait for each other. */
template <class S> INLINE float head_tile(block<S> &b, int unit, int stride)
{
    float y[2] = {0.0f, 0.0f};
    ROLL for (int c = 0; c < S::CHUNKS; c++, unit += stride)
    {
        float sum[1][2] = {{0.0f, 0.0f}};
        const u32 at = ring_unit(b, unit);
        head_chunk(b, at, c, c < S::CHUNKS - 1 ? 8 : S::LAST, sum);
        ring_release(b, unit, 2);
        y[0] = c == 0 ? sum[0][0] : y[0] + sum[0][0];
        y[1] = c == 0 ? sum[0][1] : y[1] + sum[0][1];
    }
    return y[0] + y[1];
}

INLINE u32 best_tag(const im__decode_args &a, int t) { return a.tag + (u32)t * IM__DECODE_TAGS + IM__DECODE_TAGS - 1; }

template <class S> INLINE void head(block<S> &b)
{
    const int t = (int)b.token;
    const int first = share_first(b, SHARE_HEAD), tiles = share_count(b, SHARE_HEAD);
    norm<S::HEAD_FORM, S::HEAD_FORM, 16>(b, (const uint4 *)b.a.down_rows + (parity_of(b) ^ 1) * S::PIECE_ROW_PACKETS, tag_of(b) - 1,
                                         IM__DECODE_DOWN, turn_of(b) * b.a.announcers[IM__DECODE_DOWN],
                                         earlier_vector(b, L_POST_FFN_NORM), b.a.final_norm, true, true);
    const int id = fresh(b.me), lane = id & 31, warp = id >> 5;
    float *logits = b.a.logits + (b.a.keep_all ? (u64)t * b.a.vocab : 0);
    candidate best = {-f32_of(0x7f800000), 0x7fffffff};
    ROLL for (int i = 0; i < tiles; i += WARPS)
    {
        const int width = head_width(tiles - i), row = (first + i + warp) * 32 + lane;
        if (warp >= width) break;
        const float y = head_tile(b, i * S::CHUNKS + warp, width);
        if (row >= (int)b.a.vocab || i + warp >= tiles) continue;
        store_logit(logits + row, y);
        if (y == y)
            prefer(best, y, row);
        else
            best = {f32_of(0x7f800000), -1};
    }
    prefer_in_warp(best);
    if (lane == 0) sts_f2(b.memory + S::O_SCORES + warp * 8, best.logit, f32_of((u32)best.token));
    sync_all(b);
    if (id == 0) {
        for (int w = 1; w < WARPS; w++) {
            const float2 other = lds_f2(b.memory + S::O_SCORES + w * 8);
            prefer(best, other.x, (int)bits_of(other.y));
        }
        packet_store4((uint4 *)b.a.best + (t & 1) * IM__DECODE_MOST_BLOCKS + block_id(), bits_of(best.logit), (u32)best.token,
                      best_tag(b.a, t), 0);
    }
    b.used += (u32)((tiles / WARPS * WARPS + head_width(tiles % WARPS)) * S::CHUNKS);
}

/* The token of row t: every block compares the blocks' best. */
template <class S> INLINE int next_token(block<S> &b, int t)
{
    if (t == 0) return b.a.token;
    const int id = fresh(b.me);
    if (id < 32) {
        candidate best = {-f32_of(0x7f800000), 0x7fffffff};
        for (int i = id; i < (int)block_count(); i += 32) {
            patience wait;
            uint4 p;
            do p = packet_load4((const uint4 *)b.a.best + ((t - 1) & 1) * IM__DECODE_MOST_BLOCKS + i);
            while (p.z != best_tag(b.a, t - 1) && !wait.ends(b, WAIT_BEST));
            prefer(best, f32_of(p.x), (int)p.y);
        }
        prefer_in_warp(best);
        if (id == 0) {
            sts_u(b.memory + S::O_MISC + M_TOKEN, (u32)best.token);
            if (block_id() == 0) b.a.chosen[t - 1] = best.token;
        }
    }
    sync_all(b);
    return (int)lds_u(b.memory + S::O_MISC + M_TOKEN);
}

/* ---- the launch ---- */

template <class S> INLINE void one_token(block<S> &b)
{
    const int token = next_token(b, (int)b.token);
    embed(b, token >= 0 && token < (int)b.a.vocab ? token : 0); /* after a logit that is no number: go on with anything */
    ROLL for (b.layer = 0; b.layer < b.a.layers; b.layer++)
    {
        stamp(b, 0);
        queries_keys_values(b);
        attention(b);
        stamp(b, 3);
        merge_apart(b);
        stamp(b, 4);
        attention_output(b);
        gate_and_up(b);
        down(b);
    }
    head(b);
}

template <class S> INLINE void work(block<S> &b)
{
    layer_store_at(b, 0, layer_word_of(b, 0));
    ROLL for (b.token = 0; b.token < b.a.tokens; b.token++) one_token(b);
    if (block_id() != 0) return;
    next_token(b, (int)b.a.tokens); /* all blocks are done with their counters */
    if (b.me < IM__DECODE_COUNTERS) b.a.counter[b.me * IM__DECODE_COUNTER_STRIDE] = 0;
}

template <class S> INLINE void decode(const im__decode_args &a)
{
    block<S> b = {a, 0, 0, thread_id(), 0, 0};
    if (!memory_is_where()) {
        *(volatile u32 *)a.failed = 1 + block_id();
        return;
    }
    block_begin(b);
    if (b.me >= WORKERS) {
        fewer_registers();
        ring_fetch(b);
    } else {
        more_registers();
        work(b);
    }
}
