# SPDX-License-Identifier: Apache-2.0
"""What calls give back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metrics:
    """How a request went. Times are milliseconds.

    >>> result = runtime.generate("Hi")                                     # doctest: +SKIP
    >>> result.metrics.first_token_ms, result.metrics.cached_tokens         # doctest: +SKIP
    (41.7, 0)
    """

    queue_ms: float  #: waiting for a place in a step
    prompt_ms: float  #: reading the prompt
    first_token_ms: float  #: from submission to the first token
    per_token_ms: float  #: of each further token, on average; 0 with fewer than two tokens
    generate_ms: float  #: from the first to the last token
    prompt_tokens: int
    cached_tokens: int  #: those of prompt_tokens that an earlier request had computed
    plan: str  #: "strict-one-shot" or "reusable-session"

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first one; 0 with fewer than two tokens."""
        return 1e3 / self.per_token_ms if self.per_token_ms > 0 else 0.0


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token: its id, the natural logarithm of its probability under the model (before temperature and penalties), and the most likely tokens
    there, falling, as (id, logprob)."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Result:
    """One answer.

    >>> result = runtime.generate("Why is the sky blue?", max_tokens=20)    # doctest: +SKIP
    >>> result.text, result.stop_reason, result.logits_hash                 # doctest: +SKIP
    ('The sky appears blue ...', 'length', '8f1c6ad4a1d3b7e0')
    """

    text: str  #: end tokens and stop strings left out
    tokens: tuple[int, ...]  #: generated ids, an end token included
    stop_reason: str  #: "eos", "length" (max_tokens, or the context is full), "stop"; "cancelled" in the `partial` of an exception
    logits_hash: str  #: 16 hexadecimal digits over the bits of all logits: equal for equal tokens, whatever computed them
    metrics: Metrics = field(compare=False)  #: left out when results are compared
    logprobs: tuple[TokenLogprob, ...] | None = None  #: one for each token, when asked for


@dataclass(frozen=True)
class Score:
    """How well the model predicts a text of n tokens."""

    perplexity: float  #: exp of the mean of -logprobs
    logprobs: tuple[float, ...]  #: n - 1 natural logarithms: of each token after the first, given those before
    best: tuple[int, ...]  #: n - 1 ids: the most likely token there


@dataclass(frozen=True)
class RuntimeInfo:
    """What was loaded, and on what it computes. Bytes and milliseconds."""

    name: str  #: general.name of the file, or the file's name
    path: str
    architecture: str
    quantisation: str  #: of most weights: "Q4_1"
    licence: str
    vocabulary: int
    has_chat_template: bool
    device: str  #: "cpu" or "cuda"
    device_note: str  #: on the processor, though a GPU comes first: why; else ""
    cpu_level: str  #: kernels in use: "avx2", ...
    threads: int
    context: int  #: positions of one sequence
    max_sequences: int
    weight_bytes: int
    kv_bytes: int
    load_ms: float
    fingerprint: str  #: identity of model, build, numerics version and plan
    numerics_version: int


@dataclass(frozen=True)
class Stats:
    """Counts since the Runtime was loaded."""

    submitted: int
    finished: int
    cancelled: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    steps: int  #: of the engine; one step serves all requests that run
    queued: int
    running: int
