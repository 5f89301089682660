#!/usr/bin/env python3
"""Forty requests, answered in every arrangement of the work: the records of all runs are the same bytes.

    run_same_answers.py --quire build/release/quire [--quick] [--only TEXT]

What is arranged: threads, sequences that are decoded together, the table of kernels, the blocks of prefill, and where
the prompts' pages come from. Full tier: all that can be made of these choices on a small model, the blocks in turn, and each
pair of them with the reference, which is slow, and on another model. --quick: each pair on one model, each choice on the
other; with a sanitizer each choice.
"""
import hashlib
import itertools
import json
import shutil
import sys

from kv_rig import ROOT, SMOLLM, Rig, main, text, work_in_memory

KEEP = 'kv.keep=all'
THREADS = (1, 2, 5)
BATCHES = (1, 3, 8, 32)
TABLES = ('ref', 'avx2', 'avx512')
LONGEST = 384       # tokens of the longest prompt, rounded up to pages: a larger block splits nothing
BLOCKS = tuple(range(64, LONGEST + 1, 64))
STORES = ('no reuse', 'memory', 'little memory', 'cold', 'spilled', 'warm', 'warm and little memory')
QUESTIONS = 'task.questions=[Who?, "Where was it built, and when?", What is it made of? Name all of it., Why]'
SAMPLED = ('decode.temperature=0.9', 'decode.top_p=0.95')    # more of the vocabulary is met than by the best token alone
FEW = ('decode.temperature=0.9', 'decode.top_k=8', 'decode.repetition_penalty=1.3')     # the few greatest logits decide


def documents(size):
    """Ten of lengths around those of pages: two begin alike past a page, one is another again, one ends within it."""
    long = text(6, 300 * size)
    return [text(0, 20), text(1, 63 * size), text(2, 90 * size), text(3, 129 * size), text(4, 200 * size), long,
            long[:170 * size] + text(7, 60), long, long[:110 * size], text(9, 250 * size)]


def tiny(name):
    return ('model.kind=gguf', f'model.file={ROOT}/tests/vectors/tiny/{name}.gguf', 'prompt.template=chatml',
            'model.context=512', 'decode.max_tokens=10', 'write.partial_ok=yes', QUESTIONS)


def pairs(*choices):
    """Arrangements in which every choice meets every other one, few of them: each time the one that brings most."""
    whole = list(itertools.product(*choices))
    left = {p for a in whole for p in itertools.combinations(enumerate(a), 2)}
    while left:
        best = max(whole, key=lambda a: sum(p in left for p in itertools.combinations(enumerate(a), 2)))
        left.difference_update(itertools.combinations(enumerate(best), 2))
        yield best


def whole(threads, batches, tables, blocks, stores):
    """Stores change fastest, and there are seven of them: each meets each of the six blocks."""
    rest = itertools.product(threads, batches, [t for t in tables if t != 'ref'], stores)
    yield from ((t, b, k, blocks[i % len(blocks)], s) for i, (t, b, k, s) in enumerate(rest))
    yield from pairs(threads, batches, ['ref'], blocks, stores)


def once(*choices):
    """Every choice once."""
    for i in range(max(len(x) for x in choices)):
        yield tuple(x[i % len(x)] for x in choices)


def settings_of(threads, batch, table, block):
    return [f'limits.threads={threads}', f'decode.batch={batch}', f'model.kernels={table}', f'prefill.batch={block}']


def run_with(rig, store, settings, little):
    """One run with its pages where `store` says. The rig's folder has all of them, computed by its first run."""
    if store == 'no reuse':
        return rig.plain([*settings, 'kv.reuse=no'])
    if 'memory' in store and 'warm' not in store:
        return rig.plain(settings + [little] * (store != 'memory'))
    if 'warm' in store:
        return rig.run([*settings, KEEP] + [little] * (store != 'warm'))
    fresh = rig.dir / 'fresh'
    shutil.rmtree(fresh, ignore_errors=True)
    return rig.run([*settings, KEEP] if store == 'cold' else [*settings, 'kv.keep=none', 'kv.ahead=64', little], disk=fresh)


class Seen:
    """What the runs of one model gave, and what they met on the way."""

    def __init__(self, want):
        self.want, self.digests, self.runs = want, set(), 0
        self.loaded = {s: 0 for s in STORES}
        self.spilled = {s: 0 for s in STORES}

    def add(self, store, run):
        self.runs += 1
        self.digests.add(hashlib.sha256(run.records).hexdigest())
        self.loaded[store] += run.hits('disk')
        self.spilled[store] += run.kv['pages_spilled']


def tables_here(c, rig, tables):
    """Those that this CPU runs; the others are skipped by name."""
    here = []
    for table in tables:
        run = rig.plain([f'model.kernels={table}'])
        chosen = run.report['machine']['kernels'] if run.report else 'none'
        if chosen == table:
            here.append(table)
        else:
            c.skip(1, f'table {table}: this CPU lacks what it needs (quire doctor kernels lists it); {chosen} was chosen')
    return here


def cross(c, quire, name, model, little, chosen, tables=TABLES, size=1):
    """All arrangements that chosen() picks, against one run with the first table that shares nothing."""
    with Rig(quire, documents(size), model) as rig:
        tables = tables_here(c, rig, tables)
        if not tables:
            return
        plainest = settings_of(1, 1, tables[0], 64)
        want = rig.plain([*plainest, 'kv.reuse=no'])
        rig.run([*plainest, KEEP])
        seen = Seen(want)
        c.that(f'{name}: forty requests', want.report['requests'] == 40, want.log)
        for threads, batch, table, block, store in chosen(THREADS, BATCHES, tables, BLOCKS, STORES):
            run = run_with(rig, store, settings_of(threads, batch, table, block), little)
            what = f'{name}: {threads} threads, batch {batch}, {table}, blocks of {block}, {store}'
            if c.same(what, run, want, want.code):
                seen.add(store, run)
        report(c, name, seen)


def report(c, name, seen):
    c.that(f'{name}: one digest', len(seen.digests) == 1, seen.digests)
    for store in ('warm', 'warm and little memory'):
        c.that(f'{name}: {store}: pages came from disk', seen.loaded[store] > 0, seen.loaded)
    c.that(f'{name}: prompts that wait were spilled', seen.spilled['spilled'] > 0, seen.spilled)
    longest = max(json.loads(x)['tokens']['prompt'] // 4 for x in seen.want.records.splitlines())     # of four questions
    c.that(f'{name}: the largest block takes the longest prompts whole', LONGEST - 128 < longest <= LONGEST - 48, longest)
    print(f'  {name}: {seen.runs} runs of {seen.want.report["requests"]} requests, '
          f'{seen.want.report["tokens"]["prompt"]} prompt tokens, digest {" ".join(seen.digests)[:16]}')


# ---- cases ----

def sanitized(quire):
    return quire.parent.name in ('asan', 'tsan')


def tiny_llama(c, quire, quick):
    few = once if sanitized(quire) else pairs
    cross(c, quire, 'llama', tiny('llama') + SAMPLED, 'kv.memory=192KiB', few if quick else whole)


def tiny_gemma3(c, quire, quick):
    """Has layers with a window, and another vocabulary."""
    cross(c, quire, 'gemma3', tiny('gemma3') + SAMPLED, 'kv.memory=288KiB', once if quick else pairs)


def best_token(c, quire, quick):
    """Without drawing, as most jobs run."""
    if sanitized(quire):
        return c.skip(1, 'best token: sanitizers look at the same work where answers are drawn')
    for name, little in (('llama', 'kv.memory=192KiB'), ('gemma3', 'kv.memory=288KiB'))[:1 if quick else 2]:
        cross(c, quire, f'{name}, best token', tiny(name), little, once if quick or name != 'llama' else pairs)


def few_best(c, quire, quick):
    if sanitized(quire):
        return c.skip(1, 'few best: unit tests have the lists of logits under sanitizers')
    cross(c, quire, 'gemma3, few best', tiny('gemma3') + FEW, 'kv.memory=288KiB', once)


def eight_bits(c, quire, quick):
    """Pages of 8 bits: other answers than those of exact pages, and as little moved by how they came about."""
    q8 = (*SAMPLED, 'kv.codec=q8')
    cross(c, quire, 'llama, pages of 8 bits', tiny('llama') + q8, 'kv.memory=192KiB', once if quick else pairs)
    if not quick:
        cross(c, quire, 'gemma3, pages of 8 bits', tiny('gemma3') + q8, 'kv.memory=288KiB', once)


def smollm2(c, quire, quick):
    if quick or not SMOLLM.is_file():
        return c.skip(1, 'SmolLM2: ' + ('the full tier runs it' if quick else f'no {SMOLLM.name}'))
    model = ('model.kind=gguf', f'model.file={SMOLLM}', 'model.context=512', 'decode.max_tokens=6', QUESTIONS)
    # Without the reference, which would take half an hour.
    cross(c, quire, 'SmolLM2', model, 'kv.memory=24MiB', once, TABLES[1:], 4)


work_in_memory()
sys.exit(main(__doc__, [tiny_llama, tiny_gemma3, best_token, few_best, eight_bits, smollm2]))
