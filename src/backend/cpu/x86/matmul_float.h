/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of float weights and float rows, for any vector width. The including file defines before: LANES, CHAINS (sums kept in registers),
 * the panels that one, few (2, 3) and many rows take at a time, vec and the functions vec_*, ISA and LEVEL. It gets the kernels of all float types.
 *
 * Layout and lanes: backend/cpu/pack.h: a panel is [element][16 outputs]. Lanes are outputs; the row's element is broadcast.
 *
 * Delicate clause: the chain of section 2: p = fma(w, x, p) over the elements of a chunk of 256, a new p for each; y = p0, y = y + p1, ...;
 * the bias last. A chain cannot be split, and a multiply-add takes about 4 cycles, so 8 or more chains run side by side: few rows take several
 * panels, many rows one or two.
 *
 * Limits: one row, memory. Many rows: the rate of multiply-adds, since a tile loads fewer values than it computes.
 */
#ifndef IRONMULE_BACKEND_CPU_X86_MATMUL_FLOAT_H
#define IRONMULE_BACKEND_CPU_X86_MATMUL_FLOAT_H

enum { VECTORS = IM__PANEL / LANES, AHEAD = 4096 };

typedef struct job {
    const im__weight *w;
    const im__matmul_in *in;
    const float *bias;
    float *y;
    size_t y_stride, out_end, panel_bytes;
} job;

INLINE vec load_weights(uint32_t dtype, const uint8_t *panel, size_t k, size_t vector)
{
    const uint8_t *p = panel + (k * IM__PANEL + vector * LANES) * (dtype == IM__F32 ? 4 : 2);
    return dtype == IM__F32 ? vec_load((const float *)(const void *)p) : dtype == IM__F16 ? vec_load_f16(p) : vec_load_bf16(p);
}

/* Adds the chunk's p to LANES outputs from o on (fewer at the end of the matrix). */
INLINE void put(const job *j, size_t row, size_t o, size_t k, vec p)
{
    float *y = j->y + row * j->y_stride + o, sums[LANES];
    const float *bias = k + IM__CHUNK >= j->w->n_in && j->bias ? j->bias + o : NULL;
    if (o + LANES <= j->out_end) {
        if (k != 0) p = vec_add(vec_load(y), p);
        vec_store(y, bias ? vec_add(p, vec_load(bias)) : p);
        return;
    }
    vec_store(sums, p);
    for (size_t i = 0; o + i < j->out_end; i++) {
        float total = k == 0 ? sums[i] : y[i] + sums[i];
        y[i] = bias ? total + bias[i] : total;
    }
}

/* One chunk, from element k to end, of `rows` rows and `panels` panels (constants); `packed` is the first panel. */
INLINE void run_tile(uint32_t dtype, size_t rows, size_t panels, const job *j, const uint8_t *packed, size_t row, size_t o,
                     size_t k, size_t end)
{
    vec p[CHAINS];
    const size_t vectors = panels * VECTORS, x_stride = j->in->x_stride;
    const float *x = j->in->x + row * x_stride;
    for (size_t i = 0; i < rows * vectors; i++) p[i] = vec_zero();
    for (size_t e = k; e < end; e++) {
        vec w[CHAINS];
        for (size_t v = 0; v < vectors; v++) {
            const uint8_t *panel = packed + v / VECTORS * j->panel_bytes;
            if (rows < 4 && v % VECTORS == 0) vec_fetch(panel + AHEAD + e * IM__PANEL * (dtype == IM__F32 ? 4 : 2));
            w[v] = load_weights(dtype, panel, e, v % VECTORS);
        }
        for (size_t r = 0; r < rows; r++) {
            const vec xe = vec_set(x[r * x_stride + e]);
            for (size_t v = 0; v < vectors; v++) p[r * vectors + v] = vec_fma(w[v], xe, p[r * vectors + v]);
        }
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t v = 0; v < vectors; v++)
            if (o + v * LANES < j->out_end) put(j, row + r, o + v * LANES, k, p[r * vectors + v]);
}

/* All rows against `panels` panels (a constant). */
INLINE void run_panels(uint32_t dtype, size_t panels, const job *j, size_t o)
{
    const uint8_t *packed = (const uint8_t *)j->w->packed + o / IM__PANEL * j->panel_bytes;
    const size_t most = CHAINS / (panels * VECTORS), rows = j->in->rows;
    for (size_t k = 0; k < j->w->n_in; k += IM__CHUNK) {
        const size_t end = j->w->n_in - k < IM__CHUNK ? j->w->n_in : k + IM__CHUNK;
        size_t r = 0;
        for (; r + most <= rows; r += most) run_tile(dtype, most, panels, j, packed, r, o, k, end);
        for (; most >= 4 && r + most / 2 <= rows; r += most / 2) run_tile(dtype, most / 2, panels, j, packed, r, o, k, end);
        for (; most >= 8 && r + 2 <= rows; r += 2) run_tile(dtype, 2, panels, j, packed, r, o, k, end);
        for (; r < rows; r++) run_tile(dtype, 1, panels, j, packed, r, o, k, end);
    }
}

/* Panels from o on while `panels` of them are left; returns where it stopped. */
INLINE size_t run_all(uint32_t dtype, size_t panels, const job *j, size_t o)
{
    for (; o < j->out_end && (panels == 1 || o + panels * IM__PANEL <= j->out_end); o += panels * IM__PANEL)
        run_panels(dtype, panels, j, o);
    return o;
}

INLINE void run(uint32_t dtype, const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,
                size_t out_begin, size_t out_end)
{
    const job j = {w, in, bias, y, y_stride, out_end, im__float_panel_bytes(dtype, w->n_in)};
    size_t o = out_begin;
    if (in->rows == 1) o = run_all(dtype, ONE_ROW_PANELS, &j, o);
    if (in->rows < 4) o = run_all(dtype, FEW_ROWS_PANELS, &j, o);
    if (MANY_ROWS_PANELS > 1) o = run_all(dtype, MANY_ROWS_PANELS, &j, o);
    run_all(dtype, 1, &j, o);
}

#define KERNEL(name, dtype)                                                                                                        \
    static void run_##name(const im__weight *w, const im__matmul_in *in, const float *bias, float *y, size_t y_stride,             \
                           size_t out_begin, size_t out_end)                                                                       \
    {                                                                                                                              \
        run(dtype, w, in, bias, y, y_stride, out_begin, out_end);                                                                  \
    }                                                                                                                              \
    DEFINE_KERNEL(name, dtype, run_##name)

IM__FLOAT_TYPES(KERNEL)

#endif
