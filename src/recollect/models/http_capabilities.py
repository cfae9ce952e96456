"""What a server is and can do, found out with requests that run nothing: an OPTIONS per route that a capability needs."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.episodes.errors import UnknownName
from recollect.models.http_client import JsonClient
from recollect.models.http_errors import BadAnswer, EngineError, MissingCapability
from recollect.models.http_wire import Completions, Native, Together, TokensInOut, Wire

# capability -> the routes that make it, any one set of them; and what switches it on
_ROUTES: dict[str, tuple[tuple[str, ...], ...]] = {
    "adapters": (("/v1/load_lora_adapter", "/v1/unload_lora_adapter"), ("/load_lora_adapter", "/unload_lora_adapter")),
    "weights": (
        ("/start_weight_update", "/update_weights", "/finish_weight_update", "/update_weight_version", "/weight_info"),
        ("/update_weights_from_disk", "/get_model_info"),
    ),
    "pause": (("/pause", "/resume"), ("/pause_generation", "/continue_generation")),
    "abort": (("/abort_requests",), ("/abort_request",)),
    "version_spans": (("/inference/v1/generate",),),
}
MENDS = {
    "adapters": "vLLM: start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. SGLang: with --enable-lora.",
    "weights": 'vLLM: start it with VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config \'{"backend": "disk"}\'.',
    "pause": "vLLM: start it with VLLM_SERVER_DEV_MODE=1, on a port that nobody else reaches.",
    "abort": "vLLM: use a version that has /abort_requests.",
    "version_spans": "vLLM: start it with --enable-scale-out (or --tokens-only), so that it has /inference/v1/generate.",
    "any_temperature": "vLLM: start it with --logprobs-mode processed_logprobs. Or sample at temperature 1.",
}


@dataclass(frozen=True, slots=True)
class Card:
    """What `/v1/models` says of the served base model. owner: "vllm", "sglang", "recollect" or another."""

    name: str
    owner: str
    context_limit: int


def need(capability: str, found: frozenset[str], url: str) -> None:
    if capability not in _ROUTES:
        raise UnknownName("engine capability", capability, _ROUTES)
    if capability not in found:
        raise MissingCapability(f"The engine at {url} cannot do {capability!r}.", MENDS[capability])


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


def capabilities_of(client: JsonClient) -> frozenset[str]:
    if client.status("/no-such-route-of-any-engine") != 404:
        raise MissingCapability(
            f"{client.url} does not say 404 for a route that no engine has: what it can do cannot be found out.",
            "Connect to the engine itself, not to a proxy or page in front of it.",
        )
    paths = sorted({path for sets in _ROUTES.values() for each in sets for path in each})
    there = {path for path in paths if client.status(path) != 404}
    return frozenset(name for name, sets in _ROUTES.items() if any(there.issuperset(each) for each in sets))


def wire_for(client: JsonClient, card: Card, found: frozenset[str]) -> Wire:
    if card.owner == "recollect":
        return Together()
    if card.owner == "sglang":
        return Native(base=card.name)
    if "version_spans" in found:
        return TokensInOut()
    if client.status("/v1/completions") != 404:
        return Completions()
    raise MissingCapability(
        f"{client.url} (owned by {card.owner!r}) has neither /inference/v1/generate nor /v1/completions.",
        "Connect to vLLM, SGLang or a server of this package.",
    )
