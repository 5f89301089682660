#!/usr/bin/env python3
"""Files made to break who reads them, and readers that die.  run_hostile.py --quire build/release/quire [--quick] [--only TEXT]

Each file ends as records, failed or answered, in bounded time and memory, which are printed. A reader that is killed costs the
document it was at, and no other; a signal to all processes of a run leaves that document pending; none of them outlives the run.
"""
import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib

from kv_rig import Checks, parser, text

MIB = 1 << 20
TIMEOUT = 10                    # ingest.timeout of every run here
SECONDS = TIMEOUT * 1.25 + 1    # after which a reader is stopped
JOB = '''model: {kind: null}
kv: {memory: 1MiB}
chunk: {tokens: 4000}
limits: {threads: 1}
prompt: {system: "", document: "{{text}}"}
decode: {max_tokens: 4}
write: {to: out}
ingest: {from: docs, timeout: 10s}
'''


# ---- files ----

def zip_of(entries, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def tar_of(entries, fmt=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=fmt) as t:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def nested_zip(levels, each, leaf):
    """A zip of `each` zips of `each` zips ...: each**levels times the leaf, in a few KiB."""
    data = zip_of([('0', leaf)])
    for _ in range(levels):
        data = zip_of([(f'{i}.zip', data) for i in range(each)])
    return data


def overlapping_zip(n, size):
    """A zip of n entries which all are the same compressed bytes: its directory points n times to them."""
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = bytes(size)
    packed = body.compress(raw) + body.flush()
    sums = struct.pack('<III', zlib.crc32(raw), len(packed), size)
    local = struct.pack('<IHHHHH', 0x04034b50, 20, 0, 8, 0, 33) + sums + struct.pack('<HH', 1, 0) + b'x' + packed
    entry = struct.pack('<IHHHHHH', 0x02014b50, 20, 20, 0, 8, 0, 33) + sums + struct.pack('<HHHHHII', 1, 0, 0, 0, 0, 0, 0) + b'x'
    end = struct.pack('<IHHHHIIH', 0x06054b50, 0, 0, n, n, len(entry) * n, len(local), 0)
    return local + entry * n + end


def greedy_xz():
    """Ten bytes that ask for a dictionary of 1.5 GiB."""
    data = bytearray(lzma.compress(b'small text', format=lzma.FORMAT_XZ))
    size = (data[12] + 1) * 4
    at = data.index(b'\x21\x01', 12) + 2
    data[at] = 37
    data[12 + size - 4:12 + size] = struct.pack('<I', zlib.crc32(bytes(data[12:12 + size - 4])))
    return bytes(data)


def tar_header(name, size, kind=b'0'):
    head = bytearray(512)
    head[:len(name)] = name
    head[100:108], head[124:136], head[156:157], head[257:265] = b'0000644\0', size, kind, b'ustar\x0000'
    head[148:156] = b' ' * 8
    head[148:156] = b'%06o\0 ' % sum(head)
    return bytes(head)


def hostile(scale):
    """(name, bytes), the large ones of 16 MiB / scale."""
    big, r = 16 * MIB // scale - 4096, random.Random(7)
    fill = lambda unit: unit * (big // len(unit))
    zeros = bytes(64 * MIB // scale)
    yield 'bomb.zip', zip_of([('zeros.txt', zeros), ('after.txt', b'after')])
    yield 'bomb-nested.zip', nested_zip(4, 16, bytes(MIB))
    yield 'bomb-deep.zip', nested_zip(24, 1, b'the end')
    yield 'bomb-overlap.zip', overlapping_zip(5000, 100_000)
    yield 'bomb.gz', gzip.compress(zeros, 9)
    yield 'bomb.gz.gz.gz.gz', gzip.compress(gzip.compress(gzip.compress(gzip.compress(zeros, 9))))
    yield 'bomb.bz2', bz2.compress(zeros)
    yield 'bomb.xz', lzma.compress(zeros)
    yield 'bomb.tar.xz', lzma.compress(tar_of([(f'{i}', zeros[:MIB]) for i in range(32)]))
    yield 'greedy.xz', greedy_xz()
    yield 'greedy.zst', b'\x28\xb5\x2f\xfd\x00\xa8' + b'\x01\x00\x00'      # a window of 2 GiB
    yield 'many.zip', zip_of([(f'{i}.txt', b'') for i in range(20000 // scale)])
    yield 'size-max.tar', tar_header(b'huge.txt', b'\x80' + b'\0' * 3 + b'\x7f' + b'\xff' * 7) + b'short'
    yield 'size-minus.tar', tar_header(b'minus.txt', b'\xff' * 12) + b'short'
    yield 'pax-name.tar', tar_of([('n' * (MIB // 2), b'text')])
    yield 'pax-cut.tar', tar_header(b'pax', b'77777777777\0', b'x') + b'99999999999 path=x\n'
    yield 'laughs.xml', b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "lol">' + b''.join(
        b'<!ENTITY %c "%s">' % (98 + i, b'&%c;' % (97 + i) * 10) for i in range(9)) + b']><l>&j;</l>'
    yield 'quadratic.xml', b'<!DOCTYPE l [<!ENTITY a "' + b'x' * 100000 + b'">]><l>' + b'&a;' * 10000 + b'</l>'
    yield 'outside.xml', b'<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><l>&a;</l>'
    yield 'deep.xml', b'<?xml version="1.0"?>' + fill(b'<a>')
    yield 'attributes.xml', b'<?xml version="1.0"?><a ' + b' '.join(b'a%d="1"' % i for i in range(100000)) + b'/>'
    yield 'deep.html', b'<html>' + fill(b'<div>') + b'x'
    yield 'table.html', b'<html>' + fill(b'<table><tr><td>x')
    yield 'attribute.html', b'<html><p class="' + fill(b'x') + b'">text'
    yield 'open-comment.html', b'<html>text' + fill(b'<!--')
    yield 'entities.html', b'<html>' + fill(b'&lt;&#x41;&bogus;')
    yield 'items.md', fill(b'- a\n')
    yield 'quotes.md', fill(b'> ')
    yield 'brackets.md', fill(b'[')
    yield 'links.md', fill(b'[a](')
    yield 'stars.md', fill(b'*a **a ')
    yield 'ticks.md', b''.join(b'`' * i + b' ' for i in range(1, 5000 // scale))
    yield 'references.md', b''.join(b'[%d]: /u\n' % i for i in range(200000 // scale)) + b'[0] ' * 1000
    yield 'tables.md', fill(b'|a|b|\n|-|-|\n')
    yield 'deep.jsonl', b'{"text":' + b'[' * MIB + b'\n{"text":"after"}\n'
    yield 'values.jsonl', b'{"a":[' + b'1,' * 2_000_000 + b'1],"text":"x"}\n'
    yield 'line.jsonl', b'{"text":"' + fill(b'\\ud800')
    yield 'marks.txt', b'a' + fill('\u0301\u0316'.encode())
    yield 'jamo.txt', fill('\u1100\u1161\u11a8'.encode())
    yield 'expands.txt', fill('\ufdfa'.encode())
    yield 'returns.txt', b'a' + fill(b'\r')
    yield 'one-line.txt', fill(b'a')
    yield 'high.txt', bytes(r.randrange(0x80, 0x100) for _ in range(big // 4))
    yield 'shifts.txt', fill(b'\x1b$B!!\x1b(B')
    yield 'noise.bin', r.randbytes(big)
    yield 'zeros.bin', bytes(big)
    small = text(3, 20000).encode()
    for name, whole in (('zip', zip_of([('a.txt', small), ('b.txt', small)])), ('tar', tar_of([('a.txt', small), ('b.txt', small)])),
                        ('txt.gz', gzip.compress(small)), ('txt.bz2', bz2.compress(small)), ('txt.xz', lzma.compress(small))):
        for k in (1, 4, 7):
            yield f'cut-{k}.{name}', whole[:len(whole) * k // 8]
        flipped = bytearray(whole)
        for _ in range(20):
            flipped[r.randrange(len(whole))] ^= 1 << r.randrange(8)
        yield f'flipped.{name}', bytes(flipped)


# ---- runs ----

class Rig:
    def __init__(self, quire):
        self.quire, self.dir = quire, pathlib.Path(tempfile.mkdtemp(prefix='quire-hostile-'))

    def folder(self, name, docs):
        """A job over these documents."""
        here = self.dir / name
        shutil.rmtree(here, ignore_errors=True)
        (here / 'docs').mkdir(parents=True)
        (here / 'job.yaml').write_text(JOB)
        for doc, data in docs:
            (here / 'docs' / doc).write_bytes(data)
        return here

    def start(self, here, *settings):
        words = [self.quire, 'run', here / 'job.yaml', '--progress', 'none']
        for s in settings:
            words += ['--set', s]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors='replace',
                                start_new_session=True)

    def finish(self, p, seconds=600):
        """(exit status, log)"""
        _, log = p.communicate(timeout=seconds)
        return p.returncode, log


def records(here):
    path = here / 'out/results.jsonl'
    if not path.is_file():
        path = here / 'out/results.jsonl.partial'
    lines = path.read_text().splitlines() if path.is_file() else []
    return {r['source'].rsplit('/', 1)[1] + ''.join(f'/{x}' for x in r['chain']): r for r in map(json.loads, lines)}


def children(pid):
    """All processes below pid."""
    out = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
            for child in (task / 'children').read_text().split():
                out += [int(child), *children(int(child))]
    return out


def reader_of(pid):
    for child in children(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f'/proc/{child}/comm').read_text().strip() == 'quire-reader':
                return child
    return None


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.005)
    return None


def busy_seconds(pid):
    """CPU time of a process, 0 once it is gone."""
    try:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
    except OSError:
        return 0


def try_files(rig, c, scale, only, sanitized):
    """Each file alone, then all together: the same records."""
    files = [(n, d) for n, d in hostile(scale) if only in n]
    apart, worst = {}, (0, 0)
    for name, data in files:
        here = rig.folder('one', [(name, data)])
        start, before = time.monotonic(), os.times()
        code, log = rig.finish(rig.start(here))
        wall, after = time.monotonic() - start, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        got = records(here)
        apart.update(got)
        memory = json.loads((here / 'out/run.json').read_bytes())['memory'] if code in (0, 1) else {'reader_peak_rss': 0, 'plan': {}}
        peak, planned = memory['reader_peak_rss'], memory['plan'].get('reader', 0)
        worst = max(worst[0], cpu), max(worst[1], peak)
        ends = sorted({r['error']['code'] if r['status'] == 'failed' else r['status'] for r in got.values()})
        print(f'    {name:18} {len(data) / MIB:6.2f} MiB {cpu:6.2f} s cpu {wall:6.2f} s {peak / MIB:6.1f} MiB  '
              f'{len(got)} {",".join(ends)}', flush=True)
        # The run itself cuts, counts and answers what was read: some of the time is its own.
        c.that(f'{name} ends as records', code in (0, 1) and got and 'bug' not in ends, f'exit {code}, {ends}\n{log[-1500:]}')
        c.that(f'{name} ends in time', cpu < 2 * SECONDS or sanitized, f'{cpu:.1f} s of CPU time')
        c.that(f'{name} stays in memory', peak <= planned or sanitized, f'{peak} of {planned} bytes')
    print(f'    worst: {worst[0]:.2f} s of CPU time, {worst[1] / MIB:.1f} MiB to read')
    here = rig.folder('all', files)
    code, log = rig.finish(rig.start(here))
    together = records(here)
    # What ends by its time may end in the reader, or with it.
    late = {k for d in (apart, together) for k, r in d.items() if 'ingest.timeout' in str(r.get('error'))}
    one, other = ({k: None if k in late else (r['status'], r.get('error'), r['id']) for k, r in d.items()}
                  for d in (apart, together))
    c.that('all files together: the same records', one == other,
           f'exit {code}: {sorted(k for k in {*one, *other} if one.get(k) != other.get(k))[:10]}\n{log[-1500:]}')


DOCS = [*((f'{i:02}.txt', text(i, 3000).encode()) for i in range(10)), ('10-slow.md', b'- a\n' * (4 * MIB)),
        *((f'{i:02}.txt', text(i, 3000).encode()) for i in range(11, 20))]
SLOW = '10-slow.md'


def slow_docs(scale):
    return [(n, d[:len(d) // scale] if n == SLOW else d) for n, d in DOCS]


def at_the_slow_one(p):
    """The reader, once it is deep in the slow document: nothing else takes it as long."""
    def look():
        reader = reader_of(p.pid)
        return reader if reader and busy_seconds(reader) > 0.15 else None
    return wait_for(look)


def bodies(got):
    return {k: {f: v for f, v in r.items() if f not in ('ordinal', 'source')} for k, r in got.items()}


def try_kills(rig, c, scale, times):
    here = rig.folder('clean', slow_docs(scale))
    code, log = rig.finish(rig.start(here))
    want = records(here)
    if not c.that('the documents are all read', code == 0 and len(want) == 20, f'exit {code}\n{log[-1500:]}'):
        return
    for i in range(times):
        here = rig.folder('kill', slow_docs(scale))
        p = rig.start(here)
        reader = at_the_slow_one(p)
        if reader:
            os.kill(reader, signal.SIGKILL)
        code, log = rig.finish(p)
        got = records(here)
        failed = [k for k, r in got.items() if r['status'] == 'failed']
        others = {k: r for k, r in bodies(got).items() if k != SLOW}
        c.that(f'a reader that is killed costs its document ({i})',
               reader and code == 1 and failed == [SLOW] and len(got) == 20 and
               others == {k: r for k, r in bodies(want).items() if k != SLOW} and 'signal 9' in got[SLOW]['error']['message'],
               f'exit {code}, failed {failed}, {len(got)} records\n{log[-1500:]}')
    for name, order in (('TERM to every process', 'all'), ('TERM to the group', 'group'), ('TERM, and KILL to the reader', 'kill')):
        for i in range(times):
            here = rig.folder('term', slow_docs(scale))
            p = rig.start(here)
            reader = at_the_slow_one(p)
            below = children(p.pid)
            if order == 'group':
                os.killpg(p.pid, signal.SIGTERM)
            else:
                for pid in [p.pid, *below]:
                    os.kill(pid, signal.SIGTERM)
            if order == 'kill' and reader:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(reader, signal.SIGKILL)
            code, log = rig.finish(p)
            got = records(here)
            c.that(f'{name}: the document is pending ({i})', reader and code == 143 and SLOW not in got and
                   not any(r['status'] == 'failed' for r in got.values()), f'exit {code}, {sorted(got)}\n{log[-1500:]}')
            c.that(f'{name}: nothing is left running ({i})', wait_for(lambda: not any(map(busy_seconds, below)), 10), below)
            code, log = rig.finish(rig.start(here))
            c.that(f'{name}: the next run ends as if nothing had been ({i})', code == 0 and bodies(records(here)) == bodies(want),
                   f'exit {code}, {len(records(here))} records\n{log[-1500:]}')
    here = rig.folder('gone', slow_docs(scale))
    p = rig.start(here)
    reader, below = at_the_slow_one(p), children(p.pid)
    p.kill()
    rig.finish(p)
    c.that('readers end with a run that is killed', reader and len(below) == 2 and
           wait_for(lambda: not any(os.path.exists(f'/proc/{pid}') for pid in below), 10), below)


def main():
    a = parser(__doc__).parse_args()    # --only: files whose name holds this text, or kills
    quire = a.quire.resolve()
    build = quire.parent.name
    c, rig = Checks(), Rig(quire)
    try:
        if build == 'tsan':
            c.skip(1, 'files: a reader has one thread')
        elif a.only != 'kills':
            try_files(rig, c, 8 if a.quick or build == 'asan' else 1, a.only, build == 'asan')
        if a.only in ('', 'kills'):
            try_kills(rig, c, 2, 1 if a.quick else 3)
    finally:
        shutil.rmtree(rig.dir)
    return c.report()


if __name__ == '__main__':
    sys.exit(main())
