/* SPDX-License-Identifier: Apache-2.0 */
#include "gk_device.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/fatbin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULES = 32, PROGRAMMATIC = 6 /* launch attribute: a dependent launch */ };

typedef struct device {
    gk_machine machine;
    const im__cuda_driver *d;
    im__cuda_module module[MODULES];
    size_t modules;
    im__cuda_stream stream;
    bool dependent; /* the device knows dependent launches */
} device;

static bool said(device *v, im__cuda_result r, const char *what)
{
    if (r == 0) return true;
    const char *name = NULL;
    v->d->error_name(r, &name);
    snprintf(v->machine.said, sizeof v->machine.said, "%s: %s", what, name != NULL ? name : "an error without a name");
    return false;
}

static bool take(gk_machine *m, size_t bytes, uint64_t *at)
{
    device *v = (device *)m;
    return said(v, v->d->mem_alloc(at, bytes), "memory");
}

static void give(gk_machine *m, uint64_t at)
{
    device *v = (device *)m;
    v->d->mem_free(at);
}

static bool copy_in(gk_machine *m, uint64_t to, const void *from, size_t bytes)
{
    device *v = (device *)m;
    return said(v, v->d->copy_in(to, from, bytes, v->stream), "copying in") && said(v, v->d->stream_wait(v->stream), "copying in");
}

static bool copy_out(gk_machine *m, void *to, uint64_t from, size_t bytes)
{
    device *v = (device *)m;
    return said(v, v->d->copy_out(to, from, bytes, v->stream), "copying out") &&
           said(v, v->d->stream_wait(v->stream), "copying out");
}

static bool find(device *v, const char *kernel, unsigned shared, im__cuda_function *out)
{
    for (size_t i = 0; i < v->modules; i++)
        if (v->d->module_function(out, v->module[i], kernel) == 0)
            return shared <= 48 << 10 ||
                   said(v, v->d->function_set(*out, IM__CUDA_MAX_DYNAMIC_SHARED, (int)shared), "shared memory");
    snprintf(v->machine.said, sizeof v->machine.said, "there is no kernel %s", kernel);
    return false;
}

static bool launch(device *v, im__cuda_function f, const gk_launch *l, bool dependent)
{
    im__cuda_launch_attribute attribute = {.id = PROGRAMMATIC, .value.flag = 1};
    im__cuda_launch c = {{l->grid[0], l->grid[1], 1},      {l->threads, 1, 1}, l->shared, v->stream, &attribute,
                         dependent && v->dependent ? 1 : 0};
    return said(v, v->d->launch(&c, f, l->params, NULL), "launch");
}

static bool run(gk_machine *m, const char *kernel, const gk_launch *l)
{
    device *v = (device *)m;
    im__cuda_function f;
    return find(v, kernel, l->shared, &f) && launch(v, f, l, false) && said(v, v->d->stream_wait(v->stream), "the kernel");
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static bool time_launches(gk_machine *m, const char *kernel, const gk_launch *l, size_t launches, size_t times, double *us)
{
    device *v = (device *)m;
    im__cuda_function f;
    im__cuda_event from, to;
    float ms[64];
    if (times > 64 || !find(v, kernel, l->shared, &f)) return false;
    if (!said(v, v->d->event_create(&from, 0), "event") || !said(v, v->d->event_create(&to, 0), "event")) return false;
    im__cuda_graph graph = NULL;
    im__cuda_exec exec = NULL;
    bool ok = said(v, v->d->capture_begin(v->stream, IM__CUDA_CAPTURE_THREAD_LOCAL), "capture");
    for (size_t i = 0; ok && i < launches; i++) ok = launch(v, f, &l[i], true);
    ok = said(v, v->d->capture_end(v->stream, &graph), "capture") && ok &&
         said(v, v->d->graph_instantiate(&exec, graph, 0), "graph");
    for (size_t i = 0; ok && i < times + 1; i++) {
        ok = said(v, v->d->event_record(from, v->stream), "event") && said(v, v->d->graph_launch(exec, v->stream), "graph") &&
             said(v, v->d->event_record(to, v->stream), "event") && said(v, v->d->stream_wait(v->stream), "the kernels") &&
             said(v, v->d->event_elapsed(&ms[i == 0 ? 0 : i - 1], from, to), "event");
    }
    if (exec != NULL) v->d->exec_destroy(exec);
    if (graph != NULL) v->d->graph_destroy(graph);
    v->d->event_destroy(from);
    v->d->event_destroy(to);
    qsort(ms, times, sizeof *ms, by_value);
    *us = ms[times / 2] * 1e3;
    return ok;
}

static bool load(device *v, const im__cuda_device_info *info)
{
    size_t count = 0;
    const im__cuda_image *image = im__cuda_images(&count);
    for (size_t i = 0; i < count && v->modules < MODULES; i++) {
        im__cuda_result r = v->d->module_load(&v->module[v->modules], image[i].data);
        if (r == IM__CUDA_ERROR_NO_BINARY) continue; /* a file of other devices */
        if (!said(v, r, image[i].name)) return false;
        v->modules++;
    }
    if (v->modules == 0)
        snprintf(v->machine.said, sizeof v->machine.said, "no kernels for compute capability %d", info->capability);
    return v->modules > 0;
}

gk_machine *gk_device_open(void)
{
    static device v;
    static im__cuda_device_info info;
    im_error err = {0};
    im__cuda_context context;
    v.machine = (gk_machine){.take = take, .give = give, .in = copy_in, .out = copy_out, .run = run, .time = time_launches};
    if (im__cuda_driver_open(&v.d, &err) != IM_OK || im__cuda_device_get(0, &info, &err) != IM_OK) {
        fprintf(stderr, "checkern_cuda: %s\n", err.message);
        return NULL;
    }
    v.machine.name = info.name;
    v.machine.processors = info.processors;
    v.dependent = info.capability >= 90;
    if (!said(&v, v.d->context_retain(&context, info.device), "context") || !said(&v, v.d->context_set(context), "context") ||
        !said(&v, v.d->stream_create(&v.stream, IM__CUDA_STREAM_NON_BLOCKING), "stream") || !load(&v, &info)) {
        fprintf(stderr, "checkern_cuda: %s\n", v.machine.said);
        return NULL;
    }
    return &v.machine;
}
