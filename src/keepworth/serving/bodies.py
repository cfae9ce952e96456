"""Reading the bodies of requests. What would change the outcome and cannot be done is refused, not ignored."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.model import SamplingParams, Tokens
from keepworth.serving.served_model import Caller, NotServed, ServedModel, shown

Body = Mapping[str, Any]
MOST_SAMPLES = 256
MOST_ROWS = 4096
_LARGEST_SEED = 2**63 - 1
_TEMPERATURES = (1e-3, 1e3)


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its JSON, the parameters of its URL, and who waits for the answer."""

    body: Body
    query: Mapping[str, str]
    caller: Caller


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (-1, 0),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "stream": (False,),
    "echo": (False,),
    "stop": ([], ""),
    "min_tokens": (0,),
}
HARMLESS = {"cache_salt", "user", "add_special_tokens", "skip_special_tokens", "return_token_ids", "request_id", "rid"}
_SAMPLING = {"n", "max_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos", "logprobs", "prompt_logprobs"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for. params is None where nothing is to be drawn; scored: whether prompts are."""

    params: SamplingParams | None
    scored: bool


def asked(model: ServedModel, body: Body, besides: set[str]) -> Asked:
    only(body, {*_SAMPLING, *HARMLESS, *_NEUTRAL, *besides})
    for key, neutral in _NEUTRAL.items():
        if body.get(key) is not None and body[key] not in neutral:
            raise NotServed(
                f"{key} = {shown(body[key])} is not supported: the in-process model samples by temperature alone.",
                f"Leave {key} out.",
            )
    max_tokens, n = whole(body, "max_tokens", 16), whole(body, "n", 1)
    if not 1 <= n <= MOST_SAMPLES:
        raise NotServed(
            f"n must be at least 1 and at most {MOST_SAMPLES}, not {shown(n)}.", "Ask several times for more."
        )
    temperature = temperature_in(body, "temperature")
    for key in ("logprobs", "prompt_logprobs"):
        if not isinstance(body.get(key), bool):
            whole(body, key, 0)
    stops = frozenset(token_ids(model, body.get("stop_token_ids") or [], "stop_token_ids"))
    if not body.get("ignore_eos", False):
        stops |= end_ids(model)
    scored = body.get("prompt_logprobs") is not None
    if max_tokens == 0:
        return Asked(None, scored)
    seed = secrets.randbits(31) if body.get("seed") is None else whole(body, "seed", 0, _LARGEST_SEED)
    return Asked(SamplingParams(max_tokens, n, temperature, seed, stops), scored)


def end_ids(model: ServedModel) -> frozenset[int]:
    """The ids that end a text, by the checkpoint's generation config and the tokenizer."""
    found = getattr(getattr(model.network, "generation_config", None), "eos_token_id", None)
    ids = {*(found if isinstance(found, list) else [found]), getattr(model.tokenizer, "eos_token_id", None)} - {None}
    return frozenset(ids) or frozenset(model.tokenizer.all_special_ids)


def only(body: Body, known: set[str]) -> None:
    unknown = sorted(key for key in set(body) - known if body[key] is not None)
    if unknown:
        raise NotServed(f"{shown(unknown[0])} is not supported.", f"Known: {', '.join(sorted(known))}.")


def part(body: Body, key: str) -> Body:
    """The object called `key`; empty if there is none."""
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotServed(f"{key} must be an object, not {shown(value)}.")
    return value


def whole(body: Body, key: str, default: int, most: int = 2**31 - 1) -> int:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise NotServed(f"{key} must be a whole number from 0 to {most}, not {shown(value)}.")
    return value


def temperature_in(body: Body, key: str) -> float:
    value = body.get(key)
    if value is None:
        return 1.0
    low, high = _TEMPERATURES
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value == 0 or low <= value <= high):
        raise NotServed(f"{key} must be a number: 0 (the likeliest token), or {low:g} to {high:g}; not {shown(value)}.")
    return float(value)


def text(body: Body, key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise NotServed(f"{key} must be a text that is not empty, not {shown(value)}.")
    return value


def name_in(body: Body, key: str, default: str = "") -> str:
    """A text that may be left out."""
    return default if body.get(key) in (None, "") else text(body, key)


def token_ids(model: ServedModel, value: Any, key: str) -> Tokens:
    size = model.network.config.vocab_size
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < size for each in value):
        raise NotServed(f"{key}: token ids must be a list of whole numbers from 0 to {size - 1}.")
    return tuple(value)


def prompts_of(model: ServedModel, body: Body, key: str) -> list[Tokens]:
    """Of one text, a list of texts, one list of ids or a list of those."""
    value = body.get(key)
    if isinstance(value, str) or (isinstance(value, list) and all(type(each) is int for each in value)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise NotServed(f"{key} must be a text, token ids, or a list of either.")
    if len(value) > MOST_ROWS:
        raise NotServed(
            f"{key} may hold up to {MOST_ROWS} prompts, not {len(value)}.", "Send them in several requests."
        )
    prompts = [model.encode(each) if isinstance(each, str) else token_ids(model, each, key) for each in value]
    if not all(prompts):
        raise NotServed(f"{key}: prompt {prompts.index(())} is empty: there is nothing to continue.")
    return prompts
