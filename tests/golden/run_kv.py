#!/usr/bin/env python3
"""Runs that share a folder of KV pages: what they find there, and that answers never depend on it.

    run_kv.py --quire build/release/quire [--quick] [--only TEXT]

--quick leaves out the language model and takes the other jobs smaller. What damage does: run_kv_damage.py.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import sys
import threading
import time

from kv_rig import LIVE, NULL, SMOLLM, SMOLLM_MODEL, TINY, TINY_MODEL, Rig, main, records_of, text

PAGE = 64
KEEP = 'kv.keep=all'
OTHER = 'task.questions=[Who built it?, "When, and why?"]'


def pages(n):
    """kv.memory for n pages of the tiny model."""
    return f'kv.memory={n * 16}KiB'


# ---- found again ----

def second_run(c, quire, quick):
    """The same documents with other questions: the documents are found, and the answers are those of no store."""
    models = [('null', NULL, 900, 10), ('tiny', TINY_MODEL, 330, 10)]
    if not quick and SMOLLM.is_file():
        models.append(('SmolLM2', SMOLLM_MODEL, 8400, 1))
    for name, model, n_bytes, n in models:
        with Rig(quire, [text(i, n_bytes) for i in range(n)], model) as rig:
            first = rig.run()
            c.that(f'{name}: a first run finds nothing', first.code == 0 and first.hits('disk') == 0, first.log)
            none = rig.plain([OTHER, 'kv.reuse=no'])
            memory = rig.plain([OTHER])
            second = rig.run([OTHER])
            c.same(f'{name}: second run, other questions', second, none)
            c.same(f'{name}: memory alone', memory, none)
            if name == 'SmolLM2':
                ratio = second.kv['hit_ratio']
                c.that('SmolLM2: 95 % of prompt tokens from the store', ratio >= 0.95 and second.hits('disk') > 0, second.told)
                cost = [r.report['speed']['prefill_seconds'] for r in (none, memory, second)]
                print(f'  SmolLM2 second run: {100 * ratio:.1f} % found; prefill {cost[0]:.2f} s without reuse, {cost[1]:.2f} s '
                      f'with memory alone, {cost[2]:.3f} s with the folder')
                c.that('SmolLM2: a tenth of the prefill time', cost[0] >= 10 * cost[2], cost)
                c.that('SmolLM2: a tenth of the tokens of memory alone', memory.prefilled >= 10 * second.prefilled > 0,
                       (memory.prefilled, second.prefilled))


def unchanged(c, quire, quick):
    """The same job again computes nothing at all."""
    models = [('null', NULL, 900, 10), ('tiny', TINY_MODEL, 330, 10)]
    if not quick and SMOLLM.is_file():
        models.append(('SmolLM2', SMOLLM_MODEL, 1500, 2))
    for name, model, n_bytes, n in models:
        with Rig(quire, [text(i, n_bytes) for i in range(n)], model) as rig:
            want = rig.plain(['kv.reuse=no'])
            for i in range(2 if quick else 3):
                run = rig.run([KEEP])
                c.same(f'{name}: keep all, run {i}', run, want)
                computed = run.prefilled
                c.that(f'{name}: keep all, run {i} computes', computed > 0 if i == 0 else computed == 0, computed)


# ---- which pages are whose ----

class Gguf:
    """A GGUF file cut into its parts, to be put together with one of them changed."""

    def __init__(self, path):
        b = path.read_bytes()
        self.head, (n_tensors, self.n_keys) = b[:8], struct.unpack('<QQ', b[8:24])
        at, self.keys = 24, {}
        for _ in range(self.n_keys):
            begin, n = at, struct.unpack_from('<Q', b, at)[0]
            key = b[at + 8:at + 8 + n].decode()
            at = self.skip(b, at + 8 + n + 4, struct.unpack_from('<I', b, at + 8 + n)[0])
            self.keys[key] = b[begin:at]
        tensors = at
        for _ in range(n_tensors):
            at += 8 + struct.unpack_from('<Q', b, at)[0]
            at += 4 + 8 * struct.unpack_from('<I', b, at)[0] + 4 + 8
        self.n_tensors, self.tensors, self.data = n_tensors, b[tensors:at], b[(at + 31) & ~31:]

    def skip(self, b, at, kind):
        if kind == 8:
            return at + 8 + struct.unpack_from('<Q', b, at)[0]
        if kind == 9:
            of, n = struct.unpack_from('<IQ', b, at)
            at += 12
            for _ in range(n):
                at = self.skip(b, at, of)
            return at
        return at + [1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8][kind]

    def write(self, path):
        b = self.head + struct.pack('<QQ', self.n_tensors, len(self.keys)) + b''.join(self.keys.values()) + self.tensors
        path.write_bytes(b + bytes(-len(b) % 32) + self.data)


def put_text(key, value):
    return struct.pack('<Q', len(key)) + key.encode() + struct.pack('<IQ', 8, len(value)) + value.encode()


def flip_weight(g):
    at = len(g.data) // 2
    g.data = g.data[:at] + bytes([g.data[at] ^ 1]) + g.data[at + 1:]


def change_rope(g):
    key = next(k for k in g.keys if k.endswith('rope.freq_base'))
    g.keys[key] = g.keys[key][:-4] + struct.pack('<f', 400000)


def change_word(g):
    """The last token of the vocabulary that is a word: one that no text here has."""
    b = g.keys['tokenizer.ggml.tokens']
    n = struct.unpack_from('<Q', b, 8 + struct.unpack_from('<Q', b)[0] + 8)[0]
    at = 8 + struct.unpack_from('<Q', b)[0] + 16
    for _ in range(n):
        at += 8 + struct.unpack_from('<Q', b, at)[0]
    g.keys['tokenizer.ggml.tokens'] = b[:at - 1] + b'~' + b[at:]


def change_template(g):
    g.keys['tokenizer.chat_template'] = put_text('tokenizer.chat_template', '{{ messages[0].content }} and more')


def change_name(g):
    g.keys['general.name'] = put_text('general.name', 'another name')


def wrong_model(c, quire, quick):
    """Whatever changes the numbers makes every page a miss, whatever does not makes every page a hit."""
    changes = [(flip_weight, False), (change_rope, False), (change_word, False), (change_template, True), (change_name, True),
               (lambda g: None, True)]
    with Rig(quire, [text(i, 330) for i in range(6)], TINY_MODEL) as rig:
        first = rig.run([KEEP])
        c.that('wrong model: first run', first.code == 0 and first.hits('disk') == 0)
        for i, (change, hit) in enumerate(changes):
            g = Gguf(TINY)
            change(g)
            path = rig.dir / f'model{i}.gguf'
            g.write(path)
            name = f'wrong model: {change.__name__.strip("<>")}'
            settings = [KEEP, f'model.file={path}']
            want, run = rig.plain(settings), rig.run(settings)
            c.same(name, run, want)
            found = run.hits('disk')
            c.that(f'{name}: hit or miss', run.prefilled == 0 if hit else found == 0, run.told)
            c.that(f'{name}: again', rig.run(settings).prefilled == 0)
        # The same path: first with a new time, then with everything that the cache of digests goes by unchanged.
        path, g = rig.dir / 'model0.gguf', Gguf(TINY)
        g.data = bytes([g.data[0] ^ 1]) + g.data[1:]
        before = path.stat()
        with open(path, 'r+b') as f:
            f.write((rig.dir / 'model5.gguf').read_bytes())
            f.seek(-len(g.data), 2)
            f.write(g.data)
        settings = [KEEP, f'model.file={path}']
        run = rig.run(settings)
        c.same('wrong model: written over', run, rig.plain(settings))
        c.that('wrong model: written over is a miss', run.hits('disk') == 0, run.told)
        stamp = path.stat()
        with open(path, 'r+b') as f:
            f.seek(-1, 2)
            last = f.read(1)[0]
            f.seek(-1, 2)
            f.write(bytes([last ^ 1]))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        run = rig.run([*settings, 'model.verify=yes'])
        c.same('wrong model: same size, time and inode, verified', run, rig.plain(settings))
        c.that('wrong model: same time and verified is a miss', run.hits('disk') == 0, run.told)
        codecs(c, rig, quick)


def codecs(c, rig, quick):
    """Exact codecs read each other's pages; a lossy one finds none but its own."""
    exact = rig.plain()
    for codec in ('raw', 'split'):
        run = rig.run([KEEP, f'kv.codec={codec}'])
        c.same(f'codec {codec}', run, exact)
        c.that(f'codec {codec}: hit', run.prefilled == 0, run.told)
    for codec in ('q8',) if quick else ('q8', 'k8v4', 'q4', 'layered'):
        settings = [KEEP, f'kv.codec={codec}']
        run = rig.run(settings)
        c.that(f'codec {codec}: miss', run.code == 0 and run.hits('disk') == 0, run.told)
        c.same(f'codec {codec} cold', run, rig.plain(settings))
        again = rig.run(settings)
        c.same(f'codec {codec} warm', again, run)
        c.that(f'codec {codec}: warm computes nothing', again.prefilled == 0, again.told)
        c.same(f'codec {codec}, no reuse', rig.plain([*settings, 'kv.reuse=no']), run)


# ---- many at once ----

def two_processes(c, quire, quick):
    """One folder, the same job at the same moment: right answers, and hardly a page that is there twice."""
    for name, model, n_bytes, n in (('null', NULL, 900, 40), ('tiny', TINY_MODEL, 330, 40))[quick:]:
        with Rig(quire, [text(i, n_bytes) for i in range(n)], model) as rig:
            want = rig.plain()
            for round_ in range(1 if quick else 12 if name == 'null' else 4):    # a lock that does not lock shows now and then
                shutil.rmtree(rig.kv, ignore_errors=True)
                runs = [rig.end(*p) for p in [rig.start([KEEP]) for _ in range(2 + round_ % 3)]]
                for i, run in enumerate(runs):
                    c.same(f'{name}: process {i} of {len(runs)}', run, want)
                    c.that(f'{name}: process {i} warns of nothing', not run.warnings(), run.log)
                count = {}
                for path in rig.segments():
                    for _, _, key, state, _ in records_of(path):
                        count[key] = count.get(key, 0) + (state in LIVE)
                c.that(f'{name}: pages are there once', count and max(count.values()) == 1,
                       f'{sum(v > 1 for v in count.values())} of {len(count)} more than once')
                run = rig.run([KEEP])
                c.that(f'{name}: after that, nothing is computed', run.prefilled == 0, run.told)


def little_memory(c, quire, quick):
    """A pool of a twentieth of the job's KV, and whatever may change the order of work."""
    n = 12 if quick else 120
    with Rig(quire, [text(i, 330) for i in range(n)], TINY_MODEL) as rig:
        want = rig.plain(['kv.reuse=no'])
        least = rig.plain().kv['pages_allocated'] // 20
        least = max(10, min(least, 16))
        for ahead in (0, 64) if quick else (0, 8, 64):
            for batch in (1, 8):
                for look in (64,) if quick else (1, 64):
                    order = [pages(least), f'kv.ahead={ahead}', f'decode.batch={batch}', f'prefill.lookahead={look}']
                    shutil.rmtree(rig.kv, ignore_errors=True)
                    run = rig.run([*order, 'kv.keep=none'])
                    name = f'pool of {least} pages, ahead {ahead}, batch {batch}, lookahead {look}'
                    c.same(name, run, want)
                    c.that(f'{name}: peak', run.kv.get('peak_used', 0) <= least == run.kv['pages'], run.told)
                    c.that(f'{name}: nothing stays', not live_records(rig))
                    c.same(f'{name}, no folder', rig.plain(order), want)
        big = rig.run([pages(least), KEEP, 'decode.batch=8'])
        c.that('little memory: the pool is used to its last page', big.kv['peak_used'] == least, big.told)
        c.that('little memory: twenty times the pool', big.kv['pages_allocated'] >= 20 * least or quick, big.told)
        c.same('little memory, kept', big, want)
        again = rig.run([pages(least), KEEP, 'decode.batch=8'])
        c.same('little memory, found again', again, want)
        c.that('little memory: nothing is computed again', again.prefilled == 0, again.told)


def live_records(rig):
    return [r for path in rig.segments() for r in records_of(path) if r[3] in LIVE]


# ---- lengths ----

COMPLETE_JOB = '''model: {kind: null}
task: {kind: complete, strategy: single}
decode: {max_tokens: 20}
limits: {threads: 1}
ingest: {from: docs}
write: {to: out}
'''


def lengths(c, quire, quick):
    """Prompts that end at, before and behind the end of a page, shorter than one, and of one token."""
    sizes = [1, 2, 3, 31, *range(58, 70)] + ([] if quick else [*range(122, 132), *range(186, 196)])
    docs = [text(n, n).upper() if n > 8 else 'Q' * n for n in sizes]     # capitals: a token each, in both models
    docs += [text(7, 200).upper()[:n] for n in sizes]                    # each a beginning of the others
    for name, model in (('null', NULL), ('tiny', TINY_MODEL))[quick:]:
        with Rig(quire, docs, [s for s in model if not s.startswith('prompt')], COMPLETE_JOB) as rig:
            want = rig.plain(['kv.reuse=no'])
            prompts = [json.loads(x)['tokens']['prompt'] for x in want.records.splitlines()]
            c.that(f'{name}: lengths', {0, 1, 63} <= {n % PAGE for n in prompts} and min(prompts) <= 3 - 2 * (name == 'tiny'),
                   prompts)
            c.same(f'{name}: lengths, memory alone', rig.plain(), want, want.code)
            for settings in ([KEEP], ['kv.keep=auto'], [KEEP, 'decode.batch=1', 'kv.memory=1MiB'])[:1 if quick else 3]:
                shutil.rmtree(rig.kv, ignore_errors=True)
                for heat in ('cold', 'warm', 'hot')[:2 if quick else 3]:
                    run = rig.run(settings)
                    c.same(f'{name}: lengths {heat} {settings[0]}', run, want, want.code)
                if KEEP in settings:
                    c.that(f'{name}: lengths, whole prompts are found', run.prefilled == 0, run.told)
            for codec in ('q8',) if quick else ('q8', 'q4'):
                lossy = [KEEP, f'kv.codec={codec}']
                want_lossy = rig.plain([*lossy, 'kv.reuse=no'])
                for heat in ('cold', 'warm'):
                    c.same(f'{name}: lengths {codec} {heat}', rig.run(lossy), want_lossy, want_lossy.code)


# ---- signals and limits ----

def processor_seconds(pid):
    """What a process has used so far."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return sum(int(x) for x in fields[11:13]) / os.sysconf('SC_CLK_TCK')


def ended_seconds():
    """What all that have ended did use."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def terminated(c, quire, quick):
    """SIGTERM while sequences are parked: out in time, and what was parked is not left behind."""
    rounds = 1 if quick else 10
    settings = [pages(20), 'kv.ahead=64', 'kv.keep=none', 'decode.max_tokens=150', 'decode.stop_repetition=no', 'limits.drain=1s',
                'decode.batch=1']
    with Rig(quire, [text(i, 240) for i in range(100 if quick else 400)], TINY_MODEL) as rig:
        grown, spilled = [], 0
        for i in range(rounds):
            before = ended_seconds()
            process, out = rig.start(settings)
            rig.wait_for_records(process, out)
            time.sleep(0.05 * i)
            begun = processor_seconds(process.pid)
            process.send_signal(signal.SIGTERM)
            run = rig.end(process, out)
            used = ended_seconds() - before - begun
            c.that(f'SIGTERM {i}: exit status', run.code == 143, f'{run.code} {run.log[-1000:]}')
            c.that(f'SIGTERM {i}: in time', used < 2, used)
            spilled += run.kv.get('pages_spilled', 0)
            c.that(f'SIGTERM {i}: no record stays', not live_records(rig), len(live_records(rig)))
            grown.append(sum(p.stat().st_blocks for p in rig.segments()))
        c.that('SIGTERM: sequences were parked', quick or spilled > 0, spilled)
        c.that('SIGTERM: the folder does not grow', quick or grown[-1] <= max(grown[:4]) + 1024, grown)
        settings = [s for s in settings if 'max_tokens' not in s] + ['decode.max_tokens=4']
        want = rig.plain(settings)
        c.same('SIGTERM: the folder is fine', rig.run(settings), want, want.code)


def watch(rig, stop, peak):
    while not stop.is_set():
        with contextlib.suppress(FileNotFoundError), open(rig.kv / 'lock', 'rb') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)    # while nobody writes: else what is moved meanwhile is counted twice
            peak.append(rig.blocks())
        time.sleep(0.01)


def limit(c, quire, quick):
    """The folder never occupies more than kv.disk_limit, however much a job would put there."""
    for kib, n in ((384, 40), (1024, 0 if quick else 160)):
        if n == 0:
            continue
        with Rig(quire, [text(i, 330) for i in range(n)], TINY_MODEL) as rig:
            want, peak, stop = rig.plain(), [], threading.Event()
            watcher = threading.Thread(target=watch, args=(rig, stop, peak))
            watcher.start()
            runs = [rig.run([KEEP, f'kv.disk_limit={kib}KiB', *more]) for more in ([], [pages(12)])]
            stop.set()
            watcher.join()
            peak.append(rig.blocks())
            for i, run in enumerate(runs):
                c.same(f'limit of {kib} KiB: run {i}', run, want)
            c.that(f'limit of {kib} KiB: the job is larger', runs[0].kv['bytes_stored'] > 7 * (kib << 10), runs[0].kv)
            c.that(f'limit of {kib} KiB holds', max(peak) <= kib << 10, f'{max(peak)} bytes of blocks, {len(peak)} samples')
            c.that(f'limit of {kib} KiB: the folder is in use', max(peak) >= (kib << 10) // 2, max(peak))


def no_model(c, quick):
    if not quick and not SMOLLM.is_file():
        c.skip(12, f'12 checks: no {SMOLLM.name} (sh samples/run.sh --setup fetches it)')


sys.exit(main(__doc__, [second_run, unchanged, wrong_model, two_processes, little_memory, lengths, terminated, limit], no_model))
