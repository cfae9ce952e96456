"""What a memory is given where nothing else is said: encoders and policies by name. The one place that knows all rooms.

`Memory` asks for them when it is opened, so the room of memory itself imports no model and no recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepworth.episodes.model import Encoder, EncoderIdentity
    from keepworth.memory.policy.slots import Policy, Writer
    from keepworth.memory.policy.writers import Facts
    from keepworth.models.chat import ChatModel


def encoder(name: str, on_file: EncoderIdentity | None = None) -> Encoder:
    """The encoder called `name`, or, where `on_file` is given, the one that made the vectors of a memory. Raises EncoderMismatch
    where that one has no name here."""
    from keepworth.memory.errors import EncoderMismatch
    from keepworth.memory.policy.hashed_words import HashedWords
    from keepworth.models.encoders import encoder
    from keepworth.models.errors import UnknownModel

    if on_file is not None:
        if on_file.model == "hashed-words":
            return HashedWords(on_file.dimension)
        if on_file.model.startswith("hashing"):
            return encoder(f"hashing:{on_file.dimension}")
        if on_file.model.startswith(("http://", "https://")):
            return _hosted(on_file)
        try:
            return encoder(on_file.model)
        except UnknownModel as error:
            raise EncoderMismatch(
                f"the vectors of this memory are of the encoder {on_file.model!r}, which has no name here.",
                "Open it with that encoder, or with encoder=None to search by words; `keepworth memory reembed` makes new ones.",
            ) from error
    return encoder("minilm" if name == "default" else name)


def _hosted(on_file: EncoderIdentity) -> Encoder:
    """The encoder behind a URL that made the vectors of a memory, where the environment names its server, too. A file alone does
    not make this program send what is asked to a server. Raises EncoderMismatch."""
    from keepworth.memory.errors import EncoderMismatch
    from keepworth.models.chat import BASE_URL
    from keepworth.models.hosted_encoder import from_name, trusted

    if not trusted(on_file.model):
        raise EncoderMismatch(
            f"the vectors of this memory are of the encoder {on_file.model}, and no server is called because a file says so.",
            f"Name it, Memory(path, encoder={on_file.model!r}), or set {BASE_URL} to its server; encoder=None searches by words.",
        )
    return from_name(on_file.model, on_file.dimension)


def policy(name: str = "default", *, also: Iterable[str] = (), **settings: Any) -> Policy:
    """A fresh policy by name, with settings of its own: `policy("default", withhold=0.05)`. also: other names that are known.
    Raises UnknownPolicy, InvalidPolicy."""
    from inspect import signature

    from keepworth.episodes.errors import UnknownName
    from keepworth.memory.errors import InvalidPolicy, UnknownPolicy
    from keepworth.memory.policy.default import BECAME_DEFAULT, NAME, default

    make: Callable[..., Policy] = default
    known = frozenset(signature(default).parameters)
    if name != NAME:
        from keepworth.recipes.experience_methods import METHODS, settings_of
        from keepworth.recipes.rmm import rmm

        if name not in (*METHODS, "rmm"):
            unknown_policy = UnknownPolicy("policy", name, [*policies(), *also])
            if name in BECAME_DEFAULT:
                unknown_policy.fix = f"It became {NAME!r}, which reads the same log: leave policy= out."
            raise unknown_policy
        make = rmm if name == "rmm" else METHODS[name]
        known = frozenset(signature(make).parameters) - {"settings"}
        known |= settings_of(name) if name in METHODS else frozenset()
    for setting in settings:
        if setting not in known:
            unknown = UnknownName("setting", setting, known, f"policy {name!r}")
            raise InvalidPolicy(unknown.message, unknown.fix)
    return make(**settings)


def policies() -> tuple[str, ...]:
    """The names of all policies, the usual one first."""
    from keepworth.memory.policy.default import NAME
    from keepworth.recipes.experience_methods import METHODS

    return tuple(dict.fromkeys((NAME, *METHODS, "rmm")))


WRITERS = ("default", "rules", "model")


def writer(name: str) -> Writer:
    """What says what to keep of messages: "rules", "model" (the chat model OPENAI_MODEL behind OPENAI_BASE_URL), or "default":
    that model where OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL are all set, else the rules. Or the folder of a run that
    trained a memory manager, or of its export: that decides about each fact that the default finds.

    Raises UnknownName, ChatError for a model that is not configured, and KeepworthError for a folder that holds no manager."""
    from dataclasses import replace
    from pathlib import Path

    from keepworth.episodes.errors import UnknownName

    if name in WRITERS:
        return _facts(name)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        unknown = UnknownName("writer", name, WRITERS)
        unknown.fix += " The folder of a run that trained a manager works too."
        raise unknown
    from keepworth.episodes.extras import require

    require("train", f"The writer {name}")
    from keepworth.recipes.trained import manager_of

    return manager_of(folder, facts=replace(_facts("default"), updates=False))  # what gives way is the manager's to say


def _facts(name: str) -> Facts:
    import os

    from keepworth.memory.policy.writers import Facts

    configured = all(os.environ.get(f"OPENAI_{part}") for part in ("BASE_URL", "API_KEY", "MODEL"))
    if name == "rules" or (name == "default" and not configured):
        return Facts()
    from keepworth.models.chat import from_environment
    from keepworth.models.errors import ChatError

    model = os.environ.get("OPENAI_MODEL", "")
    if not model:
        raise ChatError(
            'writer="model" needs a chat model, and OPENAI_MODEL is not set.', "Set it to the model's name."
        )
    return facts_of(from_environment(model, 'Memory(writer="model")'))


def facts_of(chat: ChatModel, instructions: str = "") -> Facts:
    """The writer that asks `chat` for the facts of messages, and for what they take the place of."""
    from keepworth.memory.policy.writers import Facts
    from keepworth.models.chat import comparison, extractor

    return Facts(extractor(chat, instructions), comparison(chat))


def chat_model(url: str, model: str, **settings: Any) -> ChatModel:
    """The chat model of this name behind an OpenAI-compatible URL; settings as of `keepworth.models.chat.ChatModel`."""
    from keepworth.models.chat import ChatModel

    return ChatModel(url, model, **settings)


def hosted_encoder(url: str, model: str, **settings: Any) -> Encoder:
    """The encoder of this name behind an OpenAI-compatible URL; settings as of `models.hosted_encoder.HostedEncoder`."""
    from keepworth.models.hosted_encoder import HostedEncoder

    return HostedEncoder(url, model, **settings)
