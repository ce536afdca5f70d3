# SPDX-License-Identifier: Apache-2.0
"""include/ironmule/*.h as ctypes declarations, field for field. tests/test_abi.py compiles the header and compares every size and offset."""

from __future__ import annotations

import ctypes as c

ERROR_MESSAGE_MAX = 1024
VERSION = (0, 1)  # major and minor of the header that this file mirrors

Ids = c.POINTER(c.c_int32)
Floats = c.POINTER(c.c_float)


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * ERROR_MESSAGE_MAX)]


class MachineInfo(c.Structure):
    _fields_ = [("cores", c.c_int), ("memory_available", c.c_uint64)]


class MachineLimits(c.Structure):
    _fields_ = [("read_bytes_per_s", c.c_double), ("int8_ops_per_s", c.c_double)]


class GpuInfo(c.Structure):
    _fields_ = [
        ("name", c.c_char * 96),
        ("capability", c.c_int),
        ("driver", c.c_int),
        ("processors", c.c_uint32),
        ("memory_bytes", c.c_uint64),
        ("read_bytes_per_s", c.c_double),
    ]


class ModelOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("pre_tokenizer", c.c_char_p), ("vocabulary_only", c.c_bool)]


class ModelInfo(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("name", c.c_char_p),
        ("architecture", c.c_char_p),
        ("quantisation", c.c_char_p),
        ("licence", c.c_char_p),
        ("parameters", c.c_uint64),
        ("products", c.c_uint64),
        ("file_bytes", c.c_uint64),
        ("vocabulary", c.c_uint32),
        ("layers", c.c_uint32),
        ("embedding", c.c_uint32),
        ("context", c.c_uint32),
        ("program_digest", c.c_uint64),
        ("has_chat_template", c.c_bool),
        ("bos", c.c_int32),
        ("eos", c.c_int32),
    ]


class ChatOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("tools", c.c_char_p),
        ("variables", c.c_char_p),
        ("chat_template", c.c_char_p),
        ("no_generation_prompt", c.c_bool),
        ("parse_special", c.c_bool),
    ]


class EngineOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("threads", c.c_int),
        ("context", c.c_uint32),
        ("chunk", c.c_uint32),
        ("max_sequences", c.c_uint32),
        ("cpu_level", c.c_char_p),
        ("device", c.c_char_p),
        ("progress", c.c_void_p),
        ("progress_user", c.c_void_p),
        ("kv_tokens", c.c_uint64),
        ("cache_ram", c.c_uint64),
        ("cache_dir", c.c_char_p),
        ("cache_disk", c.c_uint64),
        ("max_step_ms", c.c_double),
        ("max_queue", c.c_uint32),
        ("log", c.c_void_p),
        ("log_user", c.c_void_p),
        ("device_fallback", c.c_char_p),
        ("cache_host", c.c_uint64),
    ]


class MemoryPlan(c.Structure):
    _fields_ = [
        ("weights", c.c_uint64),
        ("kv", c.c_uint64),
        ("workspace", c.c_uint64),
        ("kv_bytes_per_token", c.c_uint64),
        ("available", c.c_uint64),
        ("host", c.c_uint64),
        ("device", c.c_char_p),
    ]


class EngineInfo(c.Structure):
    _fields_ = [
        ("device", c.c_char_p),
        ("cpu_level", c.c_char_p),
        ("kernels", c.c_char_p),
        ("threads", c.c_int),
        ("context", c.c_uint32),
        ("chunk", c.c_uint32),
        ("max_sequences", c.c_uint32),
        ("memory", MemoryPlan),
        ("load_ms", c.c_double),
        ("clamped", c.c_uint64),
        ("fingerprint", c.c_char_p),
        ("note", c.c_char_p),
    ]


MISS_KINDS = 6


class EngineStats(c.Structure):
    _fields_ = [
        ("submitted", c.c_uint64),
        ("finished", c.c_uint64),
        ("cancelled", c.c_uint64),
        ("timed_out", c.c_uint64),
        ("failed", c.c_uint64),
        ("prompt_tokens", c.c_uint64),
        ("cached_tokens", c.c_uint64),
        ("generated_tokens", c.c_uint64),
        ("steps", c.c_uint64),
        ("cache_hits", c.c_uint64),
        ("cache_misses", c.c_uint64 * MISS_KINDS),
        ("disk_hits", c.c_uint64),
        ("disk_writes", c.c_uint64),
        ("disk_dropped", c.c_uint64),
        ("disk_bytes", c.c_uint64),
        ("queued", c.c_uint32),
        ("running", c.c_uint32),
        ("kv_pages", c.c_uint64),
        ("kv_pages_running", c.c_uint64),
        ("kv_pages_cached", c.c_uint64),
        ("step_ms", c.c_double),
        ("longest_step_ms", c.c_double),
        ("device_failures", c.c_uint32),
        ("device_fallbacks", c.c_uint32),
        ("host_hits", c.c_uint64),
        ("host_writes", c.c_uint64),
        ("host_bytes", c.c_uint64),
    ]


class LogitBias(c.Structure):
    _fields_ = [("id", c.c_int32), ("bias", c.c_float)]


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", c.c_float),
        ("top_k", c.c_int32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("seed", c.c_uint64),
        ("repetition_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("presence_penalty", c.c_float),
        ("bias", c.POINTER(LogitBias)),
        ("bias_count", c.c_size_t),
    ]


class TopToken(c.Structure):
    _fields_ = [("id", c.c_int32), ("logprob", c.c_float)]


class TokenEvent(c.Structure):
    _fields_ = [
        ("id", c.c_int32),
        ("index", c.c_uint32),
        ("text", c.c_void_p),
        ("text_len", c.c_size_t),
        ("logits", Floats),
        ("vocabulary", c.c_size_t),
        ("logprob", c.c_float),
        ("top", c.POINTER(TopToken)),
        ("top_count", c.c_size_t),
    ]


OnToken = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.POINTER(TokenEvent))
OnPrompt = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_size_t)
OnEnd = c.CFUNCTYPE(None, c.c_void_p)
OnScore = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_size_t, c.c_size_t)


class RequestOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("prompt", Ids),
        ("prompt_len", c.c_size_t),
        ("max_tokens", c.c_uint32),
        ("sampling", Sampling),
        ("ignore_eos", c.c_bool),
        ("stop", c.POINTER(c.c_char_p)),
        ("forced", Ids),
        ("forced_len", c.c_size_t),
        ("want_logits", c.c_bool),
        ("no_hash", c.c_bool),
        ("on_token", OnToken),
        ("on_prompt", OnPrompt),
        ("user", c.c_void_p),
        ("neighbours", c.c_int),
        ("want_logprobs", c.c_bool),
        ("top_logprobs", c.c_uint32),
        ("no_cache", c.c_bool),
        ("deadline_ms", c.c_double),
        ("client", c.c_uint64),
        ("on_end", OnEnd),
    ]


class Result(c.Structure):
    _fields_ = [
        ("ids", Ids),
        ("count", c.c_size_t),
        ("text", c.c_void_p),
        ("text_len", c.c_size_t),
        ("stop_reason", c.c_int),
        ("logits_hash", c.c_uint64),
        ("prompt_tokens", c.c_size_t),
        ("cached_tokens", c.c_size_t),
        ("queue_ms", c.c_double),
        ("prompt_ms", c.c_double),
        ("first_token_ms", c.c_double),
        ("generate_ms", c.c_double),
    ]


ENCODE_DEFAULT, ENCODE_NO_BOS, ENCODE_PLAIN = 0, 1, 2
STOP_REASONS = {0: "cancelled", 1: "eos", 2: "length", 3: "stop"}

# By the header's name; the enums' constants are in the same test.
STRUCTS: dict[str, type[c.Structure]] = {
    "im_error": Error,
    "im_machine_info": MachineInfo,
    "im_machine_limits": MachineLimits,
    "im_gpu_info": GpuInfo,
    "im_model_options": ModelOptions,
    "im_model_info": ModelInfo,
    "im_chat_options": ChatOptions,
    "im_engine_options": EngineOptions,
    "im_memory_plan": MemoryPlan,
    "im_engine_info": EngineInfo,
    "im_engine_stats": EngineStats,
    "im_logit_bias": LogitBias,
    "im_sampling": Sampling,
    "im_top_token": TopToken,
    "im_token_event": TokenEvent,
    "im_request_options": RequestOptions,
    "im_result": Result,
}

_P = c.c_void_p
_PP = c.POINTER(c.c_void_p)
_ERR = c.POINTER(Error)
_SIZE = c.POINTER(c.c_size_t)
_IDS_OUT = c.POINTER(Ids)

# What the binding calls: result, arguments.
FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "im_version": (c.c_char_p, []),
    "im_numerics_version": (c.c_int, []),
    "im_model_options_init": (None, [c.POINTER(ModelOptions), c.c_size_t]),
    "im_model_open": (c.c_int, [_PP, c.c_char_p, c.POINTER(ModelOptions), _ERR]),
    "im_model_close": (None, [_P]),
    "im_model_get_info": (None, [_P, c.POINTER(ModelInfo)]),
    "im_model_encode": (c.c_int, [_P, c.c_char_p, c.c_size_t, c.c_uint, _IDS_OUT, _SIZE, _ERR]),
    "im_model_decode": (c.c_int, [_P, Ids, c.c_size_t, _PP, _SIZE, _ERR]),
    "im_chat_options_init": (None, [c.POINTER(ChatOptions), c.c_size_t]),
    "im_model_chat": (c.c_int, [_P, c.c_char_p, c.POINTER(ChatOptions), _PP, _SIZE, _IDS_OUT, _SIZE, _ERR]),
    "im_engine_options_init": (None, [c.POINTER(EngineOptions), c.c_size_t]),
    "im_engine_plan": (c.c_int, [_P, c.POINTER(EngineOptions), c.POINTER(MemoryPlan), _ERR]),
    "im_engine_open_model": (c.c_int, [_PP, _P, c.POINTER(EngineOptions), _ERR]),
    "im_engine_close": (None, [_P]),
    "im_engine_get_info": (None, [_P, c.POINTER(EngineInfo)]),
    "im_engine_get_stats": (None, [_P, c.POINTER(EngineStats)]),
    "im_engine_score": (c.c_int, [_P, Ids, c.c_size_t, Floats, Ids, Floats, OnScore, _P, _ERR]),
    "im_request_options_init": (None, [c.POINTER(RequestOptions), c.c_size_t]),
    "im_request_submit": (c.c_int, [_P, c.POINTER(RequestOptions), _PP, _ERR]),
    "im_request_wait": (c.c_int, [_P, c.POINTER(Result), _ERR]),
    "im_request_cancel": (None, [_P]),
    "im_request_free": (None, [_P]),
    "im_free": (None, [_P]),
}
