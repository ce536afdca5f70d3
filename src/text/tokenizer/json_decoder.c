/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of a tokenizer.json: letters of the byte alphabet, or marks for spaces with byte tokens.
 */
#include "text/tokenizer/json_build.h"

#include <string.h>

static im_status read_replace(im__json_build *b, im__json v)
{
    im__json pattern, content, string;
    const im__json_field field[] = {{"type", NULL}, {"pattern", &pattern}, {"content", &content}, {0}};
    const im__json_field kind[] = {{"String", &string}, {0}};
    IM__TRY(im__json_fields(b, v, "the Replace of the decoder", field));
    IM__TRY(im__json_fields(b, pattern, "the pattern of the decoder", kind));
    IM__TRY(im__json_bytes(b, string, "the pattern of the decoder", &b->t->space));
    if (im__json_is(content, " ") && b->t->space.len > 0) return IM_OK;
    return im__json_unknown(b, "a Replace of the decoder by", content);
}

/* One space at the beginning of a text goes away. */
static im_status read_strip(im__json_build *b, im__json v)
{
    im__json content, start, stop;
    uint64_t from = 0, to = 0;
    const im__json_field field[] = {{"type", NULL}, {"content", &content}, {"start", &start}, {"stop", &stop}, {0}};
    IM__TRY(im__json_fields(b, v, "the Strip of the decoder", field));
    if (!im__json_is(content, " ") || !im__json_u64(start, &from) || !im__json_u64(stop, &to) || from > 1 || to != 0)
        return im__json_unknown(b, "the Strip of the decoder", v);
    b->t->space_prefix = from == 1;
    return IM_OK;
}

static im_status read_metaspace(im__json_build *b, im__json v)
{
    im__json replacement, scheme, prefix;
    bool add;
    const im__json_field field[] = {{"type", NULL},
                                    {"replacement", &replacement},
                                    {"prepend_scheme", &scheme},
                                    {"add_prefix_space", &prefix},
                                    {"split", NULL},
                                    {"str_rep", NULL},
                                    {0}};
    IM__TRY(im__json_fields(b, v, "the Metaspace of the decoder", field));
    IM__TRY(im__json_flag(b, prefix, "add_prefix_space", true, &add));
    IM__TRY(im__json_bytes(b, replacement, "the replacement of Metaspace", &b->t->space));
    if (b->t->space.len == 0) return im__json_unknown(b, "the replacement of Metaspace", replacement);
    b->r->first_marks_vanish = !im__json_is(scheme, "never") && (add || !im__json_absent(scheme));
    return IM_OK;
}

/* Steps of a decoder of marks, in the only order that they are known in. */
typedef enum step { START, REPLACE, BYTES, FUSE, STRIP } step;

static im_status read_step(im__json_build *b, im__json v, im__json type, step *done)
{
    step which = im__json_is(type, "Replace")        ? REPLACE
                 : im__json_is(type, "ByteFallback") ? BYTES
                 : im__json_is(type, "Fuse")         ? FUSE
                 : im__json_is(type, "Strip")        ? STRIP
                                                     : START;
    if (which == START) return im__json_unknown(b, "the decoder", type);
    if (which <= *done || (which == STRIP && *done != FUSE)) return im__json_unknown(b, "in this order, the decoder", type);
    *done = which;
    if (which == REPLACE) return read_replace(b, v);
    if (which == STRIP) return read_strip(b, v);
    if (which == BYTES) b->decodes_bytes = true;
    return IM_OK;
}

static im_status read_sequence(im__json_build *b, im__json v)
{
    im__json list, type;
    step done = START;
    const im__json_field field[] = {{"type", NULL}, {"decoders", &list}, {0}};
    IM__TRY(im__json_fields(b, v, "the decoder", field));
    for (im__json_items items = im__json_items_of(list); im__json_next(&items, NULL, &v);) {
        IM__TRY(im__json_type(b, v, "the decoder", &type));
        IM__TRY(read_step(b, v, type, &done));
    }
    if (b->t->byte_level || done < REPLACE || b->t->space.len == 0)
        return im__json_unknown(b, "for this pre-tokeniser, the decoder", list);
    return IM_OK;
}

/* Byte tokens count as such only where the decoder turns them into bytes. */
static void mark_bytes(im__json_build *b)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        int32_t id = im__json_byte_token(b, byte);
        if (id >= 0 && b->r->type[id] != IM__TOKEN_CONTROL) b->r->type[id] = IM__TOKEN_BYTE;
    }
}

im_status im__json_read_decoder(im__json_build *b)
{
    im__json type;
    if (im__json_absent(b->decoder)) return im__fail(b->err, IM_ERR_UNSUPPORTED, "%s: there is no decoder", b->name);
    IM__TRY(im__json_type(b, b->decoder, "the decoder", &type));
    bool letters = im__json_is(type, "ByteLevel");
    if (letters && b->t->byte_level) return IM_OK;
    if (im__json_is(type, "Sequence"))
        IM__TRY(read_sequence(b, b->decoder));
    else if (im__json_is(type, "Metaspace") && !b->t->byte_level)
        IM__TRY(read_metaspace(b, b->decoder));
    else
        return im__json_unknown(b, "for this pre-tokeniser, the decoder", type);
    if (b->decodes_bytes) mark_bytes(b);
    return IM_OK;
}
