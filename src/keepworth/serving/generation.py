"""Routes that generate and score, in the form that vLLM and SGLang document, and how their requests are read."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.models.chat_format import NoChatTemplate, TemplateMismatch, TokenizerChat, ends_of
from keepworth.serving.calls import NotServed, ServedCall, WaitingCaller
from keepworth.serving.served_model import ServedModel, shown

# Routes that generate and score, in the form that vLLM and SGLang document.


_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORTED: "abort"}
_MAX_CHAT_TOKENS = 256
_LARGEST_TREE = 4096  # tokens of branches that are scored as one row: what a row costs grows with the square
_MOST_DRAWN = 2**16  # tokens of one prompt's samples, all of which the cache must hold at once


def completions(model: ServedModel, call: ServedCall, id_form: str = "{}") -> Any:
    """id_form: what the engine that is imitated makes of a caller's request id."""
    body = call.body
    wanted = asked(model, body, {"model", "prompt", "vllm_xargs"})
    prompts = prompts_of(model, body, "prompt")
    name, request = name_in(body, "model"), name_in(body, "request_id", uuid.uuid4().hex)
    inside = id_form.format(request)
    groups = _drawn(model, name, inside, prompts, wanted, call.caller)
    extra = part(body, "vllm_xargs")
    scores = _scores(model, name, inside, prompts, extra, call.caller) if wanted.scored else None
    choices: list[dict[str, Any]] = []
    for index, prompt in enumerate(prompts):
        drawn: Sequence[Sample | None] = groups[index] or [None]
        for sample in drawn:
            choice = _completion(model, len(choices), prompt, sample)
            choices.append({**choice, "prompt_logprobs": scores[index]} if scores is not None else choice)
    return {
        **_head("text_completion", name or model.name, request),
        "choices": choices,
        "usage": _usage(prompts, groups),
    }


def generate_tokens(model: ServedModel, call: ServedCall, id_form: str = "{}") -> Any:
    body = call.body
    only(body, {"model", "token_ids", "sampling_params", *HARMLESS})
    wanted = asked(model, part(body, "sampling_params"), set())
    (prompt,) = prompts = _only_one(prompts_of(model, body, "token_ids"), "token_ids")
    name, request = name_in(body, "model"), name_in(body, "request_id", uuid.uuid4().hex)
    inside = id_form.format(request)
    groups = _drawn(model, name, inside, prompts, wanted, call.caller)
    choices = [
        {
            "index": index,
            "token_ids": list(sample.ids),
            "finish_reason": _REASONS[sample.finish],
            "logprobs": {
                "content": [
                    {"token": f"token_id:{token}", "logprob": logprob, "top_logprobs": []}
                    for token, logprob in zip(sample.ids, sample.logprobs, strict=True)
                ]
            },
            "weight_versions": _spans(model, sample),
        }
        for index, sample in enumerate(groups[0])
    ]
    scores = _scores(model, name, inside, prompts, {}, call.caller)[0] if wanted.scored else None
    return {"request_id": request, "prompt_token_ids": list(prompt), "choices": choices, "prompt_logprobs": scores}


def generate(model: ServedModel, call: ServedCall) -> Any:
    body = call.body
    only(body, {"input_ids", "sampling_params", "return_logprob", "logprob_start_len", "lora_path", "rid", "stream"})
    settings = dict(part(body, "sampling_params"))
    settings["max_tokens"] = settings.pop("max_new_tokens", 128)
    settings["seed"] = settings.pop("sampling_seed", None)
    wanted = asked(model, settings, set())
    (prompt,) = prompts = _only_one(prompts_of(model, body, "input_ids"), "input_ids")
    name, request = name_in(body, "lora_path"), name_in(body, "rid", uuid.uuid4().hex)
    meta: dict[str, Any] = {"id": request, "prompt_tokens": len(prompt), "finish_reason": {"type": "length"}}
    ids: Tokens = ()
    if wanted.params is not None:
        sample = _drawn(model, name, request, prompts, wanted, call.caller)[0][0]
        ids = sample.ids
        meta["finish_reason"] = {"type": _REASONS[sample.finish]}
        meta["output_token_logprobs"] = [[p, t, None] for p, t in zip(sample.logprobs, sample.ids, strict=True)]
        meta["weight_version"] = model.labels[-1]
        meta["weight_versions"] = _spans(model, sample)
    if body.get("return_logprob") and body.get("logprob_start_len") == 0:
        found = _scores(model, name, request, prompts, {}, call.caller)[0] or []
        meta["input_token_logprobs"] = [
            [entry[str(token)]["logprob"] if entry else None, token, None]
            for token, entry in zip(prompt, found, strict=True)
        ]
    return {"text": model.decode(ids), "output_ids": list(ids), "meta_info": meta}


@dataclass(frozen=True, slots=True)
class ChatDraw:
    """What was drawn for a conversation. words: of each sample, without the token that ended it."""

    name: str
    request: str
    prompt: Tokens
    samples: Sequence[Sample]
    words: Sequence[str]
    temperature: float


def chat_draw(model: ServedModel, call: ServedCall) -> ChatDraw:
    settings = dict(call.body)
    if "max_completion_tokens" in settings:
        settings["max_tokens"] = settings.pop("max_completion_tokens")
    messages = settings.pop("messages", None)
    prompt = model.encode_continuation(_rendered(model, messages))  # a template writes its BOS itself
    room = model.context_limit - len(prompt)
    if settings.get("max_tokens") is None:
        settings["max_tokens"] = max(1, min(_MAX_CHAT_TOKENS, room))
    wanted = asked(model, settings, {"model"})
    if wanted.scored or wanted.params is None or settings.get("logprobs"):
        raise NotServed("Chat completions give text only: max_tokens must be at least 1, without log-probabilities.")
    name, request = name_in(call.body, "model"), uuid.uuid4().hex
    (samples,) = _drawn(model, name, request, [prompt], wanted, call.caller)
    words = [model.decode(_without_stop(sample, wanted.params)) for sample in samples]
    return ChatDraw(name, request, prompt, samples, words, wanted.params.temperature)


def chat(model: ServedModel, call: ServedCall) -> Any:
    drawn = chat_draw(model, call)
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": words},
            "finish_reason": _REASONS[sample.finish],
        }
        for index, (sample, words) in enumerate(zip(drawn.samples, drawn.words, strict=True))
    ]
    head = _head("chat.completion", drawn.name or model.name, drawn.request)
    return {**head, "choices": choices, "usage": _usage([drawn.prompt], [drawn.samples])}


def _rendered(model: ServedModel, messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise NotServed("messages must be a list of at least one message with role and content.")
    for index, each in enumerate(messages):
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("role"), str)
            or not isinstance(each.get("content"), str)
        ):
            raise NotServed(
                f"messages[{index}] must have role and content, both texts, not {shown(each)}.",
                "Parts, pictures and tool calls are not supported.",
            )
    try:
        return TokenizerChat(model.tokenizer, model.name).rendered(messages)
    except NoChatTemplate as error:
        raise NotServed(error.message, "Serve an instruction-tuned model, or use /v1/completions.") from error
    except TemplateMismatch as error:
        raise NotServed(error.message, error.fix) from error


def tokenize(model: ServedModel, call: ServedCall) -> Any:
    body = call.body
    only(body, {"model", "prompt", "add_special_tokens", "request_id"})
    if not isinstance(body.get("prompt"), str):
        raise NotServed(f"prompt must be a text, not {shown(body.get('prompt'))}.")
    encode = model.encode if body.get("add_special_tokens", True) else model.encode_continuation
    tokens = list(encode(body["prompt"]))
    return {"count": len(tokens), "max_model_len": model.context_limit, "tokens": tokens}


def detokenize(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"model", "tokens"})
    return {"prompt": model.decode(token_ids(model, call.body.get("tokens"), "tokens"))}


# -- making answers -------------------------------------------------------------------------------------------------


def _drawn(
    model: ServedModel,
    name: str,
    request: str,
    prompts: Sequence[Tokens],
    wanted: GenerationRequest,
    caller: WaitingCaller,
) -> list[list[Sample]]:
    if wanted.params is None:
        return [[] for _ in prompts]
    if len(prompts) * wanted.params.n > MOST_ROWS:
        raise NotServed(
            f"n = {wanted.params.n} of {len(prompts)} prompts are more than {MOST_ROWS} samples.",
            "Send them in several requests.",
        )
    if wanted.params.n * wanted.params.max_tokens > _MOST_DRAWN:
        raise NotServed(
            f"n = {wanted.params.n} times max_tokens = {wanted.params.max_tokens} is more than {_MOST_DRAWN} tokens.",
            "Ask several times for fewer samples.",
        )
    return model.sample_as(name, request, prompts, wanted.params, caller)


def _only_one(prompts: list[Tokens], key: str) -> list[Tokens]:
    if len(prompts) != 1:
        raise NotServed(f"{key} must hold one prompt, not {len(prompts)}.")
    return prompts


def _scores(
    model: ServedModel, name: str, request: str, sequences: Sequence[Tokens], extra: Body, caller: WaitingCaller
) -> list[Any]:
    """prompt_logprobs of each sequence. Neighbours that share a prompt, by `prompt_logprobs_start`, are branches of it."""
    starts = extra.get("prompt_logprobs_start") or [1] * len(sequences)
    if (
        not isinstance(starts, list)
        or len(starts) != len(sequences)
        or any(
            type(start) is not int or not 0 < start <= len(sequence)
            for start, sequence in zip(starts, sequences, strict=False)
        )
    ):
        raise NotServed("prompt_logprobs_start must have, for each prompt, a position inside it from 1.")
    temperature = temperature_in(extra, "prompt_logprobs_temperature")
    if not temperature:
        raise NotServed("prompt_logprobs_temperature must be above 0: at 0 every other token is impossible.")
    prompts: list[Tokens] = []
    branches: list[list[Tokens]] = []
    room = 0
    for start, sequence in zip(starts, sequences, strict=True):
        room -= len(sequence) - start
        if not prompts or prompts[-1] != sequence[:start] or room < 0:
            prompts.append(sequence[:start])
            branches.append([])
            room = _LARGEST_TREE - (len(sequence) - start)
        branches[-1].append(sequence[start:])
    scored = model.score_as(name, request, prompts, branches, temperature, caller)
    if scored is None:
        return [None] * len(sequences)
    flat = [values for own in scored for values in own]
    return [
        [None] * start + [{str(t): {"logprob": p}} for t, p in zip(sequence[start:], values, strict=True)]
        for start, sequence, values in zip(starts, sequences, flat, strict=True)
    ]


def _completion(model: ServedModel, index: int, prompt: Tokens, sample: Sample | None) -> dict[str, Any]:
    ids, logprobs = ((), ()) if sample is None else (sample.ids, sample.logprobs)
    return {
        "index": index,
        "text": model.decode(ids),
        "token_ids": list(ids),
        "prompt_token_ids": list(prompt),
        "finish_reason": "length" if sample is None else _REASONS[sample.finish],
        "logprobs": {"tokens": [f"token_id:{each}" for each in ids], "token_logprobs": list(logprobs)},
        "weight_versions": [] if sample is None else _spans(model, sample),
    }


def _spans(model: ServedModel, sample: Sample) -> list[dict[str, Any]]:
    return [{"version": model.labels[s.version], "start": s.start, "end": s.end} for s in sample.spans]


def _without_stop(sample: Sample, params: SamplingParams) -> Tokens:
    return sample.ids[:-1] if sample.ids and sample.ids[-1] in params.stop_ids else sample.ids


def _head(kind: str, name: str, request: str) -> dict[str, Any]:
    return {"id": request, "object": kind, "created": int(time.time()), "model": name}


def _usage(prompts: Sequence[Tokens], groups: Sequence[Sequence[Sample]]) -> dict[str, int]:
    read, drawn = sum(map(len, prompts)), sum(len(sample.ids) for group in groups for sample in group)
    return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


# Reading the bodies of requests. What would change the outcome and cannot be done is refused, not ignored.


Body = Mapping[str, Any]
MOST_SAMPLES = 256
MOST_ROWS = 4096
_LARGEST_SEED = 2**63 - 1
_TEMPERATURES = (1e-3, 1e3)


_NEUTRAL: dict[str, tuple[Any, ...]] = {
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
_SAMPLING = {
    "n",
    "max_tokens",
    "temperature",
    "seed",
    "stop_token_ids",
    "ignore_eos",
    "logprobs",
    "prompt_logprobs",
    "top_p",
    "top_k",
}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request asks for. params is None where nothing is to be drawn; scored: whether prompts are."""

    params: SamplingParams | None
    scored: bool


def asked(model: ServedModel, body: Body, besides: set[str]) -> GenerationRequest:
    only(body, {*_SAMPLING, *HARMLESS, *_NEUTRAL, *besides})
    for key, neutral in _NEUTRAL.items():
        if body.get(key) is not None and body[key] not in neutral:
            raise NotServed(
                f"{key} = {shown(body[key])} is not supported: this model samples by temperature, top_p and top_k alone.",
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
        return GenerationRequest(None, scored)
    seed = secrets.randbits(31) if body.get("seed") is None else whole(body, "seed", 0, _LARGEST_SEED)
    top_k, top_p = _cut(body)
    return GenerationRequest(SamplingParams(max_tokens, n, temperature, seed, stops, top_k, top_p), scored)


def _cut(body: Body) -> tuple[int, float]:
    """top_k, 0 for all tokens, and top_p."""
    top_k, top_p = body.get("top_k"), body.get("top_p")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < -1):
        raise NotServed(f"top_k must be a whole number: how many tokens, or -1 for all; not {shown(top_k)}.")
    if top_p is not None and (isinstance(top_p, bool) or not isinstance(top_p, int | float) or not 0 < top_p <= 1):
        raise NotServed(f"top_p must be a number above 0 and at most 1, not {shown(top_p)}.")
    return max(0, top_k or 0), float(1.0 if top_p is None else top_p)


def end_ids(model: ServedModel) -> frozenset[int]:
    """The ids that end a text, by the checkpoint's generation config and the tokenizer."""
    end = getattr(model.tokenizer, "eos_token_id", None)
    ids = {*ends_of(model.network), *(() if end is None else (int(end),))}
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
