#!/usr/bin/env python3
"""Limits that end a document or a run, and signals: run_limits.py --quire build/release/quire [--quick]

A small document, and one so long that the model would take minutes for it.
"""
import contextlib
import json
import signal
import sqlite3
import sys
import time

from kv_rig import TINY, Rig, main, text

JOB = f'''model: {{file: {TINY}}}
task: {{kind: summarize, strategy: map_reduce, partial_tokens: 40}}
chunk: {{tokens: 100, min_tokens: 20}}
prompt: {{system: "", template: chatml, document: "{{{{text}}}}", reduce: "{{{{text}}}}"}}
decode: {{max_tokens: 12, batch: 1}}
kv: {{reuse: no}}
limits: {{threads: 1, drain: 0s, deadline_margin: 0s}}
ingest: {{from: docs, max_document: 64MiB}}
write: {{to: out}}
'''
# Chunks that are all the same, and an answer that does not end by itself: 40 tokens each, one after the other.
SHORT = text(1, 88)
LONG = (text(1, 88) + '\n\n') * 40000


def rig(quire, *docs):
    return Rig(quire, docs, [], JOB)


def statuses(run):
    """Of the records that are there; those of a run that ended early wait for the next one."""
    return [(r['status'], (r['error'] or {}).get('code')) for r in map(json.loads, run.records.splitlines())]


def deadline(c, quire, quick):
    with rig(quire, SHORT, LONG) as r:
        run = r.run(['limits.deadline=1500000000'], disk=None)
        c.that('a deadline that is over: exit 4, at once', run.code == 4 and not run.records and 'the time is up' in run.log, run.log)
        run = r.run(['limits.deadline=5m', 'limits.deadline_margin=1h'], disk=None)
        c.that('within the margin: exit 4, at once', run.code == 4 and not run.records, run.log)
        run = r.run(['limits.deadline=soon'], disk=None)
        c.that('no deadline: exit 2', run.code == 2 and '--set: limits.deadline: "soon" is no time of day' in run.log, run.log)
        # The first document is begun, as nothing was measured; the second would take minutes.
        r.env['SLURM_JOB_END_TIME'] = str(int(time.time()) + 15)
        run = r.run(['limits.deadline=${SLURM_JOB_END_TIME}'], disk=None)
        c.that('what cannot be done is not begun: exit 4 before the deadline', run.code == 4 and run.seconds < 14.5, run.log)
        c.that('and said', 'document 1 would take about' in run.log and ', and is not begun' in run.log, run.log)
        c.that('what could be done is', statuses(run) == [('ok', None)], run.records)
        c.that('run.json', run.report['ended'] == 'deadline' and run.report['exit_status'] == 4, run.report)


def deadline_passes(c, quire, quick):
    with rig(quire, LONG) as r:     # begun, as nothing was measured
        run = r.run(['limits.deadline=4s'], disk=None)
        c.that('a document that is too long: exit 4 at the deadline', run.code == 4 and 3.5 < run.seconds < 30, (run.seconds, run.log))
        c.that('and no record', not run.records, run.records)


def per_document(c, quire, quick):
    with rig(quire, SHORT, LONG, SHORT) as r:
        run = r.run(['limits.per_document=3s', 'decode.batch=4'], disk=None)
        c.that('a document over its time fails, the others do not', run.code == 1 and run.seconds < 60 and
               statuses(run) == [('ok', None), ('failed', 'limit'), ('ok', None)], f'{statuses(run)} {run.log}')
        c.that('and says so', b'it took longer than limits.per_document (3 s)' in run.records, run.records)


def max_failures(c, quire, quick):
    with rig(quire, SHORT, SHORT, SHORT) as r:
        for i in range(60):
            (r.dir / 'docs' / f'x{i:02}.txt').write_bytes(b'')
        run = r.run(['limits.max_failures=4', 'limits.queue=1', 'decode.batch=1'], disk=None)
        failed = run.report['documents']['failed']
        c.that('a number of failures ends the run: exit 3', run.code == 3 and 4 < failed < 60, (run.code, failed, run.log))
        c.that('and said', 'more documents have failed than limits.max_failures allows (4)' in run.log, run.log)
        c.that('records are there', len(statuses(run)) == 3 + failed, run.records)
        run = r.run(['limits.max_failures=20%', 'limits.queue=1', 'decode.batch=1'], disk=None)
        c.that('a share of failures ends the run: exit 3', run.code == 3 and 4 < run.report['documents']['failed'] < 60, run.log)
        run = r.run(['limits.max_failures=60'], disk=None)
        c.that('as many as allowed', run.code == 1 and len(statuses(run)) == 63, run.log)
        run = r.run(['limits.max_failures=many'], disk=None)
        c.that('no number: exit 2', run.code == 2 and 'is no number of documents' in run.log, run.log)


def signals(c, quire, quick):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)    # under nohup it would be ignored by what is started here, too
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        with rig(quire, SHORT, LONG) as r:
            p, out = r.start(['limits.drain=0s'], disk=None)
            while 'plan: total' not in p.stderr.readline():
                pass
            time.sleep(0.3)
            p.send_signal(signal.SIGCONT)
            p.send_signal(sig)
            run = r.end(p, out)
            c.that(f'{sig.name}: exit {128 + sig}', run.code == 128 + sig, (run.code, run.log))
            c.that(f'{sig.name}: soon', run.seconds < 10, run.seconds)


def answers(out):
    """Requests that are in the ledger; -1 when it is not there yet."""
    try:
        db = sqlite3.connect(f'file:{out}/.ledger/ledger.sqlite?mode=ro', uri=True)
        with contextlib.closing(db):
            return db.execute('SELECT count(*) FROM answer').fetchone()[0]
    except sqlite3.Error:
        return -1


def wait_for_answer(process, out):
    """Until work is under way: from then on there is always something to finish."""
    end = time.monotonic() + 60
    while process.poll() is None and answers(out) < 1 and time.monotonic() < end:
        time.sleep(0.01)


def signals_at_once(c, quire, quick):
    """Two within a second are one, and the drain goes on; one that comes later stops it."""
    for pause, ends_soon in ((0.2, False), (1.5, True)):
        with rig(quire, LONG) as r:
            p, out = r.start(['limits.drain=5s'], disk=None)
            wait_for_answer(p, out)
            for wait in (pause, 0):
                p.send_signal(signal.SIGTERM)
                time.sleep(wait)
            run = r.end(p, out)
            c.that(f'TERM, {pause} s, TERM: exit 143', run.code == 143, (run.code, run.log))
            c.that(f'TERM, {pause} s, TERM: {"stopped" if ends_soon else "the drain goes on"}',
                   (run.seconds < 3) == ends_soon, (run.seconds, run.log))


sys.exit(main(__doc__, [deadline, deadline_passes, per_document, max_failures, signals, signals_at_once]))
