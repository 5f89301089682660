/* Property: whatever the text and its blocks, cutting either fails by name or gives pieces that cover the
 * text exactly once, never split a code point, and are never over their room by the count of that very
 * piece; the search makes at most a bounded number of counts per piece. Headings paths are valid UTF-8
 * within their cap.
 *
 * Input: room (1 byte, 1..64), min_tokens (1 byte), counter (1 byte), number of blocks (1 byte), for each
 * block kind, gap and length (3 bytes); the rest is the text, made valid UTF-8 first. */
#include "stages/base/utf8.h"
#include "stages/chunk/cuts.h"
#include "stages/chunk/headings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int room_tokens, counter, calls;

static void check(int ok)
{
    if (!ok)
        abort();
}

/* Counters of different natures; the last one is not monotone, as merges at a border make it. */
static int64_t count(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    calls++;
    int64_t n = 0;
    switch (counter % 4) {
    case 0:
        return (int64_t)len;
    case 1:
        return (int64_t)(len + 7) / 8;
    case 2:
        for (size_t i = 0; i < len; i++)
            n += text[i] == ' ' ? 1 : (unsigned char)text[i] >= 0x80 ? 3 : 0;
        return n + 1;
    default:
        for (size_t i = 0; i < len; i++)
            n += i > 0 && text[i] == text[i - 1] ? 0 : 1;
        return n + (len > 0 && text[len - 1] == ' ' ? 3 : 0);
    }
}

static int64_t room(void *ctx, size_t begin)
{
    (void)ctx;
    return room_tokens + (int64_t)(begin % 3);
}

static size_t make_valid(char *text, const uint8_t *data, size_t size)
{
    char *p = text;
    for (size_t i = 0; i < size;) {
        uint32_t cp;
        int n = utf8_decode((const char *)data + i, size - i, &cp);
        if (n > 0 && cp != 0)
            p += utf8_encode(cp, p);
        i += (size_t)(n < 0 ? -n : n);
    }
    return (size_t)(p - text);
}

static size_t make_blocks(struct block *blocks, const uint8_t *data, size_t n, const char *text,
                          size_t len)
{
    size_t made = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t begin =
            utf8_floor(text, len, at + data[3 * i + 1] < len ? at + data[3 * i + 1] : len);
        size_t end = utf8_floor(text, len,
                                begin + data[3 * i + 2] < len ? begin + data[3 * i + 2] : len);
        if (begin < at || end <= begin)
            continue;
        blocks[made++] = (struct block){.kind = data[3 * i] % 6,
                                        .level = data[3 * i] / 6 % 11,
                                        .begin = begin,
                                        .end = end,
                                        .part = -1};
        at = end;
    }
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size < 4 + 3 * (size_t)data[3])
        return 0;
    room_tokens = 1 + data[0] % 64;
    counter = data[2];
    size_t n_blocks = data[3], head = 4 + 3 * n_blocks;
    char *text = malloc(size - head + 1);
    struct block blocks[255];
    if (!text)
        return 0;
    size_t len = make_valid(text, data + head, size - head);
    n_blocks = make_blocks(blocks, data + 4, n_blocks, text, len);
    struct cut_text t = {.text = text, .len = len, .blocks = blocks, .n_blocks = n_blocks};
    struct cut_rules r = {.count = count, .room = room, .min_tokens = data[1]};
    struct piece_list l = {0};
    struct err e = {0};
    calls = 0;
    if (len > 0 && cuts_make(&t, &r, 0, &l, &e) == 0) {
        size_t at = 0;
        struct doc d = {.text = text, .text_len = len, .blocks = blocks, .n_blocks = n_blocks};
        struct headings rising = {.doc = &d};
        check((size_t)calls <= 60 * (l.n + 1));
        for (size_t i = 0; i < l.n; i++) {
            const struct piece *p = &l.items[i];
            check(p->begin == at && p->end > at && p->end <= len);
            check(utf8_is_boundary(text, len, p->end));
            check(count(NULL, text + at, p->end - at) == p->tokens);
            check(p->tokens <= room(NULL, at));
            struct headings fresh = {.doc = &d};
            char *path = heading_path(&rising, at), *same = heading_path(&fresh, at);
            check((path && same) ? strcmp(path, same) == 0 : path == same);
            check(!path || (strlen(path) <= HEADING_PATH_BYTES &&
                            utf8_valid_prefix(path, strlen(path)) == strlen(path)));
            free(path);
            free(same);
            at = p->end;
        }
        check(at == len);
    } else {
        check(len == 0 || e.code == ERR_LIMIT);
    }
    piece_list_release(&l);
    free(text);
    return 0;
}
