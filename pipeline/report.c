#include "pipeline/report.h"

#include "pipeline/kv_report.h"
#include "pipeline/version.h"
#include "stages/write/result.h"

#include <inttypes.h>
#include <stdio.h>

static json_t *moment(time_t t)
{
    char text[32] = "";
    struct tm tm;
    if (gmtime_r(&t, &tm))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value ? value : json_null());
}

static void set_count(json_t *o, const char *key, int64_t n)
{
    set(o, key, json_integer(n));
}

static const char *end_name(enum run_end end)
{
    static const char *const names[] = {"stopped", "finished", "interrupted", "deadline",
                                        "locked"};
    return names[end];
}

static json_t *model(const struct report *r)
{
    json_t *o = json_object();
    set(o, "name", result_text(r->setup->facts.model_name));
    set(o, "digest", json_string(r->setup->facts.model_digest));
    set(o, "file", result_text(r->job->model.kind == MODEL_NULL ? NULL : r->job->model.file));
    set(o, "arch", json_string(arch_name(model_hparams(r->setup->model)->arch)));
    set(o, "vocab", json_string(vocab_kind(model_vocab(r->setup->model))));
    set(o, "template", result_text(chat_family(r->setup->chat)));
    return o;
}

static json_t *machine(const struct report *r)
{
    json_t *o = json_object();
    set(o, "kernels", json_string(r->setup->kernels.name));
    set(o, "cpu_avx2", json_boolean(kern_cpu_flags() & KERN_CPU_AVX2));
    set(o, "cpu_avx512", json_boolean(kern_cpu_flags() & KERN_CPU_AVX512));
    set_count(o, "threads", r->setup->plan.threads);
    return o;
}

static json_t *memory(const struct report *r)
{
    const struct plan *p = &r->setup->plan;
    json_t *o = json_object(), *plan = json_object();
    for (int i = 0; i < p->n_lines; i++)
        set_count(plan, p->lines[i].what, (int64_t)p->lines[i].bytes);
    set_count(plan, "total", (int64_t)p->total);
    set(o, "plan", plan);
    set(o, "limit", p->limit == UINT64_MAX ? json_null() : json_integer((json_int_t)p->limit));
    set_count(o, "peak_rss", (int64_t)r->peak_rss);
    set_count(o, "reader_peak_rss", (int64_t)r->reader_peak);
    return o;
}

static json_t *documents(const struct report *r)
{
    json_t *o = json_object(), *codes = json_object();
    set_count(o, "found", r->result->found);
    set_count(o, "ok", r->result->ok);
    set_count(o, "partial", r->result->partial);
    set_count(o, "failed", r->result->failed);
    set_count(o, "kept", r->result->kept);
    set_count(o, "not_reached",
              r->result->found - r->result->ok - r->result->partial - r->result->failed);
    for (int i = 0; i < r->tally->n_codes; i++)
        set_count(codes, r->tally->codes[i].code, r->tally->codes[i].n);
    set(o, "failed_by_code", codes);
    set_count(o, "truncated", r->tally->flagged[0]);
    set_count(o, "repetitive", r->tally->flagged[1]);
    set_count(o, "thinking_dropped", r->tally->flagged[2]);
    return o;
}

static json_t *failures(const struct report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->tally->n_failures; i++) {
        const struct tally_failure *f = &r->tally->failures[i];
        json_array_append_new(list,
                              json_pack("{sI so ss so}", "ordinal", (json_int_t)f->ordinal,
                                        "name", result_text(f->name), "code", f->code,
                                        "message", result_text(f->message)));
    }
    return list;
}

static json_t *slowest(const struct report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->tally->n_slowest; i++) {
        const struct tally_slow *s = &r->tally->slowest[i];
        json_array_append_new(list, json_pack("{sI so sI}", "ordinal", (json_int_t)s->ordinal,
                                              "name", result_text(s->name), "model_ms",
                                              (json_int_t)(s->compute_us / 1000)));
    }
    return list;
}

static json_t *tokens(const struct run_stats *s)
{
    json_t *o = json_object();
    set_count(o, "documents", atomic_load(&s->doc_tokens));
    set_count(o, "prompt", atomic_load(&s->prompt_tokens));
    set_count(o, "prefilled", atomic_load(&s->prefill_tokens));
    set_count(o, "reused", atomic_load(&s->reused_tokens));
    set_count(o, "generated", atomic_load(&s->generated_tokens));
    return o;
}

static void set_rate(json_t *o, const char *key, int64_t n, double seconds)
{
    set(o, key, seconds > 0 ? json_real((double)n / seconds) : json_null());
}

static json_t *speed(const struct report *r)
{
    const struct run_stats *s = r->stats;
    json_t *o = json_object();
    double prefill = (double)atomic_load(&s->prefill_us) / 1e6,
           decode = (double)atomic_load(&s->decode_us) / 1e6;
    set(o, "seconds", json_real(r->seconds));
    set(o, "prefill_seconds", json_real(prefill));
    set(o, "decode_seconds", json_real(decode));
    set_rate(o, "prefill_tokens_per_second", atomic_load(&s->prefill_tokens), prefill);
    set_rate(o, "decode_tokens_per_second", atomic_load(&s->generated_tokens), decode);
    set_rate(o, "documents_per_hour", r->result->ok + r->result->partial + r->result->failed,
             r->seconds / 3600);
    return o;
}

char *report_json(const struct report *r, struct err *e)
{
    json_t *o = json_object();
    set(o, "schema", json_string("quire.run/1"));
    set(o, "job", result_text(r->job->name));
    set(o, "job_file", result_text(r->job->path));
    set(o, "version", json_string(QUIRE_VERSION));
    set(o, "ended", json_string(end_name(r->result->end)));
    set(o, "signal", r->result->signal ? json_integer(r->result->signal) : json_null());
    set(o, "error",
        r->result->end == RUN_STOPPED
            ? json_pack("{ss so}", "code", err_code_name(r->why->code), "message",
                        result_text(r->why->msg))
            : json_null());
    set_count(o, "exit_status", r->result->exit_status);
    set_count(o, "run", r->run);
    set(o, "started", moment(r->started));
    set(o, "finished", moment(r->ended));
    set(o, "model", model(r));
    set(o, "prompt_digest", json_string(r->setup->facts.prompt_digest));
    set_count(o, "context", r->setup->plan.context);
    set(o, "machine", machine(r));
    set(o, "documents", documents(r));
    set_count(o, "requests", atomic_load(&r->stats->requests_done));
    set_count(o, "answers_found", atomic_load(&r->stats->answers_found));
    set_count(o, "tokens_found", atomic_load(&r->stats->tokens_found));
    set(o, "tokens", tokens(r->stats));
    set(o, "speed", speed(r));
    set(o, "memory", memory(r));
    set(o, "kv",
        kv_report_json(&r->pages, &r->stats->kv, &r->stats->stability,
                       r->setup->disk ? &r->disk : NULL));
    set(o, "failures", failures(r));
    set(o, "slowest", slowest(r));
    set(o, "resolved_job", result_text(r->resolved_job));
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(o);
    if (!text)
        err_set(e, REACH_JOB, ERR_NOMEM, "no memory for run.json");
    return text;
}
