/* pipeline/kv_report.h - the counters of the KV store, for run.json and for the log. */
#ifndef QUIRE_PIPELINE_KV_REPORT_H
#define QUIRE_PIPELINE_KV_REPORT_H

#include "stages/base/buf.h"
#include "stages/kv/counters.h"
#include "stages/kv/disk.h"
#include "stages/kv/page.h"
#include "stages/kv/stability.h"

#include <jansson.h>

/* The "kv" object of run.json (docs/output.md), a new reference. A quotient of nothing is null, and so is disk. */
json_t *kv_report_json(const struct page_stats *pages, const struct kv_counters *c,
                       const struct stability *stability, const struct disk_stats *disk);

/* The same for people, on one line without its end; what did not happen is left out. */
int kv_report_line(const struct kv_counters *c, struct buf *out, struct err *e) MUST_CHECK;

#endif
