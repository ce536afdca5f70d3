#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What surrounds the speed of a step: the start, the memory, a busy neighbour.

    surroundings.py --ironmule build/release/ironmule MODEL ... [--rounds 5] [--cpu LEVEL] [--out FILE]

    start       seconds from the start of the process to the first byte of the answer to a prompt of --prompt-ids tokens, file cached
    memory      resident bytes while an answer is written, less the weights of the plan and the KV of the positions written so far
    neighbour   tokens a second of two threads and of one beside an endless process on the first core, to two threads on the idle machine
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time


def start_once(a, model, threads, ids):
    argv = [a.ironmule, "generate", model, "--ids-file", ids, "-n", "3", "-t", str(threads), "--ignore-eos", *a.extra]
    begin = time.monotonic()
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    first = p.stdout.read(1)
    seconds = time.monotonic() - begin
    p.stdout.read()
    if p.wait() != 0 or not first:
        sys.exit(f"{argv}: no answer")
    return seconds


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return {k: int(v) * 1024 for k, v in re.findall(r"^(Rss\w+):\s+(\d+) kB", f.read(), re.M)}


def memory_once(a, model, ids):
    plan = json.loads(subprocess.run([a.ironmule, "info", model, "--json"], check=True, stdout=subprocess.PIPE).stdout)["memory"]
    p = subprocess.Popen([a.ironmule, "generate", model, "--ids-file", ids, "-n", "200", "--ignore-eos", *a.extra], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)
    p.stdout.read(1)
    rss = resident(p.pid)
    p.kill()
    p.wait()
    return {"weights": plan["weights"], "kv": plan["kv"], "workspace": plan["workspace"], **rss,
            "above_weights_and_kv": sum(rss.values()) - plan["weights"] - plan["kv_bytes_per_token"] * a.prompt_ids}


def rate(a, model, threads, neighbour):
    core = sorted(os.sched_getaffinity(0))[0]
    other = subprocess.Popen(["taskset", "-c", str(core), "timeout", "60", sys.executable, "-c", "while True: pass"]) if neighbour else None
    time.sleep(0.3)
    argv = [a.ironmule, "benchmark", model, "--json", "--no-limits", "-n", "1", "--rows", "tg64", "--threads", str(threads), *a.extra]
    try:
        return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)["rows"][0]["median"]
    finally:
        if other:
            other.terminate()
            other.wait()


def measure(a, model, ids):
    start = {t: [start_once(a, model, t, ids) for _ in range(a.rounds + 1)][1:] for t in (1, 2)}
    speed = {"idle": [], "two beside": [], "one beside": []}
    for _ in range(a.rounds):
        speed["idle"].append(rate(a, model, 2, False))
        speed["two beside"].append(rate(a, model, 2, True))
        speed["one beside"].append(rate(a, model, 1, True))
    return {"model": os.path.basename(model), "start_s": start, "memory": memory_once(a, model, ids), "tokens_per_s": speed}


def show(r):
    for threads, s in r["start_s"].items():
        print(f"{r['model']}: first token after {statistics.median(s):.3f} s with {threads} thread(s) [{min(s):.3f}; {max(s):.3f}]")
    print(f"  {r['memory']['above_weights_and_kv'] / 1e6:.1f} MB above weights and KV")
    m = {k: statistics.median(v) for k, v in r["tokens_per_s"].items()}
    print(f"  idle {m['idle']:.1f} tokens/s; beside a busy neighbour {m['two beside']:.1f} ({100 * m['two beside'] / m['idle']:.0f} %), "
          f"one thread {m['one beside']:.1f}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--ironmule", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt-ids", type=int, default=16)
    p.add_argument("--cpu")
    p.add_argument("--out")
    a = p.parse_args()
    a.extra = ["--cpu", a.cpu] if a.cpu else []
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    doc = {"format": "ironmule-surroundings-1", "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "cores": os.cpu_count(), "level": a.cpu or "best", "results": []}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump(list(range(100, 100 + a.prompt_ids)), ids)
        ids.flush()
        for model in a.models:
            doc["results"].append(measure(a, model, ids.name))
            show(doc["results"][-1])
    if a.out:
        with open(a.out, "w") as f:
            json.dump(doc, f, indent=1)


main()
