#!/usr/bin/env python3
"""What may happen to a folder of KV pages: flipped bytes, cut and deleted files, strangers, refusals, SIGKILL.

    run_kv_damage.py --quire build/release/quire [--quick] [--only TEXT]

Whatever it is, the answers are those of a run without a folder, the exit status is 0, and the log says so. --quick
takes fewer places and fewer kills.
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from kv_rig import NULL, TINY, TINY_MODEL, Rig, main, records_of, text

KEEP = 'kv.keep=all'
SAID = ('damage', 'decode to', 'cannot', 'not ', 'torn', 'deleted')
# offset in a record's head, what is there
HEAD = [(0, 'magic'), (3, 'magic'), (4, 'version'), (5, 'state'), (6, 'kind'), (7, 'codec'), (8, 'n_tokens'), (11, 'n_tokens'),
        (12, 'n_logits'), (15, 'n_logits'), (16, 'body_bytes'), (19, 'body_bytes'), (20, 'written'), (24, 'body_hash'),
        (32, 'page_hash'), (40, 'owner'), (48, 'sum'), (56, 'key'), (87, 'key'), (88, 'parent'), (120, 'context'), (152, 'token'),
        (200, 'token')]


def flip(path, at, bit):
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1 << bit]))


def full_rig(c, quire, n=20, settings=TINY_MODEL):
    """A rig whose folder holds all pages of its job, and the run that everything is compared with."""
    rig = Rig(quire, [text(i, 330) for i in range(n)], settings)
    want = rig.plain()
    c.same('first run', rig.run([KEEP]), want)
    rig.save()
    return rig, want


def after(c, what, rig, want, settings=(KEEP,), again=True):
    """A run over what was done to the folder, and more until everything is found: a damaged page is met only when the
    pages before it are there."""
    run = later = rig.run(settings)
    c.same(what, run, want)
    for _ in range(4 if again else 0):
        later = rig.run(settings)
        c.same(f'{what}, again', later, want)
        if later.prefilled == 0:
            break
    c.that(f'{what}: made whole again', not again or later.prefilled == 0, later.told)
    return run


def head_fields(c, quire, quick):
    """One flip in each field of a head, in every bit class of the state, and in the head of the segment."""
    rig, want = full_rig(c, quire, 8 if quick else 20)
    with rig:
        records = records_of(rig.segments()[0])
        at = records[len(records) // 3][0]
        places = [(at + off, i % 8, name) for i, (off, name) in enumerate(HEAD)] + [(at + 5, bit, 'state') for bit in range(8)]
        places += [(off, off % 8, 'segment head') for off in (0, 7, 8, 11, 12, 63)]
        for place, bit, name in places[::9] if quick else places:
            rig.restore()
            flip(rig.segments()[0], place, bit)
            run = after(c, f'flip in {name} at {place}, bit {bit}', rig, want, again=name != 'segment head')
            if name != 'segment head':
                c.that(f'flip in {name}: little is lost', run.hits('disk') + run.hits('ram') >= run.kv['lookup_tokens'] * 0.8, run.told)


def whole_file(c, quire, quick):
    """Flips spread over the whole file, many at a time, bodies with logits and padding included."""
    rig, want = full_rig(c, quire)
    with rig:
        size, r, corrupt = rig.segments()[0].stat().st_size, random.Random(4), 0
        for group in range(1 if quick else 12):
            rig.restore()
            for i in range(25):
                flip(rig.segments()[0], 64 + int((size - 65) * (i + r.random()) / 25), r.randrange(8))
            run = after(c, f'25 flips, group {group}', rig, want)
            corrupt += run.kv['pages_corrupt']
            said = [w for w in run.warnings() if any(s in w for s in SAID)]
            c.that(f'25 flips, group {group}: said, and counted', run.kv['pages_corrupt'] > 0 and said, (run.kv, run.warnings()))
        c.that('flips: most were met', corrupt > 10, corrupt)


def truncated(c, quire, quick):
    """Cut at the boundaries of records and inside of them, and at the beginning."""
    rig, want = full_rig(c, quire)
    with rig:
        records = records_of(rig.segments()[0])
        places = [0, 1, 63, 64, 65, 128]
        for at, size, _, _, head in (records[1], records[len(records) // 2], records[-1]):
            places += [at - 1, at, at + 1, at + 64, at + head - 1, at + head, at + head + 1, at + size - 64, at + size - 1]
        for place in places[::8] if quick else places:
            rig.restore()
            os.truncate(rig.segments()[0], place)
            after(c, f'cut at {place}', rig, want)
        for place in (records[2][0], records[-1][0]):
            rig.restore()
            with open(rig.segments()[0], 'r+b') as f:
                f.seek(place)
                f.write(bytes(8192))
            after(c, f'zeros at {place}', rig, want)
        rig.restore()
        with open(rig.segments()[0], 'ab') as f:
            f.write(os.urandom(5000))
        after(c, 'garbage behind the end', rig, want)


def deleted(c, quire, quick):
    """Segments and the whole folder go, between runs and at random moments of one."""
    rig, want = full_rig(c, quire, 12 if quick else 60)
    with rig:
        shutil.rmtree(rig.kv)
        after(c, 'folder deleted between runs', rig, want)
        for name in ('lock', 'uses', 'events.ring', '00000000.seg'):
            rig.restore()
            (rig.kv / name).unlink(missing_ok=True)
            after(c, f'{name} deleted', rig, want)
        split = [KEEP, 'kv.disk_limit=64MiB']
        r = random.Random(5)

        def segments():
            for p in rig.segments():
                p.unlink(missing_ok=True)

        def folder():
            shutil.rmtree(rig.kv, ignore_errors=True)

        def cut():
            for p in rig.segments():
                os.truncate(p, p.stat().st_size // 2)

        def lock():
            (rig.kv / 'lock').unlink(missing_ok=True)

        def moved():
            rig.kv.rename(rig.dir / f'moved{r.random()}')

        for what in (segments, folder, cut, lock, moved):
            for i in range(1 if quick else 12):
                if i % 2:
                    rig.restore()
                else:
                    shutil.rmtree(rig.kv, ignore_errors=True)
                process = rig.start(split)
                time.sleep(r.uniform(0.005, 0.2))
                try:
                    what()
                except OSError:
                    pass
                run = rig.end(*process)
                c.same(f'{what.__name__} during a run, {i}', run, want)
                c.that(f'{what.__name__} during a run: warnings', len(run.warnings()) <= 3, run.warnings())
            after(c, f'after {what.__name__} during a run', rig, want, again=not quick)


def strangers(c, quire, quick):
    """Files that are not ours, with our names and others, and of other kinds."""
    rig, want = full_rig(c, quire, 4 if quick else 20)
    with rig:
        def fill(name, data=b'garbage\n' * 1000):
            (rig.kv / name).write_bytes(data)

        def replace(name):
            def f():
                (rig.kv / name).unlink(missing_ok=True)
                fill(name)
            return f

        def put(name, make):
            def f():
                (rig.kv / name).unlink(missing_ok=True)
                make(rig.kv / name)
            return f

        for i, (what, do) in enumerate((
                ('a segment of garbage', lambda: fill('00000001.seg')),
                ('an empty segment', lambda: fill('00000001.seg', b'')),
                ('a segment of garbage with the last number', lambda: fill('99999999.seg')),
                ('a segment of garbage with a large number', lambda: fill('ffffffff.seg')),
                ('other names', lambda: [fill(n) for n in ('x.seg', '1.seg', '00000001.seg.bak', 'README', '-.run')]),
                ('uses of garbage', replace('uses')),
                ('a ring of garbage', replace('events.ring')),
                ('a lock with text', replace('lock')),
                ('a run of garbage', lambda: fill('0123456789abcdef.run')),
                ('a folder for a segment', put('00000001.seg', os.mkdir)),
                ('a fifo for a segment', put('00000001.seg', os.mkfifo)),
                ('a link for a segment', put('00000001.seg', lambda p: os.symlink('/etc/passwd', p))),
                ('a fifo for the uses', put('uses', os.mkfifo)),
                ('a folder for the uses', put('uses', os.mkdir)),
                ('a link for the uses', put('uses', lambda p: os.symlink('/dev/zero', p))),
                ('a fifo for the ring', put('events.ring', os.mkfifo)),
                ('a link for the ring', put('events.ring', lambda p: os.symlink('/etc/passwd', p))))):
            if quick and i % 3:
                continue
            rig.restore()
            do()
            before = {p.name: p.read_bytes() for p in rig.kv.iterdir()
                      if p.is_file() and not p.is_symlink() and p.name.endswith(('.seg', 'README', '.bak')) and p.name != '00000000.seg'}
            run = after(c, what, rig, want)
            c.that(f'{what}: the rest is found', run.prefilled == 0, run.told)
            for name, data in before.items():
                p = rig.kv / name
                c.that(f'{what}: {name} is left alone', not data or p.is_file() and p.read_bytes() == data)
        for what, make in (('a folder for the lock', os.mkdir), ('a fifo for the lock', os.mkfifo),
                           ('a link for the lock', lambda p: os.symlink('/etc/passwd', p))):
            rig.restore()
            put('lock', make)()
            run = after(c, what, rig, want, again=False)
            c.that(f'{what}: said once', len(run.warnings()) <= 2, run.warnings())
        c.that('nothing was written through a link', pathlib.Path('/etc/passwd').read_bytes()[:5] == b'root:')


def let_in(rig):
    """The rig works for any user: what it runs and reads lies in its folder, wherever the tree is."""
    for path in (rig.quire, TINY):
        shutil.copyfile(path, rig.dir / path.name)
    rig.quire = rig.dir / rig.quire.name
    rig.settings.append(f'model.file={rig.dir / TINY.name}')
    for path in (rig.dir, rig.dir / 'docs', rig.quire):
        path.chmod(0o777)
    for path in (rig.dir / TINY.name, rig.dir / 'job.yaml', *(rig.dir / 'docs').iterdir()):
        path.chmod(0o644)


def cannot_start(rig, prefix):
    """Why, when it is not for anything that the program does: the first lines of the loader or of OpenMP."""
    p = subprocess.run([*prefix, rig.quire, 'version'], capture_output=True, text=True)
    said = p.stderr if p.returncode else rig.run(disk=None, prefix=prefix).log
    lines = [x for x in said.splitlines() if p.returncode or x.startswith('OMP: Error')]
    return '; '.join(lines[:2]) or p.returncode and f'exit {p.returncode}'


def refused(c, quire, quick):
    """A folder that is a file, or may not be read or written."""
    rig, want = full_rig(c, quire)
    with rig:
        shutil.rmtree(rig.kv)
        rig.kv.write_text('a file')
        run = rig.run([KEEP])
        c.that('a folder that is a file', run.code in (2, 3) and 'kv.disk' in run.log and not run.records, (run.code, run.log[-600:]))
        c.that('a folder that is a file is left alone', rig.kv.read_text() == 'a file')
        rig.kv.unlink()
        run = rig.run([KEEP], disk='/proc/no/such/folder')
        c.that('a folder that cannot be made', run.code in (2, 3) and 'kv.disk' in run.log, (run.code, run.log[-600:]))
        run = rig.run([KEEP], disk=rig.dir / 'many/new/folders')
        c.same('folders that are made', run, want)
        prefix = []
        if os.geteuid() == 0:
            if not shutil.which('setpriv'):
                c.skip(10, 'no setpriv: root may write anywhere')
                return
            prefix = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
            let_in(rig)
            why = cannot_start(rig, prefix)
            if why:
                c.skip(10, f'another user cannot start the program: {why}')
                return
        rig.env['XDG_CACHE_HOME'] = '/nonexistent'
        for what, folder, files, reads in (('a read-only folder', 0o555, 0o444, True), ('a folder without permission', 0o000, 0o600, False),
                                           ('read-only files', 0o777, 0o444, True), ('files without permission', 0o777, 0o000, False)):
            rig.restore()
            for p in rig.kv.iterdir():
                p.chmod(files)
            rig.kv.chmod(folder)
            run = rig.run([KEEP], prefix=prefix)
            if folder == 0:
                c.that(what, run.code in (2, 3) and 'kv.disk' in run.log, (run.code, run.log[-600:]))
            else:
                c.same(what, run, want)
                c.that(f'{what}: found', run.prefilled == 0 if reads else run.prefilled > 0, run.told)
                warned = [w for w in run.warnings() if ' kv: ' in w]
                c.that(f'{what}: said', 1 <= len(warned) <= 2, warned)
            rig.kv.chmod(0o700)


def killed(c, quire, quick):
    """SIGKILL at random moments; what is left is whole, and is found."""
    for name, model, kills in (('null', NULL, 6 if quick else 100), ('tiny', TINY_MODEL, 6 if quick else 100)):
        with Rig(quire, [text(i, 330) for i in range(30)], model) as rig:
            want, r = rig.plain(), random.Random(6)
            ways = [[KEEP], ['kv.keep=auto'], [KEEP, 'kv.disk_limit=4MiB'], ['kv.keep=none', 'kv.memory=256KiB', 'kv.ahead=64']]
            seconds = rig.run([KEEP]).seconds
            shutil.rmtree(rig.kv)
            ended = 0
            for i in range(kills):
                way = ways[i % 4]
                process, out = rig.start(way)
                time.sleep(r.uniform(0, 0.7 * seconds))
                process.send_signal(signal.SIGKILL)
                process.communicate()
                if process.returncode == 0:
                    ended += 1
                    seconds *= 0.8      # it was measured while the machine had more to do
                shutil.rmtree(out, ignore_errors=True)
                if i % 20 == 19 or i == kills - 1:
                    run = rig.run(way)
                    c.same(f'{name}: after {i + 1} kills', run, want)
                    c.that(f'{name}: nothing is torn', run.kv['pages_corrupt'] == 0 and not run.warnings(), (run.kv, run.warnings()))
                    verify = subprocess.run([rig.quire, 'kv', 'verify', rig.kv], capture_output=True, text=True)
                    c.that(f'{name}: quire kv verify', verify.returncode == 0, verify.stdout[-500:] + verify.stderr[-500:])
                    if i % 40 == 39:
                        shutil.rmtree(rig.kv)
            c.that(f'{name}: kills came in time', ended < kills * 0.9, f'{ended} of {kills} had ended')
            after(c, f'{name}: after all kills', rig, want)
            c.that(f'{name}: no run is left over', not list(rig.kv.glob('*.run')))


def full_disk(c, quire, quick):
    """A file system without room: said once, and nothing else."""
    rig, want = full_rig(c, quire)
    with rig:
        rig.kv = rig.dir / 'small'
        rig.kv.mkdir()
        if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=512k', 'tmpfs', rig.kv], capture_output=True).returncode:
            c.skip(2, 'no file system can be mounted here')
            return
        try:
            for i in range(2):
                run = rig.run([KEEP])
                c.same(f'full disk, run {i}', run, want)
                warned = [w for w in run.warnings() if ' kv: ' in w]
                c.that('full disk: said once', len(warned) <= 2, warned)
        finally:
            subprocess.run(['umount', rig.kv])


sys.exit(main(__doc__, [head_fields, whole_file, truncated, deleted, strangers, refused, killed, full_disk]))
