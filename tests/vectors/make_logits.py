#!/usr/bin/env python3
"""Write test vectors: what an independent implementation computes for a few prompts.

    make_logits.py --model M.gguf --exact M-f32.gguf --out tests/vectors/NAME.vec [--texts FOLDER | --random]

M-f32.gguf is M with its weights expanded to floats, which changes no weight:

    llama-quantize --allow-requantize M.gguf M-f32.gguf F32

Logits come from llama.cpp through the llama-cpp-python package, with KV in F32 and without flash attention. For
Gemma llama.cpp must be built with an exact GELU. As it comes, its CPU kernels look GELU up in a table that rounds
argument and value to halves, which costs 3e-7 in mean KL divergence and turns near ties. Take the line
"#define GGML_GELU_FP16" out of ggml/src/ggml-cpu/vec.h, build shared libraries, and name their folder in
LLAMA_CPP_LIB_PATH and LD_LIBRARY_PATH. Nothing else on the way of these models goes through halves. Made so, the
logits are within 1e-9 in mean KL divergence of a forward pass in doubles.

Token ids are those of an existing --out, or, with --texts, of FOLDER/NAME.txt (see PROMPTS), cut to the prompt's
length; special tokens are recognised in chat.txt only. With --random they are any tokens, two prompts: for models
whose weights are random too.

The file, all little-endian (tests/vectors/vector_file.h reads it):

    char magic[8]            "QVEC0001"
    u8   sha256[32]          of M.gguf
    u32  n_vocab, n_prompts, step, top
    per prompt:
      char name[16]
      u32  n
      i32  ids[n]
      i32  greedy[n]         the most likely token after each position, the lowest id among equals
      f32  lead[n]           how far it leads the second, in nats
      for positions step-1, 2*step-1, ... < n:
        i32 id[top]          the most likely tokens, most likely first
        f32 logp[top]        their log-probabilities
        f32 rest             log of the probability of all others together
"""
import argparse
import ctypes
import hashlib
import os
import struct
import sys

import numpy as np

PROMPTS = {'chat': 256, 'code': 384, 'meeting-2': 512, 'meeting': 768, 'rfc-2': 1024, 'dutch': 1280,
           'prose': 1536, 'rfc': 2000}
MAGIC, STEP, TOP = b'QVEC0001', 8, 128


class Oracle:
    """llama.cpp on the expanded file."""

    def __init__(self, path, threads):
        import llama_cpp
        self.api = api = llama_cpp
        api.llama_backend_init()
        quiet = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(quiet, ctypes.c_void_p(0))
        self.keep = quiet
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        if not self.model:
            sys.exit(f'cannot load {path}')
        p = api.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = 2048, 512, 512
        p.n_threads = p.n_threads_batch = threads
        p.type_k = p.type_v = 0                 # F32
        p.flash_attn_type = 0                   # off
        self.ctx = api.llama_init_from_model(self.model, p)
        self.vocab = api.llama_model_get_vocab(self.model)
        self.n_vocab = api.llama_vocab_n_tokens(self.vocab)

    def tokens(self, text, special):
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        n = self.api.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, special)
        return list(ids[:n])

    def logits(self, ids, chunk=256):
        """Yields (first position, [rows][n_vocab] float32)."""
        api = self.api
        api.llama_memory_clear(api.llama_get_memory(self.ctx), True)
        batch = api.llama_batch_init(chunk, 0, 1)
        for begin in range(0, len(ids), chunk):
            part = ids[begin:begin + chunk]
            batch.n_tokens = len(part)
            for i, t in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = t, begin + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, 1
            if api.llama_decode(self.ctx, batch) != 0:
                sys.exit('llama_decode failed')
            rows = np.ctypeslib.as_array(api.llama_get_logits(self.ctx), (len(part), self.n_vocab))
            yield begin, rows.copy()
        api.llama_batch_free(batch)


def log_softmax(row):
    x = row.astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())


def position_record(logp, top):
    order = np.lexsort((np.arange(len(logp)), -logp))[:top] if top >= len(logp) else None
    if order is None:
        order = np.argpartition(-logp, top)[:top]
        order = order[np.lexsort((order, -logp[order]))]
    others = np.ones(len(logp), bool)
    others[order] = False
    rest = np.exp(logp[others]).sum()
    log_rest = np.log(rest) if rest > 0 else -np.inf
    return (order.astype('<i4').tobytes() + logp[order].astype('<f4').tobytes() +
            np.float32(log_rest).astype('<f4').tobytes())


def prompt_record(oracle, name, ids, step, top):
    greedy, lead, records = [], [], []
    for begin, rows in oracle.logits(ids):
        for i, row in enumerate(rows):
            second, first = np.partition(row, -2)[-2:]
            greedy.append(int(row.argmax()))
            lead.append(first - second)
            if (begin + i) % step == step - 1:
                records.append(position_record(log_softmax(row), top))
    n = len(ids)
    return (name.encode().ljust(16, b'\0') + struct.pack('<I', n) + np.array(ids, '<i4').tobytes() +
            np.array(greedy, '<i4').tobytes() + np.array(lead, '<f4').tobytes() + b''.join(records))


def read_ids(path):
    b = open(path, 'rb').read()
    assert b[:8] == MAGIC
    _, n_prompts, step, top = struct.unpack_from('<4I', b, 40)
    at, out = 56, {}
    for _ in range(n_prompts):
        name = b[at:at + 16].rstrip(b'\0').decode()
        n, = struct.unpack_from('<I', b, at + 16)
        out[name] = list(np.frombuffer(b, '<i4', n, at + 20))
        at += 20 + 12 * n + n // step * (8 * top + 4)
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    a.add_argument('--model', required=True)
    a.add_argument('--exact', required=True)
    a.add_argument('--out', required=True)
    a.add_argument('--texts')
    a.add_argument('--random', action='store_true')
    a.add_argument('--threads', type=int, default=os.cpu_count())
    a.add_argument('--top', type=int, default=TOP)
    a.add_argument('--step', type=int, default=STEP)
    a = a.parse_args()
    oracle = Oracle(a.exact, a.threads)
    if a.texts:
        prompts = {}
        for name, n in PROMPTS.items():
            text = open(f'{a.texts}/{name}.txt', encoding='utf-8').read()
            prompts[name] = oracle.tokens(text, name == 'chat')[:n]
    elif a.random:
        rng = np.random.default_rng(1)
        prompts = {f'random {n}': list(rng.integers(0, oracle.n_vocab, n)) for n in (100, 200)}
    else:
        prompts = read_ids(a.out)
    digest = hashlib.sha256(open(a.model, 'rb').read()).digest()
    top = min(a.top, oracle.n_vocab)
    out = MAGIC + digest + struct.pack('<4I', oracle.n_vocab, len(prompts), a.step, top)
    for name, ids in prompts.items():
        print(f'{name}: {len(ids)} tokens', flush=True)
        out += prompt_record(oracle, name, ids, a.step, top)
    with open(a.out, 'wb') as f:
        f.write(out)
    print(f'{a.out}: {len(out)} bytes')


if __name__ == '__main__':
    main()
