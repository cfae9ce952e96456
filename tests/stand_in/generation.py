"""Routes that generate and score, in the form that vLLM and SGLang document, and how their requests are read."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.models.chat_format import ends_of
from keepworth.serving.calls import NotServed, ServedCall, WaitingCaller
from tests.stand_in.model import ServedModel

_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORTED: "abort"}
_LARGEST_TREE = 4096  # tokens of branches that are scored as one row: what a row costs grows with the square


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


def tokenize(model: ServedModel, call: ServedCall) -> Any:
    encode = model.encode if call.body.get("add_special_tokens", True) else model.encode_continuation
    tokens = list(encode(call.body["prompt"]))
    return {"count": len(tokens), "max_model_len": model.context_limit, "tokens": tokens}


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
    temperature = float(extra.get("prompt_logprobs_temperature", 1.0))
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


def _head(kind: str, name: str, request: str) -> dict[str, Any]:
    return {"id": request, "object": kind, "created": int(time.time()), "model": name}


def _usage(prompts: Sequence[Tokens], groups: Sequence[Sequence[Sample]]) -> dict[str, int]:
    read, drawn = sum(map(len, prompts)), sum(len(sample.ids) for group in groups for sample in group)
    return {"prompt_tokens": read, "completion_tokens": drawn, "total_tokens": read + drawn}


# Reading the bodies of requests. What an engine would not know is refused, so that a test notices what is sent in vain.


Body = Mapping[str, Any]
HARMLESS = {
    *("cache_salt", "user", "add_special_tokens", "skip_special_tokens", "return_token_ids", "request_id", "rid"),
    *("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("stream", "echo", "stop", "min_tokens"),
}
"""What changes nothing here: engines are sent neutral values of these."""
_SAMPLING = {
    *("n", "max_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos", "logprobs", "prompt_logprobs"),
    *("top_p", "top_k"),
}


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request asks for. params is None where nothing is to be drawn; scored: whether prompts are."""

    params: SamplingParams | None
    scored: bool


def asked(model: ServedModel, body: Body, besides: set[str]) -> GenerationRequest:
    only(body, {*_SAMPLING, *HARMLESS, *besides})
    stops = frozenset(body.get("stop_token_ids") or [])
    if not body.get("ignore_eos", False):
        end = getattr(model.tokenizer, "eos_token_id", None)
        ends = frozenset({*ends_of(model.network), *(() if end is None else (int(end),))})
        stops |= ends or frozenset(model.tokenizer.all_special_ids)
    scored = body.get("prompt_logprobs") is not None
    if not (most := body.get("max_tokens", 16)):
        return GenerationRequest(None, scored)
    seed = secrets.randbits(31) if body.get("seed") is None else body["seed"]
    top_k, top_p = max(0, body.get("top_k") or 0), float(body.get("top_p") or 1.0)
    temperature = float(body.get("temperature", 1.0))
    return GenerationRequest(SamplingParams(most, body.get("n", 1), temperature, seed, stops, top_k, top_p), scored)


def only(body: Body, known: set[str]) -> None:
    unknown = sorted(key for key in set(body) - known if body[key] is not None)
    if unknown:
        raise NotServed(f"{unknown[0]} is not supported.", f"Known: {', '.join(sorted(known))}.")


def part(body: Body, key: str) -> Body:
    """The object called `key`; empty if there is none."""
    return body.get(key) or {}


def text(body: Body, key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise NotServed(f"{key} must be a text that is not empty.")
    return value


def name_in(body: Body, key: str, default: str = "") -> str:
    """A text that may be left out."""
    return body.get(key) or default


def prompts_of(model: ServedModel, body: Body, key: str) -> list[Tokens]:
    """Of one text, a list of texts, one list of ids or a list of those."""
    value = body.get(key)
    if isinstance(value, str) or (isinstance(value, list) and all(type(each) is int for each in value)):
        value = [value]
    prompts = [model.encode(each) if isinstance(each, str) else tuple(each) for each in value or ()]
    if not prompts or not all(prompts):
        raise NotServed(f"{key} holds an empty prompt: there is nothing to continue.")
    return prompts
