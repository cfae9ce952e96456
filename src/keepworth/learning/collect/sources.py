"""Sources: what an update trains on besides the groups that were sampled for it.

Replay of one's own successes, demonstrations, what another run solved: each is a `Source` with a share of the update's groups.
A source is told of the groups of every update once it has been made, so that what it holds depends on finished steps alone,
and it is in every checkpoint: a run that is killed repeats exactly what it would have taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel


class Source:
    """What has something to say about the groups of an update; each hook here does nothing.

    Attributes:
        name: Its episodes' `origin`.
        share: Of an update's groups that come from it, below 1.
        replays: Whether episodes of earlier weights come from it.
    """

    name: str
    share: float = 0.0
    replays: bool = True

    def prepare(self, model: InProcessModel) -> None:
        """Called once, when the model is loaded. Raises KeepworthError where nothing can ever come from it."""

    def review(self, groups: list[Group], step: int) -> list[Group]:
        """The sampled groups of the update `step` as they are to be trained on: with further rewards, or without some of them."""
        return groups

    def take(self, step: int, count: int) -> list[Group]:
        """At most `count` groups for the update `step` (from 0): a function of the step and of what `keep` was told."""
        return []

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """The update `step` has been made of these sampled groups. Returns metrics."""
        return {}

    def state(self) -> Any:
        """What a checkpoint keeps of it, as JSON."""
        return None

    def load(self, state: Any) -> None:
        """Go on from what `state` gave."""


class Sources:
    """The sources of a training, for its pipeline."""

    def __init__(self, sources: Sequence[Source], model: InProcessModel) -> None:
        self._sources = tuple(sources)
        self._sampled: list[Group] = []
        self._step = 0
        require_sources(self._sources)
        for source in self._sources:
            source.prepare(model)

    def mix(self, groups: list[Group], step: int) -> tuple[list[Group], dict[str, float]]:
        """The groups of the update `step` (from 0), made of those that were sampled, and metrics."""
        for source in self._sources:
            groups = source.review(groups, step)
        self._sampled, self._step = groups, step
        free = 1 - sum(source.share for source in self._sources)
        mixed, metrics = list(groups), {}
        for source in self._sources:
            wanted = len(groups) * source.share / free
            # Over many steps the counts add up to the share: what is left of one step's fraction is counted in the next.
            taken = source.take(step, int(wanted * (step + 1) + 1e-9) - int(wanted * step + 1e-9))
            if source.share:
                metrics[f"sources/{source.name}_groups"] = float(len(taken))
            mixed += taken
        return mixed, metrics

    def keep(self) -> dict[str, float]:
        """The update of `mix` has been made. Returns metrics."""
        measured: dict[str, float] = {}
        for source in self._sources:
            measured |= source.keep(self._sampled, self._step)
        self._sampled = []
        return measured

    def state(self) -> dict[str, Any]:
        return {source.name: source.state() for source in self._sources}

    def load(self, state: Mapping[str, Any]) -> None:
        for source in self._sources:
            source.load(state[source.name])


def require_sources(sources: Sequence[Source]) -> None:
    """Raises KeepworthError where two sources have one name, or nothing would be left to sample."""
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise KeepworthError(f"Two sources are called {max(names, key=names.count)!r}.", "Give each its own name.")
    shares = [source.share for source in sources]
    if min(shares, default=0.0) < 0 or sum(shares) >= 1:
        raise KeepworthError(
            "The shares of the sources are below 0, or add up to 1 or more.", "Leave room for groups that are sampled."
        )
