/* SPDX-License-Identifier: Apache-2.0
 * strftime in English, whatever the locale of the process. */
#include "text/chat/jinja_format.h"

#include <time.h>

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

/* Week and year of ISO 8601. */
static int iso_week(const struct tm *tm, int *year)
{
    int monday_based = (tm->tm_wday + 6) % 7;
    int week = (tm->tm_yday - monday_based + 10) / 7;
    *year = tm->tm_year + 1900;
    int before = *year - 1;
    if (week < 1) {
        int jan1 = (tm->tm_wday - tm->tm_yday % 7 + 7 + 6) % 7; /* 0 is Monday */
        bool leap = (before % 4 == 0 && before % 100 != 0) || before % 400 == 0;
        *year = before;
        return jan1 == 4 || (jan1 == 5 && leap) ? 53 : 52;
    }
    bool leap = (*year % 4 == 0 && *year % 100 != 0) || *year % 400 == 0;
    if (week == 53 && tm->tm_yday - monday_based + 3 >= 365 + leap) {
        *year += 1;
        return 1;
    }
    return week;
}

static void put_number(im__jtext *t, int value, int width, char pad)
{
    if (pad == '-')
        im__jtext_printf(t, "%d", value);
    else
        im__jtext_printf(t, pad == '_' ? "%*d" : "%0*d", width, value);
}

static const char *composite(char c)
{
    switch (c) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'T':
    case 'X': return "%H:%M:%S";
    case 'r': return "%I:%M:%S %p";
    default: return NULL;
    }
}

static bool put_word(im__jtext *t, const struct tm *tm, char c)
{
    const char *day = days[tm->tm_wday], *month = months[tm->tm_mon];
    switch (c) {
    case 'A': im__jtext_puts(t, day); return true;
    case 'a': im__jtext_put(t, day, 3, J_FROM_TEMPLATE); return true;
    case 'B': im__jtext_puts(t, month); return true;
    case 'b':
    case 'h': im__jtext_put(t, month, 3, J_FROM_TEMPLATE); return true;
    case 'p': im__jtext_puts(t, tm->tm_hour < 12 ? "AM" : "PM"); return true;
    case 'P': im__jtext_puts(t, tm->tm_hour < 12 ? "am" : "pm"); return true;
    case 'n': im__jtext_puts(t, "\n"); return true;
    case 't': im__jtext_puts(t, "\t"); return true;
    case 'f': im__jtext_puts(t, "000000"); return true;
    case '%': im__jtext_puts(t, "%"); return true;
    case 'z':
    case 'Z': return true; /* as for a time that knows no zone */
    default: return false;
    }
}

static bool put_field(im__jtext *t, const struct tm *tm, char c, char pad)
{
    int year, week = iso_week(tm, &year), hour = tm->tm_hour % 12 == 0 ? 12 : tm->tm_hour % 12;
    switch (c) {
    case 'Y': put_number(t, tm->tm_year + 1900, 1, pad); return true;
    case 'G': put_number(t, year, 1, pad); return true;
    case 'g': put_number(t, year % 100, 2, pad); return true;
    case 'C': put_number(t, (tm->tm_year + 1900) / 100, 2, pad); return true;
    case 'y': put_number(t, (tm->tm_year + 1900) % 100, 2, pad); return true;
    case 'm': put_number(t, tm->tm_mon + 1, 2, pad); return true;
    case 'd': put_number(t, tm->tm_mday, 2, pad); return true;
    case 'e': put_number(t, tm->tm_mday, 2, pad == 0 ? '_' : pad); return true;
    case 'j': put_number(t, tm->tm_yday + 1, 3, pad); return true;
    case 'H': put_number(t, tm->tm_hour, 2, pad); return true;
    case 'k': put_number(t, tm->tm_hour, 2, pad == 0 ? '_' : pad); return true;
    case 'I': put_number(t, hour, 2, pad); return true;
    case 'l': put_number(t, hour, 2, pad == 0 ? '_' : pad); return true;
    case 'M': put_number(t, tm->tm_min, 2, pad); return true;
    case 'S': put_number(t, tm->tm_sec, 2, pad); return true;
    case 'u': put_number(t, tm->tm_wday == 0 ? 7 : tm->tm_wday, 1, pad); return true;
    case 'w': put_number(t, tm->tm_wday, 1, pad); return true;
    case 'U': put_number(t, (tm->tm_yday + 7 - tm->tm_wday) / 7, 2, pad); return true;
    case 'W': put_number(t, (tm->tm_yday + 7 - (tm->tm_wday + 6) % 7) / 7, 2, pad); return true;
    case 'V': put_number(t, week, 2, pad); return true;
    default: return put_word(t, tm, c);
    }
}

static bool put_time(im__jtext *t, const im__jstr *format, const struct tm *tm)
{
    for (size_t i = 0; i < format->n; i++) {
        if (format->p[i] != '%' || i + 1 >= format->n) {
            im__jtext_slice(t, format, i, i + 1);
            continue;
        }
        char c = format->p[++i], pad = 0;
        if ((c == '-' || c == '_' || c == '0') && i + 1 < format->n) {
            pad = c;
            c = format->p[++i];
        }
        const char *parts = composite(c);
        im__jstr inner = {.p = parts, .n = parts != NULL ? strlen(parts) : 0};
        bool ok = parts != NULL ? put_time(t, &inner, tm) : put_field(t, tm, c, pad);
        if (!ok) return im__jfail(t->run, "strftime_now: the format %%%c is not supported", c);
    }
    return !t->run->failed;
}

bool im__jformat_time(im__jrun *run, const im__jstr *format, int64_t now, im__jvalue *out)
{
    struct tm tm;
    time_t seconds = (time_t)now;
    im__jtext t = {.run = run};
    if (gmtime_r(&seconds, &tm) == NULL) return im__jfail(run, "strftime_now: the time is out of range");
    return put_time(&t, format, &tm) && im__jtext_done(&t, out);
}
