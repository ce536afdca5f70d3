/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/tokenizer_inside.h"

#include <string.h>

/* Markers that end a turn or a text in well-known families. They count only as control tokens: a file may have one as ordinary text. */
static const char *const marker[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<turn|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_turn|>",
    "<|endofturn|>",
    "[|endofturn|]",
    "<|END_OF_TURN_TOKEN|>",
    ("<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "<|eos|>",
};

static void add(im__tokenizer *t, int32_t id)
{
    if (!im__token_in_vocabulary(t, id) || im__tokenizer_is_end(t, id) || t->end_count == IM__END_MAX) return;
    t->end[t->end_count++] = id;
}

static int32_t find_control(const im__tokenizer *t, const char *text)
{
    int32_t id = im__piece_map_find(&t->pieces, text, strlen(text));
    return id >= 0 && im__tokenizer_type(t, id) == IM__TOKEN_CONTROL ? id : -1;
}

void im__token_ends_init(im__tokenizer *t)
{
    add(t, t->source.eos);
    for (size_t i = 0; i < t->source.end_count; i++) add(t, t->source.end[i]);
    for (size_t i = 0; i < sizeof marker / sizeof *marker; i++) add(t, find_control(t, marker[i]));
    /* Where answers have several messages, this one only ends a message. */
    if (find_control(t, "<|return|>") < 0) add(t, find_control(t, "<|end|>"));
}

bool im__tokenizer_is_end(const im__tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->end_count; i++) {
        if (t->end[i] == id) return true;
    }
    return false;
}
