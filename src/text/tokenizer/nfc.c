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

static unsigned combining_class(int32_t code) { return (unsigned)utf8proc_get_property(code)->combining_class & 0xff; }

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
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, code + count, LONGEST_DECOMPOSITION,
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

static void append_codes(im__buf *out, const int32_t *code, size_t n)
{
    char bytes[4];
    for (size_t i = 0; i < n; i++) im__buf_append(out, bytes, im__utf8_encode((uint32_t)code[i], bytes));
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
    int32_t *code = im__calloc(n * 2 + LONGEST_DECOMPOSITION, 2 * sizeof *code), *spare = code + n * 2 + LONGEST_DECOMPOSITION;
    if (code == NULL) {
        out->failed = true;
        return;
    }
    for (size_t at = 0, used; at < n; at += used) {
        size_t count = decompose(code, text + at, n - at, &used);
        order_marks(code, spare, count);
        utf8proc_ssize_t kept = utf8proc_normalize_utf32(code, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        append_codes(out, code, kept < 0 ? count : (size_t)kept);
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
