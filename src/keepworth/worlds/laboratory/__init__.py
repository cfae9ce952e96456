"""The worlds of the laboratory: small enough for a model that is made here in minutes, with room for reinforcement to act.

In every world a question composes two skills ("rev cut abcd": cut, then rev). The laboratory model is taught each skill alone and
some of the compositions (`taught`); reward may train others (`train`), and others are held out from both (`test`). Each skill
stands equally often on both sides of the taught compositions, because otherwise the model never draws a right answer to the
others. Most answers have two ways: a quick one, and a careful one with workings or calls. The model is taught both, so that
reward can find the better one."""

from __future__ import annotations

from keepworth.worlds.laboratory.calculator import CalculatorWorld
from keepworth.worlds.laboratory.composed import ComposedWorld, Exercise, Way
from keepworth.worlds.laboratory.facts import FactsWorld
from keepworth.worlds.laboratory.functions import FunctionsWorld
from keepworth.worlds.laboratory.notes import NotesWorld
from keepworth.worlds.laboratory.numbers import NumbersWorld
from keepworth.worlds.laboratory.rooms import RoomsWorld

WORLDS: dict[str, ComposedWorld] = {
    world.name: world
    for world in (FunctionsWorld(), NumbersWorld(), CalculatorWorld(), NotesWorld(), FactsWorld(), RoomsWorld())
}
"""The worlds by name."""

__all__ = ["WORLDS", "ComposedWorld", "Exercise", "Way"]
