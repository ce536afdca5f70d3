/* SPDX-License-Identifier: Apache-2.0
 *
 * The persistent decoder on a device, by itself.
 *
 *     cuda_decode exact          the short division and root against the rounded ones, over every mantissa
 *     cuda_decode check [part]   small and large models against the interpreter, every logit of every token
 *     cuda_decode time [part]    microseconds a token at several depths, random weights; whether repeated launches agree
 *     cuda_decode layers [part]  when blocks reach the points of a layer (built with -DIM__DECODE_STAMPS)
 *
 * Build: nvcc -std=c++17 -O3 -fmad=false -gencode=arch=compute_90a,code=sm_90a -Isrc -Iinclude -Itests/simt, with src/ops, src/num, src/base and
 * src/backend/cuda/decode_*.c as C.
 */
#include "../src/backend/cuda/kernels/decode_instances.cuh"

#define SAME(form) IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form, IM__CUDA_##form
#define SMALL_4 384, 2, 1, 640, SAME(4_HALF), IM__CUDA_4_HALF
#define SMALL_5 384, 2, 2, 640, SAME(5_HALF), IM__CUDA_8_HALF
#define SMALL_K 512, 4, 2, 768, SAME(4_SUPER_MIN), IM__CUDA_6_SUPER_16
DECODER(small_4, SMALL_4)
DECODER(small_5, SMALL_5)
DECODER(small_k, SMALL_K)

#include <algorithm>
#include <string>
#include <thread>

#define CK(x)                                                                                                                      \
    do {                                                                                                                           \
        cudaError_t e_ = (x);                                                                                                      \
        if (e_ != cudaSuccess) {                                                                                                   \
            printf("%s, line %d: %s\n", #x, __LINE__, cudaGetErrorString(e_));                                                     \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

static void *rig_take(size_t bytes)
{
    void *p;
    CK(cudaMalloc(&p, bytes));
    CK(cudaMemset(p, 0, bytes));
    return p;
}
static void rig_put(void *to, const void *from, size_t bytes) { CK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice)); }
static void rig_give(void *memory) { cudaFree(memory); }
static void fill_matrix(void *to, const im__cuda_matrix *m);
#define RIG_FILL fill_matrix

#include "decode_rig.h"

extern "C" {
#include "num/dtype.h"
#include "ops/interpret.h"
}

/* ---- kernels by name ---- */

struct instance {
    im__decode_shape shape;
    const void *kernel;
    int bytes;
};
#undef DECODER
#define DECODER(name, ...) {{#name, __VA_ARGS__}, (const void *)im_decode_##name, shape<__VA_ARGS__>::BYTES},
static const instance instances[] = {
#include "../src/backend/cuda/kernels/decode_shapes.inc"
    DECODER(small_4, SMALL_4) DECODER(small_5, SMALL_5) DECODER(small_k, SMALL_K)};
enum { INSTANCES = sizeof instances / sizeof *instances };

static int multiprocessors;
static cudaStream_t stream;

static const instance *instance_of(const decode_rig &r)
{
    for (const instance &i : instances)
        if (strcmp(i.shape.kernel, r.model.shape->kernel) == 0) return &i;
    abort();
}

static void launch(decode_rig &r)
{
    const instance *i = instance_of(r);
    void *args[] = {&r.args};
    CK(cudaFuncSetAttribute(i->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, i->bytes));
    CK(cudaLaunchCooperativeKernel(i->kernel, dim3(r.plan.blocks), dim3(IM__DECODE_THREADS), args, i->bytes, stream));
}

static bool make(decode_rig &r, const im__program *p, uint32_t blocks, size_t positions, size_t tokens, int fill)
{
    std::vector<im__decode_shape> shapes;
    for (const instance &i : instances) shapes.push_back(i.shape);
    if (!rig_make(r, p, shapes.data(), shapes.size(), blocks, positions, tokens, fill)) return false;
    r.model.shape = &instances[r.model.shape - shapes.data()].shape;
    return true;
}

/* ---- exact ---- */

__global__ void compare_exact(unsigned *bad)
{
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < 1u << 23; i += gridDim.x * blockDim.x)
        for (int e = -58; e <= 58; e += 29) {
            float x = f32_of((u32)(e + 127) << 23 | i);
            if (exact_rcp(x) != __frcp_rn(x)) atomicAdd(bad, 1);
            if (exact_sqrt(x) != __fsqrt_rn(x)) atomicAdd(bad + 1, 1);
            if (exact_div(127.0f, x, exact_rcp(x)) != __fdiv_rn(127.0f, x)) atomicAdd(bad + 2, 1);
            if (exact_div(x, 127.0f, 1.0f / 127.0f) != __fdiv_rn(x, 127.0f)) atomicAdd(bad + 3, 1);
            if (exact_div(x, 256.0f, 1.0f / 256.0f) != __fdiv_rn(x, 256.0f) ||
                exact_div(x, 1152.0f, 1.0f / 1152.0f) != __fdiv_rn(x, 1152.0f) ||
                exact_div(x, 2560.0f, 1.0f / 2560.0f) != __fdiv_rn(x, 2560.0f) ||
                exact_div(x, 3840.0f, 1.0f / 3840.0f) != __fdiv_rn(x, 3840.0f) ||
                exact_div(x, 384.0f, 1.0f / 384.0f) != __fdiv_rn(x, 384.0f) ||
                exact_div(x, 512.0f, 1.0f / 512.0f) != __fdiv_rn(x, 512.0f))
                atomicAdd(bad + 4, 1);
        }
}

static void exact(void)
{
    unsigned *bad, n[5];
    CK(cudaMalloc(&bad, sizeof n));
    CK(cudaMemset(bad, 0, sizeof n));
    compare_exact<<<multiprocessors * 8, 256>>>(bad);
    CK(cudaMemcpy(n, bad, sizeof n, cudaMemcpyDeviceToHost));
    printf("exact: 1/x, sqrt x, 127/x, x/127, x/n: %u %u %u %u %u differ from the rounded ones\n", n[0], n[1], n[2], n[3], n[4]);
}

/* ---- check ---- */

struct check_case {
    const char *name;
    decode_dims dims;
    uint32_t blocks, tokens; /* blocks 0: all */
};

static const check_case checks[] = {
    {"small 4", {384, 2, 1, 640, 3, 700, 300, 2, IM__Q4_0, IM__Q4_0, false}, 9, 1150},
    {"small 5/8", {384, 2, 2, 640, 2, 700, 100, 2, IM__Q5_0, IM__Q8_0, false}, 12, 400},
    {"small k/6", {512, 4, 2, 768, 2, 700, 100, 2, IM__Q4_K, IM__Q6_K, false}, 16, 400},
    {"270m 4", {640, 4, 1, 2048, 2, 1024, 40, 2, IM__Q4_0, IM__Q8_0, false}, 0, 100},
    {"270m k", {640, 4, 1, 2048, 2, 1024, 40, 2, IM__Q5_0, IM__Q8_0, false, IM__Q8_0, IM__Q4_K, IM__Q4_K, IM__Q6_K}, 0, 100},
    {"1b 4", {1152, 4, 1, 6912, 2, 2048, 40, 2, IM__Q4_0, IM__Q4_0, false}, 0, 100},
    {"1b k", {1152, 4, 1, 6912, 2, 2048, 40, 2, IM__Q5_0, IM__Q8_0, false, IM__Q8_0, IM__Q4_K, IM__Q4_K, IM__Q6_K}, 0, 70},
    {"1b 5", {1152, 4, 1, 6912, 2, 2048, 40, 2, IM__Q5_0, IM__Q5_0, false}, 0, 70},
    {"4b 4", {2560, 8, 4, 10240, 2, 2048, 40, 2, IM__Q4_0, IM__Q4_0, false}, 0, 70},
    {"4b k", {2560, 8, 4, 10240, 1, 2048, 40, 2, IM__Q4_K, IM__Q4_K, false}, 0, 40},
    {"4b mixed", {2560, 8, 4, 10240, 2, 2048, 40, 2, IM__Q4_K, IM__Q6_K, false, IM__Q6_K, IM__Q4_K, IM__Q4_K, IM__Q6_K}, 0, 40},
    {"12b 4", {3840, 16, 8, 15360, 1, 2048, 40, 1, IM__Q4_0, IM__Q4_0, false}, 0, 24},
    {"12b k", {3840, 16, 8, 15360, 1, 2048, 40, 2, IM__Q4_K, IM__Q4_K, false}, 0, 10},
};

static int best_of(const float *logits, uint32_t n)
{
    int best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = (int)i;
    return best;
}

struct checked {
    const check_case *c;
    im__program p;
    std::vector<float> expected;
    std::vector<int> chosen;
    std::thread judge;
};

static void judge(checked *k)
{
    im__interpreter *i;
    im_error err;
    if (im__interpreter_new(&i, &k->p, k->c->tokens + 64, &err) != IM_OK) abort();
    int token = 5;
    for (uint32_t t = 0; t < k->c->tokens; t++) {
        float *logits = &k->expected[(size_t)t * k->c->dims.vocab];
        im__interpret(i, token, logits);
        k->chosen[t] = token = best_of(logits, k->c->dims.vocab);
    }
    im__interpreter_free(i);
}

/* The device's own chain of tokens, `step` a launch. */
static bool device_chain(checked *k, std::vector<float> &logits, std::vector<int> &chosen)
{
    const uint32_t step = 16, n = k->c->tokens, vocab = k->c->dims.vocab;
    decode_rig r;
    if (!make(r, &k->p, k->c->blocks != 0 ? k->c->blocks : (uint32_t)multiprocessors, n + 64, step, 0xff)) return false;
    int token = 5;
    unsigned failed = 0;
    for (uint32_t t = 0; t < n && failed == 0; t += step) {
        const uint32_t now = std::min(step, n - t);
        rig_aim(r, token, (int)t, now, true);
        launch(r);
        CK(cudaStreamSynchronize(stream));
        rig_launched(r);
        CK(cudaMemcpy(&logits[(size_t)t * vocab], r.args.logits, (size_t)now * vocab * 4, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(&chosen[t], r.args.chosen, now * 4, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(&failed, r.args.failed, 4, cudaMemcpyDeviceToHost));
        token = std::max(chosen[t + now - 1], 0);
    }
    if (failed != 0) printf("%s: block %u waited in vain for %u\n", k->c->name, (failed & 0xffff) - 1, failed >> 16);
    rig_clear(r);
    return failed == 0;
}

static void compare(checked *k, const std::vector<float> &logits, const std::vector<int> &chosen, bool ran)
{
    const uint32_t vocab = k->c->dims.vocab;
    size_t bad = 0, first = 0;
    for (size_t i = logits.size(); i-- > 0;)
        if (memcmp(&logits[i], &k->expected[i], 4) != 0) bad++, first = i;
    uint32_t wrong = 0;
    for (uint32_t t = 0; t < k->c->tokens; t++) wrong += chosen[t] != k->chosen[t];
    printf("check %-10s %4u tokens: %s", k->c->name, k->c->tokens, bad || wrong || !ran ? "DIFFERENT" : "same bits");
    if (bad || wrong)
        printf(", %zu logits and %u tokens differ; first token %zu row %zu: %.9g, expected %.9g", bad, wrong, first / vocab,
               first % vocab, logits[first], k->expected[first]);
    printf("\n");
    fflush(stdout);
}

static void check(const char *part)
{
    std::vector<checked *> all;
    for (const check_case &c : checks) {
        if (part != NULL && strstr(c.name, part) == NULL) continue;
        checked *k = new checked;
        k->c = &c;
        decode_program(&k->p, &c.dims, 7);
        k->expected.resize((size_t)c.tokens * c.dims.vocab);
        k->chosen.resize(c.tokens);
        k->judge = std::thread(judge, k);
        all.push_back(k);
    }
    for (checked *k : all) {
        std::vector<float> logits(k->expected.size());
        std::vector<int> chosen(k->c->tokens);
        bool ran = device_chain(k, logits, chosen);
        k->judge.join();
        compare(k, logits, chosen, ran);
        decode_program_clear(&k->p);
        delete k;
    }
}

/* ---- time ---- */

__device__ u32 mix(u32 x)
{
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    return x;
}
__global__ void random_words(u32 *to, size_t n, u32 seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = mix((u32)i + seed);
}
__global__ void random_halves(uint16_t *to, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = (uint16_t)f16_of_f32((float)(mix((u32)i) & 0xffff) / 32768.0f - 1.0f);
}
/* Scales of one unit. */
__global__ void random_scales(uint8_t *to, size_t units, u32 unit_bytes, u32 begin, u32 count, float scale, float min)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < units * count; i += (size_t)gridDim.x * blockDim.x) {
        float s = scale * (0.5f + (float)(mix((u32)i) & 0xffff) / 65536.0f);
        uint16_t *at = (uint16_t *)(to + i / count * unit_bytes + begin) + i % count;
        *at = (uint16_t)f16_of_f32(min != 0 && i % 2 != 0 ? -min * scale : s);
    }
}

static u32 seed;
static void fill_matrix(void *to, const im__cuda_matrix *m)
{
    const size_t bytes = decode_packed_bytes(m), tiles = bytes / m->tile_bytes;
    random_words<<<4096, 256>>>((u32 *)to, bytes / 4, seed += 0x9e3779b9u);
    const int form = (int)m->form, full = (int)(m->n_in / 256), rest = (int)(m->n_in % 256 / 32);
    const float scale = form == IM__CUDA_4_SUPER_MIN  ? 1.9e-4f
                        : form == IM__CUDA_6_SUPER_16 ? 2e-5f
                        : form == IM__CUDA_8_HALF     ? 4e-4f
                        : form == IM__CUDA_5_HALF     ? 3e-3f
                                                      : 6e-3f;
    for (int u = 0; u < full + (rest != 0); u++) {
        const int groups = u < full ? 8 : rest;
        random_scales<<<1024, 256>>>((uint8_t *)to + u * m->unit_bytes, tiles, m->tile_bytes,
                                     (u32)(code_bytes(form, groups) + extra_bytes(form, groups)),
                                     form == IM__CUDA_4_SUPER_MIN  ? 64
                                     : form == IM__CUDA_6_SUPER_16 ? 32
                                                                   : 32 * groups,
                                     scale, form == IM__CUDA_4_SUPER_MIN ? 7.5f : 0.0f);
    }
    CK(cudaDeviceSynchronize());
}

struct time_case {
    const char *name;
    decode_dims dims;
    std::vector<int> depths;
};

static const time_case times[] = {
    {"270m 4", {640, 4, 1, 2048, 18, 262144, 512, 6, IM__Q4_0, IM__Q8_0, true}, {128, 2048}},
    {"1b k", {1152, 4, 1, 6912, 26, 262144, 512, 6, IM__Q5_0, IM__Q8_0, true, IM__Q8_0, IM__Q4_K, IM__Q4_K, IM__Q6_K}, {128}},
    {"4b mixed", {2560, 8, 4, 10240, 34, 262144, 1024, 6, IM__Q4_K, IM__Q6_K, true, IM__Q6_K, IM__Q4_K, IM__Q4_K, IM__Q6_K}, {128}},
    {"1b 4", {1152, 4, 1, 6912, 26, 262144, 512, 6, IM__Q4_0, IM__Q4_0, true}, {128, 2048, 8192}},
    {"1b 5", {1152, 4, 1, 6912, 26, 262144, 512, 6, IM__Q5_0, IM__Q5_0, true}, {128, 2048}},
    {"4b 4", {2560, 8, 4, 10240, 34, 262144, 1024, 6, IM__Q4_0, IM__Q4_0, true}, {128, 2048, 32000}},
    {"4b k", {2560, 8, 4, 10240, 34, 262144, 1024, 6, IM__Q4_K, IM__Q4_K, true}, {128, 2048}},
    {"12b 4", {3840, 16, 8, 15360, 48, 262144, 1024, 6, IM__Q4_0, IM__Q4_0, true}, {128, 2048}},
    {"12b k", {3840, 16, 8, 15360, 48, 262144, 1024, 6, IM__Q4_K, IM__Q4_K, true}, {128}},
};

static float median(std::vector<float> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* Microseconds of a token, `tokens` a launch. */
static float time_tokens(decode_rig &r, int depth, uint32_t tokens, int runs)
{
    cudaEvent_t begin, end;
    std::vector<float> us;
    CK(cudaEventCreate(&begin));
    CK(cudaEventCreate(&end));
    rig_aim(r, 1234, depth, tokens, false);
    for (int i = 0; i < runs + 2; i++) {
        CK(cudaEventRecord(begin, stream));
        launch(r);
        CK(cudaEventRecord(end, stream));
        CK(cudaEventSynchronize(end));
        rig_launched(r);
        float ms;
        CK(cudaEventElapsedTime(&ms, begin, end));
        if (ms > 1000) return ms;
        if (i >= 2) us.push_back(ms * 1e3f / (float)tokens);
    }
    return median(us);
}

/* Whether the same launch gives the same tokens and last logits again and again. */
static const char *repeats(decode_rig &r, int depth, uint32_t tokens, int runs)
{
    std::vector<float> first(r.args.vocab), now(r.args.vocab);
    std::vector<int> chosen(tokens), again(tokens);
    for (int i = 0; i < runs; i++) {
        rig_aim(r, 1234, depth, tokens, false);
        launch(r);
        CK(cudaStreamSynchronize(stream));
        rig_launched(r);
        CK(cudaMemcpy(now.data(), r.args.logits, now.size() * 4, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(again.data(), r.args.chosen, tokens * 4, cudaMemcpyDeviceToHost));
        if (i == 0) first = now, chosen = again;
        if (memcmp(first.data(), now.data(), now.size() * 4) != 0 || chosen != again) return "REPEATED LAUNCHES DIFFER";
    }
    return std::count(chosen.begin(), chosen.end(), -1) != 0 ? "NOT A NUMBER" : "repeats";
}

/* Of units that several blocks read once. */
static double weight_bytes(const decode_rig &r)
{
    double bytes = 0;
    std::vector<uint64_t> unit(r.plan.unit, r.plan.unit + r.plan.units);
    std::sort(unit.begin(), unit.end());
    unit.erase(std::unique(unit.begin(), unit.end()), unit.end());
    for (uint64_t u : unit) bytes += (double)(u >> 48) * 16;
    return bytes;
}

static bool make_timed(decode_rig &r, im__program *p, const time_case &c)
{
    decode_program(p, &c.dims, 3);
    const int deepest = *std::max_element(c.depths.begin(), c.depths.end());
    if (!make(r, p, (uint32_t)multiprocessors, (size_t)deepest + 128, 64, 0)) return false;
    for (void *m : r.caches) random_halves<<<1024, 256>>>((uint16_t *)m, r.cache_bytes / 2);
    CK(cudaDeviceSynchronize());
    return true;
}

static void time_all(const char *part)
{
    for (const time_case &c : times) {
        if (part != NULL && strcmp(c.name, part) != 0) continue;
        im__program p;
        decode_rig r;
        if (!make_timed(r, &p, c)) continue;
        const double bytes = weight_bytes(r);
        for (int depth : c.depths) {
            const float many = time_tokens(r, depth, 32, 7), one = time_tokens(r, depth, 1, 21);
            unsigned failed;
            CK(cudaMemcpy(&failed, r.args.failed, 4, cudaMemcpyDeviceToHost));
            if (failed != 0) {
                printf("time %s depth %d: block %u waited in vain for %u\n", c.name, depth, (failed & 0xffff) - 1, failed >> 16);
                break;
            }
            const char *same = repeats(r, depth, 32, 5);
            CK(cudaMemcpy(&failed, r.args.failed, 4, cudaMemcpyDeviceToHost));
            printf("time %-6s depth %5d: %7.1f us a token, %5.0f tokens/s, %.2f TB/s of weights; one a launch %7.1f us; %s%s\n",
                   c.name, depth, many, 1e6f / many, bytes / many / 1e6, one, same, failed ? ", WAITED IN VAIN" : "");
            fflush(stdout);
        }
        rig_clear(r);
        decode_program_clear(&p);
    }
}

/* ---- layers ---- */

static const char *const points[16] = {"begin",         "normed for q k v", "q k v sent",  "attention done",
                                       "merged",        "output begins",    "output sent", "normed for gate",
                                       "gate, up done", "hidden sent",      "down begins", "down sent"};

/* Means over layers of the first, the median and the last block that reach a point, from when the first block began the layer. */
static void print_points(const std::vector<unsigned long long> &at, uint32_t blocks, uint32_t layers)
{
    double length = 0;
    for (int k = 0; k < 12; k++) {
        double sum[3] = {0, 0, 0}, count = 0;
        for (uint32_t l = 1; l + 1 < layers; l++) {
            std::vector<double> t;
            unsigned long long begin = ~0ull, next = ~0ull;
            for (uint32_t b = 0; b < blocks; b++) {
                begin = std::min(begin, at[((size_t)b * layers + l) * 16]);
                next = std::min(next, at[((size_t)b * layers + l + 1) * 16]);
            }
            for (uint32_t b = 0; b < blocks; b++) {
                unsigned long long x = at[((size_t)b * layers + l) * 16 + k];
                if (x >= begin) t.push_back((double)(x - begin));
            }
            if (k == 0) length += (double)(next - begin) / (layers - 2);
            if (t.empty()) continue;
            std::sort(t.begin(), t.end());
            sum[0] += t[0], sum[1] += t[t.size() / 2], sum[2] += t.back(), count++;
        }
        if (count > 0) printf("   %-18s %6.0f %6.0f %6.0f\n", points[k], sum[0] / count, sum[1] / count, sum[2] / count);
    }
    printf("   layer %.0f ns\n", length);
}

static void layers(const char *part)
{
    for (const time_case &c : times) {
        if (part != NULL && strcmp(c.name, part) != 0) continue;
        im__program p;
        decode_rig r;
        if (!make_timed(r, &p, c)) continue;
        const size_t n = (size_t)r.plan.blocks * r.args.layers * 16;
        CK(cudaMalloc(&r.args.stamps, n * 8));
        for (int depth : c.depths) {
            CK(cudaMemset(r.args.stamps, 0, n * 8));
            time_tokens(r, depth, 8, 1);
            std::vector<unsigned long long> at(n);
            CK(cudaMemcpy(at.data(), r.args.stamps, n * 8, cudaMemcpyDeviceToHost));
            printf("layers %s depth %d, ns: first, median, last block\n", c.name, depth);
            print_points(at, r.plan.blocks, r.args.layers);
        }
        rig_clear(r);
        decode_program_clear(&p);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *part = argc > 2 ? argv[2] : NULL;
    cudaDeviceProp device;
    CK(cudaGetDeviceProperties(&device, 0));
    CK(cudaStreamCreate(&stream));
    multiprocessors = device.multiProcessorCount;
    if (strcmp(what, "exact") == 0) exact();
    if (strcmp(what, "check") == 0) check(part);
    if (strcmp(what, "time") == 0) time_all(part);
    if (strcmp(what, "layers") == 0) layers(part);
    return 0;
}
