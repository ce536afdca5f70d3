/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices into device memory. Several threads pack pieces into pinned buffers of their own, each with a stream of its own, so that packing, copying and reading the file
 * overlap; a buffer is filled again when its copy is done. Nothing but these buffers is held twice.
 */
#include "backend/cuda/cuda.h"

#include "base/thread.h"
#include "num/dtype.h"

#include <string.h>

enum { ALIGN = 256, BUFFERS = 2, PIECE_BYTES = 2 << 20, MOST_WORKERS = 32 };

typedef struct piece {
    uint32_t matrix, begin, end; /* tiles */
} piece;

typedef struct sending {
    im__cuda *c;
    piece *piece;
    size_t pieces;
    size_t buffer_bytes;
    atomic_size_t next, sent; /* piece; bytes */
    atomic_int status;        /* of whoever failed first */
    im_error error;
} sending;

typedef struct worker {
    sending *s;
    pthread_t thread;
    bool first; /* on the caller's thread: reports progress */
    char *buffer[BUFFERS];
    im__cuda_event copied[BUFFERS];
    im__cuda_stream stream;
} worker;

/* ---- the plan ----------------------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

static im_status place(size_t *at, size_t bytes, im_error *err)
{
    if (im__add(*at, aligned(bytes), at)) return IM_OK;
    return im__fail(err, IM_ERR_MEMORY, "the weights exceed the address space");
}

im_status im__cuda_weights_plan(im__cuda *c, im_error *err)
{
    const im__program *p = c->p;
    size_t at = 0;
    for (size_t i = 0; i < p->matrix_count; i++) {
        const im__weight *w = &p->matrix[i].w;
        im__cuda_layout *l = &c->layout[i];
        if (!im__cuda_layout_of(w->dtype, w->n_out, w->n_in, l))
            return im__fail(err, IM_ERR_UNSUPPORTED, "%s: the CUDA kernels do not take %s of %zu x %zu", p->matrix[i].name,
                            im__dtype_get(w->dtype)->name, w->n_out, w->n_in);
        c->matrix[i] = (im__cuda_matrix){.data = at,
                                         .form = l->form,
                                         .n_in = l->n_in,
                                         .n_out = l->n_out,
                                         .unit_bytes = l->unit_bytes,
                                         .tile_bytes = l->tile_bytes};
        IM__TRY(place(&at, l->bytes, err));
    }
    for (size_t i = 0; i < p->vector_count; i++) {
        c->vector[i] = at;
        IM__TRY(place(&at, p->vector[i].n * sizeof(float), err));
    }
    for (size_t i = 0; i < p->rope_count; i++) {
        c->frequency[i] = at;
        IM__TRY(place(&at, p->rope[i].rot_dim / 2 * sizeof(double), err));
    }
    c->weights_bytes = at;
    return IM_OK;
}

/* The plan's offsets become addresses. */
static void settle(im__cuda *c)
{
    for (size_t i = 0; i < c->p->matrix_count; i++) c->matrix[i].data += c->weights;
    for (size_t i = 0; i < c->p->vector_count; i++) c->vector[i] += c->weights;
    for (size_t i = 0; i < c->p->rope_count; i++) c->frequency[i] += c->weights;
}

/* ---- pieces --------------------------------------------------------------------------------------------------------------------- */

static uint32_t tiles_of_piece(const im__cuda_layout *l)
{
    uint32_t n = PIECE_BYTES / l->tile_bytes;
    return n == 0 ? 1 : n;
}

static im_status cut(sending *s, im_error *err)
{
    const im__cuda *c = s->c;
    size_t n = 0;
    for (size_t i = 0; i < c->p->matrix_count; i++) n += c->layout[i].tiles / tiles_of_piece(&c->layout[i]) + 1;
    s->piece = im__calloc(n, sizeof *s->piece);
    if (s->piece == NULL) return im__fail(err, IM_ERR_MEMORY, "out of memory");
    for (uint32_t i = 0; i < c->p->matrix_count; i++) {
        const im__cuda_layout *l = &c->layout[i];
        uint32_t each = tiles_of_piece(l);
        for (uint32_t t = 0; t < l->tiles; t += each)
            s->piece[s->pieces++] = (piece){i, t, l->tiles - t < each ? l->tiles : t + each};
        size_t bytes = (size_t)(l->tiles < each ? l->tiles : each) * l->tile_bytes;
        if (bytes > s->buffer_bytes) s->buffer_bytes = bytes;
    }
    return IM_OK;
}

/* ---- workers --------------------------------------------------------------------------------------------------------------------- */

static im_status open_worker(worker *w, im_error *err)
{
    im__cuda *c = w->s->c;
    IM__CUDA_TRY(c, context_set(c->context), "using the device");
    IM__CUDA_TRY(c, stream_create(&w->stream, IM__CUDA_STREAM_NON_BLOCKING), "making a stream");
    for (int i = 0; i < BUFFERS; i++) {
        IM__CUDA_TRY(c, host_alloc((void **)&w->buffer[i], w->s->buffer_bytes, IM__CUDA_HOST_PORTABLE), "taking pinned memory");
        IM__CUDA_TRY(c, event_create(&w->copied[i], IM__CUDA_EVENT_NO_TIMING), "making an event");
    }
    return IM_OK;
}

static void close_worker(worker *w)
{
    const im__cuda_driver *d = w->s->c->d;
    if (w->stream != NULL) d->stream_wait(w->stream); /* buffers are still being read */
    for (int i = 0; i < BUFFERS; i++) {
        if (w->copied[i] != NULL) d->event_destroy(w->copied[i]);
        if (w->buffer[i] != NULL) d->host_free(w->buffer[i]);
    }
    if (w->stream != NULL) d->stream_destroy(w->stream);
}

static im_status send_piece(worker *w, const piece *x, int buffer, im_error *err)
{
    im__cuda *c = w->s->c;
    const im__weight *m = &c->p->matrix[x->matrix].w;
    const im__cuda_layout *l = &c->layout[x->matrix];
    size_t bytes = (size_t)(x->end - x->begin) * l->tile_bytes, first = (size_t)x->begin * IM__CUDA_TILE,
           last = (size_t)x->end * IM__CUDA_TILE < m->n_out ? (size_t)x->end * IM__CUDA_TILE : m->n_out;
    IM__CUDA_TRY(c, event_wait(w->copied[buffer]), "copying weights");
    im__cuda_pack(m, l, x->begin, x->end, (uint8_t *)w->buffer[buffer]);
    im__weight_release(m, first, last);
    im__cuda_ptr to = c->matrix[x->matrix].data + (uint64_t)x->begin * l->tile_bytes;
    IM__CUDA_TRY(c, copy_in(to, w->buffer[buffer], bytes, w->stream), "copying weights");
    IM__CUDA_TRY(c, event_record(w->copied[buffer], w->stream), "copying weights");
    size_t sent = atomic_fetch_add_explicit(&w->s->sent, bytes, memory_order_relaxed) + bytes;
    if (!w->first || c->options.progress == NULL) return IM_OK;
    c->options.progress(c->options.progress_user, (double)sent / (double)c->weights_bytes);
    im__float_reset();
    return IM_OK;
}

static im_status send_pieces(worker *w, im_error *err)
{
    sending *s = w->s;
    IM__TRY(open_worker(w, err));
    for (int buffer = 0; atomic_load_explicit(&s->status, memory_order_relaxed) == IM_OK; buffer = (buffer + 1) % BUFFERS) {
        size_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (i >= s->pieces) break;
        IM__TRY(send_piece(w, &s->piece[i], buffer, err));
    }
    return im__cuda_try(s->c->d, s->c->d->stream_wait(w->stream), "copying weights", err);
}

static void *work(void *argument)
{
    worker *w = argument;
    im_error error;
    int none = IM_OK;
    im_status status = send_pieces(w, &error);
    if (status != IM_OK && atomic_compare_exchange_strong(&w->s->status, &none, (int)status)) w->s->error = error;
    close_worker(w);
    return NULL;
}

/* Threads that cannot be had are done without: the caller's own does what is left. */
static void send_all(sending *s, worker *list, size_t workers)
{
    size_t started = 1;
    for (size_t i = 0; i < workers; i++) list[i] = (worker){.s = s, .first = i == 0};
    while (started < workers && im__thread_start(&list[started].thread, work, &list[started])) started++;
    work(&list[0]);
    for (size_t i = 1; i < started; i++) pthread_join(list[i].thread, NULL);
}

static im_status send_vectors(im__cuda *c, im_error *err)
{
    const im__program *p = c->p;
    for (size_t i = 0; i < p->vector_count; i++)
        IM__CUDA_TRY(c, copy_in(c->vector[i], p->vector[i].data, p->vector[i].n * sizeof(float), c->stream), "copying weights");
    for (size_t i = 0; i < p->rope_count; i++)
        IM__CUDA_TRY(c, copy_in(c->frequency[i], p->rope[i].frequency, p->rope[i].rot_dim / 2 * sizeof(double), c->stream),
                     "copying weights");
    return im__cuda_try(c->d, c->d->stream_wait(c->stream), "copying weights", err);
}

im_status im__cuda_weights_send(im__cuda *c, im_error *err)
{
    sending s = {.c = c, .error = {IM_OK, ""}};
    worker list[MOST_WORKERS];
    settle(c);
    IM__TRY(send_vectors(c, err));
    im_status status = cut(&s, err);
    if (status == IM_OK) {
        size_t workers = c->options.threads < MOST_WORKERS ? (size_t)c->options.threads : MOST_WORKERS;
        send_all(&s, list, workers < s.pieces ? workers : s.pieces == 0 ? 1 : s.pieces);
        status = (im_status)atomic_load(&s.status);
        if (status != IM_OK) im__fail(err, status, "%s", s.error.message);
    }
    im__free(s.piece);
    if (status == IM_OK && c->options.progress != NULL) c->options.progress(c->options.progress_user, 1);
    return status;
}
