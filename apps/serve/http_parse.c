/* SPDX-License-Identifier: Apache-2.0 */
#include "http_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum chunk_part {
    CHUNK_SIZE,
    CHUNK_BLANK,
    CHUNK_EXTENSION,
    CHUNK_LINE_END,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF
};

static bool fail(http_parser *p, int status, const char *why)
{
    p->step = HTTP_BAD;
    p->status = status;
    p->why = why;
    return false;
}

/* Of a chunked body it is known only that it goes beyond the limit. */
static bool too_long(http_parser *p)
{
    if (p->request.length > p->limits.body)
        snprintf(p->text, sizeof p->text, "the body has %" PRIu64 " bytes; at most %zu are taken (--max-body)", p->request.length,
                 p->limits.body);
    else
        snprintf(p->text, sizeof p->text, "the body has more than the %zu bytes that are taken (--max-body)", p->limits.body);
    return fail(p, 413, p->text);
}

void http_parser_init(http_parser *p, const http_limits *limits) { *p = (http_parser){.limits = *limits}; }

void http_parser_free(http_parser *p)
{
    free(p->head);
    free(p->body);
    *p = (http_parser){.limits = p->limits};
}

void http_parser_let_go(http_parser *p)
{
    free(p->body);
    p->body = NULL;
    p->body_len = p->body_cap = 0;
}

void http_parser_next(http_parser *p) { http_parser_free(p); }

bool http_parser_begun(const http_parser *p) { return p->step != HTTP_HEAD || p->head_len > 0; }

/* ---- growing buffers ------------------------------------------------------------------------------------------------------------------ */

static bool append(http_parser *p, char **to, size_t *len, size_t *cap, const char *data, size_t n)
{
    if (*len + n + 1 > *cap) {
        size_t wanted = *cap * 2 > *len + n + 1 ? *cap * 2 : *len + n + 1;
        char *grown = realloc(*to, wanted);
        if (grown == NULL) return fail(p, 503, "no memory for the request");
        *to = grown;
        *cap = wanted;
    }
    memcpy(*to + *len, data, n);
    *len += n;
    (*to)[*len] = 0;
    return true;
}

/* ---- request line --------------------------------------------------------------------------------------------------------------------- */

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static size_t token_length(const char *s)
{
    size_t n = 0;
    while (is_token(s[n])) n++;
    return n;
}

/* http://host/path: the host is taken out. */
static bool absolute_form(http_parser *p, char **target)
{
    char *t = *target;
    size_t scheme = strncasecmp(t, "http://", 7) == 0 ? 7 : strncasecmp(t, "https://", 8) == 0 ? 8 : 0;
    if (scheme == 0) return fail(p, 400, "the request target must begin with a slash");
    char *host = t + scheme, *end = host + strcspn(host, "/?");
    size_t n = (size_t)(end - host);
    if (n == 0 || memchr(host, '@', n) != NULL) return fail(p, 400, "the request target has no valid host");
    /* The host moves to the front, over the scheme, which leaves room for its terminating zero. */
    memmove(t, host, n);
    t[n] = 0;
    p->request.host = t;
    if (*end == '?') *--end = '/'; /* no path: the last letter of the moved host is free */
    static char root[] = "/";
    *target = *end == 0 ? root : end;
    return true;
}

static bool read_target(http_parser *p, char *target)
{
    if (strlen(target) > HTTP_MAX_TARGET) {
        snprintf(p->text, sizeof p->text, "the request target has %zu bytes; at most %d are taken", strlen(target),
                 HTTP_MAX_TARGET);
        return fail(p, 414, p->text);
    }
    for (const char *c = target; *c != 0; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 127 || *c == '#')
            return fail(p, 400, "the request target has a character that must be escaped");
    if (strcmp(target, "*") == 0 && strcmp(p->request.method, "OPTIONS") == 0) {
        p->request.path = target;
        return true;
    }
    if (target[0] != '/' && !absolute_form(p, &target)) return false;
    char *query = strchr(target, '?');
    p->request.query = query == NULL ? "" : query + 1;
    if (query != NULL) *query = 0;
    size_t n = strlen(target);
    if (n > 1 && target[n - 1] == '/') target[n - 1] = 0;
    p->request.path = target;
    return true;
}

static bool read_request_line(http_parser *p, char *line)
{
    size_t n = token_length(line);
    if (n == 0 || line[n] != ' ') return fail(p, 400, "the request line is malformed");
    line[n] = 0;
    p->request.method = line;
    p->request.query = "";
    p->request.host = "";
    char *target = line + n + 1, *version = strchr(target, ' ');
    if (version == NULL || version == target) return fail(p, 400, "the request line is malformed");
    *version++ = 0;
    if (strncmp(version, "HTTP/", 5) != 0 || version[5] < '0' || version[5] > '9' || version[6] != '.' || version[7] < '0' ||
        version[7] > '9' || version[8] != 0)
        return fail(p, 400, "the request line is malformed");
    if (version[5] != '1') return fail(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    p->request.minor = version[7] == '0' ? 0 : 1;
    return read_target(p, target);
}

/* ---- headers --------------------------------------------------------------------------------------------------------------------------- */

const char *http_request_header(const http_request *r, const char *name)
{
    for (size_t i = 0; i < r->headers; i++)
        if (strcmp(r->header[i].name, name) == 0) return r->header[i].value;
    return NULL;
}

bool http_list_has(const char *list, const char *token)
{
    size_t n = strlen(token);
    while (list != NULL && *list != 0) {
        list += strspn(list, " \t,");
        size_t len = strcspn(list, ",");
        while (len > 0 && (list[len - 1] == ' ' || list[len - 1] == '\t')) len--;
        if (len == n && strncasecmp(list, token, n) == 0) return true;
        list += strcspn(list, ",");
    }
    return false;
}

static bool read_header(http_parser *p, char *line)
{
    http_request *r = &p->request;
    size_t n = token_length(line);
    if (line[0] == ' ' || line[0] == '\t') return fail(p, 400, "a header is folded over several lines");
    if (n == 0 || line[n] != ':') return fail(p, 400, "a header line is malformed (a blank before the colon?)");
    if (r->headers == HTTP_MAX_HEADERS) {
        snprintf(p->text, sizeof p->text, "more than %d headers", HTTP_MAX_HEADERS);
        return fail(p, 431, p->text);
    }
    line[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (line[i] >= 'A' && line[i] <= 'Z') line[i] = (char)(line[i] - 'A' + 'a');
    char *value = line + n + 1, *end = value + strlen(value);
    value += strspn(value, " \t");
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) *--end = 0;
    for (const char *c = value; *c != 0; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127) return fail(p, 400, "a header has a control character");
    r->header[r->headers++] = (http_header){line, value};
    return true;
}

static bool read_length(http_parser *p, const char *text)
{
    uint64_t v = 0;
    size_t n = strspn(text, "0123456789");
    if (n == 0 || text[n] != 0) return fail(p, 400, "Content-Length is no number");
    for (size_t i = 0; i < n; i++) {
        if (v > (UINT64_MAX - 9) / 10) return too_long(p);
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    p->request.length = v;
    return true;
}

/* How long the body is: RFC 9112, section 6.3. */
static bool read_framing(http_parser *p)
{
    http_request *r = &p->request;
    const char *length = NULL, *coding = NULL;
    for (size_t i = 0; i < r->headers; i++) {
        const http_header *h = &r->header[i];
        if (strcmp(h->name, "content-length") == 0) {
            if (length != NULL && strcmp(length, h->value) != 0) return fail(p, 400, "Content-Length is given twice, and differs");
            length = h->value;
        } else if (strcmp(h->name, "transfer-encoding") == 0) {
            if (coding != NULL) return fail(p, 400, "Transfer-Encoding is given twice");
            coding = h->value;
        }
    }
    if (length != NULL && coding != NULL) return fail(p, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (coding != NULL && r->minor == 0) return fail(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding != NULL && strcasecmp(coding, "chunked") != 0) return fail(p, 501, "the only Transfer-Encoding is chunked");
    if (length != NULL && !read_length(p, length)) return false;
    r->chunked = coding != NULL;
    r->has_body = r->chunked || r->length > 0;
    return true;
}

static bool read_host(http_parser *p)
{
    http_request *r = &p->request;
    const char *host = NULL;
    for (size_t i = 0; i < r->headers; i++) {
        if (strcmp(r->header[i].name, "host") != 0) continue;
        if (host != NULL) return fail(p, 400, "Host is given twice");
        host = r->header[i].value;
    }
    if (host == NULL && r->minor > 0) return fail(p, 400, "HTTP/1.1 requires a Host header");
    if (host != NULL && strpbrk(host, " \t/@,") != NULL) return fail(p, 400, "Host is malformed");
    if (host != NULL && r->host[0] == 0) r->host = host;
    return true;
}

static bool read_connection(http_parser *p)
{
    http_request *r = &p->request;
    r->keep_alive = r->minor > 0;
    for (size_t i = 0; i < r->headers; i++) {
        if (strcmp(r->header[i].name, "connection") != 0) continue;
        if (http_list_has(r->header[i].value, "close")) {
            r->keep_alive = false;
            break;
        }
        if (r->minor == 0 && http_list_has(r->header[i].value, "keep-alive")) r->keep_alive = true;
    }
    const char *expect = http_request_header(r, "expect");
    if (expect == NULL || r->minor == 0) return true;
    if (strcasecmp(expect, "100-continue") != 0) return fail(p, 417, "the only expectation known here is 100-continue");
    r->expect_continue = r->has_body;
    return true;
}

/* The whole head lies in p->head; its lines end in CR LF. */
static bool read_head(http_parser *p)
{
    char *line = p->head;
    if (memchr(p->head, 0, p->head_len) != NULL) return fail(p, 400, "the head has a zero byte");
    for (bool first = true; first || line[0] != '\r'; first = false) {
        char *end = strchr(line, '\r');
        if (end[1] != '\n') return fail(p, 400, "a carriage return stands alone");
        *end = 0;
        if (!(first ? read_request_line(p, line) : read_header(p, line))) return false;
        line = end + 2;
    }
    if (!read_framing(p) || !read_host(p) || !read_connection(p)) return false;
    p->step = HTTP_HEAD_READ;
    return true;
}

static size_t feed_head(http_parser *p, const char *data, size_t n)
{
    size_t i = 0;
    /* An empty line in front of a request is forgiven (RFC 9112, section 2.2). */
    while (i < n && p->head_len == 0 && (data[i] == '\r' || data[i] == '\n') && ++p->line <= 8) i++;
    size_t begin = i, room = p->limits.head - p->head_len, end = n - begin > room ? begin + room : n;
    bool whole = false;
    for (char before = p->head_len > 0 ? p->head[p->head_len - 1] : 0; i < end && !whole; before = data[i++]) {
        if (data[i] != '\n') continue;
        if (before != '\r') {
            fail(p, 400, "a line feed stands without its carriage return");
            return n;
        }
        size_t before_end = p->head_len + (i - begin); /* bytes in front of this one */
        if (before_end < 3) continue;
        char last[3];
        for (size_t k = 0; k < 3; k++) {
            size_t at = before_end - 3 + k;
            last[k] = at < p->head_len ? p->head[at] : data[begin + at - p->head_len];
        }
        whole = memcmp(last, "\r\n\r", 3) == 0;
    }
    if (!whole && end < n) {
        snprintf(p->text, sizeof p->text, "request line and headers have more than %zu bytes", p->limits.head);
        fail(p, 431, p->text);
        return n;
    }
    if (i > begin && !append(p, &p->head, &p->head_len, &p->head_cap, data + begin, i - begin)) return n;
    if (whole) read_head(p);
    return i;
}

/* ---- body ------------------------------------------------------------------------------------------------------------------------------- */

void http_parser_body(http_parser *p, bool keep)
{
    p->keep = keep;
    p->left = p->request.length;
    p->line = 0;
    p->part = CHUNK_SIZE;
    if (p->request.length > p->limits.body)
        too_long(p);
    else
        p->step = p->request.has_body ? HTTP_BODY : HTTP_COMPLETE;
}

static bool take(http_parser *p, const char *data, size_t n)
{
    p->received += n;
    if (p->received > p->limits.body) return too_long(p);
    return !p->keep || append(p, &p->body, &p->body_len, &p->body_cap, data, n);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool chunk_size(http_parser *p, char c)
{
    int digit = hex(c);
    if (digit >= 0) {
        if (++p->line > 15) return too_long(p);
        p->left = p->left * 16 + (uint64_t)digit;
        return true;
    }
    if (p->line == 0 || (c != '\r' && c != ';' && c != ' ' && c != '\t')) return fail(p, 400, "the size of a chunk is malformed");
    if (p->left > p->limits.body) return too_long(p);
    p->part = c == '\r' ? CHUNK_LINE_END : c == ';' ? CHUNK_EXTENSION : CHUNK_BLANK;
    return true;
}

/* Blanks may stand in front of an extension, and nothing else: what another reader might take for more digits is refused. */
static bool chunk_blank(http_parser *p, char c)
{
    if (++p->line > 1024) return fail(p, 400, "the extension of a chunk is too long");
    if (c == ';') p->part = CHUNK_EXTENSION;
    return c == ';' || c == ' ' || c == '\t' || fail(p, 400, "the size of a chunk is malformed");
}

/* Lines behind the last chunk are read and ignored, up to an empty one. p->left is how many letters the present line has. */
static bool chunk_trailer(http_parser *p, char c)
{
    if (++p->line > p->limits.head) {
        snprintf(p->text, sizeof p->text, "the trailers have more than %zu bytes", p->limits.head);
        return fail(p, 431, p->text);
    }
    if (c == '\r')
        p->part = CHUNK_TRAILER_LF;
    else if (c == '\n' || c == 0)
        return fail(p, 400, "the trailers are malformed");
    else
        p->left++;
    return true;
}

static bool chunk_trailer_end(http_parser *p, char c)
{
    if (c != '\n') return fail(p, 400, "the trailers are malformed");
    p->part = CHUNK_TRAILER;
    if (p->left == 0) p->step = HTTP_COMPLETE;
    p->left = 0;
    return true;
}

/* One byte of the framing around chunks. */
static bool chunk_byte(http_parser *p, char c)
{
    switch (p->part) {
    case CHUNK_SIZE: return chunk_size(p, c);
    case CHUNK_BLANK: return chunk_blank(p, c);
    case CHUNK_EXTENSION:
        if (++p->line > 1024) return fail(p, 400, "the extension of a chunk is too long");
        if (c == '\n') return fail(p, 400, "a line feed stands without its carriage return");
        if (c == '\r') p->part = CHUNK_LINE_END;
        return true;
    case CHUNK_LINE_END:
        if (c != '\n') return fail(p, 400, "the size of a chunk is malformed");
        p->part = p->left == 0 ? CHUNK_TRAILER : CHUNK_DATA;
        p->line = 0;
        return true;
    case CHUNK_DATA_CR: p->part = CHUNK_DATA_LF; return c == '\r' || fail(p, 400, "a chunk is longer than it says");
    case CHUNK_DATA_LF:
        p->part = CHUNK_SIZE;
        p->left = 0;
        p->line = 0;
        return c == '\n' || fail(p, 400, "a chunk is longer than it says");
    case CHUNK_TRAILER_LF: return chunk_trailer_end(p, c);
    default: return chunk_trailer(p, c);
    }
}

static size_t feed_chunked(http_parser *p, const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && p->step == HTTP_BODY) {
        if (p->part != CHUNK_DATA) {
            chunk_byte(p, data[i++]);
            continue;
        }
        size_t part = n - i < p->left ? n - i : (size_t)p->left;
        if (!take(p, data + i, part)) return n;
        i += part;
        p->left -= part;
        if (p->left == 0) p->part = CHUNK_DATA_CR;
    }
    return i;
}

static size_t feed_body(http_parser *p, const char *data, size_t n)
{
    if (p->request.chunked) return feed_chunked(p, data, n);
    size_t part = n < p->left ? n : (size_t)p->left;
    if (!take(p, data, part)) return n;
    p->left -= part;
    if (p->left == 0) p->step = HTTP_COMPLETE;
    return part;
}

size_t http_parser_feed(http_parser *p, const char *data, size_t n)
{
    if (n == 0) return 0;
    if (p->step == HTTP_HEAD) return feed_head(p, data, n);
    return p->step == HTTP_BODY ? feed_body(p, data, n) : 0;
}
