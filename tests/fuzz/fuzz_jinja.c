/* Any bytes as a chat template, with a fixed conversation.
 *
 * Property: compiling and rendering end, within their limits, in text or in an error that has a message; every byte of
 * the text has a mark, which is the template's or that of one of the messages; rendering twice gives the same; a
 * family that is said to be proven can render a conversation.
 */
#include <stdlib.h>
#include <string.h>

#include "stages/model/chat_date.h"
#include "stages/model/chat_prove.h"
#include "stages/model/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 26 };

#define NEED(x) ((x) ? (void)0 : abort())

static int render(const struct jinja *j, struct marked *out)
{
    static uint8_t marks[3][32];
    static const char *const texts[] = {" Be brief.\n", "What <|im_end|> is \xc3\xa9?",
                                        "This."};
    struct chat_message msgs[4];
    for (int i = 0; i < 4; i++) {
        int t = i == 3 ? 1 : i;
        size_t n = strlen(texts[t]);
        msgs[i].role = i == 0 ? CHAT_SYSTEM : i == 2 ? CHAT_ASSISTANT : CHAT_USER;
        msgs[i].text = (struct mtext){texts[t], memset(marks[t], t + 1, n), n};
    }
    const struct chat_date date = {2024, 7, 26};
    struct jinja_input in = {msgs, 4, "<s>", "</s>", &date};
    struct err e = {0};
    int rc = jinja_render(j, &in, out, &e);
    NEED(rc == 0 || (rc == -(int)e.code && e.msg[0]));
    NEED(out->text.len == out->marks.len);
    for (size_t i = 0; i < out->marks.len; i++)
        NEED((uint8_t)out->marks.data[i] <= 3);
    return rc;
}

static void prove(const struct jinja *j, const char *text, size_t size)
{
    const struct chat_date date = {2024, 7, 26};
    const struct chat_format *f = NULL;
    struct chat_quirks q = {0};
    struct err e = {0};
    if (chat_prove(j, text, size, "<s>", "</s>", &date, &f, &q, &e) != 0)
        return;
    struct chat_message msg = {CHAT_USER, mtext_of("Why?")};
    struct marked out;
    marked_init(&out, OUT_MAX);
    NEED(chat_format_render(f, &q, "</s>", &msg, 1, &out, &e) == 0 && out.text.len >= 4);
    marked_release(&out);
    chat_quirks_release(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja *j = NULL;
    struct err e = {0};
    int rc = jinja_open(&j, (const char *)data, size, &e);
    if (rc < 0) {
        NEED(rc == -(int)e.code && e.msg[0] && !j);
        return 0;
    }
    struct marked a, b;
    marked_init(&a, OUT_MAX);
    marked_init(&b, OUT_MAX);
    NEED(render(j, &a) == render(j, &b));
    NEED(a.text.len == b.text.len &&
         (a.text.len == 0 || memcmp(a.text.data, b.text.data, a.text.len) == 0));
    prove(j, (const char *)data, size);
    marked_release(&a);
    marked_release(&b);
    jinja_free(j);
    return 0;
}
