/* SPDX-License-Identifier: Apache-2.0
 *
 * Broken matrix kernels. Their packed form is the matrix as stored. One loop serves all of them; `wrong` says where it goes astray.
 */
#include "ck_broken.h"

#include "num/group.h"
#include "num/real.h"

#include <sched.h>
#include <string.h>

typedef enum wrong {
    NOTHING,
    CHUNK_ORDER,
    NO_CHUNKS,
    STALE,
    PRODUCT_ORDER,
    SATURATES,
    TILE_ROWS,
    RANGE,
    CONTRACTS_BIAS,
    SHARES
} wrong;

static size_t stored_bytes(uint32_t dtype, size_t n_out, size_t n_in) { return n_out * im__dtype_row_bytes(dtype, n_in); }
static size_t bytes_q4_0(size_t n_out, size_t n_in) { return stored_bytes(IM__Q4_0, n_out, n_in); }
static size_t bytes_q8_0(size_t n_out, size_t n_in) { return stored_bytes(IM__Q8_0, n_out, n_in); }

static void pack_stored(const im__weight *w, void *packed, size_t begin, size_t end)
{
    memcpy((char *)packed + begin * w->row_bytes, (const char *)w->data + begin * w->row_bytes, (end - begin) * w->row_bytes);
}

/* Pairs of products are added in 16 bits, as an instruction of x86 does. */
static int dot_saturating(const int8_t *w, const int8_t *q)
{
    int sum = 0;
    for (int i = 0; i < 32; i += 2) {
        int pair = (w[i] + 128) * q[i] + (w[i + 1] + 128) * q[i + 1];
        sum += pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair;
        sum -= 128 * (q[i] + q[i + 1]);
    }
    return sum;
}

static int dot(const int8_t *w, const int8_t *q)
{
    int sum = 0;
    for (int i = 0; i < 32; i++) sum += w[i] * q[i];
    return sum;
}

static float group_step(const im__weight *w, const im__act *act, size_t row, size_t out, size_t g, float p, wrong how)
{
    im__group group;
    im__group_read(w->dtype, (const char *)w->packed + out * w->row_bytes, g, &group);
    const int8_t *q = act->q + row * act->n + g * 32;
    float d = act->d[row * (act->n / 32) + g], sum = (float)(how == SATURATES ? dot_saturating(group.w, q) : dot(group.w, q));
    return how == PRODUCT_ORDER ? im__fma(group.s * sum, d, p) : im__fma(group.s * d, sum, p);
}

static float element(const im__weight *w, const im__act *act, size_t row, size_t out, float start, wrong how)
{
    static float shared[64]; /* of all threads */
    float y = start, own[64], *part = how == SHARES ? shared : own;
    memset(part, 0, sizeof own);
    size_t groups = w->n_in / 32, per_chunk = how == NO_CHUNKS ? groups : 8, chunks = (groups + per_chunk - 1) / per_chunk;
    for (size_t c = 0; c < chunks; c++)
        for (size_t g = c * per_chunk; g < groups && g < (c + 1) * per_chunk; g++)
            part[c] = group_step(w, act, row, out, g, part[c], how);
    if (how == SHARES) sched_yield();
    for (size_t c = 0; c < chunks; c++) y += part[how == CHUNK_ORDER ? chunks - 1 - c : c];
    return y;
}

static void run(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t stride, size_t begin, size_t end,
                wrong how)
{
    float stale = 0;
    if (how == RANGE && end < w->n_out) end++;
    for (size_t r = 0; r < in->rows; r++) {
        bool other = how == TILE_ROWS && in->rows > 4 && r >= in->rows / 4 * 4; /* the rows that do not fill a tile */
        for (size_t o = begin; o < end; o++) {
            bool starts_wrong = how == STALE && r > 0 && o == begin;
            float start = starts_wrong ? stale : how == CONTRACTS_BIAS && bias ? bias[o] : 0;
            stale = element(w, in->act, r, o, start, other ? NO_CHUNKS : how);
            y[r * stride + o] = stale + (bias && how != CONTRACTS_BIAS ? bias[o] : 0);
        }
    }
}

#define PLANT(name, how)                                                                                                           \
    static void name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t stride, size_t begin,       \
                     size_t end)                                                                                                   \
    {                                                                                                                              \
        run(w, in, bias, y, stride, begin, end, how);                                                                              \
    }
PLANT(run_sound, NOTHING)
PLANT(run_chunk_order, CHUNK_ORDER)
PLANT(run_no_chunks, NO_CHUNKS)
PLANT(run_stale, STALE)
PLANT(run_product_order, PRODUCT_ORDER)
PLANT(run_saturates, SATURATES)
PLANT(run_tile_rows, TILE_ROWS)
PLANT(run_range, RANGE)
PLANT(run_contracts_bias, CONTRACTS_BIAS)
PLANT(run_shares, SHARES)

#define KERNEL(type, bytes, function)                                                                                              \
    {                                                                                                                              \
        .name = "planted", .dtype = type, .packed_bytes = bytes, .pack = pack_stored, .run = function                              \
    }
const ck_plant ck_matmul_plants[CK_MATMUL_PLANTS] = {
    {.bug = "none", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_sound), .sound = true},
    {.bug = "adds the chunks in another order", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_chunk_order)},
    {.bug = "knows no chunks", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_no_chunks)},
    {.bug = "keeps an accumulator between rows", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_stale)},
    {.bug = "multiplies scales in another order",
     .family = "matmul_q4_0",
     .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_product_order)},
    {.bug = "saturates in 16 bits", .family = "matmul_q8_0", .kernel = KERNEL(IM__Q8_0, bytes_q8_0, run_saturates)},
    {.bug = "other arithmetic for rows that fill no tile",
     .family = "matmul_q4_0",
     .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_tile_rows)},
    {.bug = "writes beyond its range of outputs", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_range)},
    {.bug = "starts from the bias", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_contracts_bias)},
    {.bug = "keeps sums in memory that threads share", .family = "matmul_q4_0", .kernel = KERNEL(IM__Q4_0, bytes_q4_0, run_shares)},
};
