#include "stages/model/null_model.h"

#include "stages/base/le.h"

#include <string.h>
#include <time.h>

enum { TOKEN_EOS = 257, TOKEN_TURN = 258, N_VOCAB = 259, DIGITS = 16, SLOW_SECONDS = 20 };

static const char fail_mark[] = "@fail@", loop_mark[] = "@loop@", long_mark[] = "@long@",
                  slow_mark[] = "@slow@";
static const char sentence[] = "This sentence is said again. ";

void null_model_hparams(struct hparams *h)
{
    *h = (struct hparams){.arch = ARCH_NULL,
                          .name = "null",
                          .n_vocab = N_VOCAB,
                          .n_layer = 1,
                          .n_embd = 1,
                          .n_ff = 1,
                          .n_head = 1,
                          .n_kv_head = 1,
                          .head_dim = 1,
                          .context_train = 1 << 20,
                          .embed_scale = 1,
                          .attn_scale = 1,
                          .rope_linear = 1};
}

/* FNV-1a over the ids; mixed() spreads it over all 64 bits (the finaliser of SplitMix64). */
static uint64_t hashed(uint64_t h, int32_t token)
{
    return (h ^ (uint32_t)token) * 0x100000001b3u;
}

static uint64_t mixed(uint64_t h)
{
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static const uint64_t hash_start = 0xcbf29ce484222325u;

static char digit(uint64_t hash, int i)
{
    return "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
}

/* Where the prompt ends, and its hash. */
static int prompt_length(const int32_t *tokens, int n, uint64_t *hash)
{
    int turn = n;
    while (turn > 0 && tokens[turn - 1] != TOKEN_TURN)
        turn--;
    int first = turn > 0 ? turn : n > DIGITS ? n - DIGITS : 0;
    uint64_t h = hash_start;
    for (int i = 0; i < first; i++)
        h = hashed(h, tokens[i]);
    int len = first;
    *hash = mixed(h);
    if (turn > 0)
        return len;
    /* No <turn>: the longest tail that spells the hash of what stands before it is answer. */
    for (;; len++) {
        int k = 0;
        *hash = mixed(h);
        while (len + k < n && tokens[len + k] == digit(*hash, k))
            k++;
        if (len + k == n)
            return len;
        h = hashed(h, tokens[len]);
    }
}

static bool holds(const int32_t *tokens, int n, const char *text)
{
    int len = (int)strlen(text);
    for (int i = 0; i + len <= n; i++) {
        int k = 0;
        while (k < len && tokens[i + k] == text[k])
            k++;
        if (k == len)
            return true;
    }
    return false;
}

bool null_model_logits(const int32_t *tokens, int n, float *logits)
{
    uint64_t hash;
    int prompt = prompt_length(tokens, n, &hash), k = n - prompt, next;
    if (holds(tokens, prompt, fail_mark))
        return false;
    if (holds(tokens, prompt, slow_mark))
        nanosleep(&(struct timespec){.tv_sec = SLOW_SECONDS}, NULL);
    if (holds(tokens, prompt, loop_mark))
        next = sentence[n % (int)(sizeof(sentence) - 1)];
    else if (holds(tokens, prompt, long_mark))
        next = n % 7 == 0 ? ' ' : 'a' + (int)(mixed((uint64_t)n) % 26);
    else
        next = k < DIGITS ? digit(hash, k) : TOKEN_EOS;
    memset(logits, 0, N_VOCAB * sizeof(*logits));
    logits[next] = 50;
    return true;
}

static void find_leading(struct forward_rows *s)
{
    struct leading list = {.at = s->leading, .most = s->n_leading};
    for (int i = 0; i < N_VOCAB; i++)
        leading_add(&list, s->logits[i], i);
    leading_sort(&list);
}

void null_model_forward(struct forward_rows *s)
{
    s->failed = false;
    for (int i = 0; i < s->pos + s->n; i++) {
        uint8_t *slice = page_slice(s->table->pool, s->table->pages[i / PAGE_TOKENS], 0);
        uint8_t *at = slice + (size_t)(i % PAGE_TOKENS) * 4;
        if (i >= s->pos)
            le32_put(at, (uint32_t)s->tokens[i]);
        else if (le32_get(at) != (uint32_t)s->tokens[i])
            s->failed = true;
    }
    if (s->want_logits && !s->failed)
        s->failed = !null_model_logits(s->tokens, s->pos + s->n, s->logits);
    if (s->want_logits && !s->failed && s->n_leading > 0)
        find_leading(s);
}
