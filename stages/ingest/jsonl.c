/* JSON lines: one document per line. Lines are read one at a time, so a file of any length works.
 *
 * A line is repaired before jansson sees it, because one stray surrogate or bad byte would lose the
 * document, and its values are counted, because a parsed value takes many times its bytes. */
#include "stages/ingest/reader.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/ingest/extract.h"
#include "stages/ingest/names.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 500000, MAX_ID = 512 };

/* ---- repair ---- */

struct repair {
    size_t bad_bytes, surrogates, values;
};

/* The code unit of an escape \uXXXX at s (6 bytes at least), or -1. */
static int escape_unit(const char *s, size_t n)
{
    int v = 0;
    if (n < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, s[i] | 0x20);
        if (s[i] == '\0' || !at)
            return -1;
        v = v * 16 + (int)(at - digits);
    }
    return v;
}

static bool is_high(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

/* Copies a line, with U+FFFD for bad bytes and for surrogates that stand alone. */
static int repair_line(const char *s, size_t n, struct buf *out, struct repair *r,
                       struct err *e)
{
    bool in_string = false;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        uint32_t cp;
        int unit = in_string ? escape_unit(s + i, n - i) : -1;
        size_t len = 1;
        if (is_high(unit) && is_low(escape_unit(s + i + 6, n - i - 6))) {
            len = 12;
            rc = buf_add(out, s + i, len, e);
        } else if (is_high(unit) || is_low(unit)) {
            len = 6;
            r->surrogates++;
            rc = buf_adds(out, "\\ufffd", e);
        } else if (in_string && s[i] == '\\' && i + 1 < n && (unsigned char)s[i + 1] < 0x80) {
            len = 2;
            rc = buf_add(out, s + i, len, e);
        } else if ((unsigned char)s[i] < 0x80) {
            in_string ^= s[i] == '"';
            r->values += !in_string && (s[i] == ',' || s[i] == '[' || s[i] == '{');
            rc = buf_addc(out, s[i], e);
        } else {
            int got = utf8_decode(s + i, n - i, &cp);
            len = (size_t)abs(got);
            r->bad_bytes += got < 0;
            rc = got < 0 ? buf_adds(out, "\xef\xbf\xbd", e) : buf_add(out, s + i, len, e);
        }
        i += len;
    }
    return rc;
}

/* ---- fields ---- */

/* "body.text" reaches into objects; a field whose own name has the dots wins. */
static const json_t *field(const json_t *object, const char *path)
{
    const json_t *whole = json_object_get(object, path);
    if (whole)
        return whole;
    while (object) {
        const char *dot = strchr(path, '.');
        if (!dot)
            return json_object_get(object, path);
        char key[256];
        size_t n = (size_t)(dot - path);
        if (n >= sizeof(key))
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        object = json_object_get(object, key);
        path = dot + 1;
    }
    return NULL;
}

static char *line_label(const struct reader *r, const json_t *object, int64_t line)
{
    char text[MAX_ID];
    const json_t *id = r->cfg->id_field && object ? field(object, r->cfg->id_field) : NULL;
    if (json_is_string(id) && json_string_length(id) > 0)
        return label_new(json_string_value(id), json_string_length(id), NULL);
    if (json_is_integer(id))
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    else
        snprintf(text, sizeof(text), "line %" PRId64, line);
    return mem_strdup(text);
}

static void warn(struct doc *d, const char *text)
{
    size_t n = 0;
    while (d->warnings && d->warnings[n])
        n++;
    char **list = mem_need((n + 2) * sizeof(char *));
    for (size_t i = 0; i < n; i++)
        list[i] = d->warnings[i];
    list[n] = mem_strdup(text);
    free(d->warnings);
    d->warnings = list;
    d->status = DOC_PARTIAL;
}

/* ---- one line ---- */

static json_t *parse(const struct buf *line, const struct repair *rep, struct err *e)
{
    json_error_t why;
    if (rep->values > MAX_VALUES) {
        err_set(e, REACH_DOC, ERR_LIMIT, "more than %d JSON values in one line", MAX_VALUES);
        return NULL;
    }
    json_t *v = json_loadb(line->data, line->len, JSON_ALLOW_NUL, &why);
    if (!v && json_error_code(&why) == json_error_numeric_overflow)
        v = json_loadb(line->data, line->len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!v)
        err_set(e, REACH_DOC, ERR_FORMAT, "not JSON: %s at byte %d", why.text, why.position);
    else if (!json_is_object(v))
        err_set(e, REACH_DOC, ERR_FORMAT, "not a JSON object");
    return v;
}

static int take_text(const struct reader *r, const json_t *object, struct doc *d,
                     const struct repair *rep, struct err *e)
{
    const json_t *text = field(object, r->cfg->text_field);
    if (!json_is_string(text))
        return err_set(e, REACH_DOC, ERR_FORMAT, "%s \"%s\" (ingest.text_field)",
                       text ? "no string in the field" : "no field", r->cfg->text_field);
    struct buf plain;
    struct decode_report report = {0};
    buf_init(&plain, (size_t)r->cfg->max_document);
    const struct charset *utf8 = charset_find("utf-8", 5);
    int rc = charset_decode(utf8, (const unsigned char *)json_string_value(text),
                            json_string_length(text), &r->deadline, &plain, &report, e);
    if (rc == 0)
        rc = extract_plain(plain.data ? plain.data : "", plain.len, r->cfg, &r->deadline, d, e);
    buf_release(&plain);
    if (rc != 0)
        return rc;
    free(d->media_type);
    d->media_type = mem_strdup("application/jsonl");
    const json_t *title = r->cfg->title_field ? field(object, r->cfg->title_field) : NULL;
    if (json_is_string(title))
        d->title = label_new(json_string_value(title), json_string_length(title), NULL);
    if (report.nuls > 0)
        warn(d, "NUL characters were dropped.");
    if (rep->surrogates > 0)
        warn(d, "Surrogates that stand alone were replaced by U+FFFD.");
    if (rep->bad_bytes > 0)
        warn(d, "Byte sequences that are not UTF-8 were replaced by U+FFFD.");
    return 0;
}

static int read_line(struct reader *r, const struct item *it, const struct buf *line,
                     int64_t number, const struct err *already)
{
    struct place bare = {it->place, "", number};
    const struct err *spoilt = reader_at(r, &bare, false);
    if (reader_knows(r))
        return reader_give(r, reader_doc(r, &bare, NULL, 0), NULL);
    struct err e = *already;
    if (spoilt)
        e = *spoilt;
    struct repair rep = {0};
    struct buf fixed;
    json_t *v = NULL;
    buf_init(&fixed, line->len * 3 + 64);
    if (!e.code && repair_line(line->data, line->len, &fixed, &rep, &e) == 0)
        v = parse(&fixed, &rep, &e);
    char *label = line_label(r, v, number);
    struct place place = {it->place, label, number};
    struct doc *d = reader_doc(r, &place, line->data, line->len);
    if (!e.code && take_text(r, v, d, &rep, &e) == 0 && it->s->torn && it->s->end)
        warn(d, "The file is not whole.");
    json_decref(v);
    buf_release(&fixed);
    free(label);
    return reader_give(r, d, &e);
}

/* ---- lines ---- */

struct lines {
    struct buf line;
    struct err over; /* the line is too long: its rest is skipped */
    int64_t number;
};

static void add_to_line(const struct reader *r, struct lines *l, const char *p, size_t n)
{
    if (l->over.code)
        return;
    if (n > l->line.cap - l->line.len)
        err_set(&l->over, REACH_DOC, ERR_LIMIT,
                "a line of more than %llu bytes (ingest.max_document)",
                (unsigned long long)r->cfg->max_document);
    else if (buf_add(&l->line, p, n, &l->over) != 0)
        l->over.reach = REACH_DOC;
}

static bool blank(const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        if (!text_is_space(b->data[i]))
            return false;
    return true;
}

static int end_line(struct reader *r, const struct item *it, struct lines *l)
{
    int rc = 0;
    l->number++;
    if (l->number == 1 && l->line.len >= 3 && memcmp(l->line.data, "\xef\xbb\xbf", 3) == 0)
        memset(l->line.data, ' ', 3);
    deadline_start(&r->deadline, r->cfg->timeout);
    if (l->over.code || !blank(&l->line))
        rc = read_line(r, it, &l->line, l->number, &l->over);
    buf_clear(&l->line);
    err_clear(&l->over);
    return rc;
}

/* The next bytes; *n = 0 at the end. */
static int next_piece(struct reader *r, const struct item *it, int64_t lines, const void **p,
                      size_t *n, struct err *e)
{
    struct place next = {it->place, "", lines + 1};
    const struct err *spoilt = reader_at(r, &next, true);
    if (!spoilt)
        return stream_next(it->s, p, n, e);
    *e = *spoilt;
    return err_wrap(e, "the file stops after %" PRId64 " lines", lines);
}

int reader_jsonl(struct reader *r, const struct item *it)
{
    struct lines l = {0};
    struct err e = {0};
    buf_init(&l.line, (size_t)r->cfg->max_document);
    int rc = 0;
    while (rc == 0 && !reader_cancelled(r)) {
        const void *piece;
        size_t n;
        if (next_piece(r, it, l.number, &piece, &n, &e) != 0) {
            rc = reader_fail(r, it->place, &e);
            break;
        }
        if (n == 0) {
            rc = l.line.len > 0 || l.over.code ? end_line(r, it, &l) : 0;
            break;
        }
        for (const char *p = piece; rc == 0 && n > 0;) {
            const char *nl = memchr(p, '\n', n);
            size_t len = nl ? (size_t)(nl - p) : n;
            add_to_line(r, &l, p, len);
            if (nl)
                rc = end_line(r, it, &l);
            size_t step = len + (nl != NULL);
            p += step;
            n -= step;
        }
    }
    buf_release(&l.line);
    return rc;
}
