/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA driver, opened when it is first wanted: a library that is built with these functions runs on machines that have never seen a GPU. The few types and
 * constants of the driver's ABI that we need are declared here, so that building asks for nothing either.
 *
 *     const im__cuda_driver *d;
 *     IM__TRY(im__cuda_driver_open(&d, err));
 *     IM__TRY(im__cuda_try(d, d->device_count(&n), "counting devices", err));
 *
 * Every entry returns 0 or one of the driver's error numbers. Handles are opaque; a context is current for each thread by itself.
 */
#ifndef IRONMULE_CUDA_DRIVER_H
#define IRONMULE_CUDA_DRIVER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef int im__cuda_result;
typedef int im__cuda_device;   /* a number, not the ordinal */
typedef uint64_t im__cuda_ptr; /* of device memory */
typedef void *im__cuda_context;
typedef void *im__cuda_module;
typedef void *im__cuda_function;
typedef void *im__cuda_stream;
typedef void *im__cuda_event;
typedef void *im__cuda_graph;
typedef void *im__cuda_exec;

/* Numbers of the driver's ABI. */
enum {
    IM__CUDA_ERROR_INVALID_VALUE = 1,
    IM__CUDA_ERROR_OUT_OF_MEMORY = 2,
    IM__CUDA_ERROR_NO_DEVICE = 100,
    IM__CUDA_ERROR_INVALID_IMAGE = 200,
    IM__CUDA_ERROR_NO_BINARY = 209,
    IM__CUDA_ERROR_INVALID_PTX = 218,
    IM__CUDA_ERROR_UNSUPPORTED_PTX = 222,
    IM__CUDA_ERROR_NOT_FOUND = 500,
    IM__CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    IM__CUDA_ERROR_DRIVER_MISMATCH = 803,

    IM__CUDA_SHARED_OF_BLOCK = 97, /* device attributes; this one: when the kernel asks for it */
    IM__CUDA_PROCESSORS = 16,
    IM__CUDA_MEMORY_CLOCK = 36, /* kHz */
    IM__CUDA_MEMORY_WIDTH = 37, /* bits */
    IM__CUDA_CAPABILITY_MAJOR = 75,
    IM__CUDA_CAPABILITY_MINOR = 76,
    IM__CUDA_SHARED_OF_PROCESSOR = 81,
    IM__CUDA_COOPERATIVE = 95,

    IM__CUDA_MAX_DYNAMIC_SHARED = 8, /* function attribute */

    IM__CUDA_LAUNCH_COOPERATIVE = 2, /* launch attributes */
    IM__CUDA_LAUNCH_DEPENDENT = 6,   /* "programmatic stream serialisation" */

    IM__CUDA_STREAM_NON_BLOCKING = 1,
    IM__CUDA_EVENT_NO_TIMING = 2,
    IM__CUDA_HOST_PORTABLE = 1,
    IM__CUDA_CAPTURE_THREAD_LOCAL = 1
};

typedef struct im__cuda_launch_attribute {
    int id;
    int pad;
    union {
        int flag;
        char room[64];
    } value;
} im__cuda_launch_attribute;

typedef struct im__cuda_launch {
    unsigned grid[3], block[3];
    unsigned shared; /* dynamic bytes */
    im__cuda_stream stream;
    im__cuda_launch_attribute *attribute;
    unsigned attributes;
} im__cuda_launch;

/* entry, symbol, parameters */
#define IM__CUDA_ENTRIES(X)                                                                                                        \
    X(init, "cuInit", (unsigned flags))                                                                                            \
    X(driver_version, "cuDriverGetVersion", (int *version)) /* 1000 major + 10 minor */                                            \
    X(error_name, "cuGetErrorName", (im__cuda_result r, const char **name))                                                        \
    X(error_string, "cuGetErrorString", (im__cuda_result r, const char **text))                                                    \
    X(device_count, "cuDeviceGetCount", (int *count))                                                                              \
    X(device_get, "cuDeviceGet", (im__cuda_device * device, int ordinal))                                                          \
    X(device_name, "cuDeviceGetName", (char *name, int room, im__cuda_device device))                                              \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, im__cuda_device device))                               \
    X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, im__cuda_device device))                                              \
    X(context_retain, "cuDevicePrimaryCtxRetain", (im__cuda_context * context, im__cuda_device device))                            \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (im__cuda_device device))                                                   \
    X(context_set, "cuCtxSetCurrent", (im__cuda_context context))                                                                  \
    X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total)) /* of the current context's device */                       \
    X(module_load, "cuModuleLoadData", (im__cuda_module * module, const void *image))                                              \
    X(module_unload, "cuModuleUnload", (im__cuda_module module))                                                                   \
    X(module_function, "cuModuleGetFunction", (im__cuda_function * function, im__cuda_module module, const char *name))            \
    X(function_set, "cuFuncSetAttribute", (im__cuda_function function, int attribute, int value))                                  \
    X(mem_alloc, "cuMemAlloc_v2", (im__cuda_ptr * p, size_t bytes))                                                                \
    X(mem_free, "cuMemFree_v2", (im__cuda_ptr p))                                                                                  \
    X(host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags)) /* pinned */                                         \
    X(host_free, "cuMemFreeHost", (void *p))                                                                                       \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (im__cuda_ptr to, const void *from, size_t bytes, im__cuda_stream stream))                  \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, im__cuda_ptr from, size_t bytes, im__cuda_stream stream))                       \
    X(copy_within, "cuMemcpyDtoDAsync_v2", (im__cuda_ptr to, im__cuda_ptr from, size_t bytes, im__cuda_stream stream))             \
    X(fill, "cuMemsetD8Async", (im__cuda_ptr p, unsigned char value, size_t bytes, im__cuda_stream stream))                        \
    X(stream_create, "cuStreamCreate", (im__cuda_stream * stream, unsigned flags))                                                 \
    X(stream_destroy, "cuStreamDestroy_v2", (im__cuda_stream stream))                                                              \
    X(stream_wait, "cuStreamSynchronize", (im__cuda_stream stream))                                                                \
    X(event_create, "cuEventCreate", (im__cuda_event * event, unsigned flags))                                                     \
    X(event_destroy, "cuEventDestroy_v2", (im__cuda_event event))                                                                  \
    X(event_record, "cuEventRecord", (im__cuda_event event, im__cuda_stream stream))                                               \
    X(event_wait, "cuEventSynchronize", (im__cuda_event event))                                                                    \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, im__cuda_event from, im__cuda_event to))                                    \
    X(launch, "cuLaunchKernelEx", (const im__cuda_launch *launch, im__cuda_function function, void **parameters, void **extra))    \
    X(capture_begin, "cuStreamBeginCapture_v2", (im__cuda_stream stream, int mode))                                                \
    X(capture_end, "cuStreamEndCapture", (im__cuda_stream stream, im__cuda_graph * graph))                                         \
    X(graph_destroy, "cuGraphDestroy", (im__cuda_graph graph))                                                                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (im__cuda_exec * exec, im__cuda_graph graph, unsigned long long flags))    \
    X(graph_launch, "cuGraphLaunch", (im__cuda_exec exec, im__cuda_stream stream))                                                 \
    X(exec_destroy, "cuGraphExecDestroy", (im__cuda_exec exec))

typedef struct im__cuda_driver {
#define IM__CUDA_ENTRY(entry, symbol, parameters) im__cuda_result(*entry) parameters;
    IM__CUDA_ENTRIES(IM__CUDA_ENTRY)
#undef IM__CUDA_ENTRY
} im__cuda_driver;

/* The driver of this machine, initialised; the same for all callers, for the life of the process. IM_ERR_UNSUPPORTED when there is none, it is too old for us, or
 * it does not find a device: the message says which and what to do. A failure is remembered. Any thread. */
im_status im__cuda_driver_open(const im__cuda_driver **out, im_error *err);

/* For tests: what im__cuda_driver_open hands out from now on; NULL: the machine's own. */
void im__cuda_driver_replace(const im__cuda_driver *fake);

/* IM_OK for 0. Else IM_ERR_MEMORY (out of device memory), IM_ERR_UNSUPPORTED (the embedded kernels do not run on this device or driver) or IM_ERR_DEVICE (all
 * else), with a message: what was tried, the driver's own words, what to do. */
im_status im__cuda_try(const im__cuda_driver *d, im__cuda_result r, const char *what, im_error *err);

/* What a user is told about a device. */
typedef struct im__cuda_device_info {
    char name[96];
    im__cuda_device device;
    int capability;               /* 10 major + minor */
    uint32_t processors;          /* multiprocessors */
    uint32_t shared_of_block;     /* bytes of shared memory that a block may ask for */
    uint32_t shared_of_processor; /* bytes of it in a multiprocessor */
    uint64_t memory;              /* bytes */
    double bytes_per_s;           /* of its memory, by its clocks; 0: unknown */
    int driver;                   /* version of CUDA that the driver speaks: 1000 major + 10 minor */
} im__cuda_device_info;

im_status im__cuda_device_count(int *count, im_error *err);
/* ordinal: as the driver counts. IM_ERR_ARGUMENT when there is no such device. */
im_status im__cuda_device_get(int ordinal, im__cuda_device_info *out, im_error *err);

#endif
