"""Routes that generate and score, in the form that vLLM and SGLang document."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.serving.bodies import (
    HARMLESS,
    MOST_ROWS,
    Asked,
    Body,
    Call,
    asked,
    name_in,
    only,
    part,
    prompts_of,
    temperature_in,
    token_ids,
)
from keepworth.serving.served_model import Caller, NotServed, ServedModel, shown

_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORTED: "abort"}
_MAX_CHAT_TOKENS = 256
_LARGEST_TREE = 4096  # tokens of branches that are scored as one row: what a row costs grows with the square
_MOST_DRAWN = 2**16  # tokens of one prompt's samples, all of which the cache must hold at once


def completions(model: ServedModel, call: Call, id_form: str = "{}") -> Any:
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


def generate_tokens(model: ServedModel, call: Call, id_form: str = "{}") -> Any:
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


def generate(model: ServedModel, call: Call) -> Any:
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


def chat(model: ServedModel, call: Call) -> Any:
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
    groups = _drawn(model, name, request, [prompt], wanted, call.caller)
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": model.decode(_without_stop(sample, wanted.params))},
            "finish_reason": _REASONS[sample.finish],
        }
        for index, sample in enumerate(groups[0])
    ]
    head = _head("chat.completion", name or model.name, request)
    return {**head, "choices": choices, "usage": _usage([prompt], groups)}


def _rendered(model: ServedModel, messages: Any) -> str:
    from jinja2 import TemplateError

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
    if not getattr(model.tokenizer, "chat_template", None):
        raise NotServed(
            f"{model.name} has no chat template, so what a conversation looks like to it is not known.",
            "Serve an instruction-tuned model, or use /v1/completions.",
        )
    try:
        return str(model.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except (TemplateError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotServed(f"The chat template of {model.name} does not take these messages: {error}") from error


def tokenize(model: ServedModel, call: Call) -> Any:
    body = call.body
    only(body, {"model", "prompt", "add_special_tokens", "request_id"})
    if not isinstance(body.get("prompt"), str):
        raise NotServed(f"prompt must be a text, not {shown(body.get('prompt'))}.")
    encode = model.encode if body.get("add_special_tokens", True) else model.encode_continuation
    tokens = list(encode(body["prompt"]))
    return {"count": len(tokens), "max_model_len": model.context_limit, "tokens": tokens}


def detokenize(model: ServedModel, call: Call) -> Any:
    only(call.body, {"model", "tokens"})
    return {"prompt": model.decode(token_ids(model, call.body.get("tokens"), "tokens"))}


# -- making answers -------------------------------------------------------------------------------------------------


def _drawn(
    model: ServedModel, name: str, request: str, prompts: Sequence[Tokens], wanted: Asked, caller: Caller
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
    model: ServedModel, name: str, request: str, sequences: Sequence[Tokens], extra: Body, caller: Caller
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
