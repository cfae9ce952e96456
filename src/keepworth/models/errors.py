"""What can go wrong with a model, its files or its engine behind HTTP, as typed errors that say how to fix it."""

from __future__ import annotations

from keepworth.episodes.errors import KeepworthError


class ModelFilesError(KeepworthError):
    """A model's files could not be had; the message names the model and the place."""


class UnknownModel(ModelFilesError):
    """Neither in the catalogue, nor a folder here, nor of the form of a Hugging Face id."""


class UnreachableModel(ModelFilesError):
    """A package index or the Hugging Face Hub did not hand the files over."""


class CorruptModel(ModelFilesError):
    """The files are here and are not the ones that were written or published."""


class IncompleteModel(ModelFilesError):
    """A folder that lacks a file every checkpoint has (configuration, weights or tokenizer), or a tokenizer that lacks a part."""


class InvalidEncoder(KeepworthError, ValueError):
    """An encoder was asked for with dimensions that there cannot be."""


class UnsupportedModel(KeepworthError):
    """A network that this engine would compute wrongly; the message names the feature, the fix what works."""


class ContextOverflow(KeepworthError, ValueError):
    """A prompt that the model cannot read as a whole."""


# What can go wrong between this process and a model behind HTTP, as typed errors that say how to fix it.


class EngineError(KeepworthError):
    """Something about an engine or chat server behind a URL; the message names the URL."""


class EngineUnreachable(EngineError):
    """No connection could be made: nothing was sent."""


class EngineTimeout(EngineError):
    """The server took the request and did not answer in time: what it did with it is not known."""


class EngineDied(EngineError):
    """The connection broke after the request was sent: what the server did with it is not known."""


class EngineRefused(EngineError):
    """The server answered with an error. `status` is the HTTP status, `detail` what the server said."""

    def __init__(self, message: str, fix: str = "", *, status: int, detail: str) -> None:
        super().__init__(message, fix)
        self.status = status
        self.detail = detail


class BadAnswer(EngineError):
    """The server answered with something that cannot be trained on: fields missing, ids or counts that contradict the request."""


class MissingCapability(EngineError):
    """The engine lacks what is asked for. Raised at start-up where it was required, else at the call; never ignored."""


class DeliveryFailed(EngineError):
    """A publication of weights is not proven to have arrived: training on must stop."""


class NothingDelivered(DeliveryFailed):
    """The engine says that it took the new weights and computes what it computed before."""


class ChatError(KeepworthError):
    """A chat model answered, and not with what was asked for."""


class NoWholeAnswer(ChatError):
    """A chat model answered nothing, or was cut at the limit of tokens. text: what it said until then."""

    def __init__(self, message: str, fix: str = "", *, text: str = "") -> None:
        super().__init__(message, fix)
        self.text = text


class NoJsonObject(ChatError):
    """There is no complete JSON object in the text."""
