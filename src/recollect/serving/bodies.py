"""Reading the bodies of requests. What would change the outcome and cannot be done is refused, not ignored."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.episodes.model import SamplingParams, Tokens
from recollect.serving.served_model import NotServed, ServedModel

Body = Mapping[str, Any]

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
                f"{key} = {body[key]!r} is not supported: the in-process model samples by temperature alone."
            )
    max_tokens, n = whole(body, "max_tokens", 16), whole(body, "n", 1)
    temperature = body.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise NotServed(f"temperature must be a number, not {temperature!r}.")
    stops = frozenset(token_ids(model, body.get("stop_token_ids") or []))
    if not body.get("ignore_eos", False):
        stops |= end_ids(model)
    scored = body.get("prompt_logprobs") is not None
    if max_tokens == 0:
        return Asked(None, scored)
    seed = body.get("seed")
    seed = secrets.randbits(31) if seed is None else whole(body, "seed", 0)
    return Asked(SamplingParams(max_tokens, n, float(temperature), seed, stops), scored)


def end_ids(model: ServedModel) -> frozenset[int]:
    """The ids that end a text, by the checkpoint's generation config and the tokenizer."""
    found = getattr(getattr(model.network, "generation_config", None), "eos_token_id", None)
    ids = {*(found if isinstance(found, list) else [found]), getattr(model.tokenizer, "eos_token_id", None)} - {None}
    return frozenset(ids) or frozenset(model.tokenizer.all_special_ids)


def only(body: Body, known: set[str]) -> None:
    unknown = sorted(key for key in set(body) - known if body[key] is not None)
    if unknown:
        raise NotServed(f"{', '.join(unknown)}: not supported. Known: {', '.join(sorted(known))}.")


def whole(body: Body, key: str, default: int) -> int:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NotServed(f"{key} must be a whole number from 0, not {value!r}.")
    return value


def text(body: Body, key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise NotServed(f"{key} must be a text that is not empty, not {value!r}.")
    return value


def token_ids(model: ServedModel, value: Any) -> Tokens:
    size = model.network.config.vocab_size
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < size for each in value):
        raise NotServed(f"Token ids must be a list of whole numbers from 0 to {size - 1}.")
    return tuple(value)


def prompts_of(model: ServedModel, value: Any) -> list[Tokens]:
    """Of one text, a list of texts, one list of ids or a list of those."""
    if isinstance(value, str) or (isinstance(value, list) and all(type(each) is int for each in value)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise NotServed("prompt must be a text, token ids, or a list of either.")
    prompts = [model.encode(each) if isinstance(each, str) else token_ids(model, each) for each in value]
    if not all(prompts):
        raise NotServed(f"prompt {prompts.index(())} is empty: there is nothing to continue.")
    return prompts
