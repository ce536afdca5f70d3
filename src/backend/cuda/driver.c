/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static im__cuda_driver machine;
static im_error machine_error;
static _Atomic(const im__cuda_driver *) replacement;

/* The first symbol that the library lacks, or NULL. */
static const char *fill_table(void *library)
{
    const struct {
        void *entry;
        const char *symbol;
    } list[] = {
#define ENTRY(entry, symbol, parameters) {&machine.entry, symbol},
        IM__CUDA_ENTRIES(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *address = dlsym(library, list[i].symbol);
        if (address == NULL) return list[i].symbol;
        memcpy(list[i].entry, &address, sizeof address); /* ISO C has no conversion from objects to functions */
    }
    return NULL;
}

static im_status start(const im__cuda_driver *d, im_error *err)
{
    im__cuda_result r = d->init(0);
    if (r == IM__CUDA_ERROR_NO_DEVICE) return im__fail(err, IM_ERR_UNSUPPORTED, "the NVIDIA driver finds no CUDA device");
    if (r == IM__CUDA_ERROR_DRIVER_MISMATCH)
        return im__fail(err, IM_ERR_UNSUPPORTED,
                        "the NVIDIA driver's library is older than its kernel module; restart the machine");
    if (im__cuda_try(d, r, "starting the NVIDIA driver", err) == IM_OK) return IM_OK;
    return err->status = IM_ERR_UNSUPPORTED;
}

static void open_machine(void)
{
    im_error *err = &machine_error;
    err->status = IM_OK;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        err->status = im__fail(err, IM_ERR_UNSUPPORTED, "no NVIDIA driver is installed (" LIBRARY " cannot be opened)");
        return;
    }
    const char *missing = fill_table(library);
    if (missing != NULL)
        err->status =
            im__fail(err, IM_ERR_UNSUPPORTED, "the NVIDIA driver is too old: it lacks %s; 525 or later is needed", missing);
    else
        err->status = start(&machine, err);
}

im_status im__cuda_driver_open(const im__cuda_driver **out, im_error *err)
{
    const im__cuda_driver *fake = atomic_load(&replacement);
    if (fake != NULL) {
        im_error why;
        im_status status = start(fake, &why);
        if (status != IM_OK) return im__fail(err, status, "%s", why.message);
        *out = fake;
        return IM_OK;
    }
    pthread_once(&once, open_machine);
    if (machine_error.status != IM_OK) return im__fail(err, machine_error.status, "%s", machine_error.message);
    *out = &machine;
    return IM_OK;
}

void im__cuda_driver_replace(const im__cuda_driver *fake) { atomic_store(&replacement, fake); }

/* ---- errors --------------------------------------------------------------------------------------------------------------------- */

static im_status status_of(im__cuda_result r)
{
    switch (r) {
    case IM__CUDA_ERROR_OUT_OF_MEMORY: return IM_ERR_MEMORY;
    case IM__CUDA_ERROR_INVALID_IMAGE:
    case IM__CUDA_ERROR_NO_BINARY:
    case IM__CUDA_ERROR_INVALID_PTX:
    case IM__CUDA_ERROR_UNSUPPORTED_PTX: return IM_ERR_UNSUPPORTED;
    default: return IM_ERR_DEVICE;
    }
}

static const char *advice(im_status status)
{
    switch (status) {
    case IM_ERR_MEMORY: return "device memory is exhausted; a smaller context needs less";
    case IM_ERR_UNSUPPORTED: return "the kernels of this build do not run with this device and driver; a newer driver may help";
    default: return "the device is lost to this process; see the system's log (dmesg, nvidia-smi)";
    }
}

im_status im__cuda_try(const im__cuda_driver *d, im__cuda_result r, const char *what, im_error *err)
{
    const char *name = NULL, *text = NULL;
    if (r == 0) return IM_OK;
    if (d->error_name(r, &name) != 0 || name == NULL) name = "unknown error";
    if (d->error_string(r, &text) != 0 || text == NULL) text = "no description";
    im_status status = status_of(r);
    return im__fail(err, status, "CUDA, %s: %s (%s, %d): %s", what, text, name, r, advice(status));
}

/* ---- devices -------------------------------------------------------------------------------------------------------------------- */

im_status im__cuda_device_count(int *count, im_error *err)
{
    const im__cuda_driver *d;
    IM__TRY(im__cuda_driver_open(&d, err));
    return im__cuda_try(d, d->device_count(count), "counting devices", err);
}

static im_status read_attributes(const im__cuda_driver *d, im__cuda_device_info *out, im_error *err)
{
    const int which[] = {IM__CUDA_CAPABILITY_MAJOR,    IM__CUDA_CAPABILITY_MINOR, IM__CUDA_PROCESSORS,  IM__CUDA_SHARED_OF_BLOCK,
                         IM__CUDA_SHARED_OF_PROCESSOR, IM__CUDA_MEMORY_CLOCK,     IM__CUDA_MEMORY_WIDTH};
    int value[7];
    for (int i = 0; i < 7; i++)
        IM__TRY(im__cuda_try(d, d->device_attribute(&value[i], which[i], out->device), "reading what the device has", err));
    out->capability = 10 * value[0] + value[1];
    out->processors = (uint32_t)value[2];
    out->shared_of_block = (uint32_t)value[3];
    out->shared_of_processor = (uint32_t)value[4];
    out->bytes_per_s = 2e3 * value[5] * value[6] / 8; /* kHz, two transfers a clock; bits */
    return IM_OK;
}

im_status im__cuda_device_get(int ordinal, im__cuda_device_info *out, im_error *err)
{
    const im__cuda_driver *d;
    int count;
    size_t memory;
    IM__TRY(im__cuda_driver_open(&d, err));
    IM__TRY(im__cuda_try(d, d->device_count(&count), "counting devices", err));
    if (ordinal < 0 || ordinal >= count)
        return im__fail(err, IM_ERR_ARGUMENT, "there is no CUDA device %d; this machine has %d, numbered from 0", ordinal, count);
    *out = (im__cuda_device_info){.device = 0};
    IM__TRY(im__cuda_try(d, d->device_get(&out->device, ordinal), "finding the device", err));
    IM__TRY(im__cuda_try(d, d->device_name(out->name, sizeof out->name, out->device), "reading its name", err));
    IM__TRY(im__cuda_try(d, d->device_memory(&memory, out->device), "reading its memory", err));
    IM__TRY(im__cuda_try(d, d->driver_version(&out->driver), "reading the driver's version", err));
    out->name[sizeof out->name - 1] = 0;
    out->memory = memory;
    return read_attributes(d, out, err);
}
