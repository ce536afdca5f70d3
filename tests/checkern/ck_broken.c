/* SPDX-License-Identifier: Apache-2.0 */
#include "ck_broken.h"

#include "num/half.h"
#include "num/real.h"
#include "ops/reference.h"

#include <math.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------------------------------------------- */

static void add_drops_tail(float *y, const float *x, size_t n) { im__add_c(y, x, n < 8 ? n : n / 8 * 8); }
static void plant_tail(im__ops *ops) { ops->add = add_drops_tail; }

static void scale_past_end(float *y, const float *x, size_t n, float by)
{
    im__scale_c(y, x, n, by);
    ((volatile float *)y)[n] = 0;
}
static void plant_past_end(im__ops *ops) { ops->scale = scale_past_end; }

static void scale_before(float *y, const float *x, size_t n, float by)
{
    im__scale_c(y, x, n, by);
    ((volatile float *)y)[-1] = 0;
}
static void plant_before(im__ops *ops) { ops->scale = scale_before; }

static int32_t argmax_reads_past(const float *x, size_t n)
{
    (void)((const volatile float *)x)[n];
    return im__argmax_c(x, n);
}
static void plant_reads_past(im__ops *ops) { ops->argmax = argmax_reads_past; }

static void norm_reads_before(float *y, const float *x, const float *w, size_t n, size_t count, float eps)
{
    (void)((const volatile float *)w)[-1];
    im__rms_norm_c(y, x, w, n, count, eps);
}
static void plant_reads_before(im__ops *ops) { ops->rms_norm = norm_reads_before; }

static void glu_spoils_input(float *y, const float *gate, const float *up, size_t n, im__glu kind)
{
    ((volatile float *)(uintptr_t)up)[n / 2] *= 2.0f;
    im__glu_c(y, gate, up, n, kind);
}
static void plant_spoils_input(im__ops *ops) { ops->glu = glu_spoils_input; }

static void quantise_wrong_row(const im__act *act, size_t row, const float *x) { im__quantise_c(act, row == 2 ? 1 : row, x); }
static void plant_wrong_row(im__ops *ops) { ops->quantise = quantise_wrong_row; }

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------------- */

static void rope_unfused(float *x, size_t heads, size_t head_dim, size_t rot_dim, const float *c, const float *s, bool adjacent)
{
    if (adjacent) {
        im__rope_c(x, heads, head_dim, rot_dim, c, s, adjacent);
        return;
    }
    for (size_t h = 0; h < heads; h++, x += head_dim)
        for (size_t i = 0; i < rot_dim / 2; i++) {
            float a = x[i], b = x[i + rot_dim / 2];
            x[i] = a * c[i] - b * s[i];
            x[i + rot_dim / 2] = a * s[i] + b * c[i];
        }
}
static void plant_unfused(im__ops *ops) { ops->rope = rope_unfused; }

static float contracted_sum_squares(const float *x, size_t n) /* lanes right, but squares are rounded before they are added */
{
    float lane[IM__LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i % IM__LANES] += x[i] * x[i];
    for (size_t half = IM__LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static void norm_not_contracted(float *y, const float *x, const float *w, size_t n, size_t count, float eps)
{
    for (size_t c = 0; c < count; c++, x += n, y += n) {
        float r = 1.0f / sqrtf(contracted_sum_squares(x, n) / (float)n + eps);
        for (size_t i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
    }
}
static void plant_norm(im__ops *ops) { ops->rms_norm = norm_not_contracted; }

static void norm_other_lanes(float *y, const float *x, const float *w, size_t n, size_t count, float eps)
{
    for (size_t c = 0; c < count; c++, x += n, y += n) {
        float lane[8] = {0};
        for (size_t i = 0; i < n; i++) lane[i % 8] = im__fma(x[i], x[i], lane[i % 8]);
        for (size_t half = 4; half > 0; half /= 2)
            for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
        float r = 1.0f / sqrtf(lane[0] / (float)n + eps);
        for (size_t i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
    }
}
static void plant_lanes(im__ops *ops) { ops->rms_norm = norm_other_lanes; }

static void softcap_last_place(float *y, size_t n, float cap)
{
    im__softcap_c(y, n, cap);
    if (n == 23) y[11] = im__f32_of_bits(im__bits_of_f32(y[11]) ^ 1);
}
static void plant_last_place(im__ops *ops) { ops->softcap = softcap_last_place; }

static int32_t argmax_last(const float *x, size_t n)
{
    int32_t best = im__argmax_c(x, n);
    for (size_t i = 0; best >= 0 && i < n; i++)
        if (x[i] == x[best]) best = (int32_t)i;
    return best;
}
static void plant_argmax_last(im__ops *ops) { ops->argmax = argmax_last; }

static int32_t argmax_ignores_nan(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}
static void plant_argmax_nan(im__ops *ops) { ops->argmax = argmax_ignores_nan; }

static size_t store_infinite(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k,
                             const float *v)
{
    size_t first = (size_t)kv->table[position / IM__PAGE] * kv->page_stride + kv->k_offset + (size_t)position % IM__PAGE;
    size_t clamped = im__kv_store_c(kv, kv_heads, head_dim, position, k, v);
    if (kv->type == IM__KV_F16) ((uint16_t *)kv->base)[first] = im__f16_of_f32(k[0]); /* beyond the range: infinite */
    return clamped;
}
static void plant_store(im__ops *ops) { ops->kv_store = store_infinite; }

static size_t store_rounds(const im__kv_view *kv, size_t kv_heads, size_t head_dim, int32_t position, const float *k,
                           const float *v)
{
    float rounded[1024];
    for (size_t i = 0; i < kv_heads * head_dim; i++) rounded[i] = im__f32_of_f16(im__f16_of_f32(v[i]));
    return im__kv_store_c(kv, kv_heads, head_dim, position, k, kv->type == IM__KV_F32 ? rounded : v);
}
static void plant_store_rounds(im__ops *ops) { ops->kv_store = store_rounds; }

/* ---- rows that influence each other --------------------------------------------------------------------------------------------- */

static void attention_sees_all(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end,
                               float *scratch)
{
    int32_t last[64];
    im__attention b = *a;
    for (size_t r = row_begin; r < row_end; r++) last[r] = a->position[r];
    for (size_t r = row_begin + 1; r < row_end; r++)
        if (r % 16 == 15) last[r] = a->position[r - 1]; /* the last row of a tile takes its neighbour's mask */
    b.position = last;
    im__attention_c(&b, row_begin, row_end, kv_begin, kv_end, scratch);
}
static void plant_mask(im__ops *ops) { ops->attention = attention_sees_all; }

/* Stale slots are given weight +0 instead of being left out: right until one of them holds NaN. */
static void attention_multiplies_stale(const im__attention *a, size_t row_begin, size_t row_end, size_t kv_begin, size_t kv_end,
                                       float *scratch)
{
    im__attention_c(a, row_begin, row_end, kv_begin, kv_end, scratch);
    size_t sharing = a->heads / a->kv_heads;
    for (size_t r = row_begin; r < row_end; r++) {
        size_t j = (size_t)a->position[r] % IM__PAGE;
        size_t page = (size_t)a->kv.table[a->position[r] / IM__PAGE] * a->kv.page_stride + a->kv.v_offset;
        float *out = a->out + r * a->out_stride + kv_begin * sharing * a->head_dim;
        size_t stale = page + (kv_begin * IM__PAGE + j + 1) * a->head_dim;
        if (j + 1 < IM__PAGE && a->kv.type == IM__KV_F16)
            out[0] = im__fma(0.0f, im__f32_of_f16(((const uint16_t *)a->kv.base)[stale]), out[0]);
    }
}
static void plant_stale(im__ops *ops) { ops->attention = attention_multiplies_stale; }

/* ---- the process ----------------------------------------------------------------------------------------------------------------- */

static void add_crashes(float *y, const float *x, size_t n)
{
    im__add_c(y, x, n);
    if (n == 17) __builtin_trap();
}
static void plant_crash(im__ops *ops) { ops->add = add_crashes; }

/* Flushes subnormals from here on: FZ and DAZ on x86, FZ on ARM. */
static void flush_subnormals(void)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | UINT64_C(1) << 24));
#endif
}

static void add_flushes(float *y, const float *x, size_t n)
{
    im__add_c(y, x, n);
    flush_subnormals();
}
static void plant_flush(im__ops *ops) { ops->add = add_flushes; }

static void plant_nothing(im__ops *ops) { (void)ops; }

static const ck_plant ops_plants[] = {
    {.bug = "drops the tail", .family = "add", .plant = plant_tail},
    {.bug = "writes one element past the end", .family = "scale", .plant = plant_past_end},
    {.bug = "writes one element before the start", .family = "scale", .plant = plant_before},
    {.bug = "reads past the end", .family = "argmax", .plant = plant_reads_past},
    {.bug = "reads before the start", .family = "rms_norm", .plant = plant_reads_before},
    {.bug = "writes to an input", .family = "glu", .plant = plant_spoils_input},
    {.bug = "writes to another row", .family = "quantise", .plant = plant_wrong_row},
    {.bug = "multiplies and adds where the contract fuses", .family = "rope", .plant = plant_unfused},
    {.bug = "rounds squares before it adds them", .family = "rms_norm", .plant = plant_norm},
    {.bug = "sums over another number of lanes", .family = "rms_norm", .plant = plant_lanes},
    {.bug = "one element of one length off by one place", .family = "softcap", .plant = plant_last_place},
    {.bug = "takes the last of equal largest values", .family = "argmax", .plant = plant_argmax_last},
    {.bug = "overlooks NaN", .family = "argmax", .plant = plant_argmax_nan},
    {.bug = "stores an infinity", .family = "kv_store", .plant = plant_store},
    {.bug = "rounds what a cache of binary32 keeps", .family = "kv_store", .plant = plant_store_rounds},
    {.bug = "uses a neighbour's mask", .family = "attention", .plant = plant_mask},
    {.bug = "multiplies stale slots by zero", .family = "attention", .plant = plant_stale},
    {.bug = "crashes at one length", .family = "add", .plant = plant_crash},
    {.bug = "leaves subnormals flushed", .family = "add", .plant = plant_flush},
    {.bug = "none", .family = "attention", .plant = plant_nothing, .sound = true},
    {.bug = "none", .family = "quantise", .plant = plant_nothing, .sound = true},
};
#define OPS_PLANTS (sizeof ops_plants / sizeof ops_plants[0])

const ck_plant *ck_plants(size_t *count)
{
    static ck_plant all[OPS_PLANTS + CK_MATMUL_PLANTS];
    memcpy(all, ops_plants, sizeof ops_plants);
    memcpy(all + OPS_PLANTS, ck_matmul_plants, sizeof ck_matmul_plants);
    *count = OPS_PLANTS + CK_MATMUL_PLANTS;
    return all;
}
