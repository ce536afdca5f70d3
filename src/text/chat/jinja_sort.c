/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat/jinja_value.h"

static bool merge(im__jrun *run, const im__jsortable *a, size_t n, size_t m, bool reverse, im__jsortable *out)
{
    const im__jsortable *b = a + n;
    size_t i = 0, j = 0;
    while (i < n && j < m) {
        int order;
        if (!im__jorder(run, &b[j].key, &a[i].key, "<", &order)) return false;
        bool take_b = reverse ? order > 0 : order < 0;
        *out++ = take_b ? b[j++] : a[i++];
    }
    while (i < n) *out++ = a[i++];
    while (j < m) *out++ = b[j++];
    return true;
}

bool im__jsort(im__jrun *run, im__jsortable *items, size_t n, bool reverse)
{
    if (n < 2) return !run->failed;
    im__jsortable *from = items, *to = im__jalloc_array(run, n, sizeof *to);
    if (to == NULL) return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t i = 0; i < n; i += 2 * width) {
            size_t left = n - i < width ? n - i : width;
            size_t right = n - i - left < width ? n - i - left : width;
            if (!merge(run, from + i, left, right, reverse, to + i)) return false;
        }
        im__jsortable *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, n * sizeof *items);
    return true;
}
