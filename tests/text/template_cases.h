/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of template cases, rendered and compared. JSON: "now" (seconds since 1970) and "templates", each with "name", "bos_token",
 * "eos_token", its text in "template" (or that of a name in golden.json, "template_from_golden"; or in the "chat_template" of
 * FOLDER/<"template_in">/tokenizer_config.json: without a folder such templates are left out by name) and "cases": "messages", "tools",
 * "variables" (JSON; as a string: the text of it, "shared": the text that the whole file has under that key), "add_generation_prompt",
 * "continue_last", and what comes out: "rendered", or "error" (a sentence that the message must carry), or "error_kind" (any error of
 * the template); "plain" (optional) lists the texts of the plain spans.
 */
#ifndef IRONMULE_TEST_TEMPLATE_CASES_H
#define IRONMULE_TEST_TEMPLATE_CASES_H

typedef struct template_tally {
    int cases, wrong, left_out;
} template_tally;

/* Prints each difference. False: the file cannot be read. folder: NULL allowed. */
int run_template_cases(const char *path, const char *folder, template_tally *sum);

#endif
