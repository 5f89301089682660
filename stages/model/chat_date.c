#include "stages/model/chat_date.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

static bool leap(int y)
{
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

static int month_days(int y, int m)
{
    static const int n[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return n[m - 1] + (m == 2 && leap(y));
}

static int month_number(const char *name)
{
    for (int m = 1; m <= 12; m++)
        if (strcasecmp(name, months[m - 1]) == 0 ||
            (strlen(name) == 3 && strncasecmp(name, months[m - 1], 3) == 0))
            return m;
    return 0;
}

int chat_date_parse(struct chat_date *d, const char *text, struct err *e)
{
    char name[12], rest;
    bool ok = sscanf(text, "%4d-%2d-%2d%c", &d->year, &d->month, &d->day, &rest) == 3;
    if (!ok && sscanf(text, "%2d %11[A-Za-z] %4d%c", &d->day, name, &d->year, &rest) == 3) {
        d->month = month_number(name);
        ok = d->month > 0;
    }
    if (!ok || d->year < 1 || d->month < 1 || d->month > 12 || d->day < 1 ||
        d->day > month_days(d->year, d->month))
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "prompt.date: \"%.60s\" is not a date such as 2024-07-26 or 26 Jul 2024",
                       text);
    return 0;
}

static int day_of_year(const struct chat_date *d)
{
    int n = d->day;
    for (int m = 1; m < d->month; m++)
        n += month_days(d->year, m);
    return n;
}

static int week_day(const struct chat_date *d)
{
    int y = d->year - 1; /* 1 January of year 1 was a Monday */
    return (y * 365 + y / 4 - y / 100 + y / 400 + day_of_year(d)) % 7;
}

static int add_field(const struct chat_date *d, char c, bool bare, struct buf *out,
                     struct err *e)
{
    int value = -1;
    switch (c) {
    case 'd':
        value = d->day;
        break;
    case 'm':
        value = d->month;
        break;
    case 'y':
        value = d->year % 100;
        break;
    case 'H':
    case 'M':
    case 'S':
        value = 0;
        break;
    case 'I':
        value = 12;
        break;
    case 'j':
        return bare ? buf_addf(out, e, "%d", day_of_year(d))
                    : buf_addf(out, e, "%03d", day_of_year(d));
    case 'Y':
        return buf_addf(out, e, "%04d", d->year);
    case 'F':
        return buf_addf(out, e, "%04d-%02d-%02d", d->year, d->month, d->day);
    case 'B':
        return buf_adds(out, months[d->month - 1], e);
    case 'b':
        return buf_add(out, months[d->month - 1], 3, e);
    case 'A':
        return buf_adds(out, days[week_day(d)], e);
    case 'a':
        return buf_add(out, days[week_day(d)], 3, e);
    case 'p':
        return buf_adds(out, "AM", e);
    case '%':
        return buf_addc(out, '%', e);
    default:
        return err_set(e, REACH_JOB, ERR_UNSUPPORTED, "strftime_now: %%%c is not known here",
                       c);
    }
    return bare ? buf_addf(out, e, "%d", value) : buf_addf(out, e, "%02d", value);
}

int chat_date_format(const struct chat_date *d, const char *fmt, size_t n, struct buf *out,
                     struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (fmt[i] != '%' || i + 1 == n) {
            rc = buf_addc(out, fmt[i], e);
            continue;
        }
        i++;
        bool bare = fmt[i] == '-' && i + 1 < n;
        i += bare;
        rc = add_field(d, fmt[i], bare, out, e);
    }
    return rc;
}
