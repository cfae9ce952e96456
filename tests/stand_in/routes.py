"""The tables of routes: our own, and vLLM's as released, refusals included.

What vLLM 0.32 and 0.33 answer was read in their sources, and for vLLM 0.32 run. A route that is there says
little: many are there and refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import keepworth
from keepworth.episodes.errors import UnknownName
from keepworth.serving.calls import NotServed, ServedCall
from tests.stand_in.generation import (
    completions,
    generate_tokens,
    only,
    part,
    text,
    tokenize,
)
from tests.stand_in.model import ServedModel

ServerStyle = Literal["keepworth", "vllm"]
Table = dict[tuple[str, str], Callable[[ServedModel, ServedCall], Any]]
"""(method, path) -> what makes an answer of a model and a request."""

FEATURES: dict[str, frozenset[str]] = {
    "keepworth": frozenset({"adapters", "weights", "pause", "abort"}),
    # --enable-lora, VLLM_ALLOW_RUNTIME_LORA_UPDATING, VLLM_SERVER_DEV_MODE, --enable-scale-out, --tokens-only
    "vllm": frozenset({"lora", "runtime-lora", "dev-mode", "scale-out", "tokens-only"}),
}
"""What each style can be started with."""


def routes(style: ServerStyle, features: frozenset[str]) -> Table:
    """Raises UnknownName for a style or a feature that does not exist."""
    if style not in FEATURES:
        raise UnknownName("server style", style, FEATURES)
    for each in features - FEATURES[style]:
        raise UnknownName("feature", each, FEATURES[style], where=f"style {style}")
    always: Table = {
        ("GET", "/health"): health,
        ("GET", "/version"): version,
        ("GET", "/v1/models"): partial(models, owner=style),
        ("POST", "/tokenize"): tokenize,
    }
    reading, control = {"keepworth": _ours, "vllm": _vllm}[style](features)
    return {**always, **reading, **control}


def _ours(features: frozenset[str]) -> tuple[Table, Table]:
    reading: Table = {
        ("POST", "/v1/completions"): completions,
        ("POST", "/inference/v1/generate"): generate_tokens,
        ("GET", "/is_paused"): is_paused,
        ("GET", "/weight_info"): weight_info,
    }
    control: Table = {}
    if "adapters" in features:
        control |= {
            ("POST", "/v1/load_lora_adapter"): load_adapter,
            ("POST", "/v1/unload_lora_adapter"): unload_adapter,
        }
    if "weights" in features:
        control |= {("POST", "/collective_rpc"): collective_rpc, ("POST", "/update_weight_version"): update_version}
    if "pause" in features:
        control |= {("POST", "/pause"): pause, ("POST", "/resume"): resume}
    if "abort" in features:
        control |= {("POST", "/abort_requests"): abort_requests}
    return reading, control


def _vllm(features: frozenset[str]) -> tuple[Table, Table]:
    """Without --enable-scale-out the token route answers 403; without --enable-lora loading answers 500."""
    there = {"scale-out", "tokens-only"} & features
    drawn = partial(generate_tokens, id_form="generate-tokens-{}") if there else scale_out_disabled
    reading: Table = {
        ("POST", "/v1/completions"): partial(completions, id_form="cmpl-{}-0"),
        ("POST", "/inference/v1/generate"): drawn,
    }
    control: Table = {}
    if "runtime-lora" in features:
        control[("POST", "/v1/load_lora_adapter")] = load_adapter if "lora" in features else lora_disabled
        control[("POST", "/v1/unload_lora_adapter")] = unload_adapter
    if "tokens-only" in features:
        control[("POST", "/abort_requests")] = abort_named_requests
    if "dev-mode" in features:
        reading |= {
            ("GET", "/is_paused"): is_paused,
            ("GET", "/weight_info"): weight_info,
            ("GET", "/server_info"): configuration,
        }
        control |= {
            ("POST", "/pause"): pause,
            ("POST", "/resume"): resume,
            ("POST", "/abort_requests"): abort_requests,
            ("POST", "/collective_rpc"): collective_rpc,
            ("POST", "/update_weight_version"): update_version,
        }
        for path in (
            "/init_weight_transfer_engine",
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
        ):
            control[("POST", path)] = transfer_not_configured  # no released backend reads a folder
    return reading, control


# -- adapters ---------------------------------------------------------------------------------------------------------


def load_adapter(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"lora_name", "lora_path"})
    model.load_adapter(name := text(call.body, "lora_name"), text(call.body, "lora_path"))
    return f"Success: LoRA adapter '{name}' added successfully."


def unload_adapter(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"lora_name"})
    model.unload_adapter(name := text(call.body, "lora_name"))
    return f"Success: LoRA adapter '{name}' removed successfully."


def lora_disabled(model: ServedModel, call: ServedCall) -> Any:
    raise NotServed(
        "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.",
        status=500,
        hang_up=True,
    )


# -- full weights -----------------------------------------------------------------------------------------------------


def collective_rpc(model: ServedModel, call: ServedCall) -> Any:
    only(call.body, {"method", "args", "kwargs", "timeout"})
    method = text(call.body, "method")
    if method == "reload_weights":
        model.update_weights(text(part(call.body, "kwargs"), "weights_path"))
    elif method != "check_health":
        raise NotServed(f"method {method!r} is not served.", "Known: check_health, reload_weights.")
    return {"results": [None]}


def update_version(model: ServedModel, call: ServedCall) -> Any:
    label = text(call.body, "new_version")
    model.set_label(label)
    return {"success": True, "new_version": label}


def transfer_not_configured(model: ServedModel, call: ServedCall) -> Any:
    raise NotServed(
        "Weight transfer not configured. Please set weight_transfer_config to enable it.", status=500, hang_up=True
    )


def weight_info(model: ServedModel, call: ServedCall) -> Any:
    return {"weight_version": model.labels[-1]}


# -- pausing and aborting ---------------------------------------------------------------------------------------------


def pause(model: ServedModel, call: ServedCall) -> Any:
    mode = call.query.get("mode", "abort")
    model.pause(mode)  # type: ignore[arg-type]
    return {"status": "paused"}


def resume(model: ServedModel, call: ServedCall) -> Any:
    model.resume()
    return {"status": "resumed"}


def abort_requests(model: ServedModel, call: ServedCall) -> Any:
    return {"status": "aborted", "aborted": len(model.abort(_ids(call)))}


def abort_named_requests(model: ServedModel, call: ServedCall) -> Any:
    ids = _ids(call)
    if ids is None:
        raise NotServed("Missing 'request_ids' in request body")
    model.abort(ids)


def is_paused(model: ServedModel, call: ServedCall) -> Any:
    return {"is_paused": model.paused is not None}


def _ids(call: ServedCall) -> list[str] | None:
    return call.body.get("request_ids") or None


# -- what the server says of itself -----------------------------------------------------------------------------------


def health(model: ServedModel, call: ServedCall) -> Any:
    return None


def version(model: ServedModel, call: ServedCall) -> Any:
    return {"version": keepworth.__version__}


def configuration(model: ServedModel, call: ServedCall) -> Any:
    return {"vllm_config": {"device_config": {"device": model.device.type}}}


def models(model: ServedModel, call: ServedCall, *, owner: ServerStyle) -> Any:
    base = {"id": model.name, "object": "model", "owned_by": owner, "root": model.name, "parent": None}
    adapters = [
        {"id": name, "object": "model", "owned_by": owner, "root": path, "parent": model.name}
        for name, path in model.adapters().items()
    ]
    return {"object": "list", "data": [{**base, "max_model_len": model.context_limit}, *adapters]}


def scale_out_disabled(model: ServedModel, call: ServedCall) -> Any:
    raise NotServed(
        "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.", status=403
    )
