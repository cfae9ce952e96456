"""mem0's configuration dictionaries: what of them has an effect here, and an error that says so for the rest."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from keepworth.episodes.errors import nearest
from keepworth.memory.by_name import encoder as named_encoder
from keepworth.memory.errors import InvalidFilter
from keepworth.registry import part

FILE = "keepworth.mem"
"""Where memories are kept if nothing else is said: the file that `keepworth memory` uses, too."""
OWN = "keepworth"
"""The provider of what is here already."""


class InvalidConfig(InvalidFilter):
    """A configuration of mem0's that cannot take effect here."""


class Server(NamedTuple):
    """A provider that speaks OpenAI's protocol. option: what its URL is called; key: the environment variable; needs_key: unless
    another URL is given; chat, embedding: mem0's default models."""

    option: str
    url: str
    key: str = ""
    chat: str = ""
    embedding: str = ""
    needs_key: bool = True


OPENAI = Server(
    "openai_base_url", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5-mini", "text-embedding-3-small"
)
SERVERS = {
    "openai": OPENAI,
    "ollama": Server("ollama_base_url", "http://localhost:11434", "", "llama3.1:70b", "nomic-embed-text", False),
    "lmstudio": Server("lmstudio_base_url", "http://localhost:1234/v1", needs_key=False),
    "vllm": Server("vllm_base_url", "http://localhost:8000/v1", "VLLM_API_KEY", "Qwen/Qwen2.5-32B-Instruct", "", False),
    "together": Server("", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "groq": Server("", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "llama-3.3-70b-versatile"),
    "deepseek": Server("deepseek_base_url", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek-chat"),
    "xai": Server("xai_base_url", "https://api.x.ai/v1", "XAI_API_KEY"),
}
SECTIONS = ("vector_store", "llm", "embedder", "version", "custom_instructions")
_NO_EFFECT = {
    "graph_store": "there is no graph here",
    "reranker": "nothing reranks here; `.memory.search(reranker=<function>)` takes a function",
    "history_db_path": "the history is in the memory's own file",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a configuration says. chat: the language model, None where none is configured; rules: whether facts are found by rules
    instead; instructions: what the model is told beside."""

    path: str = FILE
    encoder: Any = "default"
    chat: Any = None
    rules: bool = False
    instructions: str = ""

    def close(self) -> None:
        """Let go of the servers that were asked."""
        for each in (self.encoder, self.chat):
            if hasattr(each, "close"):
                each.close()


def setup(config: Any) -> Setup:
    """What a configuration asks for: None, a dictionary as `from_config` takes it, or mem0's own `MemoryConfig`, of which counts
    what was set. Raises InvalidConfig."""
    if hasattr(config, "model_dump"):
        config = config.model_dump(exclude_unset=True)
    if not isinstance(config, Mapping | None):
        raise InvalidConfig(f"a configuration is a dictionary, the path of a file or a memory, got {config!r:.60}")
    given = {name: value for name, value in (config or {}).items() if value is not None}
    for name in given:
        if name not in SECTIONS:
            raise InvalidConfig(f"{name}= has no effect here: {_NO_EFFECT.get(name) or _meant(name, SECTIONS)}")
    if given.get("version", "v1.1") != "v1.1":
        raise InvalidConfig(f"version={given['version']!r:.40} has no effect here: answers have the shape of 'v1.1'")
    path = FILE
    if "vector_store" in given:
        _, own = _section("vector_store", given, ("path",))
        path = os.fspath(own.get("path", FILE))
    chat, rules = None, False
    if "llm" in given:
        chat, rules = _llm(given)
    elif os.environ.get(OPENAI.key):
        model = os.environ.get("OPENAI_MODEL")
        chat, _ = _llm({"llm": {"provider": "openai", "config": {"model": model}}})
    return Setup(path, _encoder(given), chat, rules, given.get("custom_instructions", ""))


def _llm(given: Mapping[str, Any]) -> tuple[Any, bool]:
    """The language model, None for none; and whether rules find facts."""
    provider, config = _section("llm", given, ("model", "api_key", "temperature", "max_tokens", "is_reasoning_model"))
    if provider == OWN:
        return None, True
    server = SERVERS[provider]
    chat = part("chat model")(
        _url(server, config),
        _model("llm", provider, config, server.chat),
        api_key=_key("llm", server, config),
        temperature=config.get("temperature", 0.1),
        max_tokens=config.get("max_tokens", 2000),
        reasoning=config.get("is_reasoning_model"),
    )
    return chat, False


def _encoder(given: Mapping[str, Any]) -> Any:
    if "embedder" not in given:
        return "default"
    provider, config = _section("embedder", given, ("model", "api_key", "embedding_dims"))
    dimensions = config.get("embedding_dims")
    if provider in (OWN, "huggingface"):
        encoder = named_encoder(config.get("model") or "default")
        there = encoder.identity.dimension
        if dimensions not in (None, there):
            raise InvalidConfig(f"embedder.config.embedding_dims={dimensions} does not fit: the model has {there}")
        return encoder
    server = SERVERS[provider]
    url, key = _url(server, config), _key("embedder", server, config)
    model = _model("embedder", provider, config, server.embedding)
    # As in mem0, OpenAI's models are asked for that many; of others this says how many they have.
    cut = dimensions if server is OPENAI else None
    return part("hosted encoder")(url, model, api_key=key, dimensions=cut, dimension=dimensions)


def _section(name: str, given: Mapping[str, Any], options: Collection[str]) -> tuple[str, dict[str, Any]]:
    """(provider, its configuration without what is None). Raises InvalidConfig for what has no effect."""
    section = given[name]
    if not isinstance(section, Mapping) or not isinstance(section.get("config") or {}, Mapping):
        raise InvalidConfig(f"{name} must be a dictionary with provider and config, got {section!r:.60}")
    provider = section.get("provider", "openai")
    local = (OWN, "huggingface") if name == "embedder" else (OWN,)
    if name == "vector_store" and provider != OWN:
        raise InvalidConfig(
            f"vector_store.provider={provider!r:.40} has no effect here: memories are kept in one file of ours: "
            f"write {{'provider': '{OWN}', 'config': {{'path': 'agent.mem'}}}}, or leave the section out"
        )
    if name != "vector_store" and provider not in (*SERVERS, *local):
        raise InvalidConfig(
            f"{name}.provider={provider!r:.40} is not spoken to here: use one that speaks OpenAI's protocol "
            f"({', '.join(SERVERS)}; any other server as 'openai' with openai_base_url), or '{OWN}'"
        )
    known = [*options, *(SERVERS[provider].option,)] if provider in SERVERS else options
    config = {key: value for key, value in (section.get("config") or {}).items() if value is not None}
    for option in config:
        if option not in known:
            raise InvalidConfig(f"{name}.config.{option} has no effect here: {_meant(str(option), known)}")
    return provider, config


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, list(known))
    return f"did you mean {near!r}?" if near else f"leave it out; there is {', '.join(known)}"


def _url(server: Server, config: Mapping[str, Any]) -> str:
    return str(
        config.get(server.option) or (os.environ.get("OPENAI_BASE_URL") if server is OPENAI else "") or server.url
    )


def _key(name: str, server: Server, config: Mapping[str, Any]) -> str | None:
    key = config.get("api_key") or os.environ.get(server.key or "-") or None
    if key is None and server.needs_key and _url(server, config) == server.url:
        raise InvalidConfig(
            f"{name} wants a key for {server.url}: set {server.key}, or give {name}.config.api_key"
            + ("; add(..., infer=False) stores messages as they are, without a model" if name == "llm" else "")
        )
    return key


def _model(name: str, provider: str, config: Mapping[str, Any], usual: str) -> str:
    model = config.get("model") or usual
    if not model:
        raise InvalidConfig(f"{name}.config names no model for {provider}: add 'model'")
    return str(model)
