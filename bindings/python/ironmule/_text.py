# SPDX-License-Identifier: Apache-2.0
"""From what users write to token ids, by the model's tokenizer and chat template. Called with the engine in use."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from . import _abi
from ._call import id_array
from ._engine import Engine
from ._library import check, lib, take_ids, take_text, utf8
from .errors import ArgumentError
from .plans import Message, Request, ReusableSessionPlan


def model_info(engine: Engine) -> _abi.ModelInfo:
    info = _abi.ModelInfo()
    lib().im_model_get_info(engine.model, info)
    return info


def encode(engine: Engine, text: str, flags: int) -> list[int]:
    data, ids, count, error = utf8(text, "text"), _abi.Ids(), ctypes.c_size_t(), _abi.Error()
    check(lib().im_model_encode(engine.model, data, len(data), flags, ids, count, error), error)
    return take_ids(ids, count.value)


def decode(engine: Engine, ids: Sequence[int]) -> str:
    array, text, length, error = id_array(ids, "ids"), ctypes.c_void_p(), ctypes.c_size_t(), _abi.Error()
    check(lib().im_model_decode(engine.model, array, len(array), text, length, error), error)
    return take_text(text, length.value)


def _json(value: Any, what: str) -> bytes:
    import json

    try:
        return utf8(json.dumps(value, ensure_ascii=False), what)
    except (TypeError, ValueError) as problem:
        raise problem if isinstance(problem, ArgumentError) else ArgumentError(f"{what}: {problem}") from None


def chat(
    engine: Engine,
    messages: Sequence[Message],
    *,
    want_text: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    generation_prompt: bool = True,
    parse_special: bool = False,
) -> tuple[str, list[int]]:
    """The rendered text, if wanted, else its ids."""
    if isinstance(messages, (str, bytes, Mapping)):
        raise ArgumentError('messages: a list like [{"role": "user", "content": "Hi"}] is needed')
    options, error = _abi.ChatOptions(), _abi.Error()
    lib().im_chat_options_init(options, ctypes.sizeof(options))
    options.tools = _json(list(tools), "tools") if tools is not None else None
    options.variables = _json(variables, "variables") if variables is not None else None
    options.no_generation_prompt, options.parse_special = not generation_prompt, parse_special
    data = _json([dict(m) if isinstance(m, Mapping) else m for m in messages], "messages")
    text, length, ids, count = ctypes.c_void_p(), ctypes.c_size_t(), _abi.Ids(), ctypes.c_size_t()
    if want_text:
        check(lib().im_model_chat(engine.model, data, options, text, length, None, None, error), error)
        return take_text(text, length.value), []
    check(lib().im_model_chat(engine.model, data, options, None, None, ids, count, error), error)
    return "", take_ids(ids, count.value)


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def _session_ids(engine: Engine, r: Request, session: ReusableSessionPlan) -> list[int]:
    """The ids of a request behind the beginning that its session shares."""
    if session._messages is not None:
        if r.prompt_ids is not None or r.raw:
            raise ArgumentError("the plan's prefix is a list of messages: give prompt or messages, not prompt_ids or raw")
        messages = [*session._messages, *(r.messages if r.messages is not None else user(r.prompt or ""))]
        return chat(engine, messages, want_text=False, tools=r.tools, parse_special=r.parse_special)[1]
    if session._text is not None:
        if r.prompt is None:
            raise ArgumentError("the plan's prefix is a text: give prompt, which continues it")
        return encode(engine, session._text + r.prompt, _abi.ENCODE_DEFAULT)
    if r.prompt_ids is None:
        raise ArgumentError("the plan's prefix is token ids: give prompt_ids, which follow them")
    return [*(session._ids or ()), *r.prompt_ids]


def prompt_ids(engine: Engine, r: Request) -> list[int]:
    """The ids of a request. Errors: ArgumentError, TemplateError, UnsupportedError (messages, but the model has no template)."""
    given = [name for name in ("prompt", "messages", "prompt_ids") if getattr(r, name) is not None]
    if len(given) != 1:
        raise ArgumentError(f"one of prompt, messages and prompt_ids is needed; given: {', '.join(given) or 'none'}")
    if r.prompt is not None and not isinstance(r.prompt, str):
        raise ArgumentError(f"prompt: a str is needed, not {type(r.prompt).__name__}; messages= takes a conversation, prompt_ids= token ids")
    if isinstance(r.plan, ReusableSessionPlan):
        return _session_ids(engine, r, r.plan)
    if r.prompt_ids is not None:
        return list(r.prompt_ids)
    if r.messages is not None:
        if r.raw:
            raise ArgumentError("raw leaves the chat template out, but messages need it")
        return chat(engine, r.messages, want_text=False, tools=r.tools, parse_special=r.parse_special)[1]
    if r.raw or not model_info(engine).has_chat_template:
        return encode(engine, r.prompt or "", _abi.ENCODE_DEFAULT)
    return chat(engine, user(r.prompt or ""), want_text=False, tools=r.tools, parse_special=r.parse_special)[1]
