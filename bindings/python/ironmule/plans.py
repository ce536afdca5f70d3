# SPDX-License-Identifier: Apache-2.0
"""What is asked for: modes of a Runtime, plans of a request, requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Union

if TYPE_CHECKING:
    from ._engine import Owner

#: One message of a conversation: {"role": "user", "content": "..."}, and whatever else the model's template reads.
Message = Mapping[str, Any]


@dataclass(frozen=True)
class InteractiveMode:
    """One request at a time, each with the whole machine; others wait in the order in which they came.

    cache_bytes: memory for what sessions keep (`Runtime.session_plan`). None: half a gigabyte, at most a quarter of what is spare; 0: none.
    """

    cache_bytes: int | None = None


@dataclass(frozen=True)
class ThroughputMode:
    """Up to `max_width` requests share each step: more tokens a second in all, each request a little slower. The answers are the same, bit for bit.

    Each of the max_width requests may fill the whole context; memory for that is reserved at load. cache_bytes: as in InteractiveMode.
    """

    max_width: int = 8
    cache_bytes: int | None = None


Mode = Union[InteractiveMode, ThroughputMode]


@dataclass(frozen=True)
class StrictOneShotPlan:
    """Computes the whole prompt; nothing is taken from earlier requests, nothing is left for later ones."""


class ReusableSessionPlan:
    """A beginning that many requests share: computed once, then reused with the same bits. Made by `Runtime.session_plan`, for that Runtime alone.

    >>> session = runtime.session_plan("You answer in one sentence. " + handbook)        # doctest: +SKIP
    >>> runtime.generate("What is chapter 2 about?", plan=session).metrics.cached_tokens  # doctest: +SKIP
    1003

    prefix_tokens: token ids that the shared beginning has. What is kept makes room for others when memory for it (`cache_bytes`) is short; it is then computed
    anew, and the answer is the same.
    """

    def __init__(self, owner: Owner, messages: list[Message] | None, text: str | None, ids: list[int] | None, prefix_tokens: int) -> None:
        self._owner, self._messages, self._text, self._ids = owner, messages, text, ids
        self.prefix_tokens = prefix_tokens

    def __repr__(self) -> str:
        return f"ReusableSessionPlan(prefix_tokens={self.prefix_tokens})"


Plan = Union[StrictOneShotPlan, ReusableSessionPlan]


@dataclass(frozen=True)
class Request:
    """One question. Exactly one of prompt, messages and prompt_ids is given.

    >>> runtime.serve([ironmule.Request("Hi"), ironmule.Request("Bye", max_tokens=8)])   # doctest: +SKIP
    """

    #: A text. It becomes the user's message in the model's chat template when the model has one; with raw=True, or without a template, it is continued as it is.
    prompt: str | None = None
    #: A conversation, rendered with the model's chat template. A trailing assistant message is continued.
    messages: Sequence[Message] | None = None
    #: Token ids, taken as they are.
    prompt_ids: Sequence[int] | None = None
    max_tokens: int = 64
    #: StrictOneShotPlan() or what Runtime.session_plan gave; None: StrictOneShotPlan().
    plan: Plan | None = None
    #: Strings that end the answer.
    stop: str | Sequence[str] | None = None
    #: 0: greedy, and the same answer each time. Else random draws, the same for the same seed.
    temperature: float = 0.0
    #: None: 0.
    seed: int | None = None
    top_k: int = 0  #: keep the most likely tokens, so many; 0: off
    top_p: float = 1.0  #: keep the most likely tokens that reach this probability; 1: off
    min_p: float = 0.0  #: keep tokens at least this likely, relative to the best; 0: off
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    #: Token id -> what is added to its logit, -100 .. 100; -100 excludes it.
    logit_bias: Mapping[int, float] | None = None
    #: Result.logprobs is wanted.
    logprobs: bool = False
    #: ... with so many alternatives for each token, 0 .. 20.
    top_logprobs: int = 0
    #: Leave the chat template out.
    raw: bool = False
    #: Control tokens that are written in a message become tokens; off: they are plain text. (In raw text they always do.)
    parse_special: bool = False
    #: A JSON array of tool definitions for the template, as Python values.
    tools: Sequence[Mapping[str, Any]] | None = None
    #: Go on after an end token.
    ignore_eos: bool = False
    #: Seconds from submission; then DeadlineError, with what there is as `partial`.
    timeout: float | None = None
    #: These ids are taken in place of the chosen ones, as far as they go.
    forced: Sequence[int] | None = None
    #: Whose request it is: waiting requests of different clients take turns.
    client: int = 0


class Options(TypedDict, total=False):
    """The fields of `Request` behind its prompt, as keyword arguments of generate, stream and the like."""

    messages: Sequence[Message] | None
    prompt_ids: Sequence[int] | None
    max_tokens: int
    plan: Plan | None
    stop: str | Sequence[str] | None
    temperature: float
    seed: int | None
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float] | None
    logprobs: bool
    top_logprobs: int
    raw: bool
    parse_special: bool
    tools: Sequence[Mapping[str, Any]] | None
    ignore_eos: bool
    timeout: float | None
    forced: Sequence[int] | None
    client: int
