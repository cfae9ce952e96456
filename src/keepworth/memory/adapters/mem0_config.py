"""mem0's configuration dictionaries: what of them has an effect here, and an error that says so for the rest."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Server:
    """A provider that speaks OpenAI's protocol. option: what its URL is called in a configuration; url_variable, key_variable: in
    the environment; chat, embedding: mem0's default models."""

    option: str
    url: str
    key_variable: str = ""
    chat: str = ""
    embedding: str = ""
    url_variable: str = ""
    needs_key: bool = False


_OPENAI = Server(
    "openai_base_url",
    "https://api.openai.com/v1",
    "OPENAI_API_KEY",
    "gpt-5-mini",
    "text-embedding-3-small",
    "OPENAI_BASE_URL",
    needs_key=True,
)
SERVERS = {
    "openai": _OPENAI,
    "openai_structured": _OPENAI,
    "ollama": Server("ollama_base_url", "http://localhost:11434", "", "llama3.1:70b", "nomic-embed-text"),
    "lmstudio": Server("lmstudio_base_url", "http://localhost:1234/v1"),
    "vllm": Server("vllm_base_url", "http://localhost:8000/v1", "VLLM_API_KEY", "Qwen/Qwen2.5-32B-Instruct"),
    "together": Server("", "https://api.together.xyz/v1", "TOGETHER_API_KEY", needs_key=True),
    "groq": Server("", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "llama-3.3-70b-versatile", needs_key=True),
    "deepseek": Server(
        "deepseek_base_url",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        "deepseek-chat",
        url_variable="DEEPSEEK_API_BASE",
        needs_key=True,
    ),
    "xai": Server("xai_base_url", "https://api.x.ai/v1", "XAI_API_KEY", url_variable="XAI_API_BASE", needs_key=True),
}
_NO_EFFECT = {
    "vector_store": "memories and their vectors are kept in one file of ours: "
    f"write {{'provider': '{OWN}', 'config': {{'path': 'agent.mem'}}}}, or leave the section out",
    "graph_store": "there is no graph here: leave the section out",
    "reranker": "nothing reranks here: leave the section out; `.memory.search(reranker=<function>)` takes a function",
    "history_db_path": "the history is in the memory's own file: leave it out",
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
    if config is not None and not isinstance(config, Mapping):
        dumped = getattr(config, "model_dump", None)
        if not callable(dumped):
            raise InvalidConfig(
                f"a configuration is a dictionary, the path of a file or a memory, got {config!r:.60}: give one of these"
            )
        config = dumped(exclude_unset=True)
    readers: dict[str, Callable[[Any], Any]] = {
        "vector_store": _path,
        "llm": _llm,
        "embedder": _embedder,
        "version": _version,
        "custom_instructions": _instructions,
    }
    found: dict[str, Any] = {}
    for name, value in (config or {}).items():
        if value is None:
            continue
        if name not in readers:
            raise InvalidConfig(
                f"{name}={value!r:.60} has no effect here: {_NO_EFFECT.get(name) or _meant(name, readers)}"
            )
        found |= readers[name](value)
    if "chat" not in found and "rules" not in found and os.environ.get(_OPENAI.key_variable):
        found |= _llm({"provider": "openai", "config": {"model": os.environ.get("OPENAI_MODEL") or None}})
    return Setup(**found)


def _path(section: Any) -> dict[str, Any]:
    provider, config = _parts("vector_store", section, "")
    if provider != OWN:
        raise InvalidConfig(f"vector_store.provider={provider!r:.40} has no effect here: {_NO_EFFECT['vector_store']}")
    _only("vector_store", config, ("path",))
    path = config.get("path", FILE)
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidConfig(f"vector_store.config.path={path!r:.40} is no path: give the name of a file, or ':memory:'")
    return {"path": os.fspath(path)}


def _llm(section: Any) -> dict[str, Any]:
    provider, config = _parts("llm", section, "openai")
    if provider == OWN:
        _only("llm", config, ("model",))
        if config.get("model", "rules") != "rules":
            raise InvalidConfig(f"llm.config.model={config['model']!r:.40} does not exist here: there is 'rules'")
        return {"rules": True}
    server = _server("llm", provider)
    _only("llm", config, ("model", "api_key", "temperature", "max_tokens", "is_reasoning_model", server.option))
    url, key = _where("llm", server, config)
    model = config.get("model") or server.chat
    if not model:
        raise InvalidConfig(f"llm.config names no model for {provider}: add 'model'")
    chat = part("chat model")(
        url,
        model,
        api_key=key,
        temperature=config.get("temperature", 0.1),
        max_tokens=config.get("max_tokens", 2000),
        reasoning=config.get("is_reasoning_model"),
    )
    return {"chat": chat}


def _embedder(section: Any) -> dict[str, Any]:
    provider, config = _parts("embedder", section, "openai")
    dimensions = config.get("embedding_dims")
    if dimensions is not None and (not isinstance(dimensions, int) or dimensions < 1):
        raise InvalidConfig(f"embedder.config.embedding_dims={dimensions!r:.40}: give a whole number of at least 1")
    local = provider == "huggingface" and not config.get("huggingface_base_url")
    if provider == OWN or local:
        _only("embedder", config, ("model", "embedding_dims") if local else ("model",))
        encoder = named_encoder(config.get("model") or "default")
        if dimensions not in (None, encoder.identity.dimension):
            raise InvalidConfig(
                f"embedder.config.embedding_dims={dimensions} does not fit: {encoder.identity.model} has "
                f"{encoder.identity.dimension} dimensions; leave it out"
            )
        return {"encoder": encoder}
    if provider == "huggingface":
        server = Server("huggingface_base_url", "", "HUGGINGFACE_API_KEY", embedding="tei")
    else:
        server = _server("embedder", provider)
    _only("embedder", config, ("model", "api_key", "embedding_dims", server.option))
    url, key = _where("embedder", server, config)
    model = config.get("model") or server.embedding
    if not model:
        raise InvalidConfig(f"embedder.config names no model for {provider}: add 'model'")
    # As in mem0, OpenAI's models are asked for that many; of others this says how many they have.
    cut = dimensions if server is _OPENAI else None
    return {"encoder": part("hosted encoder")(url, model, api_key=key, dimensions=cut, dimension=dimensions)}


def _version(version: Any) -> dict[str, Any]:
    if version != "v1.1":
        raise InvalidConfig(f"version={version!r:.40} has no effect here: answers have the shape of 'v1.1'")
    return {}


def _instructions(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise InvalidConfig(f"custom_instructions must be text, got {type(text).__name__}: give a string")
    return {"instructions": text}


def _parts(name: str, section: Any, usual: str) -> tuple[str, Mapping[str, Any]]:
    """(provider, its configuration without what is None)."""
    if not isinstance(section, Mapping):
        raise InvalidConfig(f"{name} must be a dictionary with provider and config, got {section!r:.60}")
    _only(name, section, ("provider", "config"), inside="")
    config = section.get("config") or {}
    if not isinstance(config, Mapping):
        raise InvalidConfig(f"{name}.config must be a dictionary, got {config!r:.60}")
    return section.get("provider", usual), {key: value for key, value in config.items() if value is not None}


def _only(name: str, config: Mapping[str, Any], known: Collection[str], inside: str = ".config") -> None:
    names = [each for each in known if each]
    for each in config:
        if each not in names:
            raise InvalidConfig(f"{name}{inside}.{each} has no effect here: {_meant(str(each), names)}")


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, list(known))
    return f"did you mean {near!r}?" if near else f"leave it out; there is {', '.join(known)}"


def _server(name: str, provider: Any) -> Server:
    server = SERVERS.get(provider) if isinstance(provider, str) else None
    if server is None:
        raise InvalidConfig(
            f"{name}.provider={provider!r:.40} is not spoken to here: use one that speaks OpenAI's protocol "
            f"({', '.join(SERVERS)}; any other server as 'openai' with openai_base_url), or '{OWN}'"
        )
    return server


def _where(name: str, server: Server, config: Mapping[str, Any]) -> tuple[str, str | None]:
    """(URL, key). Raises InvalidConfig where a service that wants a key would be asked without one."""
    stated = config.get(server.option) or (os.environ.get(server.url_variable) if server.url_variable else None)
    url = str(stated or server.url)
    key = config.get("api_key") or (os.environ.get(server.key_variable) if server.key_variable else None)
    if not key and server.needs_key and not stated:
        raise InvalidConfig(
            f"{name} wants a key for {url}: set {server.key_variable}, or give {name}.config.api_key"
            + ("; add(..., infer=False) stores messages as they are, without a model" if name == "llm" else "")
        )
    return url, key
