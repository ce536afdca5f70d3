/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to token ids and back, for the two families that GGUF files carry:
 *
 *   "llama"  SentencePiece-style BPE by scores (Llama 2, Gemma), byte fallback
 *   "gpt2"   byte-level BPE by merge ranks, with a named pre-tokeniser pattern (Llama 3, Qwen, SmolLM, GPT-2 ...)
 *
 * A tokenizer may also come from a tokenizer.json (tokenizer_json.h): characters or bytes by merge ranks, as that file says.
 *
 * The result equals Hugging Face's tokenizers library on the same vocabulary. A tokenizer is immutable after it was made and may be
 * used from any number of threads. Time is linear in the text (n log n at worst); recursion depth does not depend on it.
 */
#ifndef IRONMULE_TEXT_TOKENIZER_H
#define IRONMULE_TEXT_TOKENIZER_H

#include "base/error.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* A run of bytes that somebody else owns (usually the mapped model file). */
typedef struct im__bytes {
    const char *ptr;
    size_t len;
} im__bytes;

/* tokenizer.ggml.token_type */
typedef enum im__token_type {
    IM__TOKEN_NORMAL = 1,
    IM__TOKEN_UNKNOWN = 2,
    IM__TOKEN_CONTROL = 3,      /* matched in text only where special parsing is on; renders as nothing */
    IM__TOKEN_USER_DEFINED = 4, /* cut out of the text before everything else, always */
    IM__TOKEN_UNUSED = 5,
    IM__TOKEN_BYTE = 6
} im__token_type;

/* What a model file says about its vocabulary, untrusted. Arrays and bytes are borrowed and must outlive the tokenizer. */
typedef struct im__vocab_source {
    im__bytes model;        /* tokenizer.ggml.model: "llama", "gpt2" */
    im__bytes pre;          /* tokenizer.ggml.pre; empty when absent */
    bool force_pre;         /* `pre` was forced by the user: an unknown name in the file does not matter */
    size_t count;           /* tokens in the vocabulary; ids are 0 .. count - 1 */
    const im__bytes *token; /* [count] pieces */
    const float *score;     /* [count], or NULL */
    const int32_t *type;    /* [count] im__token_type, or NULL: all normal */
    size_t merge_count;
    const im__bytes *merge;     /* [merge_count] "left right", rank = index; gpt2 only */
    int32_t bos, eos, unk, pad; /* -1 when absent */
    const int32_t *end;         /* [end_count] further ids that end a turn (eot and eom keys, generation config); NULL allowed */
    size_t end_count;
    int add_bos, add_eos; /* 1, 0, or -1 when the file does not say */
    int add_space_prefix; /* 1, 0, or -1 when the file does not say; llama only */
} im__vocab_source;

typedef struct im__tokenizer im__tokenizer;

/* Validates the source and builds the tables. On success *out is owned by the caller (im__tokenizer_free). Errors: IM_ERR_FORMAT for a
 * vocabulary that cannot be (ids out of range, duplicate byte tokens, merges of unknown pieces ...), IM_ERR_UNSUPPORTED for an
 * unknown model or pre-tokeniser name (the message lists the known ones and names --pre as the switch to force one), IM_ERR_MEMORY. */
im_status im__tokenizer_new(im__tokenizer **out, const im__vocab_source *source, im_error *err);
void im__tokenizer_free(im__tokenizer *t); /* NULL allowed */

/* A range of bytes [begin, end) of a text inside which control tokens are not looked for (text typed by a user). */
typedef struct im__span {
    size_t begin, end;
} im__span;

typedef struct im__encode_options {
    bool parse_special;    /* control-token strings in the text become those tokens (Hugging Face's default) */
    bool add_bos, add_eos; /* put the token in front / behind when the vocabulary wants it (im__tokenizer_adds_bos) */
    const im__span *plain; /* [plain_count] sorted, disjoint; a control token that touches one is not matched */
    size_t plain_count;
} im__encode_options;

/* A growing list of ids; start with {0}, free with im__ids_free. */
typedef struct im__ids {
    int32_t *data;
    size_t len, cap;
} im__ids;
void im__ids_free(im__ids *ids);

/* Appends the ids of text[0..n) to `out`. The text may hold any bytes, also invalid UTF-8 and zeros. On failure `out` is as before. */
im_status im__tokenizer_encode(const im__tokenizer *t, const char *text, size_t n, const im__encode_options *options, im__ids *out,
                               im_error *err);

/* Appends the raw bytes that token `id` stands for (may be half a character); control tokens give nothing unless show_special.
 * An id outside the vocabulary gives nothing. */
void im__tokenizer_piece(const im__tokenizer *t, int32_t id, bool show_special, im__buf *out);

/* The piece as stored in the file, for display ("Ġthe", "▁the", "<0x0A>"). Borrowed. {NULL, 0} outside the vocabulary. */
im__bytes im__tokenizer_raw(const im__tokenizer *t, int32_t id);

/* Streaming decoder: feeds ids one at a time and appends to `out` only whole characters, at once when they are whole, replacing bytes
 * that can no longer become one by U+FFFD: one for each broken beginning ("gpt2"), one for each byte token ("llama"), as Hugging Face
 * decodes the whole list. `finish` flushes what is left; feeding may go on after it. Joined output equals the one-shot decode. It differs
 * from Hugging Face in one case: for "llama" byte tokens in a row that hold a whole character and then a broken one, where Hugging Face gives
 * up the whole character as well. Nothing is allocated but what `out` needs. */
typedef struct im__decoder {
    const im__tokenizer *t;
    char held[8]; /* bytes of an unfinished character */
    size_t held_len;
    bool started; /* a leading space that the family strips has been dealt with */
    bool broken;  /* within byte tokens that are not UTF-8 together */
    bool show_special;
} im__decoder;
void im__decoder_init(im__decoder *d, const im__tokenizer *t, bool show_special);
void im__decoder_feed(im__decoder *d, int32_t id, im__buf *out);
void im__decoder_finish(im__decoder *d, im__buf *out);

size_t im__tokenizer_count(const im__tokenizer *t);
int32_t im__tokenizer_bos(const im__tokenizer *t); /* -1 when there is none */
int32_t im__tokenizer_eos(const im__tokenizer *t);
bool im__tokenizer_adds_bos(const im__tokenizer *t);
im__token_type im__tokenizer_type(const im__tokenizer *t, int32_t id);
int32_t im__tokenizer_find(const im__tokenizer *t, const char *piece, size_t n); /* id of the exact stored piece, -1 when absent */

/* Ids that end a turn: eos, eot and eom keys as given plus well-known end-of-turn markers found by name among the control tokens
 * ("<|im_end|>", "<end_of_turn>", "<|eot_id|>" ...). Never a user-defined token that only looks like one. */
bool im__tokenizer_is_end(const im__tokenizer *t, int32_t id);

/* Names that `pre` may have, for help texts; NULL-terminated. */
const char *const *im__tokenizer_pre_names(void);

#endif
