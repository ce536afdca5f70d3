/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json and tokenizer_config.json from any bytes; a tokenizer that comes out encodes and decodes the text behind them. Input: tokenizer.json, a zero
 * byte, tokenizer_config.json, a zero byte, the text; both zeros may be missing.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int promise)
{
    if (!promise) abort();
}

/* The bytes up to the next zero; takes them and it off `rest`. */
static im__bytes part(im__bytes *rest)
{
    const char *zero = rest->len == 0 ? NULL : memchr(rest->ptr, 0, rest->len);
    im__bytes out = {rest->ptr, zero == NULL ? rest->len : (size_t)(zero - rest->ptr)};
    size_t taken = out.len + (zero != NULL);
    *rest = (im__bytes){rest->ptr + taken, rest->len - taken};
    return out;
}

static void decode(const im__tokenizer *t, const im__ids *ids, bool show_special)
{
    im__decoder d;
    im__buf out = {0};
    im__decoder_init(&d, t, show_special);
    for (size_t i = 0; i < ids->len; i++) {
        size_t before = out.len;
        must(ids->data[i] >= 0 && (size_t)ids->data[i] < im__tokenizer_count(t));
        im__decoder_feed(&d, ids->data[i], &out);
        must(out.len == before || im__utf8_valid(out.data + before, out.len - before));
    }
    im__decoder_finish(&d, &out);
    im__buf_free(&out);
}

static void encode(const im__tokenizer *t, im__bytes text, const im__encode_options *options)
{
    im__ids ids = {0};
    im_error err;
    im_status status = im__tokenizer_encode(t, text.ptr, text.len, options, &ids, &err);
    must(status == IM_OK || status == IM_ERR_MEMORY); /* replacements can make a text too long */
    decode(t, &ids, false);
    decode(t, &ids, true);
    im__ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t end[] = {0};
    const im__span plain[] = {{1, 4}, {9, 30}};
    im__bytes rest = {(const char *)data, size};
    im__tokenizer_json_texts texts = {.name = "t"};
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    texts.tokenizer = part(&rest);
    texts.config = part(&rest);
    im_status status = im__tokenizer_json_parse(&t, &texts, &(im__tokenizer_json_options){end, 1, size % 3 == 0 ? 400 : 0}, &err);
    must((status == IM_OK) == (t != NULL) && (status == IM_OK || err.message[0] != 0));
    if (status == IM_OK) {
        encode(t, rest, &(im__encode_options){.parse_special = true, .add_bos = true, .add_eos = true});
        encode(t, rest, &(im__encode_options){.parse_special = true, .plain = plain, .plain_count = 2});
        encode(t, rest, &(im__encode_options){0});
    }
    im__tokenizer_free(t);
    return 0;
}
