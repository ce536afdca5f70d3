/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention kernels on a device: bits against the plain C function over random steps, each twice, then times. Build with the kernels (attention.cu,
 * attention_many.cu), attention_cases.c, src/ops/attention.c and src/num/real.c; run without arguments, or with a number of random cases; behind that,
 * `bits`: no times.
 */
#include "attention_cases.h"
#include "backend/cuda/kernels/attention.h"

#include <atomic>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <vector>

#define FEW(how, each) extern "C" __global__ void im_attention_few_##how##_##each(const __grid_constant__ im__cuda_attention a);
#define MANY(head, queries)                                                                                                        \
    extern "C" __global__ void im_attention_many_##head##_##queries(const __grid_constant__ im__cuda_attention a);
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY

#define OK(call)                                                                                                                   \
    do {                                                                                                                           \
        cudaError_t e_ = (call);                                                                                                   \
        if (e_ != cudaSuccess) {                                                                                                   \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                                                     \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

typedef void kernel(const im__cuda_attention a);

static kernel *few_kernel(const char *how, uint32_t each)
{
#define FEW(h, e)                                                                                                                  \
    if (strcmp(how, #h) == 0 && each == e) return im_attention_few_##h##_##e;
#define MANY(head, queries)
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY
    return NULL;
}

static kernel *many_kernel(uint32_t head, uint32_t queries)
{
#define FEW(h, e)
#define MANY(h, q)                                                                                                                 \
    if (head == h && queries == q) return im_attention_many_##h##_##q;
#include "backend/cuda/kernels/attention_kernels.inc"
#undef FEW
#undef MANY
    return NULL;
}

static cudaDeviceProp device;
static thread_local cudaStream_t stream;

/* ---- one step ------------------------------------------------------------------------------------------------------------------------ */

struct loaded {
    attention_case *c;
    uint64_t address[CASE_BLOCKS];
};

static __global__ void fill(uint16_t *at, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t z = (uint32_t)i * 2654435761u;
        z ^= z >> 15;
        z *= 2246822519u;
        at[i] = (uint16_t)(0x3000 + (z >> 20 & 0xbff) | (z & 0x8000)); /* magnitudes of 1/8 to 1 */
    }
}

static loaded load(attention_case *c)
{
    loaded l;
    l.c = c;
    for (int i = 0; i < CASE_BLOCKS; i++) {
        l.address[i] = 0;
        if (c->bytes[i] == 0) continue;
        OK(cudaMalloc((void **)&l.address[i], c->bytes[i]));
        if (i == CASE_POOL && c->cheap)
            fill<<<1024, 256, 0, stream>>>((uint16_t *)l.address[i], c->bytes[i] / 2);
        else
            OK(cudaMemcpyAsync((void *)l.address[i], c->block[i], c->bytes[i], cudaMemcpyHostToDevice, stream));
    }
    OK(cudaStreamSynchronize(stream));
    return l;
}

static void unload(loaded *l)
{
    for (int i = 0; i < CASE_BLOCKS; i++)
        if (l->address[i] != 0) OK(cudaFree((void *)l->address[i]));
}

static im__cuda_attention bind(loaded *l, uint32_t every, uint32_t layer)
{
    im__cuda_attention a;
    attention_case_bind(l->c, l->address, every, layer, &a);
    return a;
}

static void send_step(loaded *l)
{
    bind(l, 0, 0);
    OK(cudaMemcpyAsync((void *)l->address[CASE_STEP], l->c->block[CASE_STEP], l->c->bytes[CASE_STEP], cudaMemcpyHostToDevice,
                       stream));
}

static void launch(kernel *k, uint32_t blocks, uint32_t threads, uint32_t shared, const im__cuda_attention &a)
{
    OK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    k<<<blocks, threads, shared, stream>>>(a);
    OK(cudaGetLastError());
}

static int staged_of(const attention_case *c, int wish)
{
    return wish && im__attention_few_staged(c->is_f32, c->head_dim, (uint32_t)(device.major * 10 + device.minor),
                                            (uint32_t)device.sharedMemPerBlockOptin);
}

static uint32_t blocks_of(const attention_case *c, uint32_t each, int staged)
{
    return im__attention_few_blocks((uint32_t)device.multiProcessorCount, (uint32_t)device.sharedMemPerMultiprocessor, c->head_dim,
                                    each, staged);
}

static uint32_t each_of(const attention_case *c, int staged)
{
    uint32_t rows = 0, most = 0;
    for (uint32_t s = 0; s < c->sequences; s++) {
        rows += c->rows[s];
        if (c->begin[s] + c->rows[s] > most) most = c->begin[s] + c->rows[s];
    }
    return im__attention_few_heads(c->heads, c->kv_heads, staged, rows, most, c->window, (uint32_t)device.multiProcessorCount);
}

static void run_few(loaded *l, int staged, uint32_t every, uint32_t layer, uint32_t each)
{
    const attention_case *c = l->c;
    if (each == 0) each = each_of(c, staged);
    kernel *k = few_kernel(c->is_f32 ? "float" : staged ? "staged" : "half", each);
    launch(k, blocks_of(c, each, staged), im__attention_few_threads(c->head_dim),
           im__attention_few_shared(c->head_dim, each, staged), bind(l, every, layer));
}

static void run_many(loaded *l, uint32_t queries, uint32_t layer)
{
    const attention_case *c = l->c;
    uint32_t blocks = im__attention_many_blocks(c->count_tiles, c->heads, c->kv_heads, c->head_dim, queries);
    if (blocks == 0) return;
    launch(many_kernel(c->head_dim, queries), blocks, IM__ATTENTION_MANY_THREADS, im__attention_many_shared(c->head_dim, queries),
           bind(l, 0, layer));
}

static void fetch_out(loaded *l)
{
    OK(cudaMemcpyAsync(l->c->block[CASE_OUT], (void *)l->address[CASE_OUT], l->c->bytes[CASE_OUT], cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
}

static void poison(loaded *l)
{
    attention_case_poison(l->c);
    OK(cudaMemcpyAsync((void *)l->address[CASE_OUT], l->c->block[CASE_OUT], l->c->bytes[CASE_OUT], cudaMemcpyHostToDevice, stream));
}

/* ---- bits ---------------------------------------------------------------------------------------------------------------------------- */

static void scratch_for(attention_case *c, int staged)
{
    uint32_t rows = 0, most = 0, each;
    for (uint32_t s = 0; s < c->sequences; s++) {
        rows += c->rows[s];
        if (c->begin[s] + c->rows[s] > most) most = c->begin[s] + c->rows[s];
    }
    if (rows > IM__ATTENTION_SPLIT_ROWS) rows = IM__ATTENTION_SPLIT_ROWS;
    c->partial_floats = 0;
    for (each = 1; each <= IM__ATTENTION_FEW_HEADS; each++) {
        uint32_t blocks = blocks_of(c, each, staged);
        uint64_t n = im__attention_partial_floats(rows, most, c->window, c->heads, c->kv_heads, c->head_dim, each, blocks);
        if (n > c->partial_floats) c->partial_floats = n;
    }
}

/* Wrong results of a case that is made; repeats differ or counters are left. */
static size_t wrong_of(attention_case *c, int wish, uint32_t queries, int repeats, uint32_t stride)
{
    loaded l = load(c);
    int staged = staged_of(c, wish);
    size_t wrong = 0;
    std::vector<char> before;
    for (int i = 0; i < repeats; i++) {
        poison(&l);
        send_step(&l);
        if (queries != 0) run_many(&l, queries, 0);
        run_few(&l, staged, queries == 0, 0, 0);
        fetch_out(&l);
        if (i == 0) {
            before.assign((char *)c->block[CASE_OUT], (char *)c->block[CASE_OUT] + c->bytes[CASE_OUT]);
            wrong += attention_case_wrong(c, stride);
        } else if (memcmp(before.data(), c->block[CASE_OUT], c->bytes[CASE_OUT]) != 0) {
            wrong += 1000000;
        }
    }
    unload(&l);
    return wrong;
}

static std::atomic<int> failures, checked;

static uint32_t queries_for(const attention_case *c, uint64_t at)
{
    if (!c->tiles || !im__attention_many_fits(c->heads, c->kv_heads, c->head_dim, c->is_f32)) return 0;
    uint32_t queries = im__attention_many_queries(c->head_dim) >> at % 3;
    return many_kernel(c->head_dim, queries) == NULL || queries < c->heads / c->kv_heads ? im__attention_many_queries(c->head_dim)
                                                                                         : queries;
}

static void random_cases(uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at++) {
        attention_case c;
        attention_case_draw(&c, at, at % 8 == 0 ? 5000 : 2500, at % 4 == 0 ? 200 : 40);
        uint32_t queries = queries_for(&c, at);
        if (queries == 0) c.tiles = 0;
        int wish = at % 3 != 0;
        if (at % 5 != 0) scratch_for(&c, staged_of(&c, wish));
        attention_case_make(&c);
        double work = (double)c.used * c.heads * c.head_dim * c.most_keys;
        size_t wrong = wrong_of(&c, wish, queries, 4, 1 + (uint32_t)(work / 1e8));
        checked++;
        if (wrong > 0) {
            char name[256];
            attention_case_name(&c, name, sizeof name);
            if (failures++ < 12)
                printf("WRONG %zu, case %llu (queries %u, staged %d): %s\n", wrong, (unsigned long long)at, queries, wish, name);
        }
        attention_case_clear(&c);
    }
}

/* ---- times --------------------------------------------------------------------------------------------------------------------------- */

enum { LAYERS_A_GRAPH = 24 };

/* Microseconds of a launch: the median of graphs of launches over different layers. */
template <class F> static float time_of(F f)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t a, b;
    std::vector<float> times;
    f(0u);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < LAYERS_A_GRAPH; i++) f(i);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    for (int i = 0; i < 12; i++) {
        OK(cudaEventRecord(a, stream));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaEventRecord(b, stream));
        OK(cudaEventSynchronize(b));
        float ms;
        OK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 2) times.push_back(ms * 1000 / LAYERS_A_GRAPH);
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    for (size_t i = 0; i < times.size(); i++)
        for (size_t j = i + 1; j < times.size(); j++)
            if (times[j] < times[i]) std::swap(times[i], times[j]);
    return times[times.size() / 2];
}

static attention_case timed_case(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t window, uint32_t sequences,
                                 uint32_t depth, uint32_t rows)
{
    attention_case c;
    memset(&c, 0, sizeof c);
    c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim, c.window = window, c.scale = 0.0625f;
    c.sequences = sequences;
    for (uint32_t s = 0; s < sequences; s++) c.begin[s] = depth, c.rows[s] = rows;
    c.cheap = 1;
    c.tiles = rows > 1;
    uint64_t layer = (uint64_t)sequences * (depth + rows) * kv_heads * head_dim * 4;
    c.layers = (uint32_t)(400000000 / layer) < 1                ? 1
               : (uint32_t)(400000000 / layer) > LAYERS_A_GRAPH ? LAYERS_A_GRAPH
                                                                : (uint32_t)(400000000 / layer);
    scratch_for(&c, 1);
    attention_case_make(&c);
    return c;
}

/* Keys that the rows see, all together. */
static double seen_keys(const attention_case *c)
{
    double n = 0;
    for (uint32_t s = 0; s < c->sequences; s++)
        for (uint32_t i = 0; i < c->rows[s]; i++) {
            uint32_t end = c->begin[s] + i + 1;
            n += c->window != 0 && end > c->window ? c->window : end;
        }
    return n;
}

static void time_few(const char *name, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t window, uint32_t sequences,
                     uint32_t depth)
{
    attention_case c = timed_case(heads, kv_heads, head_dim, window, sequences, depth, 1);
    loaded l = load(&c);
    send_step(&l);
    double bytes = seen_keys(&c) * kv_heads * head_dim * 4;
    float us = time_of([&](uint32_t i) { run_few(&l, 1, 0, i % c.layers, 0); });
    printf("few  %-10s %2u rows depth %6u window %4u: %8.2f us  %5.1f%% of 4.5 TB/s", name, sequences, depth, window, us,
           bytes / us / 4.5e6 * 100);
    uint32_t chosen = each_of(&c, 1);
    printf("  (%u heads)", chosen);
    for (uint32_t each = 1; each <= 4; each++)
        if (each != chosen && heads / kv_heads % each == 0)
            printf("  %u: %.2f us", each, time_of([&](uint32_t i) { run_few(&l, 1, 0, i % c.layers, each); }));
    printf("\n");
    unload(&l);
    attention_case_clear(&c);
}

static void time_many(const char *name, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t window, uint32_t depth,
                      uint32_t rows)
{
    attention_case c = timed_case(heads, kv_heads, head_dim, window, 1, depth, rows);
    loaded l = load(&c);
    send_step(&l);
    double fma = seen_keys(&c) * heads * head_dim * 2, rate = device.multiProcessorCount * 128 * 1.755e3; /* a us */
    printf("many %-10s %4u rows depth %5u window %4u:", name, rows, depth, window);
    for (uint32_t queries = im__attention_many_queries(head_dim); queries >= 16; queries /= 2)
        if (many_kernel(head_dim, queries) != NULL) {
            float us = time_of([&](uint32_t i) { run_many(&l, queries, i % c.layers); });
            printf("  %3u: %8.1f us %4.1f%%", queries, us, fma / us / rate * 100);
        }
    if (rows <= 64) printf("  few: %.1f us", time_of([&](uint32_t i) { run_few(&l, 1, 1, i % c.layers, 0); }));
    printf("\n");
    unload(&l);
    attention_case_clear(&c);
}

static void times(void)
{
    static const uint32_t depths[] = {128, 512, 1023, 2048, 8192, 32000};
    for (uint32_t d : depths) time_few("1B", 4, 1, 256, 0, 1, d);
    for (uint32_t d : {512u, 1300u, 32000u}) time_few("1B", 4, 1, 256, 512, 1, d);
    for (uint32_t d : depths) time_few("4B", 8, 4, 256, 0, 1, d);
    for (uint32_t d : {2048u, 32000u}) time_few("4B", 8, 4, 256, 1024, 1, d);
    for (uint32_t d : {2048u, 32000u}) time_few("12B", 16, 8, 256, 0, 1, d);
    for (uint32_t d : {2048u, 32000u}) time_few("llama 8B", 32, 8, 128, 0, 1, d);
    for (uint32_t d : {2048u, 32000u}) time_few("llama 1B", 32, 8, 64, 0, 1, d);
    for (uint32_t d : {200u, 1024u, 8192u}) time_few("1B", 4, 1, 256, 0, 64, d);
    for (uint32_t d : {200u, 1024u, 8192u}) time_few("4B", 8, 4, 256, 0, 64, d);
    for (uint32_t d : {1024u}) time_few("llama 8B", 32, 8, 128, 0, 64, d);
    for (uint32_t rows : {512u, 2048u}) {
        time_many("1B", 4, 1, 256, 512, 0, rows);
        time_many("1B", 4, 1, 256, 0, 0, rows);
        time_many("4B", 8, 4, 256, 1024, 0, rows);
        time_many("4B", 8, 4, 256, 0, 0, rows);
        time_many("llama 8B", 32, 8, 128, 0, 0, rows);
        time_many("llama 1B", 32, 8, 64, 0, 0, rows);
        time_many("hd 96", 32, 32, 96, 0, 0, rows);
        time_many("hd 80", 32, 32, 80, 0, 0, rows);
    }
    time_many("4B", 8, 4, 256, 0, 30000, 512);
    for (uint32_t rows : {4u, 8u, 16u, 32u}) time_many("4B", 8, 4, 256, 0, 1000, rows);
    for (uint32_t rows : {4u, 8u, 16u, 32u}) time_many("1B", 4, 1, 256, 0, 8000, rows);
}

int main(int count, char **text)
{
    uint64_t cases = count > 1 ? strtoull(text[1], NULL, 10) : 200;
    OK(cudaGetDeviceProperties(&device, 0));
    printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
    unsigned workers = std::thread::hardware_concurrency();
    if (workers > 16) workers = 16;
    OK(cudaFree(NULL));
    std::vector<std::thread> threads;
    for (unsigned w = 0; w < workers; w++)
        threads.emplace_back([=] {
            OK(cudaStreamCreate(&stream));
            for (uint64_t at = w; at < cases; at += workers) random_cases(at, at + 1);
        });
    for (std::thread &t : threads) t.join();
    printf("bits: %d cases, each four times, %d wrong\n", (int)checked, (int)failures);
    if (count > 2) return failures != 0;
    OK(cudaStreamCreate(&stream));
    fflush(stdout);
    times();
    return failures != 0;
}
