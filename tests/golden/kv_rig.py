"""What the tests of the KV store share: jobs over made-up documents, runs of the program, what came of them.

A Rig owns a temporary folder. Its runs are compared by the bytes of results.jsonl.
"""
import contextlib
import argparse
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / 'tests/vectors/tiny/llama.gguf'
SMOLLM = ROOT / 'samples/models/smollm2-135m-instruct-q4_1.gguf'
WORDS = ('the bridge over a river was built of stone and stands since many years while boats pass under its arch '
         'carrying salt, wine or timber to towns whose people wait at the quay').split()
NULL = ('model.kind=null', 'model.context=4096')
TINY_MODEL = ('model.kind=gguf', f'model.file={TINY}', 'prompt.template=chatml', 'decode.max_tokens=8')
SMOLLM_MODEL = ('model.kind=gguf', f'model.file={SMOLLM}', 'model.context=2560', 'decode.max_tokens=12',
                'limits.threads=0')
JOB = '''model: {kind: null}
task: {kind: ask, questions: ["What is it?", "Who is named?"]}
chunk: {tokens: 4000}
prompt: {system: "", document: "{{text}} {{question}}"}
decode: {max_tokens: 20}
limits: {threads: 1}
ingest: {from: docs}
write: {to: out}
'''


def text(seed, n_bytes):
    """Words that no other seed gives, exactly n_bytes of them."""
    r = random.Random(seed)
    out = f'{seed}: '
    while len(out) < n_bytes:
        out += r.choice(WORDS) + ' '
    return out[:n_bytes]


def records_of(path):
    """(offset, bytes, key, state, head bytes) of the records of a segment, by the table in docs/kv-store.md."""
    b, at, out = path.read_bytes(), 64, []
    while at + 64 <= len(b):
        n_tokens, body = int.from_bytes(b[at + 8:at + 12], 'little'), int.from_bytes(b[at + 16:at + 20], 'little')
        head = (152 + 4 * n_tokens + 63) & ~63
        size = head + ((body + 63) & ~63)
        if b[at:at + 4] == b'QKVR' and n_tokens <= 64 and at + size <= len(b):
            out.append((at, size, b[at + 56:at + 88], b[at + 5], head))
            at += size
        else:
            at += 64
    return out


LIVE = (0x0f, 0x33, 0x55)      # states of records: kept, ephemeral, pinned


class Counters(dict):
    """Of a run that wrote no report each is NaN, of which no check holds."""

    def __missing__(self, _):
        return math.nan


class Run:
    """One ended run: code, log, seconds, records (the bytes of results.jsonl), report (run.json)."""

    def __init__(self, out, code, log, seconds):
        self.out, self.code, self.log, self.seconds = out, code, log, seconds
        self.records, self.report = b'', {}
        self.report = json.loads(self.read('run.json') or '{}')
        self.records = self.read('results.jsonl')
        self.kv = Counters(self.report.get('kv', {}))
        self.prefilled = Counters(self.report.get('tokens', {}))['prefilled']
        self.told = self.kv or log[-2000:]      # for a check that fails

    def read(self, name):
        """A file of the output folder, finished or not; b'' when there is none."""
        for path in (self.out / name, self.out / f'{name}.partial'):
            if path.is_file():
                return path.read_bytes()
        return b''

    def hits(self, tier):
        return Counters(self.kv.get('hit_tokens', {}))[tier]

    def warnings(self):
        return [x for x in self.log.splitlines() if re.match(r' *[0-9.]+ (warn|error)', x)]


class Rig:
    """Documents, a job, and any number of runs of it. `with Rig(quire) as rig`."""

    def __init__(self, quire, documents, settings=NULL, job=JOB):
        self.quire, self.settings, self.n = quire, list(settings), 0
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='quire-kv-'))
        self.kv = self.dir / 'kv'
        (self.dir / 'docs').mkdir()
        for i, t in enumerate(documents):
            (self.dir / 'docs' / f'{i:04}.txt').write_text(t)
        (self.dir / 'job.yaml').write_text(job)
        self.env = {**os.environ, 'XDG_CACHE_HOME': str(self.dir / 'cache')}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for path in [self.dir, *self.dir.rglob('*')]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(self.dir)

    def command(self, settings=(), disk=True, out=None):
        """The command line and its output folder. disk: True for the rig's folder, or a path, or None."""
        self.n += 1
        out = out or self.dir / f'out{self.n}'
        words = [self.quire, 'run', self.dir / 'job.yaml', '--progress', 'none', '--set', f'write.to={out}']
        if disk is not None:
            words += ['--set', f'kv.disk={self.kv if disk is True else disk}']
        for key, value in dict(s.split('=', 1) for s in [*self.settings, *settings]).items():
            words += ['--set', f'{key}={value}']    # once for each: a key given twice makes a list
        return words, out

    def run(self, settings=(), disk=True, prefix=()):
        words, out = self.command(settings, disk)
        start = time.monotonic()
        p = subprocess.run([*prefix, *words], capture_output=True, text=True, errors='replace', timeout=600,
                           env=self.env)
        run = Run(out, p.returncode, p.stderr, time.monotonic() - start)
        shutil.rmtree(out, ignore_errors=True)
        return run

    def start(self, settings=(), disk=True):
        """A process that goes on, and its output folder."""
        words, out = self.command(settings, disk)
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env=self.env), out

    def wait_for_records(self, process, out, seconds=120):
        """Until a process that was started has written its first records, or ended."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            for path in out.glob('results.jsonl*'):
                with contextlib.suppress(FileNotFoundError):    # it has got its last name
                    if b'\n' in path.read_bytes():
                        return
            time.sleep(0.005)

    def end(self, process, out, timeout=120):
        start = time.monotonic()
        log = process.communicate(timeout=timeout)[1]
        return Run(out, process.returncode, log, time.monotonic() - start)

    def plain(self, settings=()):
        """A run without any folder: what every other one must give."""
        return self.run(settings, disk=None)

    def segments(self):
        return sorted(self.kv.glob('*.seg'))

    def save(self):
        """Keep the folder as it is, to be brought back by restore()."""
        shutil.rmtree(self.dir / 'saved', ignore_errors=True)
        shutil.copytree(self.kv, self.dir / 'saved')

    def restore(self):
        shutil.rmtree(self.kv, ignore_errors=True)
        shutil.copytree(self.dir / 'saved', self.kv)

    def blocks(self):
        """Bytes that the folder occupies, without its ring of events."""
        total = 0
        for name in os.listdir(self.kv):
            try:
                total += os.lstat(self.kv / name).st_blocks * 512
            except FileNotFoundError:
                pass
        return total


def work_in_memory():
    """For a script that compares bytes and starts hundreds of runs, most of whose time a disk would take to sync."""
    if os.access('/dev/shm', os.W_OK):
        tempfile.tempdir = '/dev/shm'


class Checks:
    """Counts what holds, and says what does not."""

    def __init__(self, only=''):
        self.passed = self.failed = self.skipped = 0
        self.only = only

    def that(self, what, holds, detail=''):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            print(f'FAIL {what}  {detail}', flush=True)
        return holds

    def same(self, what, run, want, code=0):
        """The run ended as it should and wrote the records of another one."""
        if run.code != code:
            return self.that(what, False, f'exit {run.code}, want {code}\n{run.log[-2000:]}')
        if run.records != want.records:
            bad = [i for i, (a, b) in enumerate(zip(run.records.splitlines(), want.records.splitlines())) if a != b]
            first = bad[0] if bad else -1
            return self.that(what, False, f'records {bad[:10]} differ (of {len(run.records.splitlines())}, {len(want.records.splitlines())})\n  '
                             f'{run.records.splitlines()[first] if bad else ""}\n  {want.records.splitlines()[first] if bad else ""}\n'
                             f'{run.log[-1500:]}')
        return self.that(what, want.records)

    def each(self, cases, *args):
        """Run the cases whose name holds the text that was asked for."""
        for case in cases:
            if self.only not in case.__name__:
                continue
            start = time.monotonic()
            try:
                case(self, *args)
            except Exception as e:  # a case that breaks must not hide the others
                import traceback
                traceback.print_exc()
                self.that(case.__name__, False, repr(e))
            print(f'  {case.__name__}: {time.monotonic() - start:.1f} s', flush=True)

    def skip(self, n, why):
        self.skipped += n
        print(f'SKIP {why}', flush=True)

    def report(self):
        print(f'{self.passed} passed, {self.failed} failed, {self.skipped} skipped')
        return 1 if self.failed else 0 if self.passed else 77       # 77: skipped


def parser(doc):
    """What every one of these scripts is called with."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quire', required=True, type=pathlib.Path)
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--only', default='', help='cases whose name holds this text')
    return ap


def main(doc, cases, before=lambda c, quick: None):
    """Run cases(c, quire, quick); the exit status for the caller to end with."""
    a = parser(doc).parse_args()
    c = Checks(a.only)
    before(c, a.quick)
    c.each(cases, a.quire.resolve(), a.quick)
    return c.report()
