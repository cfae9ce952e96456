"""Recipes by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from keepworth.episodes.errors import UnknownName
from keepworth.recipes import RECIPES

if TYPE_CHECKING:
    from pydantic import BaseModel

    from keepworth.learning.run.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress


class Recipe(Protocol):
    """What a recipe module holds."""

    Config: type[BaseModel]
    SUMMARY: str

    def train(self, config: BaseModel, run: RunFolder, progress: Progress) -> None: ...


def find_recipe(name: str) -> Recipe:
    """Raises UnknownName with the nearest recipe."""
    module = RECIPES.get(name) or RECIPES.get(name.replace("-", "_"))
    if module is None:
        raise UnknownName("recipe", name, RECIPES)
    return cast("Recipe", import_module(module))
