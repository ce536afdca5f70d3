/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/ops.h"

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

/* ---- embedding ---- */

void im__embed_row(const im__weight *w, size_t index, float scale, float *dst)
{
    im__dequantise_row(w->dtype, (const uint8_t *)w->data + index * w->row_bytes, dst, w->n_in);
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
