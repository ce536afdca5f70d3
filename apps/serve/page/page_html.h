/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat page, one self-contained document, as page.cmake joins it.
 */
#ifndef IRONMULE_SERVE_PAGE_HTML_H
#define IRONMULE_SERVE_PAGE_HTML_H

#include <stddef.h>

extern const unsigned char page_html[]; /* [page_html_size] UTF-8, not terminated */
extern const size_t page_html_size;

/* The value of the Content-Security-Policy header that the page must be served with: its one script and its one style sheet, requests to
 * this server, nothing else. */
extern const char page_policy[];

#endif
