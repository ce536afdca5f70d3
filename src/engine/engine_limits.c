/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's own limits, measured: bytes read and integer operations a second.
 */
#include "backend/cpu/limits.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/mem.h"

#include <ironmule/ironmule.h>
#include <pthread.h>
#include <string.h>

enum { BYTES_A_THREAD = 192 << 20, PASSES = 4, BURSTS = 60, AHEAD = 4096 };

typedef struct worker {
    pthread_t thread;
    uint64_t *data; /* NULL: count operations in place of reading */
    im__burst_fn *burst;
    uint64_t work; /* bytes or operations done */
    uint32_t sink;
} worker;

/* Lines are asked for ahead, as kernels do: without that a core reads a quarter less. */
static void read_data(worker *w)
{
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= BYTES_A_THREAD / sizeof(uint64_t); i += 8) {
        __builtin_prefetch((const char *)(w->data + i) + AHEAD, 0, 2);
        for (size_t k = 0; k < 8; k++) sum[k] += w->data[i + k];
    }
    w->sink += (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
    w->work = BYTES_A_THREAD;
}

static void *work(void *argument)
{
    worker *w = argument;
    w->work = 0;
    if (w->data != NULL) read_data(w);
    for (int i = 0; w->data == NULL && i < BURSTS; i++) w->work += w->burst(&w->sink);
    return NULL;
}

/* Work a second of all workers together, best of some passes; 0 when a thread cannot be started. */
static double best_rate(worker *w, int threads)
{
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double begin = im__now_ms(), done = 0;
        int started = 0;
        while (started < threads && pthread_create(&w[started].thread, NULL, work, &w[started]) == 0) started++;
        for (int i = 0; i < started; i++) pthread_join(w[i].thread, NULL);
        if (started < threads) return 0;
        for (int i = 0; i < threads; i++) done += (double)w[i].work;
        double rate = done * 1e3 / (im__now_ms() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

static double read_rate(worker *w, int threads)
{
    bool good = true;
    for (int i = 0; i < threads; i++) {
        w[i].data = im__aligned_alloc(BYTES_A_THREAD);
        good = good && w[i].data != NULL;
        if (w[i].data != NULL) memset(w[i].data, 1, BYTES_A_THREAD);
    }
    double rate = good ? best_rate(w, threads) : 0;
    for (int i = 0; i < threads; i++) {
        im__aligned_free(w[i].data, BYTES_A_THREAD);
        w[i].data = NULL;
    }
    return rate;
}

im_status im_machine_measure(int threads, const char *level_name, im_machine_limits *out, im_error *err)
{
    im__cpu_level level = im__cpu_best();
    if (out == NULL || threads < 1 || threads > 1024) return im__fail(err, IM_ERR_ARGUMENT, "%d threads; 1 .. 1024", threads);
    if (level_name != NULL && !im__cpu_level_parse(level_name, &level))
        return im__fail(err, IM_ERR_ARGUMENT, "\"%s\" is no kernel level", level_name);
    if (!im__cpu_has(level))
        return im__fail(err, IM_ERR_UNSUPPORTED, "this machine does not have the kernel level %s", im__cpu_level_name(level));
    worker *w = im__calloc((size_t)threads, sizeof *w);
    if (w == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (int i = 0; i < threads; i++) w[i].burst = im__burst_of(level);
    out->int8_ops_per_s = w[0].burst == NULL ? 0 : best_rate(w, threads);
    out->read_bytes_per_s = read_rate(w, threads);
    im__free(w);
    return IM_OK;
}
