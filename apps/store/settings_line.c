/* SPDX-License-Identifier: Apache-2.0 */
#include "store/settings_line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

size_t setting_index(const char *key, size_t n)
{
    for (size_t i = 0; i < setting_count; i++)
        if (strlen(setting_table[i].key) == n && strncmp(setting_table[i].key, key, n) == 0) return i;
    return SIZE_MAX;
}

/* Edit distance between two short words. */
static size_t distance(const char *a, size_t n, const char *b)
{
    size_t row[32], m = strlen(b);
    if (n > 31 || m > 31) return 99;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 0; i < n; i++) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < m; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j + 1] + 1 < best) best = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[m];
}

im_status setting_unknown(const char *key, size_t n, im_error *err)
{
    const char *near = NULL;
    size_t least = 4;
    for (size_t i = 0; i < setting_count; i++) {
        size_t d = distance(key, n, setting_table[i].key);
        if (d >= least || d >= strlen(setting_table[i].key)) continue;
        least = d;
        near = setting_table[i].key;
    }
    if (near != NULL)
        return hub_fail(err, IM_ERR_ARGUMENT, "unknown setting \"%.*s\"; did you mean \"%s\"?", (int)(n > 60 ? 60 : n), key, near);
    return hub_fail(err, IM_ERR_ARGUMENT, "unknown setting \"%.*s\"; 'ironmule info --settings' lists them", (int)(n > 60 ? 60 : n),
                    key);
}

/* ---- a line ---------------------------------------------------------------------------------------------------------------------------------------- */

static bool is_key_letter(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static size_t skip_blanks(const char *line, size_t n, size_t at)
{
    while (at < n && is_blank(line[at])) at++;
    return at;
}

/* Only a comment may follow a value. */
static bool is_end(const char *line, size_t n, size_t at)
{
    at = skip_blanks(line, n, at);
    return at == n || line[at] == '#';
}

/* line[at] is the opening quote. */
static im_status parse_quoted(char *out, const char *line, size_t n, size_t at, im_error *err)
{
    size_t len = 0;
    for (at++; at < n && line[at] != '"'; at++) {
        if (line[at] == '\\' && (++at >= n || strchr("\"\\", line[at]) == NULL))
            return hub_fail(err, IM_ERR_FORMAT, "after a backslash only \\ and \" are understood");
        out[len++] = line[at];
    }
    out[len] = 0;
    if (at >= n) return hub_fail(err, IM_ERR_FORMAT, "the closing quote is missing");
    return is_end(line, n, at + 1) ? IM_OK : hub_fail(err, IM_ERR_FORMAT, "something follows the closing quote");
}

static im_status parse_plain(char *out, const char *line, size_t n, size_t at, im_error *err)
{
    size_t len = 0;
    while (at < n && !is_blank(line[at]) && line[at] != '#') out[len++] = line[at++];
    out[len] = 0;
    if (strpbrk(out, "\"'[]{}") != NULL) return hub_fail(err, IM_ERR_FORMAT, "text stands in double quotes: key = \"text\"");
    return is_end(line, n, at) ? IM_OK : hub_fail(err, IM_ERR_FORMAT, "text with blanks stands in double quotes");
}

im_status setting_line_parse(setting_line *out, const char *line, size_t n, im_error *err)
{
    size_t at = skip_blanks(line, n, 0);
    *out = (setting_line){.key = at};
    if (at == n || line[at] == '#') return IM_OK;
    while (at < n && is_key_letter(line[at])) at++;
    out->key_len = at - out->key;
    at = skip_blanks(line, n, at);
    if (out->key_len == 0 || at == n || line[at] != '=') return hub_fail(err, IM_ERR_FORMAT, "a line is: key = value");
    at = skip_blanks(line, n, at + 1);
    out->value = malloc(n + 1);
    if (out->value == NULL) return hub_no_memory(err);
    return at < n && line[at] == '"' ? parse_quoted(out->value, line, n, at, err) : parse_plain(out->value, line, n, at, err);
}

void setting_line_free(setting_line *l)
{
    free(l->value);
    l->value = NULL;
}

bool setting_line_is_about(const char *line, size_t n, const char *key, bool *comment)
{
    size_t at = skip_blanks(line, n, 0), len = strlen(key);
    *comment = at < n && line[at] == '#';
    if (*comment) at = skip_blanks(line, n, at + 1);
    if (n - at <= len || strncmp(line + at, key, len) != 0) return false;
    at = skip_blanks(line, n, at + len);
    return at < n && line[at] == '=';
}
