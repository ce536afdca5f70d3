/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { LARGE_BODY = 16384 };

/* ---- life ------------------------------------------------------------------------------------------------------------------------------------- */

static void link_job(job *j)
{
    server *s = j->s;
    j->next = s->jobs;
    if (j->next != NULL) j->next->before = j;
    s->jobs = j;
    if (s->job_count++ == 0 && s->watch_timer != NULL) evtimer_add(s->watch_timer, &(struct timeval){.tv_sec = 1});
}

static void unlink_job(job *j)
{
    if (j->before != NULL)
        j->before->next = j->next;
    else
        j->s->jobs = j->next;
    if (j->next != NULL) j->next->before = j->before;
    j->s->job_count--;
}

void choice_free_tokens(choice *c)
{
    for (letter *l = c->tokens, *next; l != NULL; l = next) {
        next = l->next;
        free(l);
    }
    c->tokens = NULL;
}

static void free_job(job *j)
{
    server *s = j->s;
    unlink_job(j);
    for (size_t i = 0; i < j->choice_count; i++) {
        im_request_free(j->choices[i].request);
        json_decref(j->choices[i].entries);
        choice_free_tokens(&j->choices[i]);
    }
    free(j->choices);
    fields_free(&j->f);
    free(j->reply);
    free(j->body);
    free(j);
    server_maybe_done(s);
}

/* Nobody writes to it any more: its worker is through and the engine has let go of every choice. */
static bool is_over(const job *j) { return j->is_prepared && j->ended == j->submitted && !j->composing; }

static void cancel_requests(job *j)
{
    atomic_store(&j->cancelled, true);
    if (!j->is_prepared) return; /* the requests still belong to the worker */
    for (size_t i = 0; i < j->submitted; i++)
        if (!j->choices[i].ended) im_request_cancel(j->choices[i].request);
}

/* Something of the answer is missing: there will be none. */
static void starve(job *j)
{
    problem_set(&j->problem, 503, NULL, "memory", "out of memory");
    if (j->begun && j->conn != NULL) conn_break(j->conn, "memory");
    cancel_requests(j);
}

void job_abandon(job *j)
{
    if (j->conn != NULL) j->conn->job = NULL;
    j->conn = NULL;
    if (is_over(j))
        free_job(j);
    else
        cancel_requests(j);
}

void job_remind(job *j)
{
    if (!j->f.stream || j->conn == NULL || j->problem.status != 0) return;
    stream_begin(j);
    conn_stream_write(j->conn, ": waiting\n\n", 11);
}

void job_cancel(job *j) { cancel_requests(j); }

/* ---- the answer ------------------------------------------------------------------------------------------------------------------------------------ */

static const char *first_finish(const job *j)
{
    return j->choice_count > 0 && j->choices[0].ended && j->choices[0].status == IM_OK
               ? finish_reason(j->choices[0].result.stop_reason)
               : NULL;
}

static void count_times(job *j)
{
    metrics *m = &j->s->metrics;
    histogram_add(&m->request, (server_now_ms() - j->arrived) / 1e3);
    for (size_t i = 0; i < j->submitted; i++) {
        const im_result *r = &j->choices[i].result;
        if (r->count == 0) continue;
        histogram_add(&m->first_token, r->first_token_ms / 1e3);
        histogram_add(&m->queue, r->queue_ms / 1e3);
        if (r->count > 1) histogram_add(&m->per_token, r->generate_ms / 1e3 / (double)(r->count - 1));
    }
}

/* What the log is told; the connection writes the line with its answer. */
static void fill_log(job *j)
{
    journal_request *l = &j->conn->log;
    l->generated = j->submitted > 0;
    l->finish = first_finish(j);
    for (size_t i = 0; i < j->submitted; i++) {
        const im_result *r = &j->choices[i].result;
        l->completion_tokens += r->count;
        if (i > 0 && j->choices[i].prompt == j->choices[i - 1].prompt) continue;
        l->prompt_tokens += r->prompt_tokens;
        l->cached_tokens += r->cached_tokens;
        if (i > 0) continue;
        l->queue_ms = r->queue_ms;
        l->first_token_ms = r->first_token_ms;
    }
}

static void refuse(job *j, int status, const char *message, const char *param, const char *code)
{
    conn *c = j->conn;
    fill_log(j);
    j->conn = NULL;
    c->job = NULL;
    conn_refuse(c, status, message, param, code);
}

/* The choice whose failure counts; those that were cancelled because of it come last. */
static const choice *failed_choice(const job *j)
{
    const choice *wrong = NULL;
    for (size_t i = 0; i < j->submitted; i++) {
        const choice *c = &j->choices[i];
        if (c->status != IM_OK && (wrong == NULL || wrong->status == IM_ERR_CANCELLED)) wrong = c;
    }
    return wrong;
}

static void refuse_failed(job *j, const choice *wrong)
{
    const char *code;
    int status = status_of(wrong->status, &code);
    refuse(j, status, wrong->status == IM_ERR_CANCELLED ? "the server is stopping" : wrong->error.message, NULL, code);
}

/* The end. What was not streamed is sent. */
static void finish(job *j)
{
    const choice *wrong = failed_choice(j);
    const problem *p = &j->problem;
    if (j->submitted > 0) count_times(j);
    if (j->conn != NULL && j->begun && p->status != 0) { /* the connection is about to be closed */
        j->conn->job = NULL;
        j->conn = NULL;
    }
    if (j->conn == NULL) {
        free_job(j);
        return;
    }
    if (p->status != 0) {
        refuse(j, p->status, p->message, p->param[0] != 0 ? p->param : NULL, p->code);
    } else if (wrong != NULL && !j->begun) {
        refuse_failed(j, wrong);
    } else {
        conn *c = j->conn;
        fill_log(j);
        if (wrong != NULL) c->log.reason = "failed";
        c->job = NULL;
        if (j->begun)
            stream_finish(j, wrong);
        else
            answer_write(j);
    }
    free_job(j);
}

static void read_composed(letter *l, void *user)
{
    job *j = (job *)((char *)l - offsetof(job, prepared));
    (void)user;
    j->composing = false;
    finish(j);
}

static void compose(task *t)
{
    job *j = (job *)t;
    answer_compose(j);
    mailbox_post(&j->s->mailbox, &j->prepared);
}

/* Everything is there; what was not streamed is written. That takes long when there are log-probabilities, and then it is not for the loop. */
static void conclude(job *j)
{
    bool write = j->conn != NULL && !j->begun && j->reply == NULL && j->problem.status == 0 && failed_choice(j) == NULL;
    if (write && j->f.logprobs) {
        j->composing = true;
        j->prepared.read = read_composed;
        j->task.run = compose;
        worker_do(&j->s->workers, &j->task, true);
        return;
    }
    if (write) answer_compose(j);
    finish(j);
}

/* ---- letters ------------------------------------------------------------------------------------------------------------------------------------------ */

/* Letters of a job that its worker still holds wait here; false: read it now. */
static bool keep_early(job *j, letter *l)
{
    if (j->is_prepared) return false;
    l->next = NULL;
    *j->early_last = l;
    j->early_last = &l->next;
    return true;
}

static void read_token(letter *l, void *user)
{
    token_letter *t = (token_letter *)l;
    choice *c = t->choice;
    job *j = c->job;
    (void)user;
    if (keep_early(j, l)) return;
    if (j->conn != NULL && j->problem.status == 0) {
        if (!j->f.stream) { /* then only log-probabilities need it, and they take long */
            *c->tokens_last = l;
            c->tokens_last = &l->next;
            l->next = NULL;
            return;
        }
        if (c->entries != NULL) logprobs_add(j, c, t);
        if (memory_was_short())
            starve(j);
        else
            stream_token(j, c, t);
    }
    free(t);
}

static void read_end(letter *l, void *user)
{
    choice *c = (choice *)l;
    job *j = c->job;
    (void)user;
    if (keep_early(j, l)) return;
    c->status = im_request_wait(c->request, &c->result, &c->error);
    if (atomic_load(&j->starved)) starve(j);
    c->ended = true;
    j->ended++;
    if (c->status != IM_OK && c->status != IM_ERR_CANCELLED && j->ended < j->submitted) cancel_requests(j); /* one answer or none */
    if (j->f.stream && j->conn != NULL && j->problem.status == 0) stream_choice_end(j, c);
    if (is_over(j)) conclude(j);
}

static void read_prepared(letter *l, void *user)
{
    job *j = (job *)((char *)l - offsetof(job, prepared));
    (void)user;
    j->is_prepared = true;
    if (atomic_load(&j->cancelled) || j->problem.status != 0) cancel_requests(j);
    if (j->f.stream && j->conn != NULL && j->problem.status == 0) conn_remind(j->conn, j->s->o->comment_s);
    letter *early = j->early;
    bool over = is_over(j);
    while (early != NULL) { /* the last of them may end the job */
        letter *next = early->next;
        early->read(early, user);
        early = next;
    }
    if (over) conclude(j);
}

/* ---- the engine's thread -------------------------------------------------------------------------------------------------------------------------------- */

static bool on_token(void *user, const im_token_event *event)
{
    choice *c = user;
    job *j = c->job;
    if (atomic_load_explicit(&j->cancelled, memory_order_relaxed)) return false;
    token_letter *t = malloc(sizeof *t + event->text_len);
    if (t == NULL) {
        atomic_store(&j->starved, true);
        return false;
    }
    t->letter.read = read_token;
    t->choice = c;
    t->id = event->id;
    t->logprob = event->logprob;
    t->text_len = (uint32_t)event->text_len;
    t->top_count = (uint32_t)(event->top_count < FIELDS_MAX_TOP ? event->top_count : FIELDS_MAX_TOP);
    if (t->top_count > 0) memcpy(t->top, event->top, t->top_count * sizeof *t->top);
    if (event->text_len > 0) memcpy(t->text, event->text, event->text_len);
    mailbox_post(&j->s->mailbox, &t->letter);
    return true;
}

static void on_end(void *user)
{
    choice *c = user;
    mailbox_post(&c->job->s->mailbox, &c->end);
}

void job_hooks(job *j, choice *c, im_request_options *o)
{
    c->end.read = read_end;
    o->user = c;
    o->on_end = on_end;
    o->on_token = j->f.stream || j->f.logprobs ? on_token : NULL; /* without need no thread is woken for a token */
}

/* ---- start ------------------------------------------------------------------------------------------------------------------------------------------------- */

/* Clients are told apart by key and by address, as far as those tell. */
static uint64_t client_of(const conn *c) { return c->address ^ ((uint64_t)(c->key + 1) * 0x9e3779b97f4a7c15u); }

void job_start(conn *c, job_kind kind)
{
    job *j = calloc(1, sizeof *j);
    if (j == NULL) {
        conn_refuse(c, 503, "out of memory", NULL, "memory");
        return;
    }
    j->s = c->s;
    j->conn = c;
    j->kind = kind;
    j->early_last = &j->early;
    j->created = time(NULL);
    j->arrived = c->begun;
    j->client = client_of(c);
    atomic_init(&j->cancelled, false);
    atomic_init(&j->starved, false);
    server_new_id(c->s, kind == JOB_CHAT ? "chatcmpl-" : "cmpl-", j->id);
    j->body = c->parser.body;
    j->body_len = c->parser.body_len;
    c->parser.body = NULL;
    c->job = j;
    j->task.run = job_prepare;
    j->prepared.read = read_prepared;
    link_job(j);
    worker_do(&c->s->workers, &j->task, j->body_len >= LARGE_BODY);
}
