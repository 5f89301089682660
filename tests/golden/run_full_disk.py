#!/usr/bin/env python3
"""A file system that is full: run_full_disk.py --quire build/release/quire [--quick]

The results and the ledger lie on a small file system. Wherever its end is met, the run stops with status 3, what is
written stays whole, and when there is room again the next run has the same results as one that never met it.
(Pages on a full disk: run_kv_damage.py, full_disk.) Needs the right to mount.
"""
import json
import subprocess
import sys

from kv_rig import Rig, main, text

JOB = '''model: {kind: null, context: 4096}
task: {kind: ask, questions: ["What is it?", "Who is named?"]}
prompt: {system: "", document: "{{text}} {{question}}"}
limits: {threads: 1}
ingest: {from: docs}
write: {to: out, formats: [jsonl, markdown]}
'''
DOCS = 60


def everything(out):
    """Records and pages of an output folder."""
    pages = {p.name: p.read_bytes() for p in sorted(out.glob('summaries/*'))}
    path = out / 'results.jsonl'
    return path.read_bytes() if path.is_file() else b'', pages


def run(rig, out):
    words, out = rig.command([], None, out)
    p = subprocess.run(words, capture_output=True, text=True, errors='replace', env=rig.env, timeout=300)
    return p.returncode, p.stderr


def one_size(c, rig, small, kib, want, most):
    """Returns what the first run ended with."""
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={kib}k', 'tmpfs', small], capture_output=True).returncode:
        return None
    try:
        code, log = run(rig, small / 'out')
        if code == 0:
            c.that(f'{kib} KiB: there was room after all', everything(small / 'out') == want)
            return 0
        c.that(f'{kib} KiB: stopped, exit 3', code == 3, f'exit {code}\n{log[-1500:]}')
        c.that(f'{kib} KiB: and said', 'No space left on device' in log, log[-1500:])
        for path in small.glob('out/results.jsonl*'):
            lines = path.read_bytes().split(b'\n')
            c.that(f'{kib} KiB: whole records', not lines[-1] and all(json.loads(x)['status'] == 'ok' for x in lines[:-1]))
        subprocess.run(['mount', '-o', f'remount,size={most}k', small], check=True)
        code, log = run(rig, small / 'out')
        c.that(f'{kib} KiB: with room again, exit 0', code == 0, f'exit {code}\n{log[-1500:]}')
        c.that(f'{kib} KiB: and the same results', everything(small / 'out') == want, log[-1500:])
        left = [p.name for p in (small / 'out').rglob('*') if p.name.endswith('.partial') or '.tmp' in p.name]
        c.that(f'{kib} KiB: nothing left behind', not left, left)
        return 3
    finally:
        subprocess.run(['umount', small], check=True)


def results_and_ledger(c, quire, quick):
    with Rig(quire, [text(i, 900) for i in range(DOCS)], [], JOB) as rig:
        code, log = run(rig, rig.dir / 'clean')
        if not c.that('with room', code == 0, log):
            return
        want = everything(rig.dir / 'clean')
        small = rig.dir / 'small'
        small.mkdir()
        ends, kib = [], 8
        while kib < 1 << 14:
            end = one_size(c, rig, small, kib, want, 1 << 15)
            if end is None:
                c.skip(1, 'no file system can be mounted here')
                return
            ends.append(end)
            if end == 0:
                break
            kib = kib * (3 if quick else 1.35) // 4 * 4 + 4
            kib = int(kib)
        c.that('it was full, and in the end it was not', ends[-1] == 0 and ends.count(3) >= 2, ends)


sys.exit(main(__doc__, [results_and_ledger]))
