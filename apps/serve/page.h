/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat page: apps/serve/page/index.html, part of the program since the build.
 */
#ifndef IRONMULE_SERVE_PAGE_H
#define IRONMULE_SERVE_PAGE_H

#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_size;

/* Headers of the page: a content security policy that admits its own inline scripts and styles by their digests, and nothing from elsewhere. Each ends in CR LF.
 * `size` is of out; a policy that does not fit is replaced by one that admits no script at all. */
void page_headers(char *out, size_t size);

#endif
