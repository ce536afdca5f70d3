/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

/* Adds " 'sha256-...'" for what stands between each <tag> and </tag>. */
static size_t add_digests(char *out, size_t size, size_t used, const char *open, const char *close)
{
    const char *at = (const char *)page_html, *end = at + page_html_size;
    while ((at = memmem(at, (size_t)(end - at), open, strlen(open))) != NULL) {
        at += strlen(open);
        const char *stop = memmem(at, (size_t)(end - at), close, strlen(close));
        if (stop == NULL) break;
        unsigned char digest[32], text[48];
        SHA256((const unsigned char *)at, (size_t)(stop - at), digest);
        EVP_EncodeBlock(text, digest, sizeof digest);
        int n = snprintf(out + used, size - used, " 'sha256-%s'", (const char *)text);
        if (n < 0 || used + (size_t)n >= size) return size;
        used += (size_t)n;
        at = stop;
    }
    return used;
}

static size_t add_text(char *out, size_t size, size_t used, const char *text)
{
    size_t n = strlen(text);
    if (used + n >= size) return size;
    memcpy(out + used, text, n + 1);
    return used + n;
}

void page_headers(char *out, size_t size)
{
    static const char rest[] =
        "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
        "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nCross-Origin-Opener-Policy: same-origin\r\n";
    size_t used = add_text(out, size, 0, "Content-Security-Policy: default-src 'none'; script-src");
    if (used < size) used = add_digests(out, size, used, "<script>", "</script>");
    if (used < size) used = add_text(out, size, used, "; style-src");
    if (used < size) used = add_digests(out, size, used, "<style>", "</style>");
    if (used < size) used = add_text(out, size, used, rest);
    if (used >= size) snprintf(out, size, "Content-Security-Policy: default-src 'none'\r\n");
}
