#!/usr/bin/env python3
"""Every call that can fail fails once: run_torture.py --quire build/release/quire [--quick | --all] [--only TEXT]

A few small jobs are run again and again under tests/faults/shim.c. In each run the k-th allocation (read, write, sync, rename,
thread start ...) fails, or all from the k-th on. Whatever happens, the run must end by itself, with exit 0 to 3, without a
report of a sanitizer, and say why it stopped; results of exit 0 are those of a run without faults, byte for byte; after
any other end a run without faults into the same folder gives them.

k is sampled evenly, up to the last call that a run without faults makes; --all takes every k, and of "all from the k-th
allocation on" every sixteenth.
"""
import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile

from kv_rig import NULL, ROOT, TINY, Checks, text, work_in_memory

OPS = 'alloc read write sync rename truncate fallocate open mmap thread'.split()    # as the shim counts them
# op, what its errno is called, text that the log has when the run stops for it
HOW = [('alloc', 'ENOMEM', 'memory'), ('read', 'EIO', 'Input/output error'), ('write', 'EIO', 'Input/output error'),
       ('write', 'ENOSPC', 'No space left on device'), ('sync', 'EIO', 'Input/output error'),
       ('rename', 'EIO', 'Input/output error'), ('truncate', 'EIO', 'Input/output error'), ('fallocate', 'ENOSPC', 'No space left on device'),
       ('open', 'EMFILE', 'Too many open files'), ('mmap', 'ENOMEM', 'memory'), ('thread', 'EAGAIN', 'thread')]
# What a correct program does not notice.
HARMLESS = ['read:1/2:short', 'write:1/2:short', 'read:1+:short', 'write:1+:short', 'read:1/2:EINTR', 'write:1/2:EINTR',
            'sync:1/2:EINTR:*.partial', 'read:1/3:EINTR;write:1/2:short;sync:2/3:EINTR:*.partial']
TIMEOUT = 120
OF_ASAN = 'AddressSanitizer: CHECK failed: sanitizer_'  # its own runtime met the fault, and gave up

ASK = '''task: {kind: ask, questions: ["What is it?", "Who is named?"]}
prompt: {system: "", document: "{{text}} {{question}}"}
decode: {max_tokens: 20}
'''
MAP_REDUCE = '''task: {kind: summarize, strategy: map_reduce, partial_tokens: 8}
chunk: {tokens: 100, min_tokens: 20}
prompt: {system: "", document: "{{text}}", reduce: "{{text}}"}
decode: {max_tokens: 12, temperature: 1, seed: 3}
'''
TINY_MODEL = [f'model.file={TINY}', 'model.kind=gguf', 'prompt.template=chatml']
JOBS = {    # name: (job, settings, does it keep pages on disk, documents)
    'null-ask': (ASK, NULL, False, 'texts'),
    'null-archive': (MAP_REDUCE, NULL, False, 'archives'),
    'tiny-reduce': (MAP_REDUCE, TINY_MODEL, False, 'texts'),
    'tiny-disk': (MAP_REDUCE, [*TINY_MODEL, 'kv.keep=all'], True, 'texts'),
}


def make_documents(folder):
    """The same bytes and times in every run of the test."""
    (folder / 'texts').mkdir(parents=True)
    (folder / 'archives').mkdir()
    for i in range(3):
        (folder / 'texts' / f'{i}.txt').write_text(text(i, 300))
    with zipfile.ZipFile(folder / 'archives/a.zip', 'w') as z:
        z.writestr('one.html', f'<html><body><h1>One</h1><p>{text(4, 300)}</p></body></html>')
        z.writestr('two.md', f'# Two\n\n{text(5, 200)}\n\n* {text(6, 60)}\n')
    with tarfile.open(folder / 'archives/b.tar.gz', 'w:gz') as t:
        data = text(7, 300).encode('utf-16')
        entry = tarfile.TarInfo('three.txt')
        entry.size = len(data)
        t.addfile(entry, io.BytesIO(data))


def told(log):
    """The end of a log, without what every run says."""
    return '\n'.join([x for x in log.splitlines() if not re.match(r' *[0-9.]+ info +(plan|model|kv):', x)][-25:])


def caused(error, faults, says):
    """Does a failed record say what was injected? A file that is fine must not be called damaged for it."""
    code, message = error['code'], error['message']
    if code == 'io' and says in message:
        return True
    # A library that crashes or gives up without memory takes its reader with it, and no more than that.
    ended = code == 'bug' and re.search('its reader (crashed|ended)', message) is not None
    return faults.startswith(('alloc:', 'mmap:')) and (code == 'out-of-memory' or ended)


def told_why(says, log):
    """pthread_create() of a thread for which there is no memory says EAGAIN."""
    return says in log or says == 'memory' and 'cannot start a thread' in log


def difference(got, want):
    for i in sorted({*got[0], *want[0]}):
        a, b = got[0].get(i, {}), want[0].get(i, {})
        fields = [k for k in sorted({*a, *b}) if a.get(k, 'missing') != b.get(k, 'missing')]
        if fields:
            return f'record {i}: ' + ', '.join(f'{k}: {a.get(k, "missing")} != {b.get(k, "missing")}' for k in fields)
    return f'pages {sorted(got[1])} != {sorted(want[1])}' if set(got[1]) != set(want[1]) else 'the text of a page'


class Torture:
    def __init__(self, quire, after, checks, jobs):
        self.quire, self.after, self.c, self.workers = quire, after, checks, jobs
        self.shim = quire.parent / 'tests/faults/libshim.so'
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='quire-torture-'))
        make_documents(self.dir / 'docs')
        self.asan = quire.parent.name == 'asan'
        self.lock = threading.Lock()
        self.n, self.runs, self.ends, self.of_asan = 0, 0, {}, 0

    def folder(self):
        with self.lock:
            self.n += 1
            path = self.dir / f'{self.n}'
        path.mkdir()
        return path

    def run(self, name, folder, faults=None, counts=None, restart=False):
        """(exit status, log): into folder/out, pages in folder/kv."""
        body, settings, disk, docs = JOBS[name]
        job = folder / 'job.yaml'
        job.write_text(f'model: {{kind: null}}\n{body}limits: {{threads: 2}}\n'
                       f'ingest: {{from: {self.dir}/docs/{docs}}}\n'
                       f'write: {{to: out, formats: [jsonl, markdown], chunks: yes}}\n')
        quire = self.after if faults is None else self.quire
        words = [quire, 'run', job, '--progress', 'none', *(['--restart'] if restart else [])]
        for s in [*settings, *([f'kv.disk={folder}/kv'] if disk else [])]:
            words += ['--set', s]
        env = {**os.environ, 'XDG_CACHE_HOME': str(folder / 'cache'), 'OMP_WAIT_POLICY': 'passive',
               'ASAN_OPTIONS': 'verify_asan_link_order=0:detect_leaks=1:allocator_may_return_null=1:exitcode=99',
               'LSAN_OPTIONS': f'print_suppressions=0:suppressions={ROOT}/tests/faults/leaks.txt'}
        if faults is not None:
            env.update(LD_PRELOAD=str(self.shim), QUIRE_FAULTS=faults)
        if counts:
            env['QUIRE_FAULTS_COUNTS'] = str(counts)
        with self.lock:
            self.runs += 1
        try:
            p = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors='replace',
                               timeout=TIMEOUT, env=env, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as e:
            return 'hang', (e.stderr or b'').decode(errors='replace')
        return p.returncode, p.stderr

    def results(self, folder):
        """What a run wrote, without what may differ: {ordinal: record}, {page: text}."""
        out, records, pages = folder / 'out', {}, {}
        path = out / 'results.jsonl'
        for line in path.read_bytes().splitlines() if path.is_file() else []:
            try:
                record = json.loads(line)
            except ValueError:
                return {-1: {'status': 'no JSON', 'line': line}}, {}
            records[record['ordinal']] = record
        for page in sorted(out.glob('summaries/*')):
            pages[page.name] = page.read_text()
        return records, pages

    def judge(self, name, want, faults, says):
        """Why this run is wrong, or None."""
        folder = self.folder()
        code, log = self.run(name, folder, faults)
        with self.lock:
            self.ends[code] = self.ends.get(code, 0) + 1
        tail = told(log)
        if OF_ASAN in log:
            with self.lock:
                self.of_asan += 1
            shutil.rmtree(folder)
            return None
        if code not in (0, 1, 2, 3) or re.search(r'Sanitizer|runtime error:', log):
            return f'exit {code}\n{tail}'
        got = self.results(folder)
        if code == 0 and got != want:
            return f'exit 0, and other results: {difference(got, want)}\n{tail}'
        if code and not says:
            return f'exit {code} for what a program should not notice\n{tail}'
        if code == 1:
            bad = self.failed_records(got[0], want[0], faults, says)
            if bad:
                return f'exit 1, {bad}\n{tail}'
            shutil.rmtree(folder / 'out')
        elif code and not told_why(says, log):
            return f'exit {code}, and the log does not say "{says}"\n{tail}'
        # After one that left nothing the next run is the first: its result is known.
        if code and any(p.name != 'job.yaml' for p in folder.rglob('*') if not p.is_dir()):
            again, log = self.run(name, folder)
            tail = told(log)
            if again == 1:      # what failed then is kept as that; it is the same failure
                bad = self.failed_records(self.results(folder)[0], want[0], faults, says)
                if bad:
                    return f'exit {code}, then 1, {bad}\n{tail}'
                again, log = self.run(name, folder, restart=True)
                tail = told(log)
            if again != 0:
                return f'exit {code}; the next run without faults: exit {again}\n{tail}'
            if self.results(folder) != want:
                return f'exit {code}; the next run without faults has other results\n{tail}'
        left = [str(p.relative_to(folder)) for p in folder.rglob('*') if re.search(r'\.partial$|\.tmp\b', p.name)]
        if left:
            return f'exit {code}: left behind: {left}\n{tail}'
        shutil.rmtree(folder)
        return None

    def failed_records(self, got, want, faults, says):
        """A document that could not be read may be a whole archive: the ordinals of others move up then."""
        def body(record):
            return record['source'], record['chain'], {k: v for k, v in record.items() if k != 'ordinal'}
        wanted = [body(r) for r in want.values()]
        failed = [r for r in got.values() if r['status'] == 'failed']
        for r in failed:
            if not caused(r['error'], faults, says):
                return f'a record failed with {r["error"]}'
        for r in got.values():
            if r['status'] != 'failed' and body(r) not in wanted:
                return f'another record: {r}'
        return None if failed else 'but no record failed'

    def cases(self, name, last, samples):
        """(rules, text that the log must have): the k-th alone, and all from the k-th on."""
        for op, how, says in HOW:
            n = last[op]
            take = n if samples is None else min(n, samples if op == 'alloc' else max(2, samples // 3))
            ks = sorted({1 + i * (n - 1) // max(1, take - 1) for i in range(take)})
            if samples is not None and op == 'alloc':   # between the even ones, others in each tier
                ks = sorted({min(n, k + (7 * i) % 5) for i, k in enumerate(ks)})
            for i, k in enumerate(ks):
                for plus in self.ways(op, i, samples):
                    yield f'{op}:{k}{plus}:{how}', says
        for rules in HARMLESS:
            yield rules, ''

    def ways(self, op, i, samples):
        """For the i-th k: alone, and all from there on; of the many allocations not always both."""
        if op != 'alloc' or samples is None and i % 16 == 0:
            return '', '+'
        return '+' if samples and i % 2 else '',

    def job(self, name, samples):
        start = time.monotonic()
        clean = self.folder()
        code, log = self.run(name, clean, '', clean / 'counts')
        if not self.c.that(f'{name}: without faults', code == 0, f'exit {code}\n{log[-2000:]}'):
            return
        want = self.results(clean)
        numbers = struct.unpack('11Q', (clean / 'counts').read_bytes()[:88])
        last = dict(zip(OPS, numbers))
        cases = list(self.cases(name, last, samples))
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            for i, why in enumerate(pool.map(lambda x: self.judge(name, want, *x), cases)):
                self.c.that(f'{name} {cases[i][0]}', why is None, why)
                if i and i % 2000 == 0:
                    print(f'  {name}: {i} of {len(cases)}; {time.monotonic() - start:.0f} s', flush=True)
        every = sum(last[op] for op, _, _ in HOW)
        faults = len(cases) - len(HARMLESS)
        alone = sum('+' not in rules for rules, _ in cases[:faults])
        print(f'  {name}: {alone} of {every} calls failed alone, {faults - alone} with all after them; calls {last}; '
              f'{time.monotonic() - start:.1f} s', flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quire', required=True, type=pathlib.Path)
    ap.add_argument('--after', type=pathlib.Path, help='a faster build, for the runs without faults')
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--all', action='store_true', help='every k: an hour or two')
    ap.add_argument('--samples', type=int)
    ap.add_argument('--jobs', type=int, default=os.cpu_count() or 1)
    ap.add_argument('--only', default='', help='jobs whose name holds this text')
    ap.add_argument('--faults', help='one case: rules for the shim, for a job given by --only')
    a = ap.parse_args()
    quire = a.quire.resolve()
    c = Checks()
    if quire.parent.name in ('tsan', 'fuzz'):
        c.skip(1, f"the runtime of {quire.parent.name} is inside the program, in front of any shim")
        print(f'{c.passed} passed, {c.failed} failed, {c.skipped} skipped')
        return 0
    work_in_memory()
    t = Torture(quire, (a.after or quire).resolve(), c, a.jobs)
    samples = None if a.all else a.samples or (10 if a.quick else 90)
    try:
        for name in JOBS:
            if a.only in name and a.faults:
                print(t.run(name, t.folder(), a.faults))
            elif a.only in name:
                t.job(name, samples)
    finally:
        shutil.rmtree(t.dir)
    print(f'  {t.runs} runs; how the tortured ones ended: {t.ends}; {t.of_asan} faults met the runtime of asan, not quire')
    return c.report()


if __name__ == '__main__':
    sys.exit(main())
