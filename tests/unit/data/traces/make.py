#!/usr/bin/env python3
"""Write the traces beside this script: which pages the requests of some jobs look up, in order.

    make.py            the same files each time

A line that begins with a digit is a request: its pages, first to last, as numbers and ranges. "run SECONDS" begins a
run at that time. A page number stands for a key: the same text at the same place has the same number.
tests/unit/test_eviction.c replays them.
"""
import pathlib
import random

HERE = pathlib.Path(__file__).resolve().parent
NIGHT = 24 * 3600
SHARED = 2                                  # pages of instructions before every document


class Pages:
    """Hands out numbers; the shared pages are the first."""
    def __init__(self):
        self.next = SHARED

    def take(self, n):
        first, self.next = self.next, self.next + n
        return (first, self.next - 1)


def text(ranges):
    return ' '.join(str(a) if a == b else f'{a}-{b}' for a, b in ranges)


def request(*ranges):
    return text([(0, SHARED - 1), *ranges])


def write(name, what, runs):
    lines = [f'# {what}']
    for start, requests in runs:
        lines += [f'run {start}', *requests]
    (HERE / name).write_text('\n'.join(lines) + '\n')


def questions(rng, shuffled):
    """Five questions of each of 60 documents; a question and its answer are a page of their own."""
    p = Pages()
    docs = [p.take(rng.randint(4, 24)) for _ in range(60)]
    out = [request(d, p.take(1)) for d in docs for _ in range(5)]
    if shuffled:
        rng.shuffle(out)
    return [(0, out)]


def map_reduce(rng):
    """Documents of several chunks: a partial summary of each chunk, then one of the partial summaries, checked
    against the first chunk."""
    p = Pages()
    out = []
    for _ in range(50):
        chunks = [p.take(8) for _ in range(rng.randint(2, 9))]
        out += [request(c, p.take(1)) for c in chunks]
        out.append(request(p.take(len(chunks))))
        out.append(request(chunks[0], p.take(1)))
    return [(0, out)]


def nightly(rng, n_docs, changed, one_off):
    """The same archive ten nights in a row, with another question each night. A share of the documents is replaced
    each night; one_off documents are seen in one night only, in between."""
    p = Pages()
    size = lambda: rng.randint(3, 9)
    docs = [p.take(size()) for _ in range(n_docs)]
    runs = []
    for night in range(10):
        for i in rng.sample(range(n_docs), int(changed * n_docs)) if night else []:
            docs[i] = p.take(size())
        tonight = docs + [p.take(size()) for _ in range(one_off)]
        if one_off:
            rng.shuffle(tonight)
        runs.append((night * NIGHT, [request(d, p.take(1)) for d in tonight]))
    return runs


def mixed(rng):
    """30 documents every night, 60 others every third night, and 40 that are new each night."""
    p = Pages()
    size = lambda: rng.randint(3, 9)
    every, third = [p.take(size()) for _ in range(30)], [p.take(size()) for _ in range(60)]
    runs = []
    for night in range(10):
        tonight = every + (third if night % 3 == 0 else []) + [p.take(size()) for _ in range(40)]
        runs.append((night * NIGHT, [request(d, p.take(1)) for d in tonight]))
    return runs


write('questions-in-turn.txt', 'five questions of each of 60 documents, document by document',
      questions(random.Random(1), False))
write('questions-shuffled.txt', 'five questions of each of 60 documents, in no order', questions(random.Random(1), True))
write('map-reduce.txt', 'partial summaries of chunks, a summary of these', map_reduce(random.Random(2)))
write('nightly-changing.txt', 'ten nights, 80 documents, a tenth of them new each night',
      nightly(random.Random(3), 80, 0.1, 0))
write('nightly-one-off.txt', 'ten nights, 40 documents, and 100 that are seen once, in between',
      nightly(random.Random(4), 40, 0.05, 100))
write('nightly-large.txt', 'ten nights, the same 150 documents in the same order',
      nightly(random.Random(5), 150, 0, 0))
write('nightly-mixed.txt', 'ten nights: some documents every night, some every third, some once',
      mixed(random.Random(6)))
