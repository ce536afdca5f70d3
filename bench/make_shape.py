#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file with the shapes of a Gemma 3 model and random weights, to measure speed with. Standard library only.

    make_shape.py 270m|1b|4b|12b q4_0|q4_k FILE

Scales are chosen so that activations stay of ordinary size; codes are random. q4_k is what the usual quantiser makes of such shapes: rows
that 256 does not divide become Q5_0. The vocabulary has Gemma's size and made-up pieces.
"""
import random
import struct
import sys

SHAPES = {  # layers, width, feed-forward, heads, KV heads, head, window
    "270m": (18, 640, 2048, 4, 1, 256, 512),
    "1b": (26, 1152, 6912, 4, 1, 256, 512),
    "4b": (34, 2560, 10240, 8, 4, 256, 1024),
    "12b": (48, 3840, 15360, 16, 8, 256, 1024),
}
VOCABULARY = 262144
F32, Q4_0, Q5_0, Q4_K = 0, 2, 6, 12
BLOCK = {F32: (1, 4), Q4_0: (32, 18), Q5_0: (32, 22), Q4_K: (256, 144)}


def half(x):
    return struct.pack("<e", x)


def string(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def blocks(rng, dtype, n_in, count):
    """`count` random blocks whose values have a deviation near 1 / sqrt(n_in)."""
    out, s = bytearray(), n_in**-0.5
    for _ in range(count):
        if dtype == Q4_0:
            out += half(s / 4.6 * rng.choice((1, -1))) + rng.randbytes(16)
        elif dtype == Q5_0:
            out += half(s / 9.2) + rng.randbytes(20)
        else:  # 8 scales and 8 minima of 6 bits, all near 32: value = d * 32 * q - dmin * 32, q of 0 .. 15
            scales = bytes([0x20 | rng.getrandbits(2) for _ in range(8)]) + bytes([rng.getrandbits(8) & 0x33 for _ in range(4)])
            out += half(s / 4.6 / 32) + half(s / 4.6 / 32 * 7.5) + scales + rng.randbytes(128)
    return bytes(out)


def tensor_list(shape, kind):
    layers, width, ff, heads, kv, head, _ = shape

    def matrix(name, n_in, n_out):
        dtype = Q4_0 if kind == "q4_0" else Q4_K if n_in % 256 == 0 else Q5_0
        return name, (n_in, n_out), dtype

    out = [matrix("token_embd.weight", width, VOCABULARY), ("output_norm.weight", (width,), F32)]
    for i in range(layers):
        b = f"blk.{i}."
        out += [(b + n + ".weight", (width,), F32) for n in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")]
        out += [(b + n + ".weight", (head,), F32) for n in ("attn_q_norm", "attn_k_norm")]
        out += [matrix(b + "attn_q.weight", width, heads * head), matrix(b + "attn_k.weight", width, kv * head),
                matrix(b + "attn_v.weight", width, kv * head), matrix(b + "attn_output.weight", heads * head, width),
                matrix(b + "ffn_gate.weight", width, ff), matrix(b + "ffn_up.weight", width, ff), matrix(b + "ffn_down.weight", ff, width)]
    return out


def pieces():
    out = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{i:02X}>" for i in range(256)]
    return out + [f"\u2581t{i}" for i in range(len(out), VOCABULARY)]


def metadata(name, shape):
    layers, width, ff, heads, kv, head, window = shape
    u32 = lambda k, v: string("gemma3." + k) + struct.pack("<II", 4, v)
    text = lambda k, v: string(k) + struct.pack("<I", 8) + string(v)
    array = lambda k, t, n, data: string(k) + struct.pack("<IIQ", 9, t, n) + data
    types = [3, 3, 3, 2] + [6] * 256 + [1] * (VOCABULARY - 260)
    kvs = [text("general.architecture", "gemma3"), text("general.name", name),
           u32("block_count", layers), u32("context_length", 32768), u32("embedding_length", width), u32("feed_forward_length", ff),
           u32("attention.head_count", heads), u32("attention.head_count_kv", kv), u32("attention.key_length", head),
           u32("attention.value_length", head), u32("attention.sliding_window", window),
           string("gemma3.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-6),
           string("gemma3.rope.freq_base") + struct.pack("<If", 6, 1e6),
           text("tokenizer.ggml.model", "llama"), text("tokenizer.ggml.pre", "default"),
           array("tokenizer.ggml.tokens", 8, VOCABULARY, b"".join(string(p) for p in pieces())),
           array("tokenizer.ggml.scores", 6, VOCABULARY, struct.pack(f"<{VOCABULARY}f", *(float(-i) for i in range(VOCABULARY)))),
           array("tokenizer.ggml.token_type", 5, VOCABULARY, struct.pack(f"<{VOCABULARY}i", *types))]
    for k, v in (("bos", 2), ("eos", 1), ("unknown", 3), ("padding", 0)):
        kvs.append(string(f"tokenizer.ggml.{k}_token_id") + struct.pack("<II", 4, v))
    kvs.append(string("tokenizer.ggml.add_bos_token") + struct.pack("<IB", 7, 1))
    return kvs


def size_of(dims, dtype):
    length, size = BLOCK[dtype]
    n = 1
    for d in dims:
        n *= d
    return n // length * size


def write_tensor(f, rng, dims, dtype, tapes):
    size = size_of(dims, dtype)
    if dtype == F32:
        f.write(struct.pack(f"<{dims[0]}f", *([1.0] * dims[0])))
    else:  # matrices are cut from a tape of random blocks, each from another place
        if (dtype, dims[0]) not in tapes:
            tapes[dtype, dims[0]] = blocks(rng, dtype, dims[0], 20011)
        tape, step = tapes[dtype, dims[0]], BLOCK[dtype][1]
        at = rng.randrange(len(tape) // step) * step
        turned = tape[at:] + tape[:at]
        for _ in range(size // len(turned)):
            f.write(turned)
        f.write(turned[: size % len(turned)])
    f.write(b"\0" * (-size % 32))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES or sys.argv[2] not in ("q4_0", "q4_k"):
        sys.exit(__doc__)
    shape, rng, tapes = SHAPES[sys.argv[1]], random.Random(1), {}
    tensors, kvs, offset = tensor_list(shape, sys.argv[2]), metadata(f"random Gemma 3 {sys.argv[1]} {sys.argv[2]}", shape), 0
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kvs)) + b"".join(kvs)
    for name, dims, dtype in tensors:
        head += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", dtype, offset)
        offset += size_of(dims, dtype) + -size_of(dims, dtype) % 32
    with open(sys.argv[3], "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for _, dims, dtype in tensors:
            write_tensor(f, rng, dims, dtype, tapes)


if __name__ == "__main__":
    main()
