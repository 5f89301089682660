#!/usr/bin/env python3
"""Two runs of one job at a time: run_overlap.py --quire build/release/quire [--quick]

One works; the other ends at once with status 75, says who works, and touches nothing.
"""
import os
import re
import signal
import subprocess
import sys
import time

from kv_rig import Rig, main, text

JOB = '''model: {kind: null}
task: {kind: ask, questions: ["What is it?"]}
prompt: {system: "", document: "{{text}} {{question}}"}
limits: {threads: 1, drain: 0s}
ingest: {from: docs}
write: {to: out}
'''


def make(quire):
    """A job that is still at work when the other run comes."""
    rig = Rig(quire, [text(i, 300) for i in range(3)], [], JOB)
    (rig.dir / 'docs' / 'held.txt').write_text((text(9, 88) + '\n') * 40000)
    return rig


class Start:
    """quire run, and what came of it."""

    def __init__(self, rig, *more):
        self.p = subprocess.Popen([rig.quire, 'run', rig.dir / 'job.yaml', '--progress', 'none', *more], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=rig.env)
        self.began = time.monotonic()

    def end(self):
        self.log = self.p.stdout.read()
        _, status, usage = os.wait4(self.p.pid, 0)
        self.code = self.p.returncode = os.waitstatus_to_exitcode(status)
        self.seconds, self.cpu = time.monotonic() - self.began, usage.ru_utime + usage.ru_stime
        return self


def listing(folder):
    return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob('*'))


def names(log, pid):
    return re.search(rf'is in use by another run \(pid {pid} on \S+ since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)$', log, re.M)


def same_moment(c, quire, quick):
    """However close together they start, and whatever earlier runs have left in the lock."""
    bad, both = [], 0
    n = 15 if quick else 100
    with make(quire) as rig:
        for i in range(n):
            two = [Start(rig) for _ in range(2)]
            # The one that works goes on until it is told; the other ends by itself.
            deadline = time.monotonic() + 60
            while all(s.p.poll() is None for s in two) and time.monotonic() < deadline:
                time.sleep(0.002)
            for s in two:
                if s.p.returncode is None:
                    s.p.send_signal(signal.SIGTERM)
            codes = [s.p.wait() for s in two]
            logs = [s.p.stdout.read() for s in two]
            if codes.count(75) != 1:
                bad.append((i, codes, [x[-300:] for x in logs]))
                continue
            loser = codes.index(75)
            both += codes[1 - loser] in (-15, 143)
            if not names(logs[loser], two[1 - loser].p.pid):
                bad.append((i, logs[loser]))
    c.that(f'{n} times at the same moment: one works, one ends with 75 and says who works', not bad, bad[:3])
    c.that('the other was at work meanwhile', both > n // 2, both)


def stopped(c, quire, quick):
    with make(quire) as rig:
        first = Start(rig)
        while not (rig.dir / 'out' / '.lock').is_file() or not (rig.dir / 'out' / '.lock').read_text():
            time.sleep(0.01)
        first.p.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        before = listing(rig.dir / 'out')
        second = Start(rig).end()
        c.that('while the first is stopped: 75', second.code == 75 and names(second.log, first.p.pid), second.log)
        c.that('in less than a second', second.cpu < 1 and second.seconds < 10, (second.cpu, second.seconds))
        quiet = Start(rig, '--quiet-if-locked').end()
        c.that('--quiet-if-locked: 75 without a word', quiet.code == 75 and not quiet.log, (quiet.code, quiet.log))
        c.that('nothing was touched', listing(rig.dir / 'out') == before)
        first.p.kill()
        first.p.send_signal(signal.SIGCONT)
        first.p.wait()
        (rig.dir / 'docs' / 'held.txt').unlink()
        third = Start(rig).end()
        c.that('a killed run holds nothing', third.code == 0, (third.code, third.log))


sys.exit(main(__doc__, [same_moment, stopped]))
