"""What can go wrong between a model's name and its files, as typed errors that say how to fix it."""

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


class CacheUnusable(ModelFilesError):
    """The cache folder cannot be written: full, read-only, or held by another process for too long."""


class InvalidEncoder(KeepworthError, ValueError):
    """An encoder was asked for with dimensions or threads that there cannot be."""


class UnsupportedModel(KeepworthError):
    """A network that this engine would compute wrongly; the message names the feature, the fix what works."""


class ContextOverflow(KeepworthError, ValueError):
    """A prompt that the model cannot read as a whole."""
