/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of many rows on a device: bits against the plain C function, then times of the layers of Gemma 3;
 * with an argument only these, with `bits` N only N cases of the first. Build with matmul_many.cu, many_cases.c,
 * ../checkern/ck_values.c and ck_weights.c, src/backend/cuda/layout.c, src/ops/matmul.c and quantise.c, src/num/ *.c, src/base/ *.c.
 */
#include "backend/cuda/kernels/matmul_many.h"
#include "many_cases.h"

extern "C" {
#include "../checkern/ck_values.h"
#include "num/dtype.h"
}

#include <algorithm>
#include <atomic>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>

#define OK(call)                                                                                                                   \
    do {                                                                                                                           \
        cudaError_t e_ = (call);                                                                                                   \
        if (e_ != cudaSuccess) {                                                                                                   \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                                                     \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

#ifdef IM__MANY_FEW_FORMS
#define IM__MANY_90_FORMS(X) X(4_half, IM__CUDA_4_HALF) X(4_super_min, IM__CUDA_4_SUPER_MIN) X(6_super_16, IM__CUDA_6_SUPER_16)
#else
#define IM__MANY_90_FORMS IM__MANY_FORMS
#endif

typedef void kernel(const im__cuda_products products);

#define SHAPE(form, name)                                                                                                          \
    extern "C" __global__ void im_matmul_many_##form##_##name(const __grid_constant__ im__cuda_products products);
#define FORM(form, number) IM__MANY_EACH_SHAPE(SHAPE, form)
IM__MANY_FORMS(FORM)
#undef FORM
#define FORM(form, number) IM__MANY_90_EACH_SHAPE(SHAPE, form)
IM__MANY_90_FORMS(FORM)
#undef SHAPE
#undef FORM
#define FORM(form, number) extern "C" __global__ void im_matmul_many_##form(const __grid_constant__ im__cuda_products products);
IM__MANY_FLOAT_FORMS(FORM)
#undef FORM

static kernel *find(uint32_t form, int shape)
{
#define SHAPE(f, name)                                                                                                             \
    if (shape == IM__MANY_##name) return im_matmul_many_##f##_##name;
#define FORM(f, number)                                                                                                            \
    if (form == number) {                                                                                                          \
        IM__MANY_EACH_SHAPE(SHAPE, f)                                                                                              \
    }
    IM__MANY_FORMS(FORM)
#undef FORM
#define FORM(f, number)                                                                                                            \
    if (form == number) {                                                                                                          \
        IM__MANY_90_EACH_SHAPE(SHAPE, f)                                                                                           \
    }
    IM__MANY_90_FORMS(FORM)
#undef SHAPE
#undef FORM
#define FORM(f, number)                                                                                                            \
    if (form == number) return im_matmul_many_##f;
    IM__MANY_FLOAT_FORMS(FORM)
#undef FORM
    return NULL;
}

static bool fits(uint32_t form, int shape)
{
    return im__many_launch_of(form, shape).shared <= 227 * 1024 && find(form, shape) != NULL;
}

static void launch(const im__cuda_products &p, int shape, uint32_t rows, cudaStream_t stream)
{
    const uint32_t form = p.product[0].w.form;
    im__cuda_products q = p;
    const im__many_launch l = im__many_launch_of(form, shape);
    bool wide = false;
    for (uint32_t i = 0; i < q.count; i++) {
        q.first_block[i + 1] = q.first_block[i] + im__many_blocks(&l, q.product[i].w.n_out);
        wide = wide || q.product[i].wide;
    }
    const dim3 grid(q.first_block[q.count], im__many_row_blocks(&l, rows, wide));
    kernel *k = find(form, shape);
    OK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, l.shared));
    k<<<grid, l.threads, l.shared, stream>>>(q);
    OK(cudaGetLastError());
}

/* ---- bits ------------------------------------------------------------------------------------------------------------------------------- */

static std::atomic<int> next_case, bad, runs;

static void check(many_case *c)
{
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    many_case_make(c);
    void *device[MANY_BLOCKS] = {};
    uint64_t address[MANY_BLOCKS];
    im__cuda_products p;
    for (int i = 0; i < MANY_BLOCKS; i++) {
        if (c->bytes[i]) OK(cudaMalloc(&device[i], c->bytes[i]));
        address[i] = (uint64_t)device[i];
    }
    many_case_bind(c, address, &p);
    for (int i = 0; i < MANY_BLOCKS; i++)
        if (c->bytes[i]) OK(cudaMemcpyAsync(device[i], c->block[i], c->bytes[i], cudaMemcpyHostToDevice, stream));
    for (int s = 0; s < (im__many_is_float(c->form) ? 1 : IM__MANY_ALL_SHAPES); s++)
        for (int again = 0; again < 2 && fits(c->form, s); again++) {
            many_case_poison(c);
            for (uint32_t i = 0; i < c->products; i++)
                OK(cudaMemcpyAsync(device[MANY_Y + i], c->block[MANY_Y + i], c->bytes[MANY_Y + i], cudaMemcpyHostToDevice, stream));
            launch(p, s, again ? c->max_rows : c->rows, stream);
            for (uint32_t i = 0; i < c->products; i++)
                OK(cudaMemcpyAsync(c->block[MANY_Y + i], device[MANY_Y + i], c->bytes[MANY_Y + i], cudaMemcpyDeviceToHost, stream));
            OK(cudaStreamSynchronize(stream));
            runs++;
            const size_t wrong = many_case_wrong(c);
            if (wrong == 0) continue;
            char name[200];
            many_case_name(c, name, sizeof name);
            if (bad++ < 20) printf("WRONG %zu: shape %s: %s\n", wrong, im__many_launch_of(c->form, s).name, name);
        }
    for (int i = 0; i < MANY_BLOCKS; i++) OK(cudaFree(device[i]));
    many_case_clear(c);
    OK(cudaStreamDestroy(stream));
}

/* So many cases at most. */
static void check_all(size_t most)
{
    static const uint32_t rows[] = {5, 8, 16, 17, 64, 100, 512};
    std::vector<many_case> cases;
    uint32_t seed = 1;
    for (const uint32_t *dtype = many_dtypes; *dtype != UINT32_MAX; dtype++)
        for (uint32_t r : rows) {
            many_case c = {};
            const bool k = im__dtype_get(*dtype)->block_len == 256;
            c.dtype = *dtype, c.n_in = k ? 256 * (1 + seed % 11) : 32 * (1 + seed * 7 % 90), c.rows = r, c.max_rows = r + seed % 9;
            c.products = 1 + seed % 3, c.n_out[0] = 100 + seed % 200, c.n_out[1] = 20 + seed % 33, c.n_out[2] = 256,
            c.wide[0] = seed % 2;
            c.wide[1] = seed % 3 == 0, c.bias[0] = seed % 2, c.bias[1] = 1, c.selected = seed % 5 == 0, c.reference_rows = 24;
            c.weight_flavour = seed % 3 == 0 ? seed / 3 % CK_FINITE : CK_PLAIN,
            c.act_flavour = seed % 4 == 0 ? seed / 4 % (CK_FINITE + 1) : CK_PLAIN;
            c.seed = seed++;
            cases.push_back(c);
        }
    if (cases.size() > most) cases.resize(most);
    std::vector<std::thread> threads;
    for (int t = 0; t < 12; t++)
        threads.emplace_back([&] {
            for (int i; (i = next_case++) < (int)cases.size();) check(&cases[i]);
        });
    for (auto &t : threads) t.join();
    printf("bits: %zu cases, %d runs, %d wrong\n", cases.size(), runs.load(), bad.load());
}

/* ---- times ------------------------------------------------------------------------------------------------------------------------------ */

static __global__ void fill(uint32_t *to, size_t n, uint32_t mask)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
        to[i] = h & mask;
    }
}

struct model {
    const char *name;
    uint32_t layers, width, q, kv, ff;
};
static const model models[] = {
    {"1B", 26, 1152, 1024, 256, 6912}, {"4B", 34, 2560, 2048, 1024, 10240}, {"12B", 48, 3840, 4096, 2048, 15360}};

static const size_t POOL = (size_t)512 << 20;
static uint8_t *pool;
static int8_t *q;
static im__cuda_group *groups;
static float *y;
static im__cuda_step *step;

struct one {
    uint32_t n_in, n_out, wide;
};

static size_t pool_at;
static im__cuda_products products(uint32_t form, const one *o, uint32_t count)
{
    im__cuda_products p = {};
    for (uint32_t i = 0; i < count; i++) {
        im__cuda_product &x = p.product[i];
        const uint32_t units = (o[i].n_in + 255) / 256;
        x.w.form = form, x.w.n_in = o[i].n_in, x.w.n_out = o[i].n_out, x.w.unit_bytes = im__many_unit_bytes(form, 8);
        x.w.tile_bytes = (units - 1) * x.w.unit_bytes + im__many_unit_bytes(form, (o[i].n_in - 1) % 256 / 32 + 1);
        const size_t bytes = (size_t)x.w.tile_bytes * ((o[i].n_out + 31) / 32);
        if (pool_at + bytes > POOL) pool_at = 0;
        x.w.data = pool + pool_at;
        pool_at += (bytes + 255) / 256 * 256;
        x.act = {q, groups, o[i].n_in, 2048};
        x.wide = o[i].wide;
        x.y = y + (size_t)i * 2048 * 15360;
    }
    p.count = count, p.step = step;
    return p;
}

static double time_one(uint32_t form, const one *o, uint32_t count, int shape, uint32_t rows)
{
    cudaEvent_t a, b;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    launch(products(form, o, count), shape, rows, 0);
    const int times = rows > 512 ? 3 : 8;
    double best = 1e9;
    for (int r = 0; r < 3; r++) {
        OK(cudaEventRecord(a));
        for (int i = 0; i < times; i++) launch(products(form, o, count), shape, rows, 0);
        OK(cudaEventRecord(b));
        OK(cudaEventSynchronize(b));
        float ms;
        OK(cudaEventElapsedTime(&ms, a, b));
        best = std::min(best, ms * 1e3 / times);
    }
    OK(cudaEventDestroy(a));
    OK(cudaEventDestroy(b));
    return best;
}

static void times(uint32_t form, const char *name, const model &m, uint32_t rows)
{
    const one phases[4][3] = {{{m.width, m.q, 0}, {m.width, m.kv, 1}, {m.width, m.kv, 1}},
                              {{m.q, m.width, 0}},
                              {{m.width, m.ff, 0}, {m.width, m.ff, 0}},
                              {{m.ff, m.width, 0}}};
    static const uint32_t counts[] = {3, 1, 2, 1};
    static const char *const phase_names[] = {"qkv", "out", "gate/up", "down"};
    OK(cudaMemcpy(&step->rows, &rows, 4, cudaMemcpyHostToDevice));
    double total = 0, all_macs = 0;
    for (int f = 0; f < 4; f++) {
        double macs = 0, best = 1e9;
        for (uint32_t i = 0; i < counts[f]; i++)
            macs += (double)rows * phases[f][i].n_in * phases[f][i].n_out * (1 + phases[f][i].wide);
        printf("%-3s %-12s %4u rows %-8s us:", m.name, name, rows, phase_names[f]);
        for (int s = 0; s < IM__MANY_ALL_SHAPES; s++) {
            const uint32_t tile = im__many_launch_of(form, s).rows;
            if (!fits(form, s) || (rows >= 512 && tile < 64) || (rows <= 16 && tile >= 64)) {
                printf("       -");
                continue;
            }
            const double us = time_one(form, phases[f], counts[f], s, rows);
            printf(" %7.1f", us);
            best = std::min(best, us);
        }
        printf("  best %6.1f T mac/s\n", macs / best * 1e-6);
        bool usable[IM__MANY_ALL_SHAPES];
        for (int s = 0; s < IM__MANY_ALL_SHAPES; s++) usable[s] = fits(form, s);
        const im__cuda_products p = products(form, phases[f], counts[f]);
        const int chosen = im__many_choose(usable, &p, rows, 132);
        const double us = time_one(form, phases[f], counts[f], chosen, rows);
        if (us > best * 1.1) printf("    chosen: %s, %.1f us\n", im__many_launch_of(form, chosen).name, us);
        total += us, all_macs += macs;
    }
    printf("%-3s %-12s %4u rows: layer %7.1f us, %6.1f T mac/s, products alone %8.0f tokens/s\n", m.name, name, rows, total,
           all_macs / total * 1e-6, rows / (total * m.layers) * 1e6);
}

int main(int argc, char **argv)
{
    const bool few = argc > 2 && strcmp(argv[1], "bits") == 0;
    if (argc < 2 || few) check_all(few ? strtoul(argv[2], NULL, 10) : SIZE_MAX);
    if (few) return bad != 0;
    OK(cudaMalloc(&pool, POOL));
    OK(cudaMalloc(&q, (size_t)4096 * 15360));
    OK(cudaMalloc(&groups, (size_t)4096 * 15360 / 32 * 8));
    OK(cudaMalloc(&y, (size_t)3 * 2048 * 15360 * 4));
    OK(cudaMalloc(&step, sizeof *step));
    OK(cudaMemset(step, 0, sizeof *step));
    fill<<<1024, 256>>>((uint32_t *)pool, POOL / 4, 0xbbffbbff);
    fill<<<1024, 256>>>((uint32_t *)q, (size_t)4096 * 15360 / 4, 0xffffffff);
    fill<<<1024, 256>>>((uint32_t *)groups, (size_t)4096 * 15360 / 32 * 2, 0x3fff3fff);
    OK(cudaDeviceSynchronize());
    printf("%40s", "");
    for (int s = 0; s < IM__MANY_ALL_SHAPES; s++) printf(" %7s", im__many_launch_of(0, s).name);
    printf("\n");
    static const uint32_t rows[] = {8, 16, 32, 64, 128, 512, 2048};
    for (const model &m : models)
        for (uint32_t r : rows) times(IM__CUDA_4_HALF, "4_half", m, r);
    for (const model &m : models)
        for (uint32_t r : {16u, 64u, 2048u}) times(IM__CUDA_4_SUPER_MIN, "4_super_min", m, r);
    for (uint32_t form : {IM__CUDA_5_HALF, IM__CUDA_8_HALF, IM__CUDA_6_SUPER_16})
        for (uint32_t r : {64u, 2048u})
            times(form, form == IM__CUDA_5_HALF ? "5_half" : form == IM__CUDA_8_HALF ? "8_half" : "6_super_16", models[1], r);
    return bad != 0;
}
