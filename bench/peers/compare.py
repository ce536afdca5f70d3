#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""IronMule beside its peers on one machine and one file.

    compare.py --ironmule build/release/ironmule --python VENV/bin/python MODEL ... [--threads 1,2] [--rows pp512,tg64] [--rounds 5]
               [--levels avx2,best] [--append] --out FILE

VENV has the PyPI packages llama-cpp-python and ik-llama-cpp-python (see README.md in this folder). Rounds are interleaved: each
round measures every row with every engine, in turn forwards and backwards (ABC CBA), so that a drift of the machine's speed meets
all of them. Kernel levels of IronMule take part as engines of their own. Before each model the machine's own limits are measured by
'ironmule benchmark'. Writes JSON with every sample; --append adds blocks to a file of the same day and machine, for runs in portions.
--lock FILE holds a lock (flock) on FILE while an engine measures: other work on the machine that takes it too keeps out of the way.
"""
import argparse
import contextlib
import fcntl
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time

PEERS = {"llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp"}


class Child:
    def __init__(self, python, package, model, threads, context, log):
        here = os.path.dirname(os.path.abspath(__file__))
        argv = [python, os.path.join(here, "peer.py"), package, model, "--threads", str(threads), "--context", str(context)]
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        if "ready" not in self.p.stdout.readline():
            raise RuntimeError(f"{package} did not start")

    def row(self, name):
        self.p.stdin.write(name + "\n")
        self.p.stdin.flush()
        return float(self.p.stdout.readline())

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def ours(a, model, threads, rows, extra):
    argv = [a.ironmule, "benchmark", model, "--json", "--threads", str(threads), "--rows", ",".join(rows), "-n", "1", *extra]
    return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout)


@contextlib.contextmanager
def turn(a):
    if not a.lock:
        yield
        return
    with open(a.lock, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        time.sleep(0.5)  # what ran before comes to rest
        yield


def level_options(level):
    return [] if level == "best" else ["--cpu", level]


def measure(a, model, threads, rows):
    log = open(a.log, "a")
    context = max(sum(int(x) for x in r.replace("pp", "").replace("tg", "").split("@d")) for r in rows) + 64
    load = round(os.getloadavg()[0], 1)
    peers = {n: Child(a.python, p, model, threads, context, log) for n, p in PEERS.items() if n in a.peers.split(",")}
    levels = {f"ironmule {level}": level for level in a.levels.split(",")}
    with turn(a):
        limits = {level: ours(a, model, threads, ["tg4"], level_options(level)) for level in levels.values()}
    engines = [*levels, *peers]
    samples = {r: {e: [] for e in engines} for r in rows}
    for c in peers.values():
        c.row("pp64")  # warm-up
        c.row("tg4")
    for i in range(a.rounds):
        for engine in (engines if i % 2 == 0 else engines[::-1]):
            time.sleep(0.2)  # threads of the engine before stop spinning
            with turn(a):
                if engine in levels:
                    for r in ours(a, model, threads, rows, ["--no-limits", *level_options(levels[engine])])["rows"]:
                        samples[r["row"]][engine].append(r["median"])
                else:
                    for r in rows:
                        samples[r][engine].append(peers[engine].row(r))
        print(f"  round {i + 1} of {a.rounds}", file=sys.stderr)
    for c in peers.values():
        c.close()
    any_level = next(iter(limits.values()))
    return {"model": os.path.basename(model), "threads": threads, "rounds": a.rounds, "load_before": load, "priority": priority(),
            "weights_bytes": any_level["weights_bytes"], "products": any_level["products"],
            "limits": {k: {x: v[x] for x in ("cpu_level", "load_ms", "read_bytes_per_s", "int8_ops_per_s")} for k, v in limits.items()},
            "samples": samples}


def priority():
    return "real-time" if os.sched_getscheduler(0) == os.SCHED_FIFO else f"nice {os.nice(0)}"


def versions(a):
    code = "import sys, importlib.metadata as m; print(*[m.version(p) for p in sys.argv[1:]])"
    names = [n for n in PEERS if n in a.peers.split(",")]
    packages = [PEERS[n].replace("_", "-") + "-python" for n in names]
    return dict(zip(names, subprocess.run([a.python, "-c", code, *packages], check=True, stdout=subprocess.PIPE, text=True).stdout.split()))


def summary(block):
    for row, engines in block["samples"].items():
        peers = [e for e in engines if not e.startswith("ironmule")]
        line = f"{block['model'][:28]:28} {block['threads']:2} {row:12} "
        line += "  ".join(f"{e} {statistics.median(s):9.2f}" for e, s in engines.items())
        for e in engines:
            if peers and e not in peers:
                rounds = [o / max(engines[p][i] for p in peers) for i, o in enumerate(engines[e])]
                ratio = statistics.median(engines[e]) / max(statistics.median(engines[p]) for p in peers)
                line += f"  {e} {ratio:.2f} [{min(rounds):.2f}; {max(rounds):.2f}]"
        print(line, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--ironmule", required=True)
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--peers", default="llama.cpp,ik_llama.cpp")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rows", default="pp128,pp512,pp2048,tg64,tg64@d1024")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--levels", default="best", help="kernel levels of IronMule: names of --cpu, or best")
    p.add_argument("--append", action="store_true")
    p.add_argument("--lock")
    p.add_argument("--log", default=os.devnull)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    flags = next((l.split(":", 1)[1].split() for l in open("/proc/cpuinfo") if l.startswith("flags")), [])
    doc = {"format": "ironmule-peers-2", "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "cores": os.cpu_count(),
           "isa": [f for f in ("avx2", "avx512_vnni", "avx_vnni", "amx_int8") if f in flags], "peers": versions(a), "commands": [], "blocks": []}
    if a.append and os.path.exists(a.out):
        with open(a.out) as f:
            old = json.load(f)
        if any(old[k] != doc[k] for k in ("format", "date", "cpu", "cores", "peers")):
            sys.exit(f"{a.out} is of another day, machine or peers")
        doc = old
    doc["commands"].append(shlex.join(["bench/peers/compare.py", *(os.path.basename(x) for x in sys.argv[1:])]))
    for model in a.models:
        for threads in map(int, a.threads.split(",")):
            block = measure(a, model, threads, a.rows.split(","))
            doc["blocks"].append(block)
            summary(block)
            with open(a.out, "w") as f:
                json.dump(doc, f, indent=1)


if __name__ == "__main__":
    main()
