#include "pipeline/kv_report.h"

#include <inttypes.h>

/* The counters at one moment, and what follows from them. */
struct sums {
    int64_t tokens, ram, disk, computed;
    int64_t allocated, evicted_ram, evicted_disk, recomputed, spilled, loaded, corrupt;
    int64_t raw, stored, loaded_bytes;
    double spill_s, load_s;
    int64_t positions, unused;
};

static struct sums take(const struct kv_counters *c)
{
    struct sums s = {
        .tokens = atomic_load(&c->lookup_tokens),
        .ram = atomic_load(&c->hit_tokens[KV_RAM]),
        .disk = atomic_load(&c->hit_tokens[KV_DISK]),
        .allocated = atomic_load(&c->pages_allocated),
        .evicted_ram = atomic_load(&c->pages_evicted[KV_RAM]),
        .evicted_disk = atomic_load(&c->pages_evicted[KV_DISK]),
        .recomputed = atomic_load(&c->pages_recomputed),
        .spilled = atomic_load(&c->pages_spilled),
        .loaded = atomic_load(&c->pages_loaded),
        .corrupt = atomic_load(&c->pages_corrupt),
        .raw = atomic_load(&c->bytes_raw),
        .stored = atomic_load(&c->bytes_stored),
        .loaded_bytes = atomic_load(&c->bytes_loaded),
        .spill_s = (double)atomic_load(&c->spill_us) / 1e6,
        .load_s = (double)atomic_load(&c->load_us) / 1e6,
        .positions = atomic_load(&c->positions_allocated),
        .unused = atomic_load(&c->positions_unused),
    };
    s.computed = s.tokens - s.ram - s.disk;
    return s;
}

/* ---- run.json ---- */

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value);
}

static void set_count(json_t *o, const char *key, int64_t n)
{
    set(o, key, json_integer(n));
}

static void set_quotient(json_t *o, const char *key, double a, double b)
{
    set(o, key, b > 0 ? json_real(a / b) : json_null());
}

static void set_tiers(json_t *o, const char *key, int64_t ram, int64_t disk)
{
    json_t *tiers = json_object();
    set_count(tiers, kv_tier_name(KV_RAM), ram);
    set_count(tiers, kv_tier_name(KV_DISK), disk);
    set(o, key, tiers);
}

static json_t *shares(const struct stability *s)
{
    json_t *o = json_object();
    for (int of = 0; of < PREFIX_CLASS_COUNT; of++) {
        double share = stability_share(s, (enum prefix_class)of);
        set(o, prefix_class_name((enum prefix_class)of),
            share < 0 ? json_null() : json_real(share));
    }
    return o;
}

static json_t *folder(const struct disk_stats *d)
{
    json_t *o = json_object();
    set_count(o, "records", d->records);
    set_count(o, "bytes", d->bytes);
    set_count(o, "blocks", d->blocks);
    set_count(o, "segments", d->segments);
    set_count(o, "no_room", d->full);
    set(o, "writing", json_boolean(d->writing));
    return o;
}

json_t *kv_report_json(const struct page_stats *pages, const struct kv_counters *c,
                       const struct stability *stability, const struct disk_stats *disk)
{
    struct sums s = take(c);
    json_t *o = json_object();
    set_count(o, "pages", pages->total);
    set_count(o, "peak_used", pages->peak_used);
    set_count(o, "evictions", pages->evictions);
    set_count(o, "lookup_tokens", s.tokens);
    set_tiers(o, "hit_tokens", s.ram, s.disk);
    set_count(o, "computed_tokens", s.computed);
    set_quotient(o, "hit_ratio", (double)(s.ram + s.disk), (double)s.tokens);
    set_count(o, "pages_allocated", s.allocated);
    set_tiers(o, "pages_evicted", s.evicted_ram, s.evicted_disk);
    set_count(o, "pages_recomputed", s.recomputed);
    set_count(o, "pages_corrupt", s.corrupt);
    set_count(o, "pages_spilled", s.spilled);
    set_count(o, "pages_loaded", s.loaded);
    set_count(o, "bytes_raw", s.raw);
    set_count(o, "bytes_stored", s.stored);
    set_quotient(o, "compression_ratio", (double)s.raw, (double)s.stored);
    set(o, "spill_seconds", json_real(s.spill_s));
    set_quotient(o, "spill_bytes_per_second", (double)s.raw, s.spill_s);
    set(o, "load_seconds", json_real(s.load_s));
    set_quotient(o, "load_bytes_per_second", (double)s.loaded_bytes, s.load_s);
    set_quotient(o, "unused_ratio", (double)s.unused, (double)s.positions);
    set(o, "stability", shares(stability));
    set(o, "disk", disk ? folder(disk) : json_null());
    return o;
}

/* ---- the line ---- */

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* ", 812 MB/s" when the time is known. */
static int add_rate(struct buf *out, int64_t bytes, double seconds, struct err *e)
{
    return seconds > 0 ? buf_addf(out, e, ", %.0f MB/s", (double)bytes / seconds / 1e6) : 0;
}

static int add_traffic(const struct sums *s, struct buf *out, struct err *e)
{
    int rc = 0;
    if (s->spilled) {
        rc = buf_addf(out, e, "; %" PRId64 " pages spilled (%.1f MiB", s->spilled,
                      (double)s->stored / (1 << 20));
        if (!rc && s->stored > 0)
            rc = buf_addf(out, e, ", %.2f : 1", (double)s->raw / (double)s->stored);
        if (!rc)
            rc = add_rate(out, s->raw, s->spill_s, e);
        if (!rc)
            rc = buf_addc(out, ')', e);
    }
    if (!rc && s->loaded) {
        rc = buf_addf(out, e, "; %" PRId64 " loaded (%.1f MiB", s->loaded,
                      (double)s->loaded_bytes / (1 << 20));
        if (!rc)
            rc = add_rate(out, s->loaded_bytes, s->load_s, e);
        if (!rc)
            rc = buf_addc(out, ')', e);
    }
    return rc;
}

int kv_report_line(const struct kv_counters *c, struct buf *out, struct err *e)
{
    struct sums s = take(c);
    int rc = buf_addf(out, e, "%" PRId64 " prompt tokens: %.1f %% from memory, ", s.tokens,
                      percent(s.ram, s.tokens));
    if (!rc && s.disk)
        rc = buf_addf(out, e, "%.1f %% from disk, ", percent(s.disk, s.tokens));
    if (!rc)
        rc = buf_addf(out, e, "%.1f %% computed; %" PRId64 " pages allocated",
                      percent(s.computed, s.tokens), s.allocated);
    if (!rc && s.positions)
        rc = buf_addf(out, e, ", %.1f %% of their positions unused",
                      percent(s.unused, s.positions));
    if (!rc)
        rc = add_traffic(&s, out, e);
    if (!rc && (s.evicted_ram || s.evicted_disk))
        rc = buf_addf(out, e, "; evicted %" PRId64 " from memory, %" PRId64 " from disk",
                      s.evicted_ram, s.evicted_disk);
    if (!rc && s.recomputed)
        rc = buf_addf(out, e, "; %" PRId64 " pages computed again", s.recomputed);
    if (!rc && s.corrupt)
        rc = buf_addf(out, e, "; corrupt records: %" PRId64, s.corrupt);
    return rc;
}
