/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/hub_digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

struct hub_digest {
    EVP_MD_CTX *context;
};

hub_digest *hub_digest_begin(const char *etag, uint64_t size)
{
    char head[40];
    bool git = strlen(etag) == 40;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size) + 1; /* with its zero */
    hub_digest *d = OPENSSL_zalloc(sizeof *d);
    if (d == NULL) return NULL;
    d->context = EVP_MD_CTX_new();
    if (d->context != NULL && EVP_DigestInit_ex(d->context, git ? EVP_sha1() : EVP_sha256(), NULL) == 1 &&
        (!git || EVP_DigestUpdate(d->context, head, (size_t)n) == 1))
        return d;
    hub_digest_free(d);
    return NULL;
}

bool hub_digest_add(hub_digest *d, const void *data, size_t n) { return EVP_DigestUpdate(d->context, data, n) == 1; }

bool hub_digest_matches(hub_digest *d, const char *etag)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    if (EVP_DigestFinal_ex(d->context, raw, &n) != 1) return false;
    for (unsigned i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", raw[i]);
    return strcmp(text, etag) == 0;
}

void hub_digest_free(hub_digest *d)
{
    if (d == NULL) return;
    EVP_MD_CTX_free(d->context);
    OPENSSL_free(d);
}
