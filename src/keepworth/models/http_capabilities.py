"""What a server is and can do, found out with calls that change nothing there.

That a route exists says little: vLLM registers its token route, its adapter routes and its weight transfer by switches of their
own and refuses when they are called; SGLang's are always there. So a capability is what a harmless call proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keepworth.episodes.errors import UnknownName
from keepworth.models.errors import BadAnswer, EngineError, MissingCapability
from keepworth.models.http_client import JsonClient, Tried
from keepworth.models.http_wire import Completions, Native, Together, TokensInOut, Wire

CAPABILITIES = ("adapters", "weights", "pause", "abort", "version_spans")
FIXES = {
    "adapters": "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. SGLang: with --enable-lora "
    "--max-lora-rank 16 --lora-target-modules all, and without data parallelism.",
    "weights": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "pause": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "abort": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "version_spans": "vLLM: start it with --enable-scale-out (or --tokens-only), so that it has /inference/v1/generate.",
    "any_temperature": "vLLM: start it with --logprobs-mode processed_logprobs. Or sample at temperature 1.",
}
_PROBE = "adapter-of-a-probe"
_INVALID = (400, 422)  # it read the body and found fault with it: the route is there and open


@dataclass(frozen=True, slots=True)
class Card:
    """What `/v1/models` says of the served base model. owner: "vllm", "sglang", "keepworth" or another."""

    name: str
    owner: str
    context_limit: int


@dataclass(frozen=True, slots=True)
class Proven:
    """there: the capabilities that were proven; refusals: what the engine said to those that were not."""

    there: frozenset[str]
    refusals: Mapping[str, str]

    def __contains__(self, capability: str) -> bool:
        return capability in self.there

    def need(self, capability: str, url: str) -> None:
        """Raises MissingCapability, or UnknownName for what is no capability."""
        if capability not in CAPABILITIES:
            raise UnknownName("engine capability", capability, CAPABILITIES)
        if capability not in self.there:
            said = self.refusals.get(capability, "")
            reason = f" It says: {said}" if said else ""
            raise MissingCapability(f"The engine at {url} cannot do {capability!r}.{reason}", FIXES[capability])


def card_of(client: JsonClient, model: str) -> Card:
    listed = (client.get("/v1/models") or {}).get("data") or []
    bases = [each for each in listed if not each.get("parent")]
    named = [each for each in bases if each.get("id") == model] if model else bases
    if model and not named:
        raise UnknownName("model", model, [str(each.get("id")) for each in bases], client.url)
    if len(named) != 1:
        names = ", ".join(str(each.get("id")) for each in bases) or "none"
        raise EngineError(f"{client.url} serves several models, or none: {names}.", "Name one of them as model.")
    limit = named[0].get("max_model_len")
    if not isinstance(limit, int):
        raise BadAnswer(f"{client.url}/v1/models does not say max_model_len of {named[0].get('id')}.")
    return Card(str(named[0]["id"]), str(named[0].get("owned_by", "")), limit)


def capabilities_of(client: JsonClient, owner: str) -> Proven:
    """Of SGLang all but "version_spans", which a sample tells."""
    answers = _sglang(client) if owner == "sglang" else _vllm(client)
    there = frozenset(name for name, (proven, _) in answers.items() if proven)
    return Proven(there, {name: said for name, (proven, said) in answers.items() if not proven})


def _vllm(client: JsonClient) -> dict[str, tuple[bool, str]]:
    """vLLM's, and our own server's. capability -> (whether it is proven, what the engine said)."""
    tokens = client.tried("POST", "/inference/v1/generate", {})
    paused = client.tried("GET", "/is_paused")
    resume = _route(client, "/resume")
    abort = client.tried("POST", "/abort_requests", {"request_ids": ["no-request-of-a-probe"]}, control=True)
    rpc = client.tried("POST", "/collective_rpc", {"method": "check_health"}, control=True)
    label = client.tried("GET", "/weight_info")
    # Loading what is not there fails as not found where adapters are on, and otherwise where they are not.
    body = {"lora_name": _PROBE, "lora_path": f"/nonexistent/{_PROBE}"}
    adapters = client.tried("POST", "/v1/load_lora_adapter", body, control=True)
    return {
        "adapters": (adapters.status in (400, 404) and _PROBE in adapters.detail, adapters.detail),
        "weights": (rpc.well and label.well, rpc.detail if not rpc.well else label.detail),
        "pause": (paused.well and isinstance(_field(paused, "is_paused"), bool) and resume, paused.detail),
        "abort": (abort.well, abort.detail),
        "version_spans": (tokens.status in _INVALID, tokens.detail),
    }


def _sglang(client: JsonClient) -> dict[str, tuple[bool, str]]:
    info = client.tried("GET", "/server_info")
    load = client.tried("POST", "/load_lora_adapter", {}, control=True)
    pause = client.tried("POST", "/pause_generation", {"mode": "no-mode-of-a-probe"}, control=True)
    weights = client.tried("POST", "/update_weights_from_disk", {}, control=True)
    abort = client.tried("POST", "/abort_request", {"rid": "no-request-of-a-probe"}, control=True)
    return {
        "adapters": (
            bool(_field(info, "enable_lora")) and _field(info, "dp_size") in (1, None) and load.status in _INVALID,
            load.detail if load.status not in _INVALID else "LoRA is not enabled, or data parallelism is on.",
        ),
        "weights": (weights.status in _INVALID, weights.detail),
        "pause": (pause.status in _INVALID, pause.detail),
        "abort": (abort.well, abort.detail),
        "version_spans": (False, "its samples do not say under which weights they were drawn."),
    }


def _field(tried: Tried, key: str) -> object:
    return tried.answer.get(key) if tried.well and isinstance(tried.answer, dict) else None


def _route(client: JsonClient, path: str) -> bool:
    """Whether a route exists that cannot be called for the sake of asking: OPTIONS runs nothing."""
    return client.tried("OPTIONS", path).status not in (401, 403, 404)


def wire_for(client: JsonClient, card: Card, proven: Proven) -> Wire:
    if card.owner == "keepworth":
        return Together()
    if card.owner == "sglang":
        return Native(base=card.name)
    if "version_spans" in proven:
        return TokensInOut()
    if client.tried("POST", "/v1/completions", {}).status in _INVALID:
        return Completions()
    raise MissingCapability(
        f"{client.url} (owned by {card.owner!r}) has neither /inference/v1/generate nor /v1/completions.",
        "Connect to vLLM, SGLang or a server of this package.",
    )
