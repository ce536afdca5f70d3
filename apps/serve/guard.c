/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static im_status failed(im_error *err, im_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static im_status failed(im_error *err, im_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------------------ */

static im_status add_key(guard *g, const char *where, const char *key, size_t n, im_error *err)
{
    if (n < 8) return failed(err, IM_ERR_FORMAT, "%s: key %zu has %zu letters; at least 8 are needed", where, g->keys + 1, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)key[i] <= ' ' || (unsigned char)key[i] >= 127)
            return failed(err, IM_ERR_FORMAT, "%s: key %zu has a blank or a letter outside ASCII", where, g->keys + 1);
    void *grown = realloc(g->digests, (g->keys + 1) * sizeof *g->digests);
    if (grown == NULL) return failed(err, IM_ERR_MEMORY, "no memory for the keys");
    g->digests = grown;
    SHA256((const unsigned char *)key, n, g->digests[g->keys++]);
    return IM_OK;
}

static im_status add_keys(guard *g, const char *where, const char *text, im_error *err)
{
    while (*text != 0) {
        text += strspn(text, " \t\r\n");
        size_t n = strcspn(text, "\r\n");
        const char *next = text + n;
        while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
        im_status status = n == 0 || text[0] == '#' ? IM_OK : add_key(g, where, text, n, err);
        if (status != IM_OK) return status;
        text = next;
    }
    return g->keys > 0 ? IM_OK : failed(err, IM_ERR_FORMAT, "%s: no key there", where);
}

static im_status read_key_file(guard *g, const char *path, im_error *err)
{
    char text[65537];
    FILE *f = fopen(path, "rb");
    if (f == NULL) return failed(err, IM_ERR_IO, "%s: %s", path, strerror(errno));
    size_t n = fread(text, 1, sizeof text - 1, f);
    bool whole = feof(f) != 0 && ferror(f) == 0;
    fclose(f);
    text[n] = 0;
    im_status status = whole && strlen(text) == n ? add_keys(g, path, text, err)
                                                  : failed(err, IM_ERR_FORMAT, "%s: not a list of keys, or too long", path);
    OPENSSL_cleanse(text, sizeof text);
    return status;
}

im_status guard_open(guard *g, const serve_options *o, im_error *err)
{
    im_status status = IM_OK;
    *g = (guard){.origins = &o->origins, .hosts = &o->hosts, .bound_host = o->host};
    if (o->key_env != NULL) {
        const char *value = getenv(o->key_env);
        status = value == NULL ? failed(err, IM_ERR_ARGUMENT, "the environment variable %s is not set", o->key_env)
                               : add_keys(g, o->key_env, value, err);
    }
    if (status == IM_OK && o->key_file != NULL) status = read_key_file(g, o->key_file, err);
    if (status != IM_OK) guard_close(g);
    g->check_host = g->keys == 0 && o->unix_path == NULL;
    return status;
}

void guard_close(guard *g)
{
    free(g->digests);
    g->digests = NULL;
    g->keys = 0;
}

int guard_key(const guard *g, const http_request *r)
{
    unsigned char digest[32];
    int found = -1;
    const char *value = http_request_header(r, "authorization");
    if (g->keys == 0) return 0;
    if (value == NULL || strncasecmp(value, "bearer ", 7) != 0) return -1;
    value += 7 + strspn(value + 7, " ");
    SHA256((const unsigned char *)value, strlen(value), digest);
    for (size_t i = 0; i < g->keys; i++)
        if (CRYPTO_memcmp(digest, g->digests[i], sizeof digest) == 0) found = (int)i;
    return found;
}

/* ---- hosts and origins ------------------------------------------------------------------------------------------------------------------ */

static bool in_list(const serve_names *names, const char *text, size_t n)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->item[i], "*") == 0 || (strlen(names->item[i]) == n && strncasecmp(names->item[i], text, n) == 0))
            return true;
    return false;
}

/* Length of the host in "host:port" or "[v6]:port". */
static size_t host_length(const char *host)
{
    if (host[0] != '[') return strcspn(host, ":");
    size_t n = strcspn(host, "]");
    return host[n] == ']' ? n + 1 : n;
}

static bool is_v4_loopback(const char *host, size_t n)
{
    if (n < 9 || n > 15 || strncmp(host, "127.", 4) != 0) return false;
    return strspn(host, "0123456789.") >= n;
}

static bool own_name(const guard *g, const char *host, size_t n)
{
    if (n == 9 && strncasecmp(host, "localhost", 9) == 0) return true;
    if (is_v4_loopback(host, n) || (n == 5 && strncmp(host, "[::1]", 5) == 0)) return true;
    return g->bound_host != NULL && strlen(g->bound_host) == n && strncasecmp(g->bound_host, host, n) == 0;
}

bool guard_host(const guard *g, const http_request *r)
{
    if (!g->check_host) return true;
    size_t n = host_length(r->host);
    return n == 0 ? r->minor == 0 : own_name(g, r->host, n) || in_list(g->hosts, r->host, n);
}

guard_origin guard_check_origin(const guard *g, const http_request *r)
{
    const char *origin = http_request_header(r, "origin");
    if (origin == NULL) return ORIGIN_NONE;
    if (in_list(g->origins, origin, strlen(origin))) return ORIGIN_ALLOWED;
    const char *host = strstr(origin, "://");
    return host != NULL && strcasecmp(host + 3, r->host) == 0 ? ORIGIN_NONE : ORIGIN_FOREIGN;
}
