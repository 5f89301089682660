#!/usr/bin/env python3
"""Write the tiny models that tests run: random weights from a fixed seed, every architecture, every tensor type.

    make_tiny.py FOLDER          (tests/vectors/tiny)

Needs the packages gguf and numpy. What is in which file:

    llama    rope_freqs factors, own head; F32 F16 BF16 Q8_0
    qwen2    biases on q, k, v, tied head; Q4_0 Q4_1 Q5_0 Q5_1
    qwen3    q/k norm, heads narrower than the embedding has room for; Q4_K Q5_K Q6_K
    gemma3   windows of 40 on two of three layers, two RoPE bases, linear scaling, post norms; Q5_0 Q6_K Q8_0

Vocabularies: the 256 bytes, a few merges and specials; enough to tokenise any text.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

rng = np.random.default_rng(20240229)
PIECES = ['th', 'he', 'in', 'er', 'an', 're', 'on', 'at', 'en', 'nd', 'ti', 'es', 'or', 'te', 'of', 'ed', 'is', 'it',
          'al', 'ar', 'st', 'to', 'nt', 'ng', 'se', 'ha', 'as', 'ou']


def byte_letters():
    """The printable stand-ins of byte-level BPE."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in keep]
    letter = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(other)}
    return [letter[b] for b in range(256)]


def add_bpe(w, pre, specials):
    tokens = byte_letters() + PIECES + specials
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (256 + len(PIECES)) + [gguf.TokenType.CONTROL] * len(specials))
    w.add_token_merges([f'{p[0]} {p[1]}' for p in PIECES])
    w.add_bos_token_id(tokens.index(specials[0]))
    w.add_eos_token_id(tokens.index(specials[1]))
    w.add_add_bos_token(False)
    return len(tokens)


def add_spm(w):
    specials = ['<pad>', '<eos>', '<bos>', '<unk>']
    letters = [chr(c) for c in range(97, 123)] + ['\u2581']
    tokens = specials + [f'<0x{b:02X}>' for b in range(256)] + letters + PIECES + ['<end_of_turn>']
    kinds = ([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN] + [gguf.TokenType.BYTE] * 256 +
             [gguf.TokenType.NORMAL] * (len(letters) + len(PIECES)) + [gguf.TokenType.CONTROL])
    w.add_tokenizer_model('llama')
    w.add_tokenizer_pre('default')
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 260 + [-1000.0] * len(letters) + [-float(i) for i in range(len(PIECES))] + [0.0])
    w.add_token_types(kinds)
    w.add_bos_token_id(2)
    w.add_eos_token_id(1)
    w.add_unk_token_id(3)
    w.add_add_bos_token(True)
    w.add_add_space_prefix(False)
    return len(tokens)


def half(x):
    return np.asarray(x, '<f2').view(np.uint8).reshape(len(x), 2)


def six_bit_scales(sc, mn):
    """[n][8] scales and minimums of 0..63 as the 12 bytes of a Q4_K or Q5_K block."""
    out = np.zeros((len(sc), 12), np.uint8)
    out[:, 0:4] = sc[:, 0:4] | (sc[:, 4:8] >> 4) << 6
    out[:, 4:8] = mn[:, 0:4] | (mn[:, 4:8] >> 4) << 6
    out[:, 8:12] = (sc[:, 4:8] & 15) | (mn[:, 4:8] & 15) << 4
    return out


def random_k_quant(kind, rows, cols, std):
    """Blocks that no quantiser made: any bits are valid, the scales keep the values near std."""
    n = rows * cols // 256
    bits = lambda size: rng.integers(0, 256, (n, size), np.uint8)
    if kind == T.Q6_K:
        scales = (rng.integers(20, 60, (n, 16)) * rng.choice([-1, 1], (n, 16))).astype(np.int8)
        d = half(std / (40 * 18.5) * rng.uniform(0.7, 1.3, n))
        blocks = np.hstack([bits(128), bits(64), scales.view(np.uint8), d])
    else:
        levels = 16 if kind == T.Q4_K else 32
        sc = rng.integers(20, 60, (n, 8)).astype(np.uint8)
        mn = np.clip(sc.astype(int) + rng.integers(-3, 4, (n, 8)), 0, 63).astype(np.uint8)
        d = std / (40 * levels / 12 ** 0.5) * rng.uniform(0.7, 1.3, n)
        head = [half(d), half(d * (levels - 1) / 2), six_bit_scales(sc, mn)]
        blocks = np.hstack(head + [bits(128)] if kind == T.Q4_K else head + [bits(32), bits(128)])
    return blocks.reshape(rows, -1)


class Model:
    def __init__(self, arch, path, types):
        self.w = gguf.GGUFWriter(path, arch)
        self.types, self.used = types, 0

    def matrix(self, name, n_in, n_out, gain=1.0):
        """A random matrix; the types take turns, as far as the row length allows."""
        std = gain / n_in ** 0.5
        for _ in self.types:
            kind = self.types[self.used % len(self.types)]
            self.used += 1
            if n_in % gguf.GGML_QUANT_SIZES[kind][0] == 0:
                break
        else:
            kind = T.Q8_0
        if kind in (T.Q4_K, T.Q5_K, T.Q6_K):
            self.w.add_tensor(name, random_k_quant(kind, n_out, n_in, std), raw_dtype=kind)
            return
        x = rng.normal(0, std, (n_out, n_in)).astype(np.float32)
        self.w.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)

    def vector(self, name, n, mean=1.0, std=0.1):
        self.w.add_tensor(name, rng.normal(mean, std, n).astype(np.float32))

    def write(self, layers, embd, ff, heads, kv_heads, head_dim, vocab, own_head, qk_norm, bias, post, gain=3.0):
        w = self.w
        w.add_context_length(512)
        w.add_embedding_length(embd)
        w.add_block_count(layers)
        w.add_feed_forward_length(ff)
        w.add_head_count(heads)
        w.add_head_count_kv(kv_heads)
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
        w.add_rope_dimension_count(head_dim)
        w.add_layer_norm_rms_eps(1e-6)
        self.matrix('token_embd.weight', embd, vocab, gain)
        for i in range(layers):
            b = f'blk.{i}.'
            self.vector(b + 'attn_norm.weight', embd)
            for part, n in (('q', heads), ('k', kv_heads), ('v', kv_heads)):
                self.matrix(f'{b}attn_{part}.weight', embd, n * head_dim, 1.5)
                if bias:
                    self.vector(f'{b}attn_{part}.bias', n * head_dim, 0.0, 0.5)
                if qk_norm and part != 'v':
                    self.vector(f'{b}attn_{part}_norm.weight', head_dim, 1.5)
            self.matrix(b + 'attn_output.weight', heads * head_dim, embd)
            if post:
                self.vector(b + 'post_attention_norm.weight', embd)
            self.vector(b + 'ffn_norm.weight', embd)
            self.matrix(b + 'ffn_gate.weight', embd, ff, 1.5)
            self.matrix(b + 'ffn_up.weight', embd, ff, 1.5)
            self.matrix(b + 'ffn_down.weight', ff, embd, 1.5)
            if post:
                self.vector(b + 'post_ffw_norm.weight', embd)
        self.vector('output_norm.weight', embd)
        if own_head:
            self.matrix('output.weight', embd, vocab, gain)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def main():
    folder = sys.argv[1]

    m = Model('llama', f'{folder}/llama.gguf', [T.F16, T.BF16, T.F32, T.Q8_0])
    vocab = add_bpe(m.w, 'smollm', ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<pad>'])
    m.w.add_rope_freq_base(500000.0)
    m.w.add_tensor('rope_freqs.weight', np.array([1, 1, 1, 2.5, 5, 8, 8, 8], np.float32))
    m.write(2, 64, 96, 4, 2, 16, vocab, own_head=True, qk_norm=False, bias=False, post=False)

    m = Model('qwen2', f'{folder}/qwen2.gguf', [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1])
    vocab = add_bpe(m.w, 'qwen2', ['<|endoftext|>', '<|im_end|>', '<|im_start|>', '<pad>'])
    m.w.add_rope_freq_base(1000000.0)
    m.write(3, 96, 128, 6, 2, 16, vocab, own_head=False, qk_norm=False, bias=True, post=False)

    m = Model('qwen3', f'{folder}/qwen3.gguf', [T.Q4_K, T.Q5_K, T.Q6_K])
    vocab = add_bpe(m.w, 'qwen2', ['<|endoftext|>', '<|im_end|>', '<|im_start|>', '<pad>'])
    m.w.add_rope_freq_base(1000000.0)
    m.write(2, 256, 32, 3, 1, 32, vocab, own_head=False, qk_norm=True, bias=False, post=False)

    m = Model('gemma3', f'{folder}/gemma3.gguf', [T.Q5_0, T.Q8_0, T.Q6_K])
    vocab = add_spm(m.w)
    m.w.add_rope_freq_base(1000000.0)
    m.w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    m.w.add_rope_scaling_factor(8.0)
    m.w.add_sliding_window(40)
    m.w.add_sliding_window_pattern(3)
    m.write(3, 64, 256, 4, 1, 32, vocab, own_head=False, qk_norm=True, bias=False, post=True,
            gain=1.2)


if __name__ == '__main__':
    main()
