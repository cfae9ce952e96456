"""A recipe: settings, and the system that learns under them. Recipes of this package, of others and of a user's tasks share this
contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.base.errors import KeepworthError
from keepworth.registry import Method

if TYPE_CHECKING:
    from pydantic import BaseModel

    from keepworth.records.model import Model
    from keepworth.training.collect.groups import TrainedRollout
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.user_tasks import Given
    from keepworth.training.watch.progress import Progress


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a recipe was found, as written on a command line: a name or a file, or tasks with their other arguments."""

    recipe: str = ""
    tasks: str | None = None
    source: str | None = None
    reward: tuple[str, ...] = ()
    environment: str | None = None
    agent: str | None = None
    memory: str | None = None

    def anywhere(self) -> Origin:
        """Returns the same origin for a process with another working folder."""
        return replace(
            self,
            recipe=_absolute(self.recipe) or "",
            tasks=_absolute(self.tasks),
            source=_absolute(self.source),
            reward=tuple(_absolute(name) or "" for name in self.reward),
            environment=_absolute(self.environment),
            agent=_absolute(self.agent),
            memory=_absolute(self.memory),
        )


def _absolute(reference: str | None) -> str | None:
    """Makes the path of `FILE.py:NAME` and of other files absolute; names of modules and of recipes stay as they are."""
    file, colon, name = (reference or "").partition(".py:")
    path = Path(f"{file}.py" if colon else file).expanduser()
    return f"{path.resolve()}{f':{name}' if colon else ''}" if reference and path.exists() else reference


class Trainable(Protocol):
    """What a recipe makes of its settings; `keepworth.training.system.System` is the usual one. One that can run its rollouts in
    worker processes also has `rollout(settings, model) -> TrainedRollout`, and one whose questions can be asked by themselves
    `questions(settings) -> Questions | None`."""

    def learn(self, settings: Any, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Trains and measures. Called again on the same folder, it continues from the last checkpoint.

        Args:
            settings: The recipe's settings, resolved.
            run: The folder of the run.
            progress: It is told what happens.
            origin: Where another process finds the recipe; None where it was made of objects of Python.
        """


@dataclass(frozen=True, slots=True)
class Recipe:
    """The `make` of a method of kind "recipe": makes a system that learns from settings.

    Attributes:
        Config: The settings, a pydantic model that forbids unknown keys.
        system: Makes the system from settings. It takes the run as a second argument where it stores files in its folder.
        origin: Where another process finds the recipe.
        given: The arguments of `train`, where the recipe is of a user's tasks.
        settings: Values that override defaults of `Config`.
    """

    Config: type[BaseModel]
    system: Callable[..., Trainable]
    about: str = ""
    origin: Origin | None = None
    given: Given | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, run: RunFolder | None = None, **settings: Any) -> Trainable:
        return self._make(self.Config(**{**self.settings, **settings}), run)

    def record(self, config: Any) -> Mapping[str, Any]:
        """Returns what a run is created with besides its settings. Raises KeepworthError for what cannot work."""
        if self.given is None:
            return {}
        from keepworth.training.user_tasks import require_given

        require_given(config, self.given)
        return self.given.record(config)

    def train(self, config: BaseModel, run: RunFolder, progress: Progress) -> None:
        """Trains and measures; continues where it was stopped.

        Args:
            config: The recipe's settings, resolved.
            run: The folder of the run.
            progress: It is told what happens.
        """
        self._make(config, run).learn(config, run, progress, self.origin)

    def rollout(self, config: BaseModel, run: RunFolder, model: Model) -> TrainedRollout:
        """Returns the rollout that a worker runs. Raises KeepworthError where the recipe has none.

        Args:
            config: The recipe's settings, resolved.
            run: The folder of the run, which a worker only reads.
            model: The model that the rollout draws from.
        """
        system: Any = self._make(config, run)
        if not hasattr(system, "rollout"):
            raise KeepworthError("The recipe runs no rollouts in workers.", "Leave workers out.")
        rollout: TrainedRollout = system.rollout(config, model)
        return rollout

    def _make(self, config: BaseModel, run: RunFolder | None) -> Trainable:
        takes_run = len(inspect.signature(self.system).parameters) > 1
        return self.system(config, run) if takes_run else self.system(config)


def recipe_method(name: str, title: str, about: str, make: Recipe, **more: Any) -> Method:
    """Returns the `METHOD` that a file of `keepworth.methods.recipes` declares: a recipe that needs the extra "train".

    Args:
        name: The name under which it is trained.
        title: The title of the paper.
        about: One line about what it does.
        make: The recipe.
        more: Further fields of `Method`, such as `paper`, `claim` and `differs`.
    """
    return Method("recipe", name, title, about, make, extra="train", **more)
