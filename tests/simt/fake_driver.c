/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_driver.h"

#include "backend/cuda/fatbin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, PARAMETERS = 4, MOST_LAUNCHES = 4096 };

typedef enum kind { NOTHING, CONTEXT, MODULE, MEMORY, PINNED, STREAM, EVENT, GRAPH, EXEC } kind;

typedef struct thing {
    kind kind;
    char *at;
    size_t bytes;
} thing;

typedef struct recorded {
    const fake_kernel *kernel;
    im__cuda_launch launch;
    void *parameter[PARAMETERS];
} recorded;

typedef struct graph {
    size_t count;
    recorded *launch;
} graph;

/* What a stream has been told and has not done yet. */
typedef struct order order;
struct order {
    order *next;
    void *to;         /* copies and fills; NULL: a launch, or a graph's */
    const void *from; /* NULL: fill */
    void *snapshot;   /* of memory that is not pinned: the driver has read it when the call returns */
    size_t bytes;
    unsigned char value;
    const graph *replayed;
    recorded launch;
};

typedef struct stream {
    order *first, **last;
} stream;

typedef struct event {
    stream *of;
} event;

static struct {
    pthread_mutex_t lock;
    const fake_kernel *kernel;
    size_t kernels;
    fake_device device;
    thing thing[MOST];
    size_t taken;
    long calls, fail_at, replays;
    im__cuda_result result;
    const char *lose_entry;
    long lose_in; /* calls of it */
    bool lost;
    graph *capturing;
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const fake_kernel any_kernel = {"any", NULL, {0}};

/* ---- things ---------------------------------------------------------------------------------------------------------------------- */

/* True when this call is the one that fails. */
static bool fails(const char *entry)
{
    pthread_mutex_lock(&f.lock);
    if (f.lose_entry != NULL && strcmp(entry, f.lose_entry) == 0 && --f.lose_in == 0) f.lost = true;
    bool now = ++f.calls == f.fail_at || f.lost;
    pthread_mutex_unlock(&f.lock);
    return now;
}

static void complain(const char *what)
{
    fprintf(stderr, "fake driver: %s\n", what);
    abort();
}

static void *take(kind k, size_t bytes)
{
    char *at = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (at == NULL) complain("out of memory");
    memset(at, 0xff, bytes); /* not a number, wherever it is read before it is written */
    pthread_mutex_lock(&f.lock);
    size_t i = 0;
    while (i < MOST && f.thing[i].kind != NOTHING) i++;
    if (i == MOST) complain("too many things");
    f.thing[i] = (thing){k, at, bytes};
    if (k == MEMORY) f.taken += bytes;
    pthread_mutex_unlock(&f.lock);
    return at;
}

static thing *find(kind k, const void *at)
{
    for (size_t i = 0; i < MOST; i++)
        if (f.thing[i].kind == k && f.thing[i].at == at) return &f.thing[i];
    return NULL;
}

static im__cuda_result give(kind k, void *at)
{
    pthread_mutex_lock(&f.lock);
    thing *t = find(k, at);
    if (t == NULL) complain("something is given back that was not taken");
    if (k == MEMORY) f.taken -= t->bytes;
    *t = (thing){NOTHING, NULL, 0};
    pthread_mutex_unlock(&f.lock);
    free(at);
    return 0;
}

static void check(kind k, const void *at)
{
    pthread_mutex_lock(&f.lock);
    if (find(k, at) == NULL) complain("a handle is none");
    pthread_mutex_unlock(&f.lock);
}

/* The piece lies in one allocation of device memory. */
static void check_range(im__cuda_ptr p, size_t bytes)
{
    bool inside = false;
    pthread_mutex_lock(&f.lock);
    for (size_t i = 0; i < MOST; i++) {
        im__cuda_ptr begin = (im__cuda_ptr)(uintptr_t)f.thing[i].at;
        inside = inside || (f.thing[i].kind == MEMORY && p >= begin && p + bytes <= begin + f.thing[i].bytes);
    }
    pthread_mutex_unlock(&f.lock);
    if (!inside) complain("a copy goes beyond device memory");
}

static bool is_pinned(const void *p)
{
    bool pinned = false;
    pthread_mutex_lock(&f.lock);
    for (size_t i = 0; i < MOST; i++)
        pinned = pinned || (f.thing[i].kind == PINNED && (const char *)p >= f.thing[i].at &&
                            (const char *)p < f.thing[i].at + f.thing[i].bytes);
    pthread_mutex_unlock(&f.lock);
    return pinned;
}

/* ---- streams: nothing is done before somebody waits for it ------------------------------------------------------------------------ */

static void run(const fake_kernel *k, const im__cuda_launch *l, void **parameters);

static void *allocate(size_t bytes)
{
    void *at = malloc(bytes == 0 ? 1 : bytes);
    if (at == NULL) complain("out of memory");
    return at;
}

static order *tell(im__cuda_stream to)
{
    stream *s = to;
    order *o = allocate(sizeof *o);
    *o = (order){.next = NULL};
    *s->last = o;
    s->last = &o->next;
    return o;
}

static void forget(recorded *r)
{
    for (int i = 0; i < PARAMETERS; i++) free(r->parameter[i]);
}

static void carry_out(order *o)
{
    if (o->replayed != NULL)
        for (size_t i = 0; i < o->replayed->count; i++)
            run(o->replayed->launch[i].kernel, &o->replayed->launch[i].launch,
                (void **)(uintptr_t)o->replayed->launch[i].parameter);
    else if (o->to == NULL)
        run(o->launch.kernel, &o->launch.launch, o->launch.parameter);
    else if (o->from == NULL)
        memset(o->to, o->value, o->bytes);
    else
        memmove(o->to, o->from, o->bytes);
}

/* All that a stream has been told; without `really` it is dropped. */
static void end(stream *s, bool really)
{
    for (order *o = s->first, *next; o != NULL; o = next) {
        next = o->next;
        if (really) carry_out(o);
        forget(&o->launch);
        free(o->snapshot);
        free(o);
    }
    *s = (stream){.last = &s->first};
}

static void copy(void *to, const void *from, size_t bytes, im__cuda_stream s)
{
    order *o = tell(s);
    o->to = to;
    o->from = from;
    o->bytes = bytes;
}

#define MAYBE_FAIL()                                                                                                               \
    do {                                                                                                                           \
        if (fails(__func__)) return f.result;                                                                                      \
    } while (0)

/* ---- calls ------------------------------------------------------------------------------------------------------------------------- */

static im__cuda_result init(unsigned flags)
{
    (void)flags;
    MAYBE_FAIL();
    return f.device.devices == 0 ? IM__CUDA_ERROR_NO_DEVICE : 0;
}

static im__cuda_result driver_version(int *version)
{
    MAYBE_FAIL();
    *version = 13000;
    return 0;
}

static im__cuda_result error_name(im__cuda_result r, const char **name)
{
    *name = r == IM__CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
}

static im__cuda_result error_string(im__cuda_result r, const char **text)
{
    *text = r == IM__CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "made up by a test";
    return 0;
}

static im__cuda_result device_count(int *count)
{
    MAYBE_FAIL();
    *count = f.device.devices;
    return 0;
}

static im__cuda_result device_get(im__cuda_device *device, int ordinal)
{
    MAYBE_FAIL();
    *device = 40 + ordinal;
    return 0;
}

static im__cuda_result device_name(char *name, int room, im__cuda_device device)
{
    MAYBE_FAIL();
    snprintf(name, (size_t)room, "Fake %d", device);
    return 0;
}

static im__cuda_result device_attribute(int *value, int attribute, im__cuda_device device)
{
    (void)device;
    MAYBE_FAIL();
    switch (attribute) {
    case IM__CUDA_CAPABILITY_MAJOR: *value = f.device.capability / 10; break;
    case IM__CUDA_CAPABILITY_MINOR: *value = f.device.capability % 10; break;
    case IM__CUDA_PROCESSORS: *value = f.device.processors; break;
    case IM__CUDA_SHARED_OF_BLOCK: *value = 227 << 10; break;
    case IM__CUDA_SHARED_OF_PROCESSOR: *value = 20 << 10; break; /* few blocks */
    default: *value = 1000; break;
    }
    return 0;
}

static im__cuda_result device_memory(size_t *bytes, im__cuda_device device)
{
    (void)device;
    MAYBE_FAIL();
    *bytes = f.device.memory;
    return 0;
}

static im__cuda_result context_retain(im__cuda_context *context, im__cuda_device device)
{
    MAYBE_FAIL();
    if (device < 40) complain("not a device");
    *context = take(CONTEXT, 1);
    return 0;
}

static im__cuda_result context_release(im__cuda_device device)
{
    (void)device;
    for (size_t i = 0; i < MOST; i++)
        if (f.thing[i].kind == CONTEXT) return give(CONTEXT, f.thing[i].at);
    complain("no context is held");
    return 0;
}

static im__cuda_result context_set(im__cuda_context context)
{
    check(CONTEXT, context);
    MAYBE_FAIL();
    return 0;
}

static im__cuda_result memory_info(size_t *free_bytes, size_t *total)
{
    MAYBE_FAIL();
    *free_bytes = f.device.memory - f.taken;
    *total = f.device.memory;
    return 0;
}

static im__cuda_result module_load(im__cuda_module *module, const void *image)
{
    (void)image;
    MAYBE_FAIL();
    *module = take(MODULE, 1);
    return 0;
}

static im__cuda_result module_unload(im__cuda_module module) { return give(MODULE, module); }

static im__cuda_result module_function(im__cuda_function *function, im__cuda_module module, const char *name)
{
    check(MODULE, module);
    MAYBE_FAIL();
    if (f.kernel == NULL) return *function = (void *)(uintptr_t)&any_kernel, 0;
    for (size_t i = 0; i < f.kernels; i++)
        if (strcmp(f.kernel[i].name, name) == 0) return *function = (void *)(uintptr_t)&f.kernel[i], 0;
    return IM__CUDA_ERROR_NOT_FOUND;
}

static im__cuda_result function_set(im__cuda_function function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    MAYBE_FAIL();
    return 0;
}

static im__cuda_result mem_alloc(im__cuda_ptr *p, size_t bytes)
{
    MAYBE_FAIL();
    if (bytes == 0) complain("an allocation of nothing");
    if (bytes > f.device.memory - f.taken) return IM__CUDA_ERROR_OUT_OF_MEMORY;
    *p = (im__cuda_ptr)(uintptr_t)take(MEMORY, bytes);
    return 0;
}

static im__cuda_result mem_free(im__cuda_ptr p) { return give(MEMORY, (void *)(uintptr_t)p); }

static im__cuda_result host_alloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    MAYBE_FAIL();
    *p = take(PINNED, bytes);
    return 0;
}

static im__cuda_result host_free(void *p) { return give(PINNED, p); }

static im__cuda_result copy_in(im__cuda_ptr to, const void *from, size_t bytes, im__cuda_stream s)
{
    check(STREAM, s);
    MAYBE_FAIL();
    check_range(to, bytes);
    void *snapshot = is_pinned(from) ? NULL : memcpy(allocate(bytes), from, bytes);
    order *o = tell(s);
    *o = (order){.to = (void *)(uintptr_t)to, .from = snapshot == NULL ? from : snapshot, .snapshot = snapshot, .bytes = bytes};
    return 0;
}

static im__cuda_result copy_out(void *to, im__cuda_ptr from, size_t bytes, im__cuda_stream s)
{
    check(STREAM, s);
    MAYBE_FAIL();
    check_range(from, bytes);
    copy(to, (const void *)(uintptr_t)from, bytes, s);
    return 0;
}

static im__cuda_result copy_within(im__cuda_ptr to, im__cuda_ptr from, size_t bytes, im__cuda_stream s)
{
    check(STREAM, s);
    MAYBE_FAIL();
    check_range(to, bytes);
    check_range(from, bytes);
    copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, s);
    return 0;
}

static im__cuda_result fill(im__cuda_ptr p, unsigned char value, size_t bytes, im__cuda_stream s)
{
    check(STREAM, s);
    MAYBE_FAIL();
    check_range(p, bytes);
    order *o = tell(s);
    o->to = (void *)(uintptr_t)p;
    o->bytes = bytes;
    o->value = value;
    return 0;
}

static im__cuda_result stream_create(im__cuda_stream *out, unsigned flags)
{
    (void)flags;
    MAYBE_FAIL();
    stream *s = take(STREAM, sizeof *s);
    *s = (stream){.last = &s->first};
    *out = s;
    return 0;
}

static im__cuda_result stream_destroy(im__cuda_stream s)
{
    check(STREAM, s);
    end(s, false);
    return give(STREAM, s);
}

static im__cuda_result stream_wait(im__cuda_stream s)
{
    check(STREAM, s);
    MAYBE_FAIL();
    end(s, true);
    return 0;
}

static im__cuda_result event_create(im__cuda_event *out, unsigned flags)
{
    (void)flags;
    MAYBE_FAIL();
    event *e = take(EVENT, sizeof *e);
    *e = (event){NULL};
    *out = e;
    return 0;
}

static im__cuda_result event_destroy(im__cuda_event e) { return give(EVENT, e); }

static im__cuda_result event_record(im__cuda_event e, im__cuda_stream s)
{
    check(EVENT, e);
    check(STREAM, s);
    MAYBE_FAIL();
    ((event *)e)->of = s;
    return 0;
}

static im__cuda_result event_wait(im__cuda_event e)
{
    check(EVENT, e);
    MAYBE_FAIL();
    if (((event *)e)->of != NULL) end(((event *)e)->of, true);
    return 0;
}

static im__cuda_result event_elapsed(float *ms, im__cuda_event from, im__cuda_event to)
{
    (void)from, (void)to;
    *ms = 1;
    return 0;
}

/* ---- launches and graphs ------------------------------------------------------------------------------------------------------------- */

static void run(const fake_kernel *k, const im__cuda_launch *l, void **parameters)
{
    for (int i = 0; i < 3; i++)
        if (l->grid[i] == 0 || l->block[i] == 0) complain("a launch of nothing");
    if (l->shared > 227 << 10 || l->block[0] > 1024) complain("a launch that is too large");
    if (k->run != NULL) k->run(l, parameters);
}

static void record(recorded *r, const fake_kernel *k, const im__cuda_launch *l, void **parameters)
{
    *r = (recorded){.kernel = k, .launch = *l};
    r->launch.attribute = NULL;
    for (int i = 0; i < PARAMETERS && k->size[i] > 0; i++) {
        r->parameter[i] = malloc(k->size[i]);
        if (r->parameter[i] == NULL) complain("out of memory");
        memcpy(r->parameter[i], parameters[i], k->size[i]);
    }
}

static im__cuda_result launch(const im__cuda_launch *l, im__cuda_function function, void **parameters, void **extra)
{
    (void)extra;
    check(STREAM, l->stream);
    MAYBE_FAIL();
    if (f.capturing != NULL && f.capturing->count == MOST_LAUNCHES) complain("a graph is too long");
    record(f.capturing != NULL ? &f.capturing->launch[f.capturing->count++] : &tell(l->stream)->launch, function, l, parameters);
    return 0;
}

static im__cuda_result capture_begin(im__cuda_stream s, int mode)
{
    (void)mode;
    check(STREAM, s);
    MAYBE_FAIL();
    if (f.capturing != NULL) complain("a capture inside another");
    f.capturing = take(GRAPH, sizeof *f.capturing);
    *f.capturing = (graph){.launch = calloc(MOST_LAUNCHES, sizeof(recorded))};
    if (f.capturing->launch == NULL) complain("out of memory");
    return 0;
}

static void clear(graph *g)
{
    for (size_t i = 0; i < g->count; i++) forget(&g->launch[i]);
    free(g->launch);
}

static im__cuda_result capture_end(im__cuda_stream s, im__cuda_graph *out)
{
    check(STREAM, s);
    if (f.capturing == NULL) complain("nothing is captured");
    *out = f.capturing;
    f.capturing = NULL;
    MAYBE_FAIL(); /* the graph is there nevertheless: whoever began must give it back */
    return 0;
}

static im__cuda_result graph_destroy(im__cuda_graph g)
{
    check(GRAPH, g);
    if (((graph *)g)->launch != NULL) clear(g);
    return give(GRAPH, g);
}

/* The launches move on to the executable graph. */
static im__cuda_result graph_instantiate(im__cuda_exec *exec, im__cuda_graph g, unsigned long long flags)
{
    (void)flags;
    check(GRAPH, g);
    MAYBE_FAIL();
    graph *e = take(EXEC, sizeof *e);
    *e = *(graph *)g;
    *(graph *)g = (graph){0, NULL};
    *exec = e;
    return 0;
}

static im__cuda_result graph_launch(im__cuda_exec exec, im__cuda_stream s)
{
    check(EXEC, exec);
    check(STREAM, s);
    MAYBE_FAIL();
    tell(s)->replayed = exec;
    f.replays++;
    return 0;
}

static im__cuda_result exec_destroy(im__cuda_exec exec)
{
    check(EXEC, exec);
    clear(exec);
    return give(EXEC, exec);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------- */

static const im__cuda_driver table = {
#define ENTRY(entry, symbol, parameters) .entry = entry,
    IM__CUDA_ENTRIES(ENTRY)
#undef ENTRY
};

static const im__cuda_image image = {"fake", "fake", 4};

void fake_driver_start(const fake_kernel *kernels, size_t count, fake_device device)
{
    f.kernel = kernels;
    f.kernels = count;
    f.device = device;
    f.calls = f.fail_at = f.replays = 0;
    f.lose_entry = NULL;
    f.lost = false;
    im__cuda_driver_replace(&table);
    im__cuda_images_replace(&image, 1);
}

void fake_driver_stop(void)
{
    im__cuda_driver_replace(NULL);
    im__cuda_images_replace(NULL, 0);
}

void fake_driver_lose(const char *entry, long n, im__cuda_result result)
{
    pthread_mutex_lock(&f.lock);
    f.lose_entry = entry;
    f.lose_in = n;
    f.result = result;
    pthread_mutex_unlock(&f.lock);
}

void fake_driver_fail(long n, im__cuda_result result)
{
    f.fail_at = n == 0 ? 0 : f.calls + n;
    f.result = result;
}

long fake_driver_calls(void) { return f.calls; }
long fake_driver_replays(void) { return f.replays; }

long fake_driver_live(void)
{
    long n = 0;
    for (size_t i = 0; i < MOST; i++) n += f.thing[i].kind != NOTHING;
    return n;
}
