/* SPDX-License-Identifier: Apache-2.0
 * Numbers to text and back, the way Python spells them. The C library's functions obey the locale of the process, so its decimal
 * point is swapped for a dot and back. */
#include "text/chat/jinja_text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *decimal_point(void)
{
    const char *point = localeconv()->decimal_point;
    return point == NULL || point[0] == 0 ? "." : point;
}

int im__jfloat_format(char *out, size_t size, char kind, int precision, bool alternate, double f)
{
    char format[8] = "%.*e";
    const char *point = decimal_point();
    size_t n = strlen(point);
    if (alternate) memcpy(format, "%#.*", 4);
    format[strlen(format) - (alternate ? 0 : 1)] = kind;
    int len = snprintf(out, size, format, precision, f);
    char *at = strcmp(point, ".") != 0 ? strstr(out, point) : NULL;
    if (at == NULL || len < 0 || (size_t)len >= size) return len;
    *at = '.';
    memmove(at + 1, at + n, strlen(at + n) + 1);
    return len - (int)n + 1;
}

double im__jfloat_parse(const char *p, size_t n)
{
    char text[4096 + 16];
    const char *point = decimal_point();
    size_t out = 0;
    for (size_t i = 0; i < n && out < 4096; i++) {
        if (p[i] != '.') {
            text[out++] = p[i];
            continue;
        }
        size_t len = strlen(point) < 8 ? strlen(point) : 8;
        memcpy(text + out, point, len);
        out += len;
    }
    text[out] = 0;
    return strtod(text, NULL);
}

/* Digits and exponent of the shortest text that reads back as f. */
static int shortest(double f, char digits[24], int *exponent)
{
    char text[64];
    for (int precision = 0; precision <= 17; precision++) {
        im__jfloat_format(text, sizeof text, 'e', precision, false, f);
        if (im__jfloat_parse(text, strlen(text)) == f) break;
    }
    int n = 0;
    const char *c = text;
    for (; *c != 0 && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    *exponent = *c == 'e' ? atoi(c + 1) : 0;
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

void im__jfloat_text(double f, char out[32])
{
    char digits[24];
    int exponent, at = 0;
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int n = shortest(fabs(f), digits, &exponent);
    if (signbit(f)) out[at++] = '-';
    if (exponent < -4 || exponent >= 16) {
        out[at++] = digits[0];
        if (n > 1) out[at++] = '.';
        for (int i = 1; i < n; i++) out[at++] = digits[i];
        snprintf(out + at, 32 - (size_t)at, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        out[at++] = '0';
        out[at++] = '.';
        for (int i = -1; i > exponent; i--) out[at++] = '0';
    }
    for (int i = 0; i < n || i <= exponent; i++) {
        out[at++] = i < n ? digits[i] : '0';
        if (i == exponent) out[at++] = '.';
    }
    if (out[at - 1] == '.') out[at++] = '0';
    out[at] = 0;
}

/* "007" and "-0" as Python's int() reads them: no leading zeros, no minus before zero. */
static size_t canonical(const char **p, size_t n, bool *negative)
{
    *negative = n > 0 && (*p)[0] == '-';
    size_t skip = n > 0 && ((*p)[0] == '-' || (*p)[0] == '+');
    while (skip + 1 < n && (*p)[skip] == '0') skip++;
    *p += skip;
    return n - skip;
}

bool im__jint_parse(im__jrun *run, const char *p, size_t n, uint8_t origin, im__jvalue *out)
{
    bool negative;
    n = canonical(&p, n, &negative);
    if (n < 20) {
        uint64_t value = 0;
        for (size_t i = 0; i < n; i++) value = value * 10 + (uint64_t)(p[i] - '0');
        if (value <= (uint64_t)INT64_MAX + negative) {
            *out = im__jint(negative ? (int64_t)(0 - value) : (int64_t)value);
            return true;
        }
    }
    im__jtext t = {.run = run};
    if (negative) im__jtext_put(&t, "-", 1, origin);
    im__jtext_put(&t, p, n, origin);
    if (!im__jtext_done(&t, out)) return false;
    out->type = J_BIG;
    return true;
}
