"""Sources: further groups that an update trains on besides those sampled for it.

Replay of successes, demonstrations and another run's solutions are each a `Source` with a share of the update's groups. A source
receives the groups of every update after the update, so its content depends on finished steps only, and it is saved in every
checkpoint: a run that is killed repeats exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError, called_as
from keepworth.records.episode import Group

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel


class Source:
    """The base class of sources, whose hooks do nothing.

    Attributes:
        name: The `origin` of its episodes.
        share: The share of an update's groups that come from it, below 1.
        replays: Whether its episodes were drawn by earlier weights.
    """

    name: str
    share: float = 0.0
    replays: bool = True

    def prepare(self, model: InProcessModel) -> None:
        """Is called once, when the model is loaded. Raises KeepworthError where the source can never supply anything."""

    def review(self, groups: list[Group], step: int) -> list[Group]:
        """Returns the sampled groups of update `step` as they are to be trained on: with more rewards, or without some groups."""
        return groups

    def take(self, step: int, count: int) -> list[Group]:
        """Returns at most `count` groups for update `step` (from 0): a function of the step and of the groups that `keep`
        received."""
        return []

    def keep(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        """Receives the sampled groups of update `step` after the update, and returns metrics."""
        return {}

    def state(self) -> Any:
        """Returns the state for a checkpoint, as JSON."""
        return None

    def load(self, state: Any) -> None:
        """Continues from the result of `state`."""


class Sources:
    """The sources of a training, as its pipeline uses them."""

    def __init__(self, sources: Sequence[Source], model: InProcessModel) -> None:
        self._sources = tuple(sources)
        self._sampled: list[Group] = []
        self._step = 0
        require_sources(self._sources)
        for source in self._sources:
            source.prepare(model)

    def mix(self, groups: list[Group], step: int) -> tuple[list[Group], dict[str, float]]:
        """Returns the groups of update `step` (from 0), made from the sampled ones and the sources, and metrics."""
        for source in self._sources:
            with called_as(f"The source {source.name!r}"):
                groups = list(source.review(groups, step))
        self._sampled, self._step = groups, step
        free = 1 - sum(source.share for source in self._sources)
        mixed, metrics = list(groups), {}
        for source in self._sources:
            wanted = len(groups) * source.share / free
            # Over many steps the counts add up to the share: the rest of one step's fraction is counted in the next.
            before, after = (int(wanted * number + 1e-9) for number in (step, step + 1))
            with called_as(f"The source {source.name!r}"):
                taken = list(source.take(step, after - before))
            if after > before == 0 and not (taken or source.replays):
                raise KeepworthError(f"The source {source.name!r} is empty.", "Give it a group, or leave it out.")
            if source.share:
                metrics[f"sources/{source.name}_groups"] = float(len(taken))
            mixed += taken
        return mixed, metrics

    def keep(self) -> dict[str, float]:
        """Tells the sources that the update of `mix` has been made, and returns metrics."""
        measured: dict[str, float] = {}
        for source in self._sources:
            measured |= source.keep(self._sampled, self._step) or {}
        return measured

    def state(self) -> dict[str, Any]:
        return {source.name: source.state() for source in self._sources}

    def load(self, state: Mapping[str, Any]) -> None:
        for source in self._sources:
            source.load(state[source.name])


def require_sources(sources: Sequence[Source]) -> None:
    """Raises KeepworthError where two sources have one name, or their shares leave no room for sampled groups."""
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise KeepworthError(f"Two sources are called {max(names, key=names.count)!r}.", "Give each its own name.")
    shares = [source.share for source in sources]
    if min(shares, default=0.0) < 0 or sum(shares) >= 1:
        raise KeepworthError(
            "The shares of the sources are below 0, or add up to 1 or more.", "Leave room for groups that are sampled."
        )
