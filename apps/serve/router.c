/* SPDX-License-Identifier: Apache-2.0 */
#include "router.h"

#include "job.h"
#include "memory.h"
#include "page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- answers without a job --------------------------------------------------------------------------------------------------------------------- */

static void answer_json(conn *c, int status, json_t *doc)
{
    char *text = doc == NULL ? NULL : json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    if (text == NULL || memory_was_short())
        conn_refuse(c, 503, "out of memory", NULL, "memory");
    else
        conn_answer(c, status, "application/json", text, strlen(text), NULL);
    free(text);
}

typedef enum device_state { DEVICE_FINE, DEVICE_REPLACED, DEVICE_LOST } device_state;

static device_state state_of_device(const server *s)
{
    im_engine *engine = atomic_load(&s->engine);
    im_engine_stats stats = {.device_failures = 0};
    if (engine != NULL) im_engine_get_stats(engine, &stats);
    return stats.device_failures == 0 ? DEVICE_FINE : stats.device_fallbacks > 0 ? DEVICE_REPLACED : DEVICE_LOST;
}

static void get_health(conn *c)
{
    static const char *const why[] = {[DEVICE_REPLACED] = "the GPU has failed; the processor answers in its place",
                                      [DEVICE_LOST] = "the GPU has failed; start the server again"};
    const server *s = c->s;
    device_state device = state_of_device(s);
    const char *state = s->loading              ? "loading"
                        : s->stuck              ? "stuck"
                        : s->draining != 0      ? "stopping"
                        : device != DEVICE_FINE ? "degraded"
                                                : "ok";
    json_t *doc = json_pack("{s:s}", "status", state);
    if (device != DEVICE_FINE) json_object_set_new(doc, "reason", json_string(why[device]));
    answer_json(c, s->stuck || device == DEVICE_LOST ? 503 : 200, doc);
}

static void get_ready(conn *c)
{
    const server *s = c->s;
    bool ready = !s->loading && s->draining == 0 && !s->stuck && state_of_device(s) != DEVICE_LOST;
    answer_json(c, ready ? 200 : 503, json_pack("{s:b}", "ready", ready));
}

static void get_metrics(conn *c)
{
    struct evbuffer *page = evbuffer_new();
    if (page == NULL) {
        conn_refuse(c, 503, "out of memory", NULL, "memory");
        return;
    }
    metrics_write(c->s, page);
    size_t n = evbuffer_get_length(page);
    const void *text = evbuffer_pullup(page, -1);
    if (text == NULL || memory_was_short())
        conn_refuse(c, 503, "out of memory", NULL, "memory");
    else
        conn_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", text, n, NULL);
    evbuffer_free(page);
}

static json_t *model_object(const server *s)
{
    const im_model_info *m = &s->model;
    im_engine *engine = atomic_load(&s->engine);
    im_engine_info info = {.context = 0};
    if (engine != NULL) im_engine_get_info(engine, &info);
    json_t *ours = json_pack("{s:s, s:s, s:I, s:i, s:i, s:b}", "architecture", m->architecture, "quantisation", m->quantisation,
                             "parameters", (json_int_t)m->parameters, "vocabulary", (int)m->vocabulary, "context",
                             (int)info.context, "chat_template", m->has_chat_template);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", s->model_id, "object", "model", "created", (json_int_t)s->started,
                     "owned_by", "ironmule", "ironmule", ours);
}

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c == 0 ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits) % 16;
}

/* Names may hold slashes, which some clients escape. */
static bool is_escaped(const char *escaped, const char *name)
{
    for (; *escaped != 0 && *name != 0; name++) {
        int high = escaped[0] == '%' ? hex(escaped[1]) : -1, low = high < 0 ? -1 : hex(escaped[2]);
        if ((low < 0 ? escaped[0] : (char)(high * 16 + low)) != *name) return false;
        escaped += low < 0 ? 1 : 3;
    }
    return *escaped == *name;
}

static bool is_served(const server *s, const char *escaped)
{
    bool found = is_escaped(escaped, s->model_id);
    for (size_t i = 0; i < s->o->aliases.count; i++) found = found || is_escaped(escaped, s->o->aliases.item[i]);
    return found;
}

static void get_models(conn *c)
{
    static const char one[] = "/v1/models/";
    const char *path = c->parser.request.path;
    if (strncmp(path, one, sizeof one - 1) != 0) {
        answer_json(c, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(c->s)));
    } else if (is_served(c->s, path + sizeof one - 1)) {
        answer_json(c, 200, model_object(c->s));
    } else {
        conn_refuse(c, 404, "this model is not served here; see /v1/models", "model", "model_not_found");
    }
}

static void get_page(conn *c)
{
    char headers[4096];
    page_headers(headers, sizeof headers);
    conn_answer(c, 200, "text/html; charset=utf-8", page_html, page_html_size, headers);
}

static void post_chat(conn *c) { job_start(c, JOB_CHAT); }
static void post_completion(conn *c) { job_start(c, JOB_COMPLETION); }
static void post_tokenize(conn *c) { job_start(c, JOB_TOKENIZE); }
static void post_detokenize(conn *c) { job_start(c, JOB_DETOKENIZE); }
static void post_template(conn *c) { job_start(c, JOB_TEMPLATE); }

static const route routes[] = {
    {"/", "page", false, true, true, get_page},
    {"/health", "health", false, true, true, get_health},
    {"/ready", "ready", false, true, true, get_ready},
    {"/metrics", "metrics", false, false, true, get_metrics},
    {"/v1/models", "models", false, false, true, get_models},
    {"/v1/chat/completions", "chat", true, false, false, post_chat},
    {"/v1/completions", "completions", true, false, false, post_completion},
    {"/tokenize", "tokenize", true, false, false, post_tokenize},
    {"/detokenize", "detokenize", true, false, false, post_detokenize},
    {"/apply-template", "template", true, false, false, post_template},
};

/* Does one of the two end in the other? Clients leave /v1 out, or write it twice. */
static bool looks_like(const char *path, const char *known)
{
    size_t n = strlen(path), m = strlen(known), shorter = n < m ? n : m;
    return shorter > 1 && strcmp(path + n - shorter, known + m - shorter) == 0;
}

/* The path that may have been meant, or all that there are. */
static void name_paths(const char *path, char *out, size_t size)
{
    size_t count = sizeof routes / sizeof *routes, used;
    for (size_t i = 0; i < count; i++)
        if (looks_like(path, routes[i].path)) {
            snprintf(out, size, "there is no such path here; %s %s is", routes[i].post ? "POST" : "GET", routes[i].path);
            return;
        }
    used = (size_t)snprintf(out, size, "there is no such path here; there are GET");
    for (size_t i = 0; i < count && used < size; i++) {
        bool turn = i > 0 && routes[i].post && !routes[i - 1].post;
        used += (size_t)snprintf(out + used, size - used, "%s %s", turn ? "; POST" : "", routes[i].path);
    }
}

static const route *find_route(const char *path)
{
    size_t count = sizeof routes / sizeof *routes;
    for (size_t i = 0; i < count; i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    return strncmp(path, "/v1/models/", 11) == 0 ? find_route("/v1/models") : NULL;
}

/* ---- who may ask ----------------------------------------------------------------------------------------------------------------------------------- */

static void refuse(conn *c, int status, const char *code, const char *message)
{
    c->refusal = (refusal){.status = status, .code = code, .message = message};
}

static bool is_preflight(const conn *c) { return strcmp(c->parser.request.method, "OPTIONS") == 0; }

static void decide_method(conn *c)
{
    const http_request *r = &c->parser.request;
    bool get = strcmp(r->method, "GET") == 0 || c->head_only, post = strcmp(r->method, "POST") == 0;
    if (c->route->post ? post : get) return;
    snprintf(c->refusal_text, sizeof c->refusal_text, "%.20s is no method of %.100s; %s is", r->method, c->route->path,
             c->route->post ? "POST" : "GET");
    refuse(c, 405, "method_not_allowed", c->refusal_text);
}

static void refuse_path(conn *c)
{
    name_paths(c->parser.request.path, c->refusal_text, sizeof c->refusal_text);
    refuse(c, 404, "not_found", c->refusal_text);
}

static void refuse_key(conn *c)
{
    const char *given = http_request_header(&c->parser.request, "authorization");
    if (given == NULL || given[0] == 0)
        refuse(c, 401, "invalid_api_key", "no API key was sent; this server wants one as a header: Authorization: Bearer KEY");
    else if (strncasecmp(given, "bearer ", 7) != 0)
        refuse(c, 401, "invalid_api_key",
               "the Authorization header is not of the form that is read here: Authorization: Bearer KEY");
    else
        refuse(c, 401, "invalid_api_key", "the API key that was sent is not one of this server's");
}

static void decide_type(conn *c)
{
    static const char json[] = "application/json";
    const char *type = http_request_header(&c->parser.request, "content-type");
    size_t n = type == NULL ? 0 : strcspn(type, "; \t");
    bool good = n == sizeof json - 1 && strncasecmp(type, json, n) == 0;
    const char *charset = good ? strcasestr(type + n, "charset=") : NULL;
    if (charset != NULL && strncasecmp(charset + 8, "utf-8", 5) != 0 && strncasecmp(charset + 8, "\"utf-8\"", 7) != 0) good = false;
    if (!good) refuse(c, 400, "content_type", "Content-Type must be application/json (in UTF-8)");
}

static void decide_state(conn *c)
{
    const server *s = c->s;
    if (c->route->while_down) return;
    if (s->draining != 0)
        refuse(c, 503, "stopping", "the server is stopping");
    else if (s->loading)
        refuse(c, 503, "loading", "the model is being loaded");
}

void router_decide(conn *c)
{
    const http_request *r = &c->parser.request;
    const guard *g = &c->s->guard;
    c->route = find_route(r->path);
    guard_origin origin = guard_check_origin(g, r);
    c->allow_origin = origin == ORIGIN_ALLOWED;
    c->key = guard_key(g, r);
    if (!guard_host(g, r))
        refuse(c, 403, "foreign_host", "this server does not answer to that Host; --allow-host NAME admits it");
    else if (c->route == NULL && strcmp(r->path, "*") != 0)
        refuse_path(c);
    else if (is_preflight(c))
        return;
    else if (origin == ORIGIN_FOREIGN)
        refuse(c, 403, "foreign_origin", "pages of that origin are not admitted; --allow-origin ORIGIN admits them");
    else if (decide_method(c), c->refusal.status != 0)
        return;
    else if (!c->route->open && c->key < 0)
        refuse_key(c);
    else if (decide_state(c), c->refusal.status != 0)
        return;
    else if (c->route->post)
        decide_type(c);
}

/* ---- preflight --------------------------------------------------------------------------------------------------------------------------------------- */

/* The browser names the headers that the page wants to send; they are given back one by one, since * would not cover Authorization. */
static void handle_preflight(conn *c)
{
    char headers[1024];
    const char *asked = http_request_header(&c->parser.request, "access-control-request-headers");
    const char *methods = c->route == NULL ? "GET, HEAD, POST, OPTIONS" : c->route->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    if (asked == NULL || strlen(asked) > 500) asked = "authorization, content-type";
    if (c->allow_origin)
        snprintf(
            headers, sizeof headers,
            "Allow: %s\r\nAccess-Control-Allow-Methods: %s\r\nAccess-Control-Allow-Headers: %s\r\nAccess-Control-Max-Age: 600\r\n",
            methods, methods, asked);
    else
        snprintf(headers, sizeof headers, "Allow: %s\r\n", methods);
    conn_answer(c, 204, NULL, NULL, 0, headers);
}

void router_handle(conn *c)
{
    if (is_preflight(c))
        handle_preflight(c);
    else
        c->route->handle(c);
}
