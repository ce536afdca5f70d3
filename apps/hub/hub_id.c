/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_id.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_repo_letter(char c) { return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.'; }

/* Either half of a name, n bytes. */
static bool is_half(const char *s, size_t n)
{
    if (n == 0 || n > 96 || strchr("-.", s[0]) != NULL || strchr("-.", s[n - 1]) != NULL) return false;
    for (size_t i = 0; i < n; i++) {
        bool doubled = i > 0 && (s[i] == '-' || s[i] == '.') && s[i - 1] == s[i];
        if (!is_repo_letter(s[i]) || doubled) return false;
    }
    return true;
}

static bool copy(char *to, size_t size, const char *from, size_t n)
{
    if (n >= size) return false;
    memcpy(to, from, n);
    to[n] = 0;
    return true;
}

bool hub_id_parse(hub_id *out, const char *text)
{
    size_t n = strcspn(text, "@:");
    const char *slash = memchr(text, '/', n), *revision = "main", *tag = "";
    if (slash == NULL || !is_half(text, (size_t)(slash - text)) || !is_half(slash + 1, n - (size_t)(slash - text) - 1))
        return false;
    size_t revision_len = strlen(revision);
    if (text[n] == '@') {
        revision = text + n + 1;
        revision_len = strcspn(revision, ":");
        tag = revision + revision_len;
    } else {
        tag = text + n;
    }
    if (*tag == ':' && *++tag == 0) return false;
    return copy(out->name, sizeof out->name, text, n) && copy(out->revision, sizeof out->revision, revision, revision_len) &&
           copy(out->tag, sizeof out->tag, tag, strlen(tag)) && hub_path_is_safe(out->revision) &&
           (out->tag[0] == 0 || hub_path_is_safe(out->tag));
}

/* A control character beyond ASCII, as UTF-8: terminals obey it. */
static bool is_c1(const char *s)
{
    return (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xa0;
}

bool hub_path_is_safe(const char *path)
{
    if (strlen(path) > 1000) return false;
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > 250 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.')) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 127 || part[i] == '\\' || is_c1(part + i)) return false;
        part += n;
        if (*part == 0) return true;
    }
}

bool hub_is_hex(const char *text, size_t digits) { return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits; }

/* ---- names of files --------------------------------------------------------------------------------------------------------------- */

/* Letters of the quantisation that begins at s, or 0. */
static size_t quantisation_at(const char *s)
{
    static const char *const plain[] = {"BF16", "F16", "F32", "MXFP4", "FP16"};
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strncasecmp(s, plain[i], strlen(plain[i])) == 0 && n >= strlen(plain[i])) return n;
    const char *q = toupper((unsigned char)s[0]) == 'I' || toupper((unsigned char)s[0]) == 'T' ? s + 1 : s;
    return toupper((unsigned char)q[0]) == 'Q' && isdigit((unsigned char)q[1]) ? n : 0;
}

void hub_quantisation(char *out, size_t size, const char *path)
{
    const char *name = strrchr(path, '/');
    out[0] = 0;
    name = name == NULL ? path : name + 1;
    for (const char *s = name; *s != 0; s++) {
        bool begins = s == name || !isalnum((unsigned char)s[-1]);
        size_t n = begins ? quantisation_at(s) : 0;
        if (n == 0) continue;
        snprintf(out, size, "%.*s", (int)n, s);
        for (char *c = out; *c != 0; c++) *c = (char)toupper((unsigned char)*c);
        s += n - 1;
    }
}

bool hub_tag_matches(const char *path, const char *tag)
{
    size_t n = strlen(tag);
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    if (strcasecmp(path, tag) == 0 || strcasecmp(name, tag) == 0) return true;
    for (const char *s = path; (s = strcasestr(s, tag)) != NULL; s++) {
        bool begins = s == path || !isalnum((unsigned char)s[-1]), ends = s[n] == 0 || strchr("-./", s[n]) != NULL;
        /* "UD-Q4_K_M" is another tag than "Q4_K_M". */
        if (begins && s - path >= 3 && strncasecmp(s - 3, "UD-", 3) == 0) continue;
        if (begins && ends) return true;
    }
    return false;
}
