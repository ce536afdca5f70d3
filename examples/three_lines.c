/* SPDX-License-Identifier: Apache-2.0
 *
 * From a model file to an answer in three calls: three_lines MODEL.gguf "Why is the sky blue?"
 */
#include <ironmule/ironmule.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    im_engine *engine = NULL;
    char *text = NULL;
    im_error error;
    if (argc != 3) return fprintf(stderr, "usage: three_lines MODEL QUESTION\n"), 2;
    bool good = im_engine_open(&engine, argv[1], NULL, &error) == IM_OK && im_answer(engine, argv[2], 64, &text, &error) == IM_OK;
    fprintf(good ? stdout : stderr, "%s\n", good ? text : error.message);
    im_engine_close(engine);
    im_free(text);
    return good ? 0 : 1;
}
