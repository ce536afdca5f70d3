/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies and texts from any bytes: build, encode with control tokens parsed, plain and plain in places, decode as a stream; and cut
 * the text with every pattern. Input: four bytes of options, then the tokens (length byte, type and score byte, bytes), up to 255
 * merges (two token numbers, or raw text), then the text.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_TOKENS 600
#define MOST_MERGES 255

typedef struct reader {
    const uint8_t *at;
    size_t left;
} reader;

static uint8_t next(reader *r)
{
    if (r->left == 0) return 0;
    r->left--;
    return *r->at++;
}

static im__bytes take(reader *r, size_t n)
{
    im__bytes b = {(const char *)r->at, n < r->left ? n : r->left};
    r->at += b.len;
    r->left -= b.len;
    return b;
}

static void must(int promise)
{
    if (!promise) abort();
}

typedef struct vocabulary {
    im__vocab_source source;
    im__bytes token[MOST_TOKENS], merge[MOST_MERGES];
    float score[MOST_TOKENS];
    int32_t type[MOST_TOKENS], end[2];
    char alphabet[256 * 6 + 512]; /* pieces that most vocabularies have */
    char joined[MOST_MERGES * 512];
    size_t joined_len;
} vocabulary;

/* The 256 letters or byte tokens, so that text has something to become. */
static void add_bytes(vocabulary *v, bool byte_level)
{
    char *at = v->alphabet;
    for (unsigned b = 0; b < 256; b++) {
        int n;
        if (byte_level) {
            uint32_t code = b >= 0x21 && b <= 0x7e                  ? b
                            : b < 0x21                              ? 0x100 + b
                            : b >= 0xae || (b >= 0xa1 && b <= 0xac) ? b
                            : b == 0xad                             ? 0x143
                                                                    : 0x121 + (b - 0x7f);
            n = (int)im__utf8_encode(code, at);
        } else {
            static const char digits[] = "0123456789ABCDEF";
            memcpy(at, "<0xHH>", 6);
            at[3] = digits[b >> 4];
            at[4] = digits[b & 15];
            n = 6;
        }
        v->type[v->source.count] = byte_level ? IM__TOKEN_NORMAL : IM__TOKEN_BYTE;
        v->token[v->source.count++] = (im__bytes){at, (size_t)n};
        at += n;
    }
}

static void add_tokens(vocabulary *v, reader *r, size_t count)
{
    for (size_t i = 0; i < count && v->source.count < MOST_TOKENS; i++) {
        uint8_t len = next(r), kind = next(r);
        int8_t score = (int8_t)next(r);
        size_t id = v->source.count++;
        v->type[id] = kind & 7;
        v->score[id] = kind & 8 ? (float)score / 0.0f : (float)score;
        v->token[id] = take(r, len & 0x80 ? (size_t)(len & 0x7f) * 17 : len & 15);
    }
}

static void add_merges(vocabulary *v, reader *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t kind = next(r);
        if (kind & 1) {
            v->merge[v->source.merge_count++] = take(r, kind >> 1);
            continue;
        }
        im__bytes left = v->token[next(r) % v->source.count], right = v->token[(next(r) | next(r) << 8) % v->source.count];
        if (left.len + right.len + 1 > sizeof v->joined - v->joined_len) return;
        char *at = v->joined + v->joined_len;
        memcpy(at, left.ptr, left.len);
        at[left.len] = ' ';
        memcpy(at + left.len + 1, right.ptr, right.len);
        v->merge[v->source.merge_count++] = (im__bytes){at, left.len + right.len + 1};
        v->joined_len += left.len + right.len + 1;
    }
}

static void read_vocabulary(vocabulary *v, reader *r)
{
    size_t names = 0;
    const char *const *name = im__tokenizer_pre_names();
    while (name[names] != NULL) names++;
    uint8_t flags = next(r), pre = next(r), tokens = next(r), merges = next(r);
    bool byte_level = flags & 1;
    memset(v, 0, sizeof *v);
    v->source.model = byte_level ? (im__bytes){"gpt2", 4} : (im__bytes){"llama", 5};
    v->source.pre = (im__bytes){name[pre % names], strlen(name[pre % names])};
    if (flags & 2) add_bytes(v, byte_level);
    add_tokens(v, r, tokens);
    if (v->source.count > 0) add_merges(v, r, merges);
    v->source.token = v->token;
    v->source.merge = v->merge;
    v->source.score = flags & 4 ? NULL : v->score;
    v->source.type = flags & 8 ? NULL : v->type;
    v->source.bos = (int8_t)next(r);
    v->source.eos = (int8_t)next(r);
    v->source.unk = (int8_t)next(r);
    v->source.pad = -1;
    v->end[0] = (int8_t)next(r);
    v->source.end = v->end;
    v->source.end_count = flags >> 4 & 1;
    v->source.add_bos = (flags >> 5 & 1) ? 1 : -1;
    v->source.add_eos = 1;
    v->source.add_space_prefix = (flags >> 6) % 3 - 1;
}

static void decode(const im__tokenizer *t, const im__ids *ids, bool show_special)
{
    im__decoder d;
    im__buf out = {0}, piece = {0};
    im__decoder_init(&d, t, show_special);
    for (size_t i = 0; i < ids->len; i++) {
        must(ids->data[i] >= 0 && (size_t)ids->data[i] < im__tokenizer_count(t));
        size_t before = out.len;
        im__decoder_feed(&d, ids->data[i], &out);
        must(out.len == before || im__utf8_valid(out.data + before, out.len - before));
        im__tokenizer_piece(t, ids->data[i], show_special, &piece);
        im__tokenizer_is_end(t, ids->data[i]);
    }
    im__decoder_finish(&d, &out);
    im__buf_free(&out);
    im__buf_free(&piece);
}

static void encode(const im__tokenizer *t, int32_t unk, im__bytes text, const im__encode_options *options)
{
    im__ids ids = {0};
    im_error err;
    must(im__tokenizer_encode(t, text.ptr, text.len, options, &ids, &err) == IM_OK);
    if (!options->parse_special) {
        for (size_t i = options->add_bos && im__tokenizer_adds_bos(t); i + options->add_eos < ids.len; i++)
            must(im__tokenizer_type(t, ids.data[i]) != IM__TOKEN_CONTROL || ids.data[i] == unk ||
                 ids.data[i] == im__tokenizer_eos(t));
    }
    decode(t, &ids, false);
    decode(t, &ids, true);
    im__ids_free(&ids);
}

static bool count_bytes(void *context, const char *piece, size_t n)
{
    (void)piece;
    must(n > 0);
    *(size_t *)context += n;
    return true;
}

static void cut_and_normalise(im__bytes text)
{
    for (const char *const *name = im__tokenizer_pre_names(); *name != NULL; name++) {
        size_t bytes = 0;
        must(im__pre_split(im__pre_find(*name, strlen(*name)), text.ptr, text.len, count_bytes, &bytes));
        must(bytes == text.len);
    }
    im__buf once = {0}, twice = {0};
    im__nfc_append(&once, text.ptr, text.len);
    im__nfc_append(&twice, once.data == NULL ? "" : once.data, once.len);
    must(once.len == twice.len && (once.len == 0 || memcmp(once.data, twice.data, once.len) == 0));
    im__buf_free(&once);
    im__buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static vocabulary v;
    reader r = {data, size};
    im__tokenizer *t = NULL;
    im_error err = {IM_OK, ""};
    read_vocabulary(&v, &r);
    im__span plain[2];
    for (int i = 0; i < 2; i++) {
        plain[i].begin = (i > 0 ? plain[0].end : 0) + next(&r);
        plain[i].end = plain[i].begin + next(&r);
    }
    const im__bytes text = take(&r, r.left);
    im_status status = im__tokenizer_new(&t, &v.source, &err);
    must(status == IM_OK || err.message[0] != 0);
    if (status == IM_OK) {
        encode(t, v.source.unk, text, &(im__encode_options){.parse_special = true, .add_bos = true, .add_eos = true});
        encode(t, v.source.unk, text, &(im__encode_options){.parse_special = true, .plain = plain, .plain_count = 2});
        encode(t, v.source.unk, text, &(im__encode_options){.add_eos = true});
    }
    im__tokenizer_free(t);
    if (text.len < 64) cut_and_normalise(text);
    return 0;
}
