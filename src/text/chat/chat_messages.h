/* SPDX-License-Identifier: Apache-2.0
 *
 * From the messages of the chat API to the variables that templates see.
 */
#ifndef IRONMULE_TEXT_CHAT_MESSAGES_H
#define IRONMULE_TEXT_CHAT_MESSAGES_H

#include "text/chat/jinja_json.h"
#include "text/chat/template.h"

typedef enum im__jrole { J_SYSTEM, J_USER, J_ASSISTANT, J_TOOL, IM__JROLES } im__jrole;

/* How this template wants its messages. */
typedef struct im__jchat_style {
    bool parts[IM__JROLES]; /* content may be a list of text parts; otherwise they are joined */
    bool content_none;      /* an assistant message that only calls tools has content none, not "" */
    bool keep_arguments;    /* tool-call arguments given as text stay text */
} im__jchat_style;

/* What continue_last puts behind the last message, to find its end in the rendered text; its bytes are J_FROM_TAG. */
#define IM__JTAG "CONTINUE_HERE "

/* What reading a conversation found out. */
typedef struct im__jchat_facts {
    bool has_text_arguments; /* keep_arguments would make a difference */
    bool continues;          /* the last message is continued: its end carries the tag */
} im__jchat_facts;

/* All variables of a render, as a dict. */
bool im__jchat_variables(im__jrun *run, const im__template_input *input, const im__jchat_style *style, im__jdict **out,
                         im__jchat_facts *facts);

#endif
