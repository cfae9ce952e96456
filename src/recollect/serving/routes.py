"""The table of routes, and those that change weights, pause and abort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import recollect
from recollect.serving.bodies import Body, only, text
from recollect.serving.generation import chat, completions, detokenize, generate, generate_tokens, tokenize
from recollect.serving.served_model import NotServed, ServedModel

Style = Literal["recollect", "vllm", "sglang"]
Route = Callable[[ServedModel, Body, Mapping[str, str]], Any]
"""(model, the request's JSON, the query's parameters) -> the answer: JSON, a plain sentence, or None for an empty one."""


def load_adapter(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    only(body, {"lora_name", "lora_path"})
    model.load_adapter(name := text(body, "lora_name"), text(body, "lora_path"))
    return f"Success: LoRA adapter '{name}' added successfully."


def unload_adapter(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    only(body, {"lora_name"})
    model.unload_adapter(name := text(body, "lora_name"))
    return f"Success: LoRA adapter '{name}' removed successfully."


def load_adapter_listed(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    load_adapter(model, body, query)
    return {"success": True, "loaded_adapters": model.adapters()}


def unload_adapter_listed(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    unload_adapter(model, body, query)
    return {"success": True, "loaded_adapters": model.adapters()}


def initialise_transfer(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"message": "Weight transfer initialized"}


def start_update(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    model.begin_update()
    return {"message": "Weight update started"}


def update_weights(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    model.update_weights(text(body.get("update_info") or {}, "path"))
    return {"message": "Weights updated"}


def finish_update(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    model.end_update()
    return {"message": "Weight update finished"}


def update_version(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    label = text(body, "new_version")
    model.set_label(label)
    return {"success": True, "new_version": label}


def update_from_disk(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    only(body, {"model_path", "weight_version", "flush_cache"})
    model.begin_update()
    try:
        model.update_weights(text(body, "model_path"))
        model.set_label(str(body.get("weight_version") or "default"))
    finally:
        model.end_update()
    return {"success": True, "message": "Succeeded to update model weights."}


def pause(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    mode = query.get("mode", "abort")
    if mode not in ("abort", "wait", "keep"):
        raise NotServed(f"mode must be abort, wait or keep, not {mode!r}.")
    model.pause(mode)  # type: ignore[arg-type]
    return {"status": "paused"}


def pause_generation(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    mode = body.get("mode", "abort")
    if mode not in ("abort", "in_place"):
        raise NotServed(f"mode must be abort or in_place here, not {mode!r}.")
    model.pause("abort" if mode == "abort" else "keep")
    return {"status": "paused"}


def resume(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    model.resume()
    return {"status": "resumed"}


def abort_requests(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"cancelled_request_ids": model.abort(body.get("request_ids") or None)}


def abort_request(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    model.abort(None if body.get("abort_all") else [text(body, "rid")])


def is_paused(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"is_paused": model.paused is not None}


def weight_info(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"weight_version": model.labels[-1]}


def model_info(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"model_path": model.name, "is_generation": True, "weight_version": model.labels[-1]}


def health(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return None


def version(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
    return {"version": recollect.__version__}


def models(owner: Style) -> Route:
    def listed(model: ServedModel, body: Body, query: Mapping[str, str]) -> Any:
        base = {"id": model.name, "object": "model", "owned_by": owner, "root": model.name, "parent": None}
        adapters = [
            {"id": name, "object": "model", "owned_by": owner, "root": path, "parent": model.name}
            for name, path in model.adapters().items()
        ]
        return {"object": "list", "data": [{**base, "max_model_len": model.context_limit}, *adapters]}

    return listed


_READING: dict[tuple[str, str], Route] = {
    ("GET", "/health"): health,
    ("GET", "/version"): version,
    ("POST", "/v1/chat/completions"): chat,
    ("POST", "/tokenize"): tokenize,
    ("POST", "/detokenize"): detokenize,
}
_VLLM_READING: dict[tuple[str, str], Route] = {
    ("POST", "/v1/completions"): completions,
    ("POST", "/inference/v1/generate"): generate_tokens,
    ("GET", "/is_paused"): is_paused,
    ("GET", "/weight_info"): weight_info,
}
_VLLM_CONTROL: dict[tuple[str, str], Route] = {
    ("POST", "/v1/load_lora_adapter"): load_adapter,
    ("POST", "/v1/unload_lora_adapter"): unload_adapter,
    ("POST", "/init_weight_transfer_engine"): initialise_transfer,
    ("POST", "/start_weight_update"): start_update,
    ("POST", "/update_weights"): update_weights,
    ("POST", "/finish_weight_update"): finish_update,
    ("POST", "/update_weight_version"): update_version,
    ("POST", "/pause"): pause,
    ("POST", "/resume"): resume,
    ("POST", "/abort_requests"): abort_requests,
}
_SGLANG_READING: dict[tuple[str, str], Route] = {
    ("POST", "/generate"): generate,
    ("GET", "/get_model_info"): model_info,
}
_SGLANG_CONTROL: dict[tuple[str, str], Route] = {
    ("POST", "/load_lora_adapter"): load_adapter_listed,
    ("POST", "/unload_lora_adapter"): unload_adapter_listed,
    ("POST", "/update_weights_from_disk"): update_from_disk,
    ("POST", "/pause_generation"): pause_generation,
    ("POST", "/continue_generation"): resume,
    ("POST", "/abort_request"): abort_request,
}


def routes(style: Style, *, control: bool) -> dict[tuple[str, str], Route]:
    """control: also what changes weights, pauses and aborts."""
    own = {("GET", "/v1/models"): models(style), **_READING}
    if style == "sglang":
        return {**own, **_SGLANG_READING, **(_SGLANG_CONTROL if control else {})}
    return {**own, **_VLLM_READING, **(_VLLM_CONTROL if control else {})}
