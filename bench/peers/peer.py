#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One peer as a process that measures rows on request.

    peer.py llama_cpp|ik_llama_cpp MODEL --threads N --context C

Reads one row a line from standard input ("pp512", "tg64", "tg64@d1024") and answers with tokens a second, measured as
llama-bench does: random tokens, no sampling, logits of the last token of a prompt only. The peer's best options are used
(flash attention, run-time repacking, micro-batches of 512).
"""
import argparse
import ctypes
import importlib
import re
import sys
import time


def open_llama_cpp(a):
    c = importlib.import_module("llama_cpp")
    c.llama_backend_init()
    mp = c.llama_model_default_params()
    model = c.llama_model_load_from_file(a.model.encode(), mp)
    cp = c.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = a.context, 2048, 512
    cp.n_threads = cp.n_threads_batch = a.threads
    if hasattr(cp, "flash_attn_type"):
        cp.flash_attn_type = 1
    elif hasattr(cp, "flash_attn"):
        cp.flash_attn = True
    ctx = c.llama_init_from_model(model, cp)
    vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
    memory = c.llama_get_memory(ctx)
    return c, ctx, vocab, lambda n: c.llama_memory_seq_rm(memory, 0, n, -1)


def open_ik(a):
    c = importlib.import_module("ik_llama_cpp._ctypes_api")
    c.llama_backend_init()
    mp = c.llama_model_default_params()
    mp.repack_tensors, mp.use_mmap = True, False
    model = c.llama_model_load_from_file(a.model.encode(), mp)
    cp = c.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = a.context, 2048, 512
    cp.n_threads = cp.n_threads_batch = a.threads
    cp.flash_attn = True
    ctx = c.llama_init_from_model(model, cp)
    vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(model))
    cut = c._lib.llama_kv_cache_seq_rm  # the package does not bind it
    cut.argtypes, cut.restype = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32], ctypes.c_bool
    return c, ctx, vocab, lambda n: cut(ctx, 0, n, -1)


class Peer:
    def __init__(self, a):
        self.c, self.ctx, self.vocab, self.cut = (open_ik if a.peer == "ik_llama_cpp" else open_llama_cpp)(a)
        if not self.ctx:
            sys.exit("the peer could not open the model")
        self.batch = self.c.llama_batch_init(2048, 0, 1)
        self.state = 1
        self.held = 0  # positions in the cache

    def token(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % self.vocab

    def decode(self, n, pos):
        b = self.batch
        b.n_tokens = n
        for i in range(n):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = self.token(), pos + i, 1, int(i == n - 1)
            b.seq_id[i][0] = 0
        begin = time.perf_counter()
        if self.c.llama_decode(self.ctx, b) != 0:
            sys.exit("the peer's decode failed")
        self.c.llama_get_logits_ith(self.ctx, n - 1)  # waits for the result
        self.held = pos + n
        return time.perf_counter() - begin

    def read(self, n, pos=0):
        return sum(self.decode(min(2048, n - i), pos + i) for i in range(0, n, 2048))

    def keep(self, n):
        """Cuts the cache to its first n positions, or fills it up to them: what stands there does not matter to the time of a row."""
        if not self.cut(n):
            self.cut(0)
            self.held = 0
        self.held = min(self.held, n)
        if self.held < n:
            self.read(n - self.held, self.held)

    def row(self, name):
        self.keep(int((re.fullmatch(r"\w+@d(\d+)", name) or [0, 0])[1]))
        m = re.fullmatch(r"pp(\d+)", name)
        if m:
            return int(m[1]) / self.read(int(m[1]))
        m = re.fullmatch(r"tg(\d+)(?:@d(\d+))?", name)
        n, depth = int(m[1]), int(m[2] or 0)
        self.decode(1, depth)
        return n / sum(self.decode(1, depth + 1 + i) for i in range(n))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("peer", choices=["llama_cpp", "ik_llama_cpp"])
    p.add_argument("model")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--context", type=int, default=4096)
    peer = Peer(p.parse_args())
    print("ready", flush=True)
    for line in sys.stdin:
        print(f"{peer.row(line.strip()):.4f}", flush=True)


if __name__ == "__main__":
    main()
