#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes snippets.json: small templates and what Jinja renders them to, set up as transformers sets it up.

    python3 make_snippets.py > snippets.json        (needs the package jinja2, 3.1.6)

The expected texts are Jinja's, never our own.
"""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 3, 7, 12, 34, 56)
VARIABLES = {
    "s": "Hello, World", "e": "", "u": "Zürich 日本 👩‍🚀 ßİ", "n": 7, "z": 0, "neg": -3, "f": 2.5, "g": 1e100, "big": 12345678901234567890,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "a", "C", "B"], "el": [], "d": {"a": 1, "b": [1, 2], "c": None},
    "ed": {}, "m": [{"role": "user", "content": "hi", "k": 2}, {"role": "assistant", "content": "yo", "k": 1}, {"role": "user", "content": "", "k": 2}],
    "deep": {"x": {"y": [{"z": "found"}]}}, "ml": "one\n two\n\nthree\n", "q": "it's \"q\" \\ <b>&amp;", "ctl": "a\u0001\u2028\t\u007f\u00a0b",
    "mix": [1, 1.0, True, "1", None, [1], {"a": 1}], "w": "  \n\t pad \u2003 ", "floats": [1, 1.0, 1e100, 0.1, 1e16, 123456789012345680.0, 1e-5, 0.0001, -0.0, 5e-324, 1.7976931348623157e308, 100.0, 1e15],
    "fn": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2.0, "p": "x/y <é> '&'"}}}],
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                Namespace.check(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            Namespace.check(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def check(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError("underscore")

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["namespace"] = Namespace
    return env


SNIPPETS = open(__file__.replace("make_snippets.py", "snippets.txt"), encoding="utf-8").read()


def render(env, source):
    variables = json.loads(json.dumps(VARIABLES))
    try:
        return {"rendered": env.from_string(source).render(
            messages=[{"role": "user", "content": ""}], tools=None, documents=None, add_generation_prompt=False, bos_token="<s>",
            eos_token="</s>", **variables)}
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"error": str(e)}
        return {"error_kind": type(e).__name__}
    except RecursionError:
        raise
    except Exception as e:  # Python's own TypeError, ValueError ...
        return {"error_kind": type(e).__name__}


def main():
    env = environment()
    templates = []
    for i, block in enumerate(SNIPPETS.split("\n====\n")):
        for k, source in enumerate(block.split("\n") if block.startswith("#lines\n") else [block]):
            if source in ("#lines", ""):
                continue
            templates.append({"name": f"{i}.{k}: {source[:60]}", "bos_token": "<s>", "eos_token": "</s>", "template": source,
                              "cases": [dict(variables="shared", **render(env, source))]})
    now = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
    print(json.dumps({"format": "template-cases-1", "made_with": "jinja2 " + jinja2.__version__, "now": now, "variables": json.dumps(VARIABLES),
                      "templates": templates}, ensure_ascii=False, indent=0))


main()
