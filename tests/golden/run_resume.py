#!/usr/bin/env python3
"""Runs that end too early, and the ones that go on: nothing lost, nothing twice, the same bytes.

    tests/golden/run_resume.py --quire build/release/quire [--quick] [--only TEXT] [--seed N]

A job is run once without interruption. Then the same job is killed, edited, given other documents, its ledger or
results damaged; the last run must leave the same results.jsonl, byte for byte, and nothing else in the folder.
--quick takes fewer kills and places.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kv_rig import TINY, Checks, Rig, parser, text  # noqa: E402

N = 60
FILES = ['.ledger', '.lock', 'MANIFEST.sha256', 'job.resolved.yaml', 'results.jsonl', 'run.json']
JOB = '''job: night
model: {kind: "null", context: 2048}
ingest: {from: docs}
chunk: {tokens: 300}
task: {kind: summarize}
decode: {max_tokens: 24}
limits: {threads: 1}
write: {to: out}
'''
NULL = ()
TINY_MODEL = ('model.kind=gguf', f'model.file={TINY}', 'prompt.template=chatml', 'model.context=512', 'chunk.tokens=100',
              'decode.temperature=0.7', 'decode.seed=3')
MODELS = (('null', NULL), ('tiny', TINY_MODEL))


def documents(n=N):
    """Of any length up to some chunks; one of nine cannot be answered by the null model, one is empty."""
    return ['' if i == 31 else ('@fail@ ' if i % 9 == 8 else '') + text(f'doc {i}', 40 + 150 * (i * 7 % 13))
            for i in range(n)]


class Job:
    """A job in a rig, run in one output folder again and again."""

    def __init__(self, rig, settings=()):
        self.rig, self.settings, self.out = rig, settings, rig.dir / 'again'
        self.plain = rig.run(settings, disk=None)       # without interruption, in a folder of its own
        if self.plain.code > 1:
            raise RuntimeError(self.plain.log[-1000:])

    def words(self, settings=(), *more):
        return self.rig.command([*self.settings, *settings], disk=None, out=self.out)[0] + list(more)

    def start(self, settings=(), *more):
        return subprocess.Popen(self.words(settings, *more), env=self.rig.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def run(self, settings=(), *more):
        p = self.start(settings, *more)
        log = p.communicate(timeout=300)[1].decode(errors='replace')
        return p.returncode, log

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def results(self):
        path = self.out / 'results.jsonl'
        return path.read_bytes() if path.is_file() else b''

    def report(self):
        return json.loads((self.out / 'run.json').read_bytes())

    def kill_after(self, seconds, settings=()):
        """Starts a run and kills it; True when it was still at work."""
        p = self.start(settings)
        try:
            p.wait(seconds)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
        p.communicate()
        return p.returncode == -signal.SIGKILL

    def kill_with(self, records, settings=()):
        """Kills a run when its results have so many lines. True when it was still at work."""
        p, path = self.start(settings), self.out / 'results.jsonl.partial'
        while p.poll() is None and (not path.is_file() or path.read_bytes().count(b'\n') < records):
            time.sleep(0.0005)
        p.send_signal(signal.SIGKILL)
        p.communicate()
        return p.returncode == -signal.SIGKILL


def same_bytes(c, what, job, detail):
    got, want = job.results().splitlines(), job.plain.records.splitlines()
    bad = [i for i in range(max(len(got), len(want))) if got[i:i + 1] != want[i:i + 1]]
    return c.that(f'{what}: the same bytes', not bad, bad and f'{len(got)} and {len(want)} lines; {bad[:8]} differ\n  '
                  f'{got[bad[0]:bad[0] + 1]}\n  {want[bad[0]:bad[0] + 1]}\n{detail}')


def finishes(c, what, job, aside=False):
    """Run to the end: the same bytes as without interruption, and nothing else in the folder."""
    code, log = job.run()
    if not c.that(f'{what}: it ends', code == job.plain.code, f'exit {code}\n{log[-1500:]}'):
        return False
    if not same_bytes(c, what, job, log[-800:]):
        return False
    there = sorted(os.listdir(job.out)), sorted(os.listdir(job.out / '.ledger'))
    inside = ['ledger.sqlite', 'ledger.sqlite.damaged']
    return c.that(f'{what}: nothing is left behind', there[0] == FILES and
                  there[1] == inside[:1] + (inside[1:] if aside and len(there[1]) > 1 else []), f'{there}')


def killed(c, a):
    """SIGKILL at random times, again and again, until the job comes to its end."""
    r = random.Random(a.seed)
    for name, settings in MODELS:
        with Rig(a.quire, documents(), NULL, JOB) as rig:
            job = Job(rig, settings)
            kills, ended, wanted = 0, 0, 5 if a.quick else 150
            begin = time.monotonic()
            longest = job.plain.seconds
            while kills < wanted and time.monotonic() - begin < 600:
                if job.kill_after(r.uniform(0.2, 1.0) * longest):
                    kills += 1
                    continue
                ended += 1
                longest *= 0.95
                if not c.that(f'{name}: a run that came to its end', job.results() == job.plain.records):
                    return
                job.clear()
            finishes(c, f'{name}: after {kills} kills, {ended} ends', job)
            c.that(f'{name}: kills came in time', kills == wanted and ended < kills, f'{kills} kills, {ended} ends')


def edited(c, a):
    """A job that is changed between two runs is refused, each change is named, and nothing is mixed."""
    with Rig(a.quire, documents(12), NULL, JOB) as rig:
        job = Job(rig)
        code, _ = job.run()
        c.that('the first run ends', code == 1)
        first, tree = job.results(), sorted(os.listdir(job.out))
        edits = {'job': 'day', 'model.context': '1024', 'ingest.encoding': 'windows-1252', 'chunk.tokens': '200',
                 'prompt.system': 'Be brief.', 'prompt.document': '{{text}} Well?', 'task.strategy': 'map_reduce',
                 'task.max_levels': '3', 'decode.max_tokens': '30', 'decode.temperature': '0.5', 'decode.seed': '9',
                 'decode.stop': 'X', 'write.chunks': 'yes', 'kv.codec': 'q8'}
        for key, value in edits.items():
            code, log = job.run([f'{key}={value}'])
            named = [x for x in log.splitlines() if 'changed: ' in x]
            c.that(f'{key}: refused', code == 2 and '--restart' in log, f'exit {code}\n{log[-600:]}')
            c.that(f'{key}: named alone', len(named) == 1 and f'{key}: ' in named[0] and f'"{value}"' in named[0], log[-600:])
        code, log = job.run([f'{k}={v}' for k, v in edits.items()])
        named = [x for x in log.splitlines() if 'changed: ' in x]
        c.that('all at once: each named', code == 2 and len(named) == len(edits), f'{len(named)}\n{log[-2500:]}')
        c.that('refused runs leave everything', job.results() == first and sorted(os.listdir(job.out)) == tree)
        free = ['limits.threads=2', 'decode.batch=2', 'kv.memory=64KiB', 'limits.queue=3', 'prefill.batch=64', 'kv.codec=raw',
                'model.kernels=ref', 'write.partial_ok=yes']
        for x in free:
            code, log = job.run([x])
            c.that(f'{x}: goes on', code == (0 if 'partial_ok' in x else 1) and job.results() == first, log[-600:])
        code, log = job.run(['decode.max_tokens=2'], '--restart')
        c.that('--restart begins anew', code == 1 and job.report()['documents']['kept'] == 0, log[-600:])
        code, log = job.run()
        c.that('and is what counts from then on', code == 2 and 'decode.max_tokens: "2" -> "24"' in log, log[-600:])


def restarted_and_killed(c, a):
    """--restart: the old results stay until the new ones are whole, whenever it is killed."""
    r = random.Random(a.seed)
    with Rig(a.quire, documents(), NULL, JOB) as rig:
        job, other = Job(rig), Job(rig, ['decode.max_tokens=3'])
        job.run()
        for i in range(3 if a.quick else 12):
            p = other.start((), '--restart')
            try:
                p.wait(r.uniform(0.3, 0.9) * job.plain.seconds)
            except subprocess.TimeoutExpired:
                p.kill()
            p.communicate()
            if p.returncode == -signal.SIGKILL:
                now = job.results()     # it may have been killed after the last rename
                c.that('the old results are whole', now in (job.plain.records, other.plain.records), len(now))
            else:
                c.that('or the new ones', other.results() == other.plain.records)
                job.run((), '--restart')
        code, log = other.run((), '--restart')
        c.that('in the end the new ones are there', other.results() == other.plain.records, log[-800:])


def inputs(c, a):
    """Changed, new and removed documents: only those are computed, and the results are as if nothing had been before."""
    with Rig(a.quire, documents(20), NULL, JOB) as rig:
        docs = rig.dir / 'docs'
        with zipfile.ZipFile(docs / 'some.zip', 'w') as z:
            for i in range(6):
                z.writestr(f'{i}.txt', text(f'entry {i}', 300))
        job = Job(rig)
        finishes(c, 'first', job)
        finishes(c, 'again', job)
        k = job.report()['documents']
        c.that('again: all kept', k['kept'] == k['found'] == 26 and job.report()['requests'] == 0, k)

        def again(what, n, new):
            job.plain = rig.run(job.settings, disk=None)
            finishes(c, what, job)
            d = job.report()['documents']
            c.that(f'{what}: only what is new', d['found'] == n and d['found'] - d['kept'] == new, d)

        (docs / '0003.txt').write_text(text('changed', 500))
        again('changed', 26, 1)
        (docs / '0000a.txt').write_text(text('added in front', 500))
        again('added', 27, 1)
        (docs / '0005.txt').unlink()
        again('removed', 26, 0)
        os.utime(docs / '0006.txt')
        again('touched', 26, 0)
        (docs / '0007.txt').rename(docs / 'z.txt')
        again('renamed: another document', 26, 1)
        with zipfile.ZipFile(docs / 'some.zip', 'a') as z:
            z.writestr('last.txt', text('appended', 300))
        again('appended to an archive', 27, 1)
        shutil.move(docs, rig.dir / 'moved')
        (rig.dir / 'moved').rename(docs)
        again('moved and back', 27, 0)


def not_opened(c, a):
    """A file that is as it was is not opened: its bytes may be anything."""
    with Rig(a.quire, documents(10), NULL, JOB) as rig:
        docs = rig.dir / 'docs'
        with zipfile.ZipFile(docs / 'some.zip', 'w') as z:
            for i in range(6):
                z.writestr(f'{i}.txt', text(f'entry {i}', 300))
        job = Job(rig)
        finishes(c, 'first', job)
        for path in docs.iterdir():
            st = path.stat()
            path.write_bytes(b'\0' * st.st_size)
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        finishes(c, 'behind its back', job)
        if os.geteuid() != 0:
            for path in docs.iterdir():
                path.chmod(0)
            finishes(c, 'unreadable', job)


def ledger_lost(c, a):
    """Without its ledger, or with one that is damaged, a job goes on from its results."""
    r = random.Random(a.seed)
    with Rig(a.quire, documents(), NULL, JOB) as rig:
        job = Job(rig)
        ledger = job.out / '.ledger' / 'ledger.sqlite'
        for i in range(4 if a.quick else 40):
            job.clear()
            if not job.kill_with(r.randrange(1, 50)):
                continue
            if i % 4 == 0:
                shutil.rmtree(ledger.parent)
                finishes(c, 'ledger gone', job)
                continue
            for path in ledger.parent.iterdir():
                b = bytearray(path.read_bytes())
                for _ in range(r.randrange(1, 40)):
                    at = r.randrange(max(1, len(b) - 16))
                    b[at:at + 16] = r.randbytes(16)
                if not path.name.endswith('-shm'):
                    path.write_bytes(b[:r.randrange(len(b) + 1)] if i % 4 == 3 else b)
            finishes(c, 'ledger damaged', job, aside=True)
        finishes(c, 'finished again', job, aside=True)
        shutil.rmtree(ledger.parent)
        finishes(c, 'ledger of a finished run gone', job)
        c.that('its documents are found in the results', job.report()['documents']['kept'] > 40, job.report()['documents'])


def bytes_changed(c, a):
    """Single bytes of the ledger changed: whatever it then says, the results are right."""
    r = random.Random(a.seed)
    with Rig(a.quire, documents(20), NULL, JOB) as rig:
        job = Job(rig)
        ledger = job.out / '.ledger' / 'ledger.sqlite'
        finishes(c, 'first', job)
        good = ledger.read_bytes()
        for i in range(10 if a.quick else 150):
            b = bytearray(good)
            for _ in range(1 + i % 5):
                b[r.randrange(100, len(b))] ^= 1 << r.randrange(8)
            ledger.write_bytes(b)
            for name in ('MANIFEST.sha256', 'results.jsonl'):
                if i % 2:
                    (job.out / name).unlink(missing_ok=True)
            code, log = job.run()
            same_bytes(c, f'round {i}', job, f'exit {code}\n{log[-800:]}')
            for path in ledger.parent.iterdir():
                path.unlink()


def results_cut(c, a):
    """The results cut anywhere, or with lines that are none."""
    r = random.Random(a.seed)
    with Rig(a.quire, documents(), NULL, JOB) as rig:
        job = Job(rig)
        part = job.out / 'results.jsonl.partial'
        for i in range(6 if a.quick else 40):
            job.clear()
            if not job.kill_with(r.randrange(5, 40)):
                continue
            b = part.read_bytes()
            lines = b.splitlines(True)
            ends = [sum(map(len, lines[:k])) for k in range(len(lines) + 1)]
            e = ends[r.randrange(len(ends))]
            cut = [b[:e], b[:e + 1], b[:max(0, e - 1)], b[:r.randrange(len(b) + 1)], b'', b + b'{"torn',
                   b[:e] + b'no record\n' + b[e:], b''.join(lines[::-1]), b[:e] + b[:e], b[:-1].replace(b'ok', b'OK', 3) + b'\n',
                   b'\0' * len(b)][i % 11]
            part.write_bytes(cut)
            if i % 3 == 2:
                shutil.rmtree(job.out / '.ledger')
            finishes(c, f'cut {i % 11}{" without ledger" if i % 3 == 2 else ""}', job)


def answers(c, a):
    """Answers of unfinished documents are found, and answers that were begun go on at their last token."""
    r = random.Random(a.seed)
    settings = [*TINY_MODEL, 'decode.max_tokens=120', 'decode.stop_repetition=no', 'chunk.tokens=80', 'decode.batch=4',
                'task.strategy=map_reduce', 'task.partial_tokens=20']
    with Rig(a.quire, [text(f'doc {i}', 900) for i in range(6)], NULL, JOB) as rig:
        disk = [f'kv.disk={rig.kv}', 'kv.keep=all', 'decode.batch=2', 'kv.memory=5MiB']
        for what, more in (('', []), (' on disk', disk)):
            job = Job(rig, [*settings, *more])
            found = tokens = stopped = 0
            for i in range(100):    # until all has happened: how far a run comes in a while depends on the machine
                if i >= (4 if a.quick else 25) and found and tokens and stopped > 1:
                    break
                job.clear()
                for k in range(2):
                    p = job.start(['limits.drain=0s'])
                    time.sleep(r.uniform(0.15, 0.6) * job.plain.seconds)
                    p.send_signal(signal.SIGTERM if k % 2 == 0 else signal.SIGKILL)
                    p.communicate()
                    stopped += p.returncode in (-signal.SIGKILL, 143)
                if not finishes(c, f'stopped {i}{what}', job):
                    break
                report = job.report()
                found += report['answers_found']
                tokens += report['tokens_found']
            c.that(f'answers were found{what}', found > 0, found)
            c.that(f'answers went on{what}', tokens > 0, tokens)
            c.that(f'runs were stopped{what}', stopped > 1, stopped)


def commands(c, a):
    """status while a run is at work, stopped and finished; retry --failed; diff."""
    with Rig(a.quire, documents(30), NULL, JOB) as rig:
        job = Job(rig)

        def quire(*words):
            p = subprocess.run([a.quire, *words], env=rig.env, capture_output=True, text=True, timeout=60)
            return p.returncode, p.stdout, p.stderr

        here = [rig.dir / 'job.yaml', '--set', f'write.to={job.out}']
        status = lambda: json.loads(quire('status', *here, '--json')[1])     # noqa: E731
        c.that('not begun', status()['state'] == 'not begun' and not job.out.exists())
        c.that('retry before any run', quire('retry', *here, '--failed')[0] == 2)
        part = job.out / 'results.jsonl.partial'
        p = job.start()
        while p.poll() is None and not (part.is_file() and part.read_bytes()):
            time.sleep(0.001)
        p.send_signal(signal.SIGSTOP)
        s = status()
        c.that('running', s['state'] == 'running' and f'pid {p.pid} on ' in s['holder'], s)
        c.that('text', 'state       running: pid' in quire('status', *here)[1])
        c.that('retry while it runs', quire('retry', *here, '--failed')[0] == 75)
        p.kill()
        p.communicate()
        s = status()
        c.that('stopped', s['state'] == 'stopped' and s['holder'] is None and s['runs'] == 1, s)
        finishes(c, 'after status', job)
        s = status()
        c.that('finished', s['state'] == 'finished' and s['runs'] == 2, s)
        d = s['documents']
        c.that('its counts', (d['done'], d['found']) == (30, 30) and d['failed'] == job.report()['documents']['failed'], d)
        code, out, _ = quire('retry', *here, '--failed')
        c.that('retry', code == 0 and out.startswith(f'{d["failed"]} failed documents'), out)
        c.that('marked', status()['documents']['again'] == d['failed'])
        finishes(c, 'after retry', job)
        k = job.report()['documents']
        c.that('only those were done', k['found'] - k['kept'] == d['failed'], k)
        same = rig.dir / 'same'
        shutil.copytree(job.out, same)
        c.that('diff of equals', quire('diff', job.out, same) == (0, '', ''))
        lines = (same / 'results.jsonl').read_text().splitlines()
        lines[4] = lines[4].replace('"answer":"', '"answer":"X')
        lines[8] = lines[8].replace('"code":"device"', '"code":"io"')
        (same / 'results.jsonl').write_text('\n'.join(lines[:-1]) + '\n')
        code, out, _ = quire('diff', job.out, same / 'results.jsonl')
        want = ['answer  ', 'status  ', 'first   ']
        c.that('diff', code == 1 and [x[:8] for x in out.splitlines()] == want and 'failed device -> failed io' in out, out)
        c.that('diff of nothing', quire('diff', job.out, rig.dir / 'nowhere')[0] == 3)
        c.that('diff of something else', quire('diff', rig.dir / 'job.yaml', job.out)[0] == 3)


CASES = [commands, killed, answers, edited, restarted_and_killed, inputs, not_opened, ledger_lost, bytes_changed, results_cut]


def main():
    ap = parser(__doc__)
    ap.add_argument('--seed', type=int, default=1, help='of the moments of the kills')
    a = ap.parse_args()
    a.quire = a.quire.resolve()
    c = Checks(a.only)
    c.each(CASES, a)
    return c.report()


sys.exit(main())
