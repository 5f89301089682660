#include "pipeline/estimate.h"

static int64_t rounds(int64_t n, int64_t at_a_time)
{
    return (n + at_a_time - 1) / at_a_time;
}

struct estimate_work estimate_work(const struct estimate_shape *s)
{
    int64_t requests = (int64_t)s->chunks * s->questions;
    struct estimate_work w = {.prompt = requests * s->prompt};
    if (s->chunks == 1) {
        w.steps = rounds(requests, s->batch) * s->final_tokens;
        return w;
    }
    w.steps = rounds(requests, s->batch) * s->partial_tokens;
    /* Levels of partial answers, until one prompt takes all of them. Each shrinks at least by half, or the
     * document fails for it. */
    int64_t parts = s->chunks,
            room = s->context > s->partial_tokens ? s->context : 2 * (int64_t)s->partial_tokens;
    while (parts * s->partial_tokens > room) {
        int64_t groups = rounds(parts * s->partial_tokens, room);
        w.prompt += s->questions * parts * s->partial_tokens;
        w.steps += rounds(groups * s->questions, s->batch) * s->partial_tokens;
        parts = groups < parts ? groups : parts / 2;
    }
    w.prompt += s->questions * parts * s->partial_tokens;
    w.steps += rounds(s->questions, s->batch) * s->final_tokens;
    return w;
}

int64_t estimate_us(const struct estimate_speed *v, const struct estimate_work *w)
{
    double us = 0, token_us = 0;
    if (v->computed > 0) {
        double share = (double)v->computed / (double)(v->computed + v->reused);
        token_us = (double)v->prefill_us / (double)v->computed;
        us += (double)w->prompt * share * token_us;
    }
    if (v->steps > 0) {
        /* Prompts of other documents are read between two steps: as much as there was of it so far, at most a
         * chunk. */
        double between = (double)v->prefill_us / (double)v->steps,
               chunk_us = token_us * v->chunk;
        double step_us = (double)v->decode_us / (double)v->steps;
        us += (double)w->steps * (step_us + (between < chunk_us ? between : chunk_us));
    }
    return us < 9e18 ? (int64_t)us : INT64_MAX;
}
