/* SPDX-License-Identifier: Apache-2.0
 *
 * A step: one copy tells the device what its rows are, the stages are launched (or a graph of such launches is replayed), one copy brings back what was chosen.
 */
#include "backend/cuda/cuda.h"

#include "backend/cuda/cuda_decode.h"
#include "backend/cuda/kernels/argmax.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/select.h"

#include <string.h>

enum { ALIGN = 16, GRAPH_ROWS = 128 /* larger steps do not wait for their launches */ };

/* ---- what is sent --------------------------------------------------------------------------------------------------------------- */

/* Arrays behind the header, in host memory and at the same places in device memory. */
typedef struct writer {
    char *host;
    im__cuda_ptr device;
    size_t used, room;
    bool full;
} writer;

/* NULL when there is no room. */
static void *put(writer *w, size_t count, size_t size, im__cuda_ptr *at)
{
    size_t begin = w->used, bytes = (count * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (w->full || w->room - begin < bytes) {
        w->full = true;
        return NULL;
    }
    w->used += bytes;
    *at = w->device + begin;
    return w->host + begin;
}

/* Of a table of pages, as `put` takes it. */
static size_t table_bytes(const im__cuda *c)
{
    size_t bytes = (c->options.context + IM__PAGE - 1) / IM__PAGE * sizeof(int32_t);
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

size_t im__cuda_step_bytes(const im__cuda *c)
{
    size_t row = sizeof(im__cuda_row) + sizeof(uint32_t) + 2 * (sizeof(im__cuda_tile) + sizeof(uint32_t));
    return sizeof(im__cuda_step) + 8 * ALIGN + c->options.max_rows * row + c->options.sequences * IM__POOLS * table_bytes(c);
}

/* Page tables of the sequences, each as long as its last row needs it; where they begin goes to the rows. */
static void put_pages(im__cuda *c, const im__step *step, im__cuda_row *row, writer *w, im__cuda_ptr *at)
{
    int32_t *pages = put(w, 0, 0, at);
    size_t count = 0;
    for (size_t r = 0, end; r < step->rows; r = end) {
        const im__seq_tables *seq = &step->seq[step->row[r].seq];
        for (end = r + 1; end < step->rows && step->row[end].seq == step->row[r].seq;) end++;
        size_t n = (size_t)step->row[end - 1].position / IM__PAGE + 1;
        for (int k = 0; k < IM__POOLS; k++) {
            if (c->page_bytes[k] == 0) continue;
            im__cuda_ptr unused;
            if (put(w, n, sizeof *pages, &unused) == NULL) return;
            memcpy(pages + count, seq->pages[k], n * sizeof *pages);
            for (size_t i = r; i < end; i++) row[i].table[k] = (uint32_t)count;
            count = (w->used - (size_t)((char *)pages - w->host)) / sizeof *pages;
        }
    }
}

/* What attention takes together, and what it takes alone. */
typedef struct grouping {
    im__cuda_tile *tile;
    uint32_t *single;
    uint32_t tiles, singles;
} grouping;

/* Rows begin .. end - 1 of one sequence. */
static void group(const im__cuda *c, grouping *g, uint32_t begin, uint32_t end)
{
    bool together = c->tile_rows > 0 && end - begin >= IM__ATTENTION_TILE_PAYS;
    for (uint32_t r = begin; !together && r < end; r++) g->single[g->singles++] = r;
    for (uint32_t r = begin; together && r < end; r += c->tile_rows)
        g->tile[g->tiles++] = (im__cuda_tile){r, end - r < c->tile_rows ? end : r + c->tile_rows};
}

static void group_rows(const im__cuda *c, const im__step *step, grouping *all, grouping *selected)
{
    uint32_t chosen = 0;
    for (uint32_t r = 0, end; r < step->rows; r = end) {
        uint32_t first = chosen;
        for (end = r; end < step->rows && step->row[end].seq == step->row[r].seq; end++) chosen += step->row[end].wants_logits;
        group(c, all, r, end);
        group(c, selected, first, chosen);
    }
}

static uint32_t power_above(uint32_t n)
{
    uint32_t power = IM__PAGE;
    while (power < n && power < 1u << 31) power *= 2;
    return power;
}

/* Fills the host's copy; *bytes of it are sent. */
static im_status write_step(im__cuda *c, const im__step *step, im__cuda_shape *shape, size_t *bytes, im_error *err)
{
    im__cuda_step head = {.rows = (uint32_t)step->rows};
    writer w = {.host = c->step_host, .device = c->step, .room = c->step_bytes};
    im__cuda_ptr at;
    grouping all = {0}, selected = {0};
    put(&w, 1, sizeof head, &at);
    im__cuda_row *row = put(&w, step->rows, sizeof *row, &head.row);
    uint32_t *source = put(&w, step->rows, sizeof *source, &head.source);
    all.tile = put(&w, step->rows, sizeof *all.tile, &head.tile);
    all.single = put(&w, step->rows, sizeof *all.single, &head.single);
    selected.tile = put(&w, step->rows, sizeof *selected.tile, &head.selected_tile);
    selected.single = put(&w, step->rows, sizeof *selected.single, &head.selected_single);
    for (size_t r = 0; !w.full && r < step->rows; r++) {
        const im__row *x = &step->row[r];
        row[r] = (im__cuda_row){.token = x->token, .position = x->position};
        if (x->wants_logits) source[head.selected++] = (uint32_t)r;
        if ((uint32_t)x->position >= head.most_keys) head.most_keys = (uint32_t)x->position + 1;
    }
    if (!w.full) put_pages(c, step, row, &w, &head.pages);
    if (w.full) return im__fail(err, IM_ERR_INTERNAL, "a step has more sequences than its plan");
    group_rows(c, step, &all, &selected);
    head.tiles = all.tiles, head.singles = all.singles;
    head.selected_tiles = selected.tiles, head.selected_singles = selected.singles;
    memcpy(c->step_host, &head, sizeof head);
    *shape = (im__cuda_shape){.rows = head.rows,
                              .selected = head.selected,
                              .tiles = head.tiles,
                              .selected_tiles = head.selected_tiles,
                              .singles = head.singles,
                              .selected_singles = head.selected_singles,
                              .choose = step->choice != NULL,
                              .keys = head.rows > GRAPH_ROWS ? head.most_keys : power_above(head.most_keys)};
    *bytes = w.used;
    return IM_OK;
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------------- */

/* Each kernel waits by itself for what the one before it writes, so it may begin while that ends. */
static im_status launch(im__cuda *c, const im__cuda_kernel *k, uint32_t x, uint32_t y, void **parameters, im_error *err)
{
    im__cuda_launch_attribute attribute = {.id = IM__CUDA_LAUNCH_DEPENDENT, .value.flag = 1};
    im__cuda_launch l = {.grid = {x, y, 1}, .block = {k->threads, 1, 1}, .shared = k->shared, .stream = c->stream};
    if (c->device.capability >= 90) {
        l.attribute = &attribute;
        l.attributes = 1;
    }
    return im__cuda_try(c->d, c->d->launch(&l, k->function, parameters, NULL), "launching a kernel", err);
}

static im_status launch_rows(im__cuda *c, im__cuda_stage *s, uint32_t rows, im_error *err)
{
    uint32_t selected = s->selected;
    void *parameters[] = {&s->rows.list, &s->rows.count, &c->step, &selected};
    return launch(c, &c->rows_kernel, rows, im__rows_parts(s->rows.same, s->rows.count, rows), parameters, err);
}

static im_status launch_select(im__cuda *c, im__cuda_stage *s, im_error *err)
{
    void *parameters[] = {&s->select.value, &s->select.value, &s->select.width, &c->step};
    return launch(c, &c->select_kernel, im__select_blocks(s->select.width), 1, parameters, err);
}

static im_status launch_few(im__cuda *c, const im__cuda_matmul_stage *s, uint32_t rows, im_error *err)
{
    im__cuda_products products = s->products;
    im__few_device device = im__cuda_few_device(c);
    im__few_launch l = im__matmul_few_plan(&products, rows, &device);
    im__cuda_kernel k = {c->few[s->form].function, l.threads, l.shared};
    void *parameters[] = {&products};
    return launch(c, &k, products.first_block[products.count], 1, parameters, err);
}

static int many_shape(const im__cuda *c, const im__cuda_matmul_stage *s, uint32_t rows)
{
    bool usable[IM__MANY_ALL_SHAPES];
    for (int i = 0; i < IM__MANY_ALL_SHAPES; i++) usable[i] = c->many[s->form][i].function != NULL;
    return im__many_choose(usable, &s->products, rows, c->device.processors);
}

static im_status launch_many(im__cuda *c, const im__cuda_matmul_stage *s, uint32_t rows, im_error *err)
{
    int shape = many_shape(c, s, rows);
    im__many_launch l = im__many_launch_of(s->form, shape);
    im__cuda_products products = s->products;
    for (uint32_t i = 0; i < products.count; i++)
        products.first_block[i + 1] = products.first_block[i] + im__many_blocks(&l, products.product[i].w.n_out);
    void *parameters[] = {&products};
    return launch(c, &c->many[s->form][shape], products.first_block[products.count], im__many_row_blocks(&l, rows, s->wide),
                  parameters, err);
}

/* Rows one by one. */
static im_status launch_singles(im__cuda *c, im__cuda_attention_stage *s, uint32_t rows, uint32_t keys, im_error *err)
{
    void *parameters[] = {&s->a};
    const im__cuda_kv *kv = &s->a.kv;
    uint32_t each = im__attention_few_heads(s->a.heads, kv->kv_heads, s->staged, rows, keys, s->a.window, c->device.processors);
    uint32_t blocks = im__cuda_few_blocks(c, kv->head_dim, each, s->staged);
    return launch(c, &s->few[each - 1], blocks, 1, parameters, err);
}

static im_status launch_attention(im__cuda *c, im__cuda_attention_stage *s, const im__cuda_shape *shape, im_error *err)
{
    void *parameters[] = {&s->a};
    uint32_t tiles = s->a.selected ? shape->selected_tiles : shape->tiles,
             singles = s->a.selected ? shape->selected_singles : shape->singles;
    if (s->a.every) return launch_singles(c, s, s->a.selected ? shape->selected : shape->rows, shape->keys, err);
    if (singles > 0) IM__TRY(launch_singles(c, s, singles, shape->keys, err));
    if (tiles == 0) return IM_OK;
    const im__cuda_kv *kv = &s->a.kv;
    uint32_t way =
        im__attention_many_way(tiles, shape->keys, s->a.window, s->a.heads, kv->kv_heads, kv->head_dim, c->device.processors);
    uint32_t blocks = im__attention_many_blocks(tiles, s->a.heads, kv->kv_heads, kv->head_dim, s->queries[way]);
    return launch(c, &s->many[way], blocks, 1, parameters, err);
}

static im_status launch_stage(im__cuda *c, im__cuda_stage *s, const im__cuda_shape *shape, im_error *err)
{
    uint32_t rows = s->selected ? shape->selected : shape->rows;
    if (rows == 0) return IM_OK;
    switch (s->kind) {
    case IM__PHASE_ROWS: return launch_rows(c, s, rows, err);
    case IM__PHASE_SELECT: return launch_select(c, s, err);
    case IM__PHASE_MATMUL:
        return rows <= IM__FEW_ROWS ? launch_few(c, &s->matmul, rows, err) : launch_many(c, &s->matmul, rows, err);
    case IM__PHASE_ATTENTION: return launch_attention(c, &s->attention, shape, err);
    }
    return IM_OK;
}

static im_status launch_argmax(im__cuda *c, const im__cuda_shape *shape, im_error *err)
{
    uint32_t vocab = c->p->vocab;
    for (uint32_t first = 0; shape->choose && first < shape->selected; first += IM__ARGMAX_ROWS) {
        uint32_t rows = shape->selected - first < IM__ARGMAX_ROWS ? shape->selected - first : IM__ARGMAX_ROWS;
        im__cuda_ptr logits = c->value[c->p->logits] + (uint64_t)first * vocab * sizeof(float),
                     out = c->answer + offsetof(im__cuda_answer, choice) + first * sizeof(int32_t);
        void *parameters[] = {&logits, &vocab, &rows, &out};
        IM__TRY(launch(c, &c->argmax_kernel, im__argmax_blocks(vocab), rows, parameters, err));
    }
    return IM_OK;
}

/* cancel: NULL, or looked at between launches. */
static im_status launch_all(im__cuda *c, const im__cuda_shape *shape, const atomic_bool *cancel, im_error *err)
{
    for (size_t i = 0; i < c->stages; i++) {
        if (cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed))
            return im__fail(err, IM_ERR_CANCELLED, "cancelled");
        IM__TRY(launch_stage(c, &c->stage[i], shape, err));
    }
    return launch_argmax(c, shape, err);
}

/* ---- graphs ----------------------------------------------------------------------------------------------------------------------------- */

static bool same_shape(const im__cuda_shape *a, const im__cuda_shape *b) { return memcmp(a, b, sizeof *a) == 0; }

/* The entry of a shape; a new one takes the place of the one unused for longest. */
static im__cuda_replay *replay_of(im__cuda *c, const im__cuda_shape *shape)
{
    im__cuda_replay *oldest = &c->replay[0];
    for (int i = 0; i < IM__CUDA_GRAPHS; i++) {
        im__cuda_replay *r = &c->replay[i];
        if (r->used > 0 && same_shape(&r->shape, shape)) return r;
        if (r->used < oldest->used) oldest = r;
    }
    if (oldest->exec != NULL) c->d->exec_destroy(oldest->exec);
    *oldest = (im__cuda_replay){.shape = *shape};
    return oldest;
}

void im__cuda_graphs_clear(im__cuda *c)
{
    for (int i = 0; i < IM__CUDA_GRAPHS; i++)
        if (c->replay[i].exec != NULL) c->d->exec_destroy(c->replay[i].exec);
    memset(c->replay, 0, sizeof c->replay);
}

/* NULL when the driver does not want to: launches one by one do as well. */
static im__cuda_exec capture(im__cuda *c, const im__cuda_shape *shape)
{
    im_error unused;
    im__cuda_graph graph = NULL;
    im__cuda_exec exec = NULL;
    if (c->d->capture_begin(c->stream, IM__CUDA_CAPTURE_THREAD_LOCAL) != 0) return NULL;
    im_status status = launch_all(c, shape, NULL, &unused);
    im__cuda_result r = c->d->capture_end(c->stream, &graph);
    if (status == IM_OK && r == 0 && c->d->graph_instantiate(&exec, graph, 0) != 0) exec = NULL;
    if (graph != NULL) c->d->graph_destroy(graph);
    return exec;
}

/* A shape is captured when it comes for the second time. */
static im_status compute(im__cuda *c, const im__cuda_shape *shape, const atomic_bool *cancel, im_error *err)
{
    c->steps++;
    if (shape->rows > GRAPH_ROWS) return launch_all(c, shape, cancel, err);
    im__cuda_replay *r = replay_of(c, shape);
    bool first = r->used == 0, tried = r->tried;
    r->used = c->steps;
    if (!first && !tried) {
        r->tried = true;
        r->exec = capture(c, shape);
    }
    if (r->exec == NULL) return launch_all(c, shape, NULL, err);
    return im__cuda_try(c->d, c->d->graph_launch(r->exec, c->stream), "launching a step", err);
}

/* ---- the step ------------------------------------------------------------------------------------------------------------------------------ */

static im_status check_step(const im__cuda *c, const im__step *step, im_error *err)
{
    size_t wanted = 0;
    for (size_t r = 0; r < step->rows; r++) {
        const im__row *row = &step->row[r];
        wanted += row->wants_logits;
        if (row->token < 0 || (uint32_t)row->token >= c->p->vocab || row->position < 0 ||
            (size_t)row->position + step->chain >= c->options.context || row->seq >= step->seqs)
            return im__fail(err, IM_ERR_INTERNAL, "row %zu of a step is out of range", r);
    }
    if (step->rows == 0 || step->rows > c->options.max_rows || wanted > c->options.max_logit_rows)
        return im__fail(err, IM_ERR_INTERNAL, "a step of %zu rows, %zu with logits, exceeds its plan", step->rows, wanted);
    return IM_OK;
}

static im_status ask_for_answers(im__cuda *c, const im__step *step, const im__cuda_shape *shape, im_error *err)
{
    size_t bytes = sizeof(im__cuda_answer) + (shape->choose ? shape->selected * sizeof(int32_t) : 0);
    IM__CUDA_TRY(c, copy_out(c->answer_host, c->answer, bytes, c->stream), "reading the answer");
    if (shape->selected == 0 || (step->choice != NULL && step->choice_only)) return IM_OK;
    bytes = (size_t)shape->selected * c->p->vocab * sizeof(float);
    return im__cuda_try(c->d, c->d->copy_out(step->logits, c->value[c->p->logits], bytes, c->stream), "reading the logits", err);
}

static im_status work(im__cuda *c, const im__step *step, const im__cuda_shape *shape, size_t bytes, im_error *err)
{
    IM__CUDA_TRY(c, copy_in(c->step, c->step_host, bytes, c->stream), "sending a step");
    IM__TRY(compute(c, shape, step->cancel, err));
    IM__TRY(ask_for_answers(c, step, shape, err));
    return im__cuda_try(c->d, c->d->stream_wait(c->stream), "computing a step", err);
}

static im_status work_on_any(im__cuda *c, const im__step *step, im_error *err)
{
    im__cuda_shape shape;
    size_t bytes = 0;
    IM__TRY(write_step(c, step, &shape, &bytes, err));
    return work(c, step, &shape, bytes, err);
}

/* What began must end before its memory is used again. */
static im_status give_up(im__cuda *c, im_status status, im_error *err)
{
    im_error unused;
    if (status == IM_ERR_INTERNAL) return status; /* nothing has begun */
    if (status == IM_ERR_CANCELLED && im__cuda_try(c->d, c->d->stream_wait(c->stream), "", &unused) == IM_OK) return status;
    atomic_store(&c->failed, true);
    if (err != NULL) err->status = IM_ERR_DEVICE;
    return IM_ERR_DEVICE;
}

static im_status launch_single(im__cuda *c, const im__step *step, uint32_t tokens, im_error *err)
{
    const im__cuda_shape shape = {.selected = tokens, .choose = step->choice != NULL};
    IM__TRY(im__cuda_decoder_launch(c->decoder, step, tokens, err));
    IM__TRY(ask_for_answers(c, step, &shape, err));
    im__cuda_decoder_prepare(c->decoder);
    return im__cuda_try(c->d, c->d->stream_wait(c->stream), "computing a step", err);
}

/* Rows of a launch of the decoder. The answer has room for as many tokens as for rows of logits. */
static uint32_t chain_of(const im__cuda *c, const im__step *step)
{
    if (step->chained == NULL || step->choice == NULL || !step->choice_only) return 1;
    uint32_t tokens = 1 + step->chain;
    if (tokens > IM__CUDA_DECODE_MOST_TOKENS) tokens = IM__CUDA_DECODE_MOST_TOKENS;
    return tokens < c->options.max_logit_rows ? tokens : (uint32_t)c->options.max_logit_rows;
}

/* A decoder whose blocks have lost each other has left the device in order: launches do its row again, and all that follow. */
static im_status work_on_single(im__cuda *c, const im__step *step, im_error *err)
{
    im_error why;
    uint32_t tokens = chain_of(c, step);
    IM__TRY(launch_single(c, step, tokens, err));
    if (im__cuda_decoder_check(c->decoder, &why) == IM_OK) {
        if (step->chained != NULL) *step->chained = tokens - 1;
        return IM_OK;
    }
    im__cuda_decoder_close(c->decoder);
    c->decoder = NULL;
    return work_on_any(c, step, err);
}

static size_t count_wanted(const im__step *step)
{
    size_t n = 0;
    for (size_t r = 0; r < step->rows; r++) n += step->row[r].wants_logits;
    return n;
}

im_status im__cuda_run(im__backend *b, const im__step *step, im_error *err)
{
    im__cuda *c = (im__cuda *)b;
    if (atomic_load(&c->failed))
        return im__fail(err, IM_ERR_DEVICE, "%s has failed before; the model must be loaded again", c->device.name);
    IM__TRY(check_step(c, step, err));
    bool single = c->decoder != NULL && im__cuda_decoder_takes(c->decoder, step);
    im_status status = im__cuda_try(c->d, c->d->context_set(c->context), "using the device", err);
    if (status == IM_OK) status = single ? work_on_single(c, step, err) : work_on_any(c, step, err);
    if (status != IM_OK) return give_up(c, status, err);
    atomic_store(&c->clamped, c->answer_host->clamped);
    size_t chosen = count_wanted(step) + (step->chained != NULL ? *step->chained : 0);
    if (step->choice != NULL) memcpy(step->choice, c->answer_host->choice, chosen * sizeof(int32_t));
    return IM_OK;
}
