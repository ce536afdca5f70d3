#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a prompt and of an answer goes: samples of 'perf record', added up by operation.

    profile.py --ironmule build/release/ironmule MODEL ... [--rows pp512,tg64] [--cpu avx2] [--out FILE]

One thread, so that waiting does not hide in it. The program must have its symbols (an ordinary build has).
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

OPERATIONS = {
    "products of the layers and logits": r"run_(q|f|bf)",
    "attention: scores, values": r"attention|score|value|attend|lay_out",
    "attention: exp, merges": r"weigh|find_largest|merge|end_span|end_query|exp_one|begin_merge",
    "gated unit": r"glu",
    "quantising rows": r"quantise|im__quantise",
    "norms": r"rms_norm",
    "rotation, cache": r"rope|kv_store|im__rope",
    "sums of wide products, residual": r"add$|run_unit|run_matmul|multiply",
    "choice of the token": r"argmax",
}


def operation_of(symbol):
    return next((name for name, pattern in OPERATIONS.items() if re.match(pattern, symbol)), None)


def shares(a, model, row):
    """Percent of the samples inside the named operations; loading the model is none of them."""
    with tempfile.NamedTemporaryFile(suffix=".perf") as data:
        argv = [a.ironmule, "benchmark", model, "--rows", row, "-n", "3", "--threads", "1", "--no-limits", *(["--cpu", a.cpu] if a.cpu else [])]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["perf", "record", "-o", data.name, "-F", "1500", *argv], check=True, **quiet)
        text = subprocess.run(["perf", "report", "-i", data.name, "--stdio", "--percent-limit", "0.02"], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    total = dict.fromkeys(OPERATIONS, 0.0)
    for line in text.splitlines():
        m = re.match(r"\s*([0-9.]+)%\s+\S+\s+\S+\s+\[\.\]\s+(\S+)", line)
        if m and operation_of(m[2]):
            total[operation_of(m[2])] += float(m[1])
    whole = sum(total.values())
    if whole == 0:
        sys.exit("perf gave no samples of known functions")
    return {name: round(100 * share / whole, 2) for name, share in total.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--ironmule", required=True)
    p.add_argument("--rows", default="pp512,tg64")
    p.add_argument("--cpu")
    p.add_argument("--out")
    a = p.parse_args()
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    doc = {"format": "ironmule-profile-1", "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "level": a.cpu or "best",
           "columns": [{"model": os.path.basename(m), "row": r, "percent": shares(a, m, r)} for m in a.models for r in a.rows.split(",")]}
    print(json.dumps(doc, indent=1))
    if a.out:
        with open(a.out, "w") as f:
            json.dump(doc, f, indent=1)


main()
