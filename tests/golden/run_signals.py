#!/usr/bin/env python3
"""What schedulers send: run_signals.py --quire build/release/quire [--quick]

SIGTERM three times and SIGKILL, in less than half a second (GNU parallel), again and again over one job, at any
moment; and SIGTERM to all processes of a run (systemd). Each time the next run goes on; the last one's results
are those of a run that nobody disturbed.
"""
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

from kv_rig import TINY, Rig, main, text

JOB = f'''model: {{file: {TINY}}}
task: {{kind: summarize, strategy: map_reduce, partial_tokens: 30}}
chunk: {{tokens: 100, min_tokens: 20}}
prompt: {{system: "", template: chatml, document: "{{{{text}}}}", reduce: "{{{{text}}}}"}}
decode: {{max_tokens: 30, batch: 3}}
kv: {{reuse: no}}
limits: {{threads: 1}}
ingest: {{from: docs}}
write: {{to: out}}
'''
DOCS = [(text(1, 88) + '\n\n') * n for n in (1, 60, 2, 150, 1, 90, 30)]
PARALLEL = [(signal.SIGTERM, 0.2), (signal.SIGTERM, 0.1), (signal.SIGTERM, 0.05), (signal.SIGKILL, 0)]


def whole(out):
    return (out / 'results.jsonl').read_bytes()


def sound(out):
    """The ledger is as SQLite wants it, and quire has set none aside."""
    files = [p.name for p in (out / '.ledger').iterdir()]
    db = sqlite3.connect(out / '.ledger/ledger.sqlite')
    try:
        return db.execute('PRAGMA quick_check').fetchall() == [('ok',)] and \
            not [f for f in files if not f.startswith('ledger.sqlite')] or files
    finally:
        db.close()


def rounds(c, rig, what, n, send, seed):
    """n runs that send() disturbs, going on in one folder until the job is done, and then in a new one."""
    r = random.Random(seed)
    plain = rig.plain()
    c.that(f'{what}: a quiet run', plain.code in (0, 1), plain.log[-1000:])
    want, took, ends = plain.records, plain.seconds, []
    out = rig.dir / f'out-{what.replace(" ", "-")}'
    for i in range(n):
        words, _ = rig.command([], None, out)
        p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=rig.env,
                             start_new_session=True)
        time.sleep(r.random() ** 2 * took)
        send(p)
        log = p.communicate(timeout=120)[1]
        ends.append(p.returncode)
        c.that(f'{what}, {i}: an end that a scheduler knows', p.returncode in (0, 1, 143, -15, -9), f'{p.returncode}\n{log[-1500:]}')
        if (out / '.ledger/ledger.sqlite').exists():
            c.that(f'{what}, {i}: the ledger is valid', sound(out) is True, sound(out))
        if p.returncode in (0, 1):
            c.that(f'{what}, {i}: the same records', whole(out) == want)
            shutil.rmtree(out)
    last = subprocess.run(rig.command([], None, out)[0], capture_output=True, text=True, env=rig.env, timeout=300)
    c.that(f'{what}: the last run', last.returncode == plain.code, last.stderr[-1500:])
    c.that(f'{what}: the same records at last', whole(out) == want)
    left = [str(p) for p in out.rglob('*') if p.name.endswith(('.partial', '.tmp')) or '.tmp.' in p.name]
    c.that(f'{what}: nothing left behind', not left, left)
    print(f'  {what}: {n} times, ends {dict((e, ends.count(e)) for e in set(ends))}', flush=True)


def parallel(c, quire, quick):
    def send(p):
        for sig, pause in PARALLEL:
            if p.poll() is None:
                p.send_signal(sig)
                time.sleep(pause)
    with Rig(quire, DOCS, [], JOB) as rig:
        rounds(c, rig, 'parallel', 6 if quick else 50, send, 1)


def process_group(c, quire, quick):
    """The process that reads dies, too: its document is not failed, it is read by the next run."""
    def send(p):
        try:
            os.killpg(p.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    with Rig(quire, DOCS, ['limits.drain=300ms'], JOB) as rig:
        rounds(c, rig, 'group', 3 if quick else 20, send, 2)


def durable(c, quire, quick):
    """On the first signal the ledger is brought up to date before anything else: its note of the signal is the last of it."""
    took = []
    with Rig(quire, DOCS, ['limits.drain=5s'], JOB) as rig:
        for i in range(3 if quick else 15):
            words, out = rig.command([], None)
            p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=rig.env)
            partial = out / 'results.jsonl.partial'
            while p.poll() is None and not (partial.exists() and partial.stat().st_size):
                time.sleep(0.005)
            db = sqlite3.connect(f'file:{out}/.ledger/ledger.sqlite?mode=ro', uri=True)
            start = time.monotonic()
            p.send_signal(signal.SIGTERM)
            while p.poll() is None and time.monotonic() < start + 10:
                if db.execute("SELECT 1 FROM action WHERE what = 'signal'").fetchone():
                    took.append(time.monotonic() - start)
                    break
                time.sleep(0.001)
            p.kill()
            p.wait()
            db.close()
    took.sort()
    print(f'  the ledger is durable after {[round(1000 * t) for t in took]} ms')
    c.that('durable within 100 ms', took and took[0] < 0.1, took)    # the best: others may use the machine, too


sys.exit(main(__doc__, [parallel, process_group, durable]))
