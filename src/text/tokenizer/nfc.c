/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/nfc.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

#define LONGEST_DECOMPOSITION 8 /* code points of one character; the longest canonical one has 4 */

bool im__nfc_is_trivial(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] >= 0xcc) return false;
    }
    return true;
}

/* Marks and composed characters that are younger than Unicode 9, the version which the reference's normaliser knows: for it they are
 * letters like any other. */
static const struct {
    int32_t first, last;
} young[] = {{0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
             {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x105c0, 0x105f3},
             {0x10d24, 0x10d27}, {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efc, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
             {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113e2}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930},
             {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
             {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16100, 0x1613f},
             {0x16d40, 0x16d7f}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
             {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}};

static bool is_young(int32_t code)
{
    size_t lo = 0, hi = sizeof young / sizeof *young;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (young[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof young / sizeof *young && young[lo].first <= code;
}

static unsigned combining_class(int32_t code)
{
    unsigned cls = (unsigned)utf8proc_get_property(code)->combining_class & 0xff;
    return cls != 0 && is_young(code) ? 0 : cls;
}

/* Stable counting sort of a run of marks by combining class; `spare` has room for it. */
static void sort_marks(int32_t *code, int32_t *spare, size_t n)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[combining_class(code[i]) + 1]++;
    for (size_t c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) spare[start[combining_class(code[i])]++] = code[i];
    memcpy(code, spare, n * sizeof *code);
}

static void order_marks(int32_t *code, int32_t *spare, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t begin = i;
        bool sorted = true;
        unsigned last = 0;
        for (; i < n; i++) {
            unsigned cls = combining_class(code[i]);
            if (cls == 0) break;
            if (cls < last) sorted = false;
            last = cls;
        }
        if (!sorted) sort_marks(code + begin, spare, i - begin);
        if (i == begin) i++;
    }
}

/* Code points of the valid text at `text`, decomposed; *used is where it ends. */
static size_t decompose(int32_t *code, const char *text, size_t n, size_t *used)
{
    size_t at = 0, count = 0;
    uint32_t c;
    for (size_t len; at < n && (len = im__utf8_decode(text + at, n - at, &c)) > 0; at += len) {
        utf8proc_ssize_t k = is_young((int32_t)c)
                                 ? 0
                                 : utf8proc_decompose_char((utf8proc_int32_t)c, code + count, LONGEST_DECOMPOSITION,
                                                           UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL);
        if (k <= 0 || k > LONGEST_DECOMPOSITION) {
            code[count] = (int32_t)c;
            k = 1;
        }
        count += (size_t)k;
    }
    *used = at;
    return count;
}

static void append_code(im__buf *out, int32_t code)
{
    char bytes[4];
    im__buf_append(out, bytes, im__utf8_encode((uint32_t)code, bytes));
}

/* Composes and writes out; nothing composes across a young character. */
static void compose(im__buf *out, int32_t *code, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !is_young(code[end]); end++) continue;
        utf8proc_ssize_t kept = utf8proc_normalize_utf32(code + i, (utf8proc_ssize_t)(end - i), UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        size_t count = kept < 0 ? end - i : (size_t)kept;
        for (size_t k = 0; k < count; k++) append_code(out, code[i + k]);
        if (end < n) append_code(out, code[end++]);
    }
}

/* Bytes from `at` on that end in front of a character below U+0300, where text can be cut: at least `least` of them if there are. */
static size_t chunk_length(const char *text, size_t n, size_t least)
{
    size_t end = least < n ? least : n;
    while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80) end++;
    while (end < n && (unsigned char)text[end] >= 0xcc) {
        end++;
        while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80) end++;
    }
    return end;
}

static void append_chunk(im__buf *out, const char *text, size_t n)
{
    /* No character gives more than two code points a byte (U+1F82: three bytes, four code points). */
    int32_t *code = im__calloc(n * 2 + LONGEST_DECOMPOSITION, 2 * sizeof *code);
    if (code == NULL) {
        out->failed = true;
        return;
    }
    int32_t *spare = code + n * 2 + LONGEST_DECOMPOSITION;
    for (size_t at = 0, used; at < n; at += used) {
        size_t count = decompose(code, text + at, n - at, &used);
        order_marks(code, spare, count);
        compose(out, code, count);
        if (at + used < n && used == 0) im__buf_append(out, text + at, used = 1);
    }
    im__free(code);
}

void im__nfc_append(im__buf *out, const char *text, size_t n)
{
    const size_t least = 4096; /* memory for code points stays small on ordinary text */
    for (size_t at = 0, len; at < n && !out->failed; at += len) {
        len = chunk_length(text + at, n - at, least);
        if (im__nfc_is_trivial(text + at, len))
            im__buf_append(out, text + at, len);
        else
            append_chunk(out, text + at, len);
    }
}
