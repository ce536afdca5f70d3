/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/ops.h"

#include "base/file_map.h"
#include "num/group.h"
#include "ops/reference.h"

void im__ops_c(im__ops *ops)
{
    *ops = (im__ops){
        .quantise = im__quantise_c,
        .rms_norm = im__rms_norm_c,
        .rope = im__rope_c,
        .kv_store = im__kv_store_c,
        .attention = im__attention_c,
        .glu = im__glu_c,
        .add = im__add_c,
        .scale = im__scale_c,
        .softcap = im__softcap_c,
        .argmax = im__argmax_c,
    };
}

/* ---- memory of quantised rows ---- */

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t bytes_q(size_t rows, size_t n) { return aligned(rows * n); }

static size_t bytes_d(size_t rows, size_t n) { return aligned(rows * (n / IM__ACT_GROUP) * sizeof(float)); }

static size_t bytes_sum(size_t rows, size_t n) { return aligned(rows * (n / 16) * sizeof(int16_t)); }

size_t im__act_bytes(size_t rows, size_t n) { return bytes_q(rows, n) + bytes_d(rows, n) + bytes_sum(rows, n); }

im__act im__act_carve(void *block, size_t rows, size_t n)
{
    uint8_t *q = block, *d = q + bytes_q(rows, n), *sum = d + bytes_d(rows, n);
    return (im__act){.n = n, .q = (int8_t *)q, .d = (float *)(void *)d, .sum = (int16_t *)(void *)sum};
}

/* ---- stored weights ---- */

static size_t stored_row(const im__weight *w, size_t out)
{
    if (w->halves == 0) return out;
    size_t in_head = out % w->halves;
    return out - in_head + in_head / 2 + in_head % 2 * (w->halves / 2);
}

const uint8_t *im__weight_row(const im__weight *w, size_t out)
{
    return (const uint8_t *)w->data + stored_row(w, out) * w->row_bytes;
}

const uint8_t *im__weight_blocks(const im__weight *w, size_t out, size_t first, size_t count, uint8_t room[IM__JOINED_BYTES])
{
    const uint8_t *row = im__weight_row(w, out);
    if (w->split.scale == NULL) return row + first * im__dtype_get(w->dtype)->block_bytes;
    im__split_join(&w->split, w->dtype, w->n_in, row, stored_row(w, out), first, count, room);
    return room;
}

/* Rows of a head that is not whole are given back too early or too late, which costs a second reading at most. */
void im__weight_release(const im__weight *w, size_t begin, size_t end)
{
    im__file_release((const uint8_t *)w->data + begin * w->row_bytes, (end - begin) * w->row_bytes);
    if (w->split.scale == NULL) return;
    size_t row = w->n_in / w->split.group * (w->split.scale_dtype == IM__I8 ? 1 : w->split.scale_dtype == IM__F32 ? 4 : 2);
    im__file_release(w->split.scale + begin * row, (end - begin) * row);
    if (w->split.bias != NULL) im__file_release(w->split.bias + begin * row, (end - begin) * row);
}

/* ---- embedding ---- */

void im__embed_row(const im__weight *w, size_t index, float scale, float *dst)
{
    uint8_t room[IM__JOINED_BYTES];
    size_t len = im__dtype_get(w->dtype)->block_len, step = w->split.scale == NULL ? w->n_in : IM__JOINED;
    for (size_t at = 0, n; at < w->n_in; at += n) {
        n = w->n_in - at < step ? w->n_in - at : step;
        im__dequantise_row(w->dtype, im__weight_blocks(w, index, at / len, n / len, room), dst + at, n);
    }
    for (size_t i = 0; scale != 1.0f && i < w->n_in; i++) dst[i] = dst[i] * scale;
}

/* ---- scratch of attention ---- */

/* One block of keys and one of values, widened, and for each query of a tile its scaled self and the sums of a span and of all spans. */
size_t im__attention_scratch(uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
    (void)heads;
    (void)kv_heads;
    size_t padded = ((size_t)head_dim + 15) / 16 * 16;
    return padded * (2 * IM__PAGE + 3 * IM__ATTENTION_TILE);
}
