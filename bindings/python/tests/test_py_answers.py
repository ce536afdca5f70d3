# SPDX-License-Identifier: Apache-2.0
"""Answers: the same as those of the program and of HTTP, every option, every error."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import Any

import pytest

import ironmule
from ironmule._library import program_path

PROMPT = "Hello there"


def program(*args: Any) -> Any:
    done = subprocess.run([program_path(), *map(str, args), "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("options, flags", [({}, []), ({"raw": True}, ["--raw"]), ({"temperature": 0.8, "seed": 7, "top_p": 0.9}, None)])
def test_same_as_the_program(tiny: ironmule.Runtime, tiny_path: str, options: dict[str, Any], flags: list[str] | None) -> None:
    if flags is None:
        flags = ["--temperature", "0.8", "--seed", "7", "--top-p", "0.9"]
    theirs = program("generate", tiny_path, PROMPT, "--max-tokens", 20, *flags)
    mine = tiny.generate(PROMPT, max_tokens=20, **options)
    assert (mine.text, list(mine.tokens), mine.logits_hash, mine.stop_reason) == (theirs["text"], theirs["ids"], theirs["logits_hash"], theirs["stop_reason"])
    assert mine.metrics.prompt_tokens == theirs["usage"]["prompt_tokens"]


def test_same_as_http(tiny: ironmule.Runtime, tiny_path: str) -> None:
    server = subprocess.Popen([program_path(), "serve", tiny_path, "--port", "0"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        address = ""
        while True:
            line = server.stderr.readline()
            if not line:
                pytest.skip("this program has no server")
            if " ready: " in line:
                break
            address = next((word for word in line.split() if word.startswith("http://127.0.0.1:")), address)
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 20, "temperature": 0, "ironmule": {"logits_hash": True}}
        request = urllib.request.Request(address.rstrip("/") + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            theirs = json.load(answer)
    finally:
        server.terminate()
        server.communicate()
    mine = tiny.generate(PROMPT, max_tokens=20)
    assert mine.text == theirs["choices"][0]["message"]["content"]
    assert mine.logits_hash == theirs["ironmule"]["logits_hash"]


def test_prompts_three_ways(tiny: ironmule.Runtime) -> None:
    one = tiny.generate(PROMPT, max_tokens=12)
    messages = [{"role": "user", "content": PROMPT}]
    assert tiny.generate(messages=messages, max_tokens=12) == one
    rendered = tiny.encode(tiny.render(messages), bos=False)  # the template writes it
    assert tiny.generate(prompt_ids=rendered, max_tokens=12).tokens == one.tokens
    assert tiny.generate(PROMPT, raw=True, max_tokens=12).metrics.prompt_tokens < one.metrics.prompt_tokens
    assert one.metrics.plan == "strict-one-shot" and one.metrics.cached_tokens == 0
    assert one.metrics.first_token_ms > 0 and one.metrics.per_token_ms > 0 and one.metrics.tokens_per_s > 0


def test_stream_is_generate(tiny: ironmule.Runtime) -> None:
    whole = tiny.generate(PROMPT, max_tokens=40)
    with tiny.stream(PROMPT, max_tokens=40) as stream:
        pieces = list(stream)
        assert "".join(pieces) == whole.text and len(pieces) > 1
        assert stream.result == whole
        assert list(stream) == []
    assert tiny.stream(PROMPT, max_tokens=40).result == whole


def test_stop(tiny: ironmule.Runtime) -> None:
    whole = tiny.generate(PROMPT, max_tokens=40)
    stop = whole.text[3:5]
    for cut in (tiny.generate(PROMPT, max_tokens=40, stop=stop), tiny.generate(PROMPT, max_tokens=40, stop=["never there", stop])):
        assert cut.stop_reason == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    stream = tiny.stream(PROMPT, max_tokens=40, stop=stop)
    assert "".join(stream) == whole.text[: whole.text.index(stop)]


def test_sampling(tiny: ironmule.Runtime) -> None:
    warm = [tiny.generate(PROMPT, max_tokens=20, temperature=1.5, seed=seed) for seed in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]
    greedy = tiny.generate(PROMPT, max_tokens=20)
    assert tiny.generate(PROMPT, max_tokens=20, temperature=2.0, top_k=1, seed=5).tokens == greedy.tokens
    first = greedy.tokens[0]
    assert first not in tiny.generate(PROMPT, max_tokens=20, logit_bias={first: -100.0}).tokens
    assert tiny.generate(PROMPT, max_tokens=20, repetition_penalty=1.8).tokens != greedy.tokens
    assert tiny.generate(PROMPT, max_tokens=3, forced=[5, 6, 7]).tokens == (5, 6, 7)


def test_logprobs(tiny: ironmule.Runtime) -> None:
    assert tiny.generate(PROMPT, max_tokens=5).logprobs is None
    result = tiny.generate(PROMPT, max_tokens=5, top_logprobs=3)
    assert result.logprobs is not None and [t.id for t in result.logprobs] == list(result.tokens)
    for token in result.logprobs:
        assert len(token.top) == 3 and token.top[0] == (token.id, token.logprob) and token.top[0][1] >= token.top[1][1] and token.logprob < 0


def test_logits(tiny: ironmule.Runtime) -> None:
    numpy = pytest.importorskip("numpy")
    rows = tiny.logits(PROMPT, max_tokens=4)
    result = tiny.generate(PROMPT, max_tokens=4)
    assert rows.shape == (4, tiny.info.vocabulary) and rows.dtype == numpy.float32
    assert tuple(rows.argmax(1)) == result.tokens
    assert tiny.logits(PROMPT).shape[0] == 1


def test_perplexity(tiny: ironmule.Runtime) -> None:
    ids = tiny.encode("The quick brown fox jumps over the lazy dog.")
    score = tiny.perplexity(ids)
    assert len(score.logprobs) == len(score.best) == len(ids) - 1 and score.perplexity > 1
    step = tiny.generate(prompt_ids=ids[:4], max_tokens=1, top_logprobs=1, forced=[ids[4]])
    assert step.logprobs is not None
    assert score.logprobs[3] == pytest.approx(step.logprobs[0].logprob, abs=1e-5)
    assert score.best[3] == step.logprobs[0].top[0][0]
    assert tiny.perplexity("The quick brown fox jumps over the lazy dog.") == score


def test_text(tiny: ironmule.Runtime) -> None:
    ids = tiny.encode("Grüße, 世界 🙂")
    assert tiny.decode(ids) == "Grüße, 世界 🙂" and tiny.decode([]) == ""
    assert tiny.decode(tiny.encode("a\0b")) == "a\0b"
    assert len(tiny.encode("x", bos=False)) <= len(tiny.encode("x"))
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    open_end, shut = tiny.render(messages), tiny.render(messages, add_generation_prompt=False)
    assert open_end.startswith(shut) and "U" in shut


def test_hostile_text(tiny: ironmule.Runtime) -> None:
    assert tiny.generate("a\0b", max_tokens=2).tokens
    assert tiny.generate(messages=[{"role": "user", "content": "a\0b"}], max_tokens=2).tokens
    for how in ({"prompt": "a\ud800b"}, {"messages": [{"role": "user", "content": "a\ud800b"}]}, {"prompt": "a", "stop": "\udc00"}):
        with pytest.raises(ironmule.ArgumentError, match="surrogate"):
            tiny.generate(**how)  # type: ignore[arg-type]
    with pytest.raises(ironmule.ArgumentError, match="U\\+0000"):
        tiny.generate("a", stop="x\0y")


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"prompt": "a", "prompt_ids": [1]},
        {"prompt": ["a"]},
        {"prompt_ids": []},
        {"prompt_ids": [10**12]},
        {"prompt_ids": [-1]},
        {"prompt_ids": "12"},
        {"prompt_ids": [1.5]},
        {"messages": "Hi"},
        {"messages": [{"role": "user", "content": object()}]},
        {"messages": [{"role": "user", "content": "a"}], "raw": True},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": 2.5},
        {"prompt": "a", "temperature": "hot"},
        {"prompt": "a", "temperature": -1},
        {"prompt": "a", "top_p": 0},
        {"prompt": "a", "seed": -1},
        {"prompt": "a", "top_logprobs": 21},
        {"prompt": "a", "logit_bias": {10**7: 1.0}},
        {"prompt": "a", "stop": [""]},
        {"prompt": "a", "timeout": 0},
        {"prompt": "a", "plan": "fast"},
    ],
)
def test_wrong_arguments(tiny: ironmule.Runtime, how: dict[str, Any]) -> None:
    with pytest.raises(ironmule.ArgumentError) as caught:
        tiny.generate(**how)
    assert isinstance(caught.value, ValueError) and str(caught.value)
    assert tiny.generate("a", max_tokens=1).tokens


def test_errors(tiny: ironmule.Runtime, tiny_path: str) -> None:
    with pytest.raises(ironmule.ContextError, match=str(tiny.info.context)):
        tiny.generate(prompt_ids=[5] * 600)
    with pytest.raises(ironmule.TemplateError):
        tiny.generate(messages=[{"role": "user"}])
    with pytest.raises(ironmule.FileError):
        ironmule.Runtime.load(path="/nowhere/model.gguf")
    with pytest.raises(ironmule.FormatError):
        ironmule.Runtime.load(path=__file__)
    with pytest.raises(ironmule.UnsupportedError, match="compute_dtype"):
        ironmule.Runtime.load(path=tiny_path, compute_dtype="float16")
    for wrong in ({"mode": "fast"}, {"mode": ironmule.ThroughputMode(0)}, {"context": 1}, {"threads": 0}, {"revision": "main"}, {"device": "a\0"}):
        with pytest.raises(ironmule.ArgumentError):
            ironmule.Runtime.load(path=tiny_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ironmule.ArgumentError):
        ironmule.Runtime.load()
    with pytest.raises(TypeError):
        ironmule.Runtime()


def test_deadline(long: ironmule.Runtime) -> None:
    with pytest.raises(ironmule.DeadlineError) as caught:
        long.generate("a", max_tokens=100_000, ignore_eos=True, timeout=0.3)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.partial is not None and caught.value.partial.tokens and caught.value.partial.stop_reason == "cancelled"


def test_about(tiny: ironmule.Runtime, tiny_path: str) -> None:
    info = tiny.info
    assert (info.path, info.name, info.device, info.max_sequences, info.context) == (tiny_path, "arch-tiny", "cpu", 1, 512)
    assert info.has_chat_template and info.vocabulary == 389 and info.fingerprint.startswith("im-")
    before = tiny.stats
    tiny.generate("a", max_tokens=3, ignore_eos=True)
    assert tiny.stats.generated_tokens - before.generated_tokens == 3 and tiny.stats.submitted - before.submitted == 1
    assert ironmule.version().startswith("0.1")
    assert repr(tiny) == "<ironmule.Runtime>"


def test_bits_do_not_depend_on_threads(tiny: ironmule.Runtime, tiny_path: str) -> None:
    with ironmule.Runtime.load(path=tiny_path, threads=1, device="cpu") as other:
        assert other.info.threads == 1
        assert other.generate(PROMPT, max_tokens=30) == tiny.generate(PROMPT, max_tokens=30)
