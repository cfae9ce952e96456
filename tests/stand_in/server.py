"""A stand-in for vLLM: its routes over an in-process model, refusals included, for tests.

What talks to an engine can so be run and tested on a laptop against the very weights that the in-process model has. It computes
one request at a time. What vLLM 0.32 and 0.33 answer was read in their sources, and for vLLM 0.32 run. A route that is there says
little: many are there and refuse.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import FinishReason, Sample, SamplingParams
from keepworth.serving.application import ServerLimits, application
from keepworth.serving.calls import NotServed, ServedCall, openai_error
from keepworth.serving.http_server import HttpServer
from tests.stand_in.model import ServedModel

FEATURES = frozenset({"lora", "runtime-lora", "scale-out"})
"""--enable-lora, VLLM_ALLOW_RUNTIME_LORA_UPDATING, --enable-scale-out."""
_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.ABORTED: "abort"}
_SAMPLING = {
    *("n", "max_tokens", "temperature", "seed", "stop_token_ids", "ignore_eos", "logprobs", "prompt_logprobs", "top_p", "top_k"),
    *("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "skip_special_tokens"),
}  # fmt: skip
Table = dict[tuple[str, str], Callable[[ServedModel, ServedCall], Any]]


class ModelServer(HttpServer):
    """Serves `model` from `start` to `close`, or inside a `with` block; other threads of this process go on meanwhile.

    The model is taken over: see `ServedModel`. control: whether it also loads adapters; without: which of FEATURES to leave out.
    api_key: what callers must send.
    """

    def __init__(self, model: InProcessModel, control: bool = True, api_key: str = "", without: str = "") -> None:
        self.model = model if isinstance(model, ServedModel) else ServedModel(model)
        offered = routes(FEATURES - {without} if control else frozenset({"scale-out"}))
        table = {route: partial(answers, self.model) for route, answers in offered.items()}
        shapes = {"/": openai_error}
        super().__init__(
            lambda workers: application(table, partial(check, api_key), workers, ServerLimits(), error_shapes=shapes)
        )

    def close(self) -> None:
        self.model.close()
        super().close()


def check(key: str, path: str, authorization: str) -> None:
    """Raises NotServed where callers must send `key` as a bearer token and did not."""
    if key and not hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {key}".encode()):
        raise NotServed("The key is missing or wrong.", "Send it as: Authorization: Bearer KEY.", status=401)


def routes(features: frozenset[str]) -> Table:
    """(method, path) -> what makes an answer of a model and a request."""
    table: Table = {
        ("GET", "/health"): lambda model, call: None,
        ("GET", "/version"): lambda model, call: {"version": "0.32.0"},
        ("GET", "/v1/models"): models,
        ("POST", "/tokenize"): tokenize,
        ("POST", "/inference/v1/generate"): generate_tokens if "scale-out" in features else scale_out_disabled,
    }
    if "runtime-lora" in features:
        table[("POST", "/v1/load_lora_adapter")] = load_adapter if "lora" in features else lora_disabled
        table[("POST", "/v1/unload_lora_adapter")] = unload_adapter
    return table


def generate_tokens(model: ServedModel, call: ServedCall) -> Any:
    body = call.body
    only(body, {"model", "token_ids", "sampling_params", "request_id"})
    prompt = tuple(body.get("token_ids") or ())
    if not prompt:
        raise NotServed("token_ids holds an empty prompt: there is nothing to continue.")
    settings = body.get("sampling_params") or {}
    only(settings, _SAMPLING)
    name = body.get("model") or ""
    params = SamplingParams(
        settings["max_tokens"],
        settings["n"],
        settings["temperature"],
        settings.get("seed") or 0,
        frozenset(settings.get("stop_token_ids") or ()),
        max(0, settings["top_k"]),
        settings["top_p"],
    )
    (samples,) = model.sample_as(name, [prompt], params)
    scores = None
    if settings.get("prompt_logprobs") is not None:
        scored = model.score_as(name, [prompt[:1]], [[prompt[1:]]])
        if scored is not None:
            pairs = zip(prompt[1:], scored[0][0], strict=True)
            scores = [None, *({str(token): {"logprob": score}} for token, score in pairs)]
    choices = [_choice(index, sample) for index, sample in enumerate(samples)]
    return {"prompt_token_ids": list(prompt), "choices": choices, "prompt_logprobs": scores}


def _choice(index: int, sample: Sample) -> dict[str, Any]:
    return {
        "index": index,
        "token_ids": list(sample.ids),
        "finish_reason": _REASONS[sample.finish],
        "logprobs": {"content": [{"logprob": logprob} for logprob in sample.logprobs]},
    }


def only(body: Mapping[str, Any], known: set[str]) -> None:
    """What an engine would not know is refused, so that a test notices what is sent in vain."""
    if unknown := sorted(set(body) - known):
        raise NotServed(f"{unknown[0]} is not supported.", f"Known: {', '.join(sorted(known))}.")


def tokenize(model: ServedModel, call: ServedCall) -> Any:
    return {"tokens": list(model.encode_continuation(call.body["prompt"]))}


def models(model: ServedModel, call: ServedCall) -> Any:
    base = {"id": model.name, "owned_by": "vllm", "parent": None, "max_model_len": model.context_limit}
    adapters = [{"id": name, "owned_by": "vllm", "parent": model.name} for name in model.adapters]
    return {"object": "list", "data": [base, *adapters]}


def scale_out_disabled(model: ServedModel, call: ServedCall) -> Any:
    raise NotServed(
        "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.", status=403
    )


def load_adapter(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"lora_name", "lora_path"})
    model.load_adapter(call.body["lora_name"], call.body["lora_path"])
    return f"Success: LoRA adapter '{call.body['lora_name']}' added successfully."


def unload_adapter(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"lora_name"})
    model.unload_adapter(call.body["lora_name"])
    return f"Success: LoRA adapter '{call.body['lora_name']}' removed successfully."


def lora_disabled(model: ServedModel, call: ServedCall) -> Any:
    raise NotServed(
        "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.",
        status=500,
        hang_up=True,
    )
