"""Errors of a model, its files or its engine behind HTTP. Each says how to fix it."""

from __future__ import annotations

from keepworth.base.errors import KeepworthError


class ModelFilesError(KeepworthError):
    """A model's files could not be obtained; the message names the model and the place."""


class UnknownModel(ModelFilesError):
    """A name is neither in the catalogue, nor a folder here, nor of the form of a Hugging Face id."""


class UnmadeModel(ModelFilesError):
    """A model of the laboratory was not made on this machine yet."""


class UnreachableModel(ModelFilesError):
    """A package index or the Hugging Face Hub did not deliver the files."""


class CorruptModel(ModelFilesError):
    """The files exist but are not those that were written or published."""


class IncompleteModel(ModelFilesError):
    """A folder lacks a file every checkpoint has (configuration, weights or tokenizer), or a tokenizer lacks a part."""


class InvalidEncoder(KeepworthError, ValueError):
    """The dimensions or the name of an encoder are invalid."""


class UnsupportedModel(KeepworthError):
    """This engine would compute the network wrongly. The message names the feature, the fix what works."""


class ContextOverflow(KeepworthError, ValueError):
    """A prompt is longer than the model's window."""


# Errors between this process and a model behind HTTP.


class EngineError(KeepworthError):
    """An error of an engine or chat server behind a URL; the message names the URL."""


class EngineUnreachable(EngineError):
    """No connection could be made: nothing was sent."""


class EngineTimeout(EngineError):
    """The server took the request and did not answer in time; whether the request took effect is not known."""


class EngineDied(EngineError):
    """The connection broke after the request was sent; whether the request took effect is not known."""


class EngineRefused(EngineError):
    """The server answered with an error. `status` is the HTTP status, `detail` the server's message."""

    def __init__(self, message: str, fix: str = "", *, status: int, detail: str) -> None:
        super().__init__(message, fix)
        self.status = status
        self.detail = detail


class BadAnswer(EngineError):
    """The server's answer cannot be trained on: fields are missing, or ids or counts contradict the request."""


class MissingCapability(EngineError):
    """The engine lacks a required feature. Raised at start-up where it is known to be required, else at the call; never
    ignored."""


class DeliveryFailed(EngineError):
    """A publication of weights is not proven to have arrived, so training must stop."""


class NothingDelivered(DeliveryFailed):
    """The engine claims to have the new weights but computes the same as before."""


class ChatError(KeepworthError):
    """A chat model's answer is not of the requested form."""


class NoWholeAnswer(ChatError):
    """A chat model answered nothing, or was cut at the limit of tokens. `text` is the part that it wrote."""

    def __init__(self, message: str, fix: str = "", *, text: str = "") -> None:
        super().__init__(message, fix)
        self.text = text


class NoJsonObject(ChatError):
    """There is no complete JSON object in the text."""
