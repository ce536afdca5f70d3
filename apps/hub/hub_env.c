/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_env.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The variable's value; NULL when it is not set or empty. */
static const char *value(const char *name)
{
    const char *v = getenv(name);
    return v == NULL || v[0] == 0 ? NULL : v;
}

static const char *either(const char *name, const char *older) { return value(name) != NULL ? value(name) : value(older); }

static bool is_true(const char *v)
{
    return v != NULL &&
           (strcmp(v, "1") == 0 || strcasecmp(v, "true") == 0 || strcasecmp(v, "yes") == 0 || strcasecmp(v, "on") == 0);
}

/* "FOLDER/NAME" (NAME NULL: the folder), with a "~" at the beginning meaning the home folder. */
static char *join(const char *folder, const char *name)
{
    char *out;
    const char *home = value("HOME");
    bool tilde = folder[0] == '~' && (folder[1] == '/' || folder[1] == 0);
    int n = asprintf(&out, "%s%s%s%s", tilde ? home == NULL ? "." : home : "", folder + (tilde ? 1 : 0), name == NULL ? "" : "/",
                     name == NULL ? "" : name);
    return n < 0 ? NULL : out;
}

static char *home_of_hub(void)
{
    if (value("HF_HOME") != NULL) return join(value("HF_HOME"), NULL);
    const char *xdg = value("XDG_CACHE_HOME");
    return xdg != NULL ? join(xdg, "huggingface") : join("~", ".cache/huggingface");
}

/* ---- the token ---------------------------------------------------------------------------------------------------------------------- */

static char *first_word(const char *text)
{
    while (isspace((unsigned char)*text)) text++;
    size_t n = 0;
    while (text[n] != 0 && !isspace((unsigned char)text[n])) n++;
    return n == 0 ? NULL : strndup(text, n);
}

static char *stored_token(const char *path)
{
    char line[1024] = "";
    FILE *f = fopen(path, "r");
    if (f == NULL) return NULL;
    if (fgets(line, sizeof line, f) == NULL) line[0] = 0;
    fclose(f);
    return first_word(line);
}

/* What stands in a header must not be able to end it. */
static bool is_token(const char *t)
{
    size_t n = 0;
    for (; t[n] != 0; n++)
        if (t[n] <= ' ' || t[n] >= 127) return false;
    return n <= 512;
}

static im_status read_token(hub_env *e, im_error *err)
{
    const char *given = either("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN");
    if (given != NULL)
        e->token = first_word(given);
    else if (!is_true(value("HF_HUB_DISABLE_IMPLICIT_TOKEN")))
        e->token = stored_token(e->token_file);
    if (e->token == NULL || is_token(e->token)) return IM_OK;
    return hub_fail(err, IM_ERR_ARGUMENT, "%s holds something that cannot be a token", given != NULL ? "HF_TOKEN" : e->token_file);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------------------- */

static im_status read_endpoint(hub_env *e, im_error *err)
{
    const char *given = value("HF_ENDPOINT");
    e->endpoint = strdup(given == NULL ? "https://huggingface.co" : given);
    if (e->endpoint == NULL) return hub_no_memory(err);
    for (size_t n = strlen(e->endpoint); n > 0 && e->endpoint[n - 1] == '/';) e->endpoint[--n] = 0;
    const char *host = strstr(e->endpoint, "://");
    bool known = strncmp(e->endpoint, "https://", 8) == 0 || strncmp(e->endpoint, "http://", 7) == 0;
    if (!known || host[3] == 0 || strpbrk(e->endpoint, "@?# \t\r\n") != NULL)
        return hub_fail(err, IM_ERR_ARGUMENT, "HF_ENDPOINT must be http:// or https:// and a host, without a user or a query");
    return IM_OK;
}

im_status hub_env_read(hub_env *out, im_error *err)
{
    char *home = home_of_hub();
    const char *cache = either("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), *token = value("HF_TOKEN_PATH"),
               *stall = value("HF_HUB_DOWNLOAD_TIMEOUT");
    *out = (hub_env){.offline = is_true(either("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")), .stall_s = 30};
    if (home != NULL) {
        out->cache = cache != NULL ? join(cache, NULL) : join(home, "hub");
        out->token_file = token != NULL ? join(token, NULL) : join(home, "token");
    }
    free(home);
    im_status status = out->cache == NULL || out->token_file == NULL ? hub_no_memory(err) : read_endpoint(out, err);
    if (status == IM_OK && stall != NULL && !((out->stall_s = atof(stall)) >= 1 && out->stall_s <= 3600))
        status = hub_fail(err, IM_ERR_ARGUMENT, "HF_HUB_DOWNLOAD_TIMEOUT must be 1 .. 3600 seconds");
    if (status == IM_OK) status = read_token(out, err);
    if (status != IM_OK) hub_env_free(out);
    return status;
}

void hub_env_free(hub_env *e)
{
    free(e->cache);
    free(e->endpoint);
    free(e->token);
    free(e->token_file);
    *e = (hub_env){0};
}
