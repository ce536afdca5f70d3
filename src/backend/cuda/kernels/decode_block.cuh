/* SPDX-License-Identifier: Apache-2.0
 *
 * What a block of the persistent decoder knows and holds: the shape of its model (constants of the compiler), its shared memory, its share of the work, the ring
 * of weights, and how it waits for what other blocks send.
 *
 * The ring. Warps of their own fetch, in order, the units that the block will want, as soon as a slot is free; so memory works on while blocks wait for each
 * other. Unit n lies in slot n % SLOTS. `full` of a slot passes when its unit is there, `empty` when both warps of the team that uses it are done.
 *
 * Packets. Values travel as {values, tag} in the second cache; a reader polls the values themselves: no fence, no second trip. Tags belong to (token, layer), so
 * nothing is ever reset. A packet's place is written again two layers later; by then everybody has read it, because nobody gets there without what all others
 * send in the layer between.
 */
#pragma once

#include "decode.h"
#include "decode_port.cuh"

enum {
    WORKERS = IM__DECODE_WORKERS,
    WARPS = WORKERS / 32,
    TEAMS = WARPS / 2, /* two warps share a unit: 16 outputs each */
    HEAD_DIM = IM__DECODE_HEAD_DIM,
    FETCHERS = IM__DECODE_FETCHERS,
    PAGE = 64,                     /* keys of a block of attention, and of a page */
    SPAN_BLOCKS = 16,              /* blocks of a span */
    RECORD = 48,                   /* bytes of 32 quantised activations: integers, scale, two words about their sums */
    CHUNK_BYTES = 8 * RECORD + 16, /* of a chunk of 256; padded against bank conflicts */
    QUERY_BYTES =
        HEAD_DIM * 4, /* of attention, for each head of an item: its query, the chunks of its scores and the row's own ones */
    SCORE_BYTES = 5 * PAGE * 4
};

#ifdef IM__DECODE_EARLY /* a test's: what comes after many units or keys comes after few */
enum { MOST_SLOTS = 20, FEW_ITEMS = 2, ROUND_ITEMS = 2 };
#else
enum { MOST_SLOTS = 48, FEW_ITEMS = 16, ROUND_ITEMS = 0 };
#endif

/* Named barriers: 0 all workers; then attention's, and one a team. */
enum { BAR_ALL, BAR_QUERY, BAR_SCORES, BAR_WEIGHTS, BAR_LANES, BAR_TEAM };

/* Hints. */
enum { C_ATTENTION = IM__DECODE_PARTS };

/* Bytes of `groups` groups of a unit in a form. */
CONSTANT int code_bytes(int form, int groups) { return (form == IM__CUDA_8_HALF ? 1024 : 512) * groups; }
CONSTANT int extra_bytes(int form, int groups)
{
    return (form == IM__CUDA_5_HALF ? 128 : form == IM__CUDA_6_SUPER_16 ? 256 : 0) * groups;
}
CONSTANT int scale_bytes(int form, int groups)
{
    return form == IM__CUDA_4_SUPER_MIN ? 128 + 64 * groups : form == IM__CUDA_6_SUPER_16 ? 64 + 64 * groups : 64 * groups;
}
CONSTANT int form_unit_bytes(int form, int groups)
{
    return code_bytes(form, groups) + extra_bytes(form, groups) + scale_bytes(form, groups);
}
CONSTANT int most(int a, int b) { return a > b ? a : b; }

/* A model's widths, the forms of its weights, and what follows. FORM: of queries, keys, gate and up; of values and of the down product there are two, of which a layer says
 * which it has. */
template <int WIDTH_, int HEADS_, int KV_HEADS_, int HIDDEN_, int FORM_, int VALUE_FORM_, int OUT_FORM_, int DOWN_FORM_,
          int DOWN_FORM2_, int HEAD_FORM_>
struct shape {
    static constexpr int WIDTH = WIDTH_, HEADS = HEADS_, KV_HEADS = KV_HEADS_, HIDDEN = HIDDEN_;
    static constexpr int FORM = FORM_, VALUE_FORM = VALUE_FORM_, OUT_FORM = OUT_FORM_, DOWN_FORM = DOWN_FORM_,
                         DOWN_FORM2 = DOWN_FORM2_, HEAD_FORM = HEAD_FORM_;
    static constexpr int QUERIES = HEADS * HEAD_DIM, KEYS = KV_HEADS * HEAD_DIM, SHARING = HEADS / KV_HEADS;
    static constexpr int AT_ONCE = SHARING % 2 == 0 ? 2 : 1; /* heads of an item of attention, at most */
    static constexpr int GROUPS = WIDTH / 32, HIDDEN_GROUPS = HIDDEN / 32, TILES = WIDTH / 32;
    static constexpr int CHUNKS = (WIDTH + 255) / 256,
                         LAST = (WIDTH + 255) % 256 / 32 + 1; /* chunks of a row, groups of the last */
    static constexpr int HIDDEN_CHUNKS = (HIDDEN + 255) / 256, HIDDEN_LAST = (HIDDEN + 255) % 256 / 32 + 1;
    static constexpr int LANE = WIDTH / 128;                  /* elements of a virtual lane of a norm */
    static constexpr int MINE = (GROUPS + WARPS - 1) / WARPS; /* groups of a row that a warp quantises */
    static constexpr int ROW_PACKETS = TILES * IM__DECODE_TILE_PACKETS, PIECE_ROW_PACKETS = 2 * TILES * IM__DECODE_PIECE_PACKETS;
    static_assert(WIDTH % 128 == 0 && LAST % 2 == 0 && HIDDEN_LAST % 2 == 0 && HIDDEN % 32 == 0, "widths");

    /* Shared memory. Chunk sums: of most tiles that a block has of one matrix. */
    static constexpr int PARTS = most(most(8 * CHUNKS, HIDDEN_CHUNKS * 2), 2 * HEADS) * 128;
    static constexpr int O_GATES = 0, O_MISC = 768, O_SHARE = 800, O_LAYERS = 864, O_LANES = 1088, O_ACTS = O_LANES + 1024;
    static constexpr int O_ROW = O_ACTS + most(HIDDEN_CHUNKS, 2 * most(CHUNKS, HEADS)) * CHUNK_BYTES; /* the residual */
    static constexpr int O_PARTS = O_ROW + WIDTH * 4; /* chunk sums, or the row that arrives */
    static constexpr int SPANS = WARPS * (128 + 8);   /* merged by the warps of a block: 32 dimensions, maximum, sum */
    static constexpr int O_QUERY = (O_PARTS + most(most(PARTS, SPANS), WIDTH * 4) + 15) / 16 * 16,
                         O_KEY = O_QUERY + AT_ONCE * QUERY_BYTES;
    static constexpr int O_SCORES = O_KEY + HEAD_DIM * 4, O_WEIGHTS = O_SCORES + AT_ONCE * SCORE_BYTES,
                         O_GROUP = O_WEIGHTS + AT_ONCE * PAGE * 4;
    static constexpr int O_BEGUN = O_PARTS; /* values' sums over half a block of keys */
    static constexpr int O_RING = (O_GROUP + WARPS * RECORD + 127) / 128 * 128;
    static constexpr int SLOT = (most(most(most(form_unit_bytes(FORM, 8), form_unit_bytes(VALUE_FORM, 8)),
                                           most(form_unit_bytes(OUT_FORM, 8), form_unit_bytes(DOWN_FORM, 8))),
                                      most(form_unit_bytes(DOWN_FORM2, 8), form_unit_bytes(HEAD_FORM, 8))) +
                                 127) /
                                128 * 128;
    static constexpr int MEMORY = IM__DECODE_SHARED;
    static constexpr int FIT = (MEMORY - O_RING) / SLOT < MOST_SLOTS ? (MEMORY - O_RING) / SLOT : MOST_SLOTS;
    static constexpr int SLOTS = FIT / FETCHERS * FETCHERS; /* so a slot is always filled by the same warp */
    static constexpr int BYTES = O_RING + SLOTS * SLOT;
    static_assert(sizeof(im__decode_share) <= 64 && 2 * sizeof(im__decode_layer) <= O_LANES - O_LAYERS, "room");
    static_assert(SLOTS >= 2 * TEAMS, "the ring holds two units for each team");
};

/* Words at O_MISC. */
enum {
    M_FACTOR = 0,
    M_GIVEN_UP = 4,
    M_TOKEN = 8,
    M_FETCHED = 16 /* by each fetching warp: one more than its last unit's number */
};

/* One thread's view of its block. Little state: nothing may spill, because with all shared memory in use a spilled value is a trip to the second cache. */
template <class S> struct block {
    const im__decode_args &a;
    static constexpr u32 memory = MEMORY_BASE; /* shared memory */
    u32 used;                                  /* units used in the phases before this one */
    u32 announced;                             /* attention parts that have been announced when this layer's are */
    int me;
    u32 token, layer; /* in work: numbers of this launch; while the head works, layer is the number of layers */
};

/* What follows from them, worked out again where it is needed. */
template <class S> INLINE int position_of(const block<S> &b) { return b.a.position + (int)b.token; }
template <class S> INLINE u32 tag_of(const block<S> &b) { return b.a.tag + b.token * IM__DECODE_TAGS + b.layer; }
template <class S> INLINE u32 turn_of(const block<S> &b) { return b.token * b.a.layers + b.layer; } /* layers done in this launch */
template <class S> INLINE int parity_of(const block<S> &b) { return (int)turn_of(b) & 1; } /* the buffer of packets in use */

template <class S> INLINE void sync_all(block<S> &) { bar_sync(BAR_ALL, WORKERS); }

/* What a thread may wait for in vain. */
enum wait_for { WAIT_SLOT = 1, WAIT_TURN, WAIT_UNIT, WAIT_VALUES, WAIT_HINT, WAIT_GROUPS, WAIT_ROW, WAIT_PARTS, WAIT_BEST };

/* How long a thread waits: two seconds. A packet that never comes ends the launch: the thread that gives up tells all others, which look after a millisecond. */
struct patience {
    u64 since = 0;
    /* After a vain poll: whether to give up. */
    template <class S> __device__ __forceinline__ bool ends(const block<S> &b, wait_for what)
    {
        const u64 now = cycles_now(), millisecond = 1 << 21; /* about */
        const u32 given_up = b.memory + S::O_MISC + M_GIVEN_UP;
        breathe();
        if (lds_volatile(given_up) != 0) return true;
        if (since == 0) since = now;
        if (now - since < millisecond) return false;
        if (now - since < 2000 * millisecond && load_shared_word(b.a.failed) == 0) return false;
        *(volatile u32 *)b.a.failed = (u32)what << 16 | (1 + block_id());
        sts_volatile(given_up, 1);
        return true;
    }
};

/* ---- the share ---- */

enum { SHARE_QKV = 0, SHARE_OUT = 2, SHARE_GATE = 4, SHARE_DOWN = 6, SHARE_HEAD = 8, SHARE_FIRST_UNIT = 10, SHARE_UNITS = 11 };
template <class S> INLINE int share_first(const block<S> &b, int part) { return (int)lds_u(b.memory + S::O_SHARE + part * 4); }
template <class S> INLINE int share_count(const block<S> &b, int part) { return (int)lds_u(b.memory + S::O_SHARE + part * 4 + 4); }

template <class S> INLINE void block_begin(block<S> &b)
{
    const u32 *share = (const u32 *)(b.a.share + block_id());
    if (b.me < (int)(sizeof(im__decode_share) / 4)) sts_u(b.memory + S::O_SHARE + b.me * 4, share[b.me]);
    if (b.me < S::SLOTS) {
        gate_init(b.memory + S::O_GATES + b.me * 8, 1);
        gate_init(b.memory + S::O_GATES + (S::SLOTS + b.me) * 8, 2);
    }
    if (b.me == 0) sts_u(b.memory + S::O_MISC + M_GIVEN_UP, 0);
    if (b.me < FETCHERS) sts_u(b.memory + S::O_MISC + M_FETCHED + b.me * 4, 0);
    gates_ready();
    bar_sync(BAR_ALL, IM__DECODE_THREADS);
}

/* ---- the layer's description: in shared memory, two of them, so that the next one is there in time ---- */

enum { LAYER_WORDS = sizeof(im__decode_layer) / 4 };
/* Its fields, in words. */
enum {
    L_ATTN_NORM = 0,
    L_Q_NORM = 2,
    L_K_NORM = 4,
    L_POST_ATTN_NORM = 6,
    L_FFN_NORM = 8,
    L_POST_FFN_NORM = 10,
    L_KEYS = 12,
    L_VALUES = 14,
    L_PAGE_STRIDE = 16,
    L_POOL = 18,
    L_WINDOW = 19,
    L_ROPE = 20,
    L_OTHER = 21
};

template <class S> INLINE u32 layer_at(const block<S> &b, u32 turn)
{
    return b.memory + S::O_LAYERS + (turn & 1) * (LAYER_WORDS * 4);
}
template <class S> INLINE u32 layer_number(const block<S> &b, int field) { return lds_u(layer_at(b, turn_of(b)) + field * 4); }
INLINE u64 address_at(u32 a) { return (u64)lds_u(a + 4) << 32 | lds_u(a); }
template <class S> INLINE u64 layer_address(const block<S> &b, int field)
{
    return address_at(layer_at(b, turn_of(b)) + field * 4);
}
template <class S> INLINE const float *layer_vector(const block<S> &b, int field) { return (const float *)layer_address(b, field); }
/* Of the layer before. */
template <class S> INLINE const float *earlier_vector(const block<S> &b, int field)
{
    return (const float *)address_at(layer_at(b, turn_of(b) + 1) + field * 4);
}

/* The last warp's lanes have a word each. */
template <class S> INLINE u32 layer_word_of(const block<S> &b, int index)
{
    const int word = fresh(b.me) - (WORKERS - 32);
    return word >= 0 && word < LAYER_WORDS ? load_constant((const u32 *)(b.a.layer + index) + word) : 0;
}
template <class S> INLINE void layer_store_at(block<S> &b, u32 turn, u32 value)
{
    const int word = fresh(b.me) - (WORKERS - 32);
    if (word >= 0 && word < LAYER_WORDS) sts_u(layer_at(b, turn) + word * 4, value);
}
/* Fetched when a layer begins, stored when the one before it is no longer needed. */
template <class S> INLINE u32 layer_prefetch(const block<S> &b)
{
    return layer_word_of(b, b.layer + 1 < b.a.layers ? (int)b.layer + 1 : 0);
}
template <class S> INLINE void layer_store(block<S> &b, u32 value) { layer_store_at(b, turn_of(b) + 1, value); }

/* ---- the ring ---- */

template <class S> INLINE u32 full_gate(const block<S> &b, u32 slot) { return b.memory + S::O_GATES + slot * 8; }
template <class S> INLINE u32 empty_gate(const block<S> &b, u32 slot) { return b.memory + S::O_GATES + (S::SLOTS + slot) * 8; }

/* A warp that fetches, one of FETCHERS: every unit of every token whose number has its remainder, in order. (A warp that computes takes units of one remainder in a
 * phase.) One warp alone takes about 0.3 us a unit, twice what
 * memory does. Each lane holds one entry of the list, and another one on its way. */
template <class S> INLINE void ring_fetch(block<S> &b)
{
    const u32 lane = (u32)b.me & 31, mine = (u32)(b.me - WORKERS) >> 5, n = (u32)share_count(b, SHARE_FIRST_UNIT),
              all = n * b.a.tokens;
    const u64 *list = b.a.units + share_first(b, SHARE_FIRST_UNIT);
    const u32 fetched = b.memory + S::O_MISC + M_FETCHED + mine * 4;
    u32 slot = mine, turn = 0, number = mine;
    u64 entry = load_constant(list + (number + FETCHERS * lane) % n);
    ROLL while (number < all)
    {
        const u64 now = entry;
        entry = load_constant(list + (number + FETCHERS * (32 + lane)) % n);
        ROLL for (int i = 0; i < 32 && number < all; i++, number += FETCHERS)
        {
            const u32 low = shfl((u32)now, i), high = shfl((u32)(now >> 32), i), gate = full_gate(b, slot);
            patience p;
            while (turn != 0 && !gate_passed(gate + S::SLOTS * 8, (turn - 1) & 1))
                if (p.ends(b, WAIT_SLOT)) return;
            if (lane == 0) {
                const u32 bytes = (high >> 16) * 16;
                sts_volatile(fetched, number + 1);
                copy_expect(gate, bytes);
                copy_begin(b.memory + S::O_RING + slot * S::SLOT, (const char *)((u64)(high & 0xffff) << 32 | low), bytes, gate);
            }
            slot += FETCHERS;
            if (slot >= S::SLOTS) slot -= S::SLOTS, turn++;
        }
    }
}

/* Waits for unit `u` of this phase; its address. A gate tells odd turns from even ones only. So first the slot must be the unit's: either `fetched` says so (it is set
 * before the unit is asked for), or the turn before has ended, which is seen as long as the unit's own turn has not. (Earlier turns have ended: the units in work lie
 * closer together than the ring is long.) */
template <class S> INLINE u32 ring_unit(block<S> &b, u32 u)
{
    const u32 n = b.used + u, turn = n / S::SLOTS, slot = n - turn * S::SLOTS, gate = full_gate(b, slot);
    patience p;
    while ((int)(lds_volatile(b.memory + S::O_MISC + M_FETCHED + n % FETCHERS * 4) - n) <= 0 &&
           !gate_is_past(gate, (turn - 1) & 1)) {
        if (p.ends(b, WAIT_TURN)) break;
        doze();
    }
    while (!gate_passed(gate, turn & 1))
        if (p.ends(b, WAIT_UNIT)) break;
    return b.memory + S::O_RING + slot * S::SLOT;
}

/* Of the two arrivals that free unit `u`, one or both: by a whole warp. */
template <class S> INLINE void ring_release(block<S> &b, u32 u, int arrivals)
{
    warp_sync();
    if ((b.me & 31) != 0) return;
    gate_arrive(empty_gate(b, (b.used + u) % S::SLOTS));
    if (arrivals == 2) gate_arrive(empty_gate(b, (b.used + u) % S::SLOTS));
}

/* ---- packets ---- */

INLINE u64 packet_of(float x, u32 tag) { return (u64)tag << 32 | bits_of(x); }
INLINE void send(u64 *to, float x, u32 tag) { packet_store(to, packet_of(x, tag)); }
INLINE bool got(u64 packet, u32 tag, float &x)
{
    x = f32_of((u32)packet);
    return (u32)(packet >> 32) == tag;
}

/* N packets at once, until all are there. */
template <int N, class S> INLINE void receive(block<S> &b, const u64 *from, int stride, u32 tag, float *x)
{
    patience p;
    bool all;
    do {
        all = true;
        UNROLL for (int i = 0; i < N; i++) all &= got(packet_load(from + i * stride), tag, x[i]);
    } while (!all && !p.ends(b, WAIT_VALUES));
}

/* Hints. A block announces that its packets come soon; only when all senders have announced theirs do all threads of a reader poll for packets. A thousand
 * pollers waiting for microseconds would fill the queues of the few slices of the cache that hold the packets. Hints order nothing (the tags do), so they need
 * no fence. */
template <class S> INLINE void announce(block<S> &b, int part) { counter_add(b.a.counter + part * IM__DECODE_COUNTER_STRIDE); }
template <class S> INLINE void await_announced(block<S> &b, int part, u32 target)
{
    patience p;
    if (b.me == WORKERS - 32)
        while ((int)(counter_load(b.a.counter + part * IM__DECODE_COUNTER_STRIDE) - target) < 0)
            if (p.ends(b, WAIT_HINT)) break;
    sync_all(b);
}

/* When a block reaches the points of a layer, in a build that asks for it: instructions on the way of a token cost more than they seem to. */
template <class S> INLINE void stamp(block<S> &b, int point)
{
#ifdef IM__DECODE_STAMPS
    if (b.a.stamps != 0 && b.me == 0 && b.token == b.a.tokens - 1)
        b.a.stamps[((u64)block_id() * b.a.layers + b.layer) * 16 + point] = clock_now();
#else
    (void)b, (void)point;
#endif
}
