#include "pipeline/limit_values.h"

#include "stages/base/opt.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool all_digits(const char *s)
{
    return s[0] && strspn(s, "0123456789") == strlen(s);
}

/* "6:00" or "06:00" */
static bool clock_time(const char *s, int *hour, int *minute)
{
    size_t n = strspn(s, "0123456789");
    if (n < 1 || n > 2 || s[n] != ':' || !all_digits(s + n + 1) || strlen(s + n + 1) != 2)
        return false;
    *hour = atoi(s);
    *minute = atoi(s + n + 1);
    return *hour < 24 && *minute < 60;
}

/* mktime() finds the day after the last of a month, and the hour of a day that has 23 or 25. */
static int next_time(int hour, int minute, time_t now, time_t *at)
{
    struct tm day;
    if (!localtime_r(&now, &day))
        return -1;
    for (int i = 0; i < 2; i++) {
        struct tm tm = day;
        tm.tm_mday += i;
        tm.tm_hour = hour;
        tm.tm_min = minute;
        tm.tm_sec = 0;
        tm.tm_isdst = -1;
        *at = mktime(&tm);
        if (*at > now)
            return 0;
    }
    return -1;
}

int limit_deadline(const char *text, time_t now, time_t *at, struct err *e)
{
    static const struct opt duration = {
        .name = "deadline", .type = OPT_SECONDS, .max = 366 * 86400};
    enum {
        YEAR_2001 = 1000000000
    }; /* a smaller number is no moment of Unix time that anyone means */
    struct err ignored = {0};
    double seconds = 0;
    int hour, minute;
    if (clock_time(text, &hour, &minute) && next_time(hour, minute, now, at) == 0)
        return 0;
    if (all_digits(text)) {
        errno = 0;
        long long unix_time = strtoll(text, NULL, 10);
        if (errno == 0 && unix_time >= YEAR_2001 && unix_time < INT64_C(1) << 40) {
            *at = (time_t)unix_time;
            return 0;
        }
    } else if (opt_set(&duration, &seconds, text, "", &ignored) == 0 && seconds > 0) {
        *at = now + (time_t)ceil(seconds);
        return 0;
    }
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "\"%.40s\" is no time of day such as 06:00, no duration such as 8h, and no "
                   "Unix time in "
                   "seconds",
                   text);
}

int limit_failures(const char *text, struct limit_failures *out, struct err *e)
{
    *out = (struct limit_failures){INT64_MAX, 1};
    if (!text)
        return 0;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    bool number =
        errno == 0 && strspn(text, "0123456789.") == (size_t)(end - text) && end > text;
    if (number && strcmp(end, "%") == 0 && v < 100) {
        out->share = v / 100;
        return 0;
    }
    if (number && !*end && all_digits(text) && v < 1e15) {
        out->count = (int64_t)v;
        return 0;
    }
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "\"%.40s\" is no number of documents such as 20 and no share such as 5%%",
                   text);
}

bool limit_failures_passed(const struct limit_failures *l, int64_t failed, int64_t done)
{
    return failed > l->count || (l->share < 1 && done >= LIMIT_SHARE_FROM &&
                                 (double)failed > l->share * (double)done);
}
