"""Errors of a world, a space or a checkpoint."""

from __future__ import annotations

from keepworth.base.errors import KeepworthError


class UnknownWorld(KeepworthError):
    """Gymnasium has no world of this id, or the package that registers it is missing."""


class SpaceError(KeepworthError):
    """A network cannot take observations, or give actions, of this space."""


class WorldError(KeepworthError):
    """A world broke its contract: a number is not finite, or an observation is outside its space."""


class CheckpointError(KeepworthError):
    """A checkpoint cannot be read, or is of another memory, world or size."""
