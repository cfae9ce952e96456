"""The kit: what a method is made of, in this package or in another one.

A method is one file that ends with `METHOD`, a `Method` whose `make` returns the thing of its kind. A package that declares the
file as an entry point in the group "keepworth.methods" adds the method by name: `keepworth methods` lists it, and every door
takes its name. `Memory(policy=...)`, `Memory(writer=...)` and `Memory(stages=[...])` also take the thing itself.

A name is loaded when it is first asked for, and with it the room that it comes from. The names are provisional until version 1.0,
and under semantic versions from then on. Whatever else a module holds may change in any version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepworth.base.errors import KeepworthError as KeepworthError
    from keepworth.control.memory_base import LinearRecurrence as LinearRecurrence
    from keepworth.control.memory_base import SegmentedMemory as SegmentedMemory
    from keepworth.control.memory_base import SequenceMemory as SequenceMemory
    from keepworth.control.memory_base import StepRecurrence as StepRecurrence
    from keepworth.control.memory_base import stack as stack
    from keepworth.evaluation.paper_system import PaperSystem as PaperSystem
    from keepworth.evaluation.study import Study as Study
    from keepworth.evaluation.study import arms_of as arms_of
    from keepworth.evaluation.study import differences as differences
    from keepworth.evaluation.study import rows_of as rows_of
    from keepworth.memory.choose.case_policies import of_cases as of_cases
    from keepworth.memory.choose.case_writers import RawCases as RawCases
    from keepworth.memory.choose.exemplars import Capacity as Capacity
    from keepworth.memory.choose.exemplars import exemplars as exemplars
    from keepworth.memory.choose.pool import Advice as Advice
    from keepworth.memory.choose.pool import Pool as Pool
    from keepworth.memory.choose.ready_slots import Column as Column
    from keepworth.memory.choose.ready_slots import MostRecent as MostRecent
    from keepworth.memory.choose.ready_slots import MostSimilar as MostSimilar
    from keepworth.memory.choose.ready_slots import Unvalued as Unvalued
    from keepworth.memory.choose.record import PolicyRecord as PolicyRecord
    from keepworth.memory.choose.selection import AllRetrieved as AllRetrieved
    from keepworth.memory.choose.selection import BestValue as BestValue
    from keepworth.memory.choose.selection import Coherent as Coherent
    from keepworth.memory.choose.slates import Mixture as Mixture
    from keepworth.memory.choose.slots import Candidates as Candidates
    from keepworth.memory.choose.slots import Finished as Finished
    from keepworth.memory.choose.slots import Keyer as Keyer
    from keepworth.memory.choose.slots import LoggedChoice as LoggedChoice
    from keepworth.memory.choose.slots import Maintainer as Maintainer
    from keepworth.memory.choose.slots import Policy as Policy
    from keepworth.memory.choose.slots import Presented as Presented
    from keepworth.memory.choose.slots import Presenter as Presenter
    from keepworth.memory.choose.slots import Query as Query
    from keepworth.memory.choose.slots import Retriever as Retriever
    from keepworth.memory.choose.slots import Selector as Selector
    from keepworth.memory.choose.slots import Use as Use
    from keepworth.memory.choose.slots import Valuer as Valuer
    from keepworth.memory.choose.slots import Values as Values
    from keepworth.memory.choose.slots import Writer as Writer
    from keepworth.memory.choose.slots import lines as lines
    from keepworth.memory.choose.slots import need as need
    from keepworth.memory.choose.slots import whole as whole
    from keepworth.memory.item import Item as Item
    from keepworth.memory.memory import Memory as Memory
    from keepworth.memory.search.search import Ask as Ask
    from keepworth.memory.search.search import Hit as Hit
    from keepworth.memory.search.search import Hits as Hits
    from keepworth.memory.search.search import Request as Request
    from keepworth.memory.search.stages import Stage as Stage
    from keepworth.memory.search.stages import StageRequest as StageRequest
    from keepworth.records.episode import Observation as Observation
    from keepworth.records.episode import Operation as Operation
    from keepworth.records.episode import OperationKind as OperationKind
    from keepworth.records.episode import RewardTerm as RewardTerm
    from keepworth.records.episode import Session as Session
    from keepworth.records.episode import StopReason as StopReason
    from keepworth.records.episode import Task as Task
    from keepworth.records.episode import Turn as Turn
    from keepworth.registry import Method as Method
    from keepworth.training.front_door import recipe_of as recipe_of
    from keepworth.training.hooks import Hooks as Hooks
    from keepworth.training.objective.batch import Batch as Batch
    from keepworth.training.objective.options import Objective as Objective
    from keepworth.training.objective.parts import Advantage as Advantage
    from keepworth.training.objective.parts import Correction as Correction
    from keepworth.training.objective.parts import Overlong as Overlong
    from keepworth.training.objective.parts import Ratio as Ratio
    from keepworth.training.objective.parts import Selection as Selection
    from keepworth.training.objective.parts import Surrogate as Surrogate
    from keepworth.training.objective.parts import Weight as Weight
    from keepworth.training.objective.parts import part as part
    from keepworth.training.objective.presets import Citation as Citation
    from keepworth.training.objective.presets import preset as preset
    from keepworth.training.objective.presets import preset_method as preset_method
    from keepworth.training.objective.presets import vary_objective as vary_objective
    from keepworth.training.recipe import Recipe as Recipe
    from keepworth.training.recipe import recipe_method as recipe_method
    from keepworth.training.settings import Settings as Settings
    from keepworth.training.system import Measured as Measured
    from keepworth.training.system import System as System
    from keepworth.worlds.agent import Completer as Completer
    from keepworth.worlds.benchmark import Benchmark as Benchmark
    from keepworth.worlds.course import Course as Course
    from keepworth.worlds.course import only_way as only_way
    from keepworth.worlds.course import stream_task as stream_task
    from keepworth.worlds.driver import Limits as Limits
    from keepworth.worlds.driver import Play as Play
    from keepworth.worlds.environment import Blocking as Blocking
    from keepworth.worlds.environment import Environment as Environment
    from keepworth.worlds.environment import Step as Step
    from keepworth.worlds.made_up import check_split as check_split
    from keepworth.worlds.made_up import leanings as leanings
    from keepworth.worlds.made_up import phrase as phrase
    from keepworth.worlds.made_up import words as words
    from keepworth.worlds.question import Question as Question
    from keepworth.worlds.scene import Scene as Scene
    from keepworth.worlds.scene import Staged as Staged
    from keepworth.worlds.scene import Stream as Stream
    from keepworth.worlds.scene import StreamTask as StreamTask
    from keepworth.worlds.scene import ends as ends
    from keepworth.worlds.scene import goes_on as goes_on
    from keepworth.worlds.streams import World as World

NAMES: dict[str, dict[str, str]] = {
    "every method": {
        "registry": "Method",
        "memory.choose.slots": "need",
        "base.errors": "KeepworthError",
    },
    "policy": {
        "memory.choose.slots": (
            "Policy Query Candidates Values Use Finished Presented LoggedChoice Valuer Keyer Retriever Selector Presenter Writer "
            "Maintainer whole lines"
        ),
        "memory.choose.slates": "Mixture",
        "memory.choose.record": "PolicyRecord",
        "memory.choose.pool": "Pool Advice",
        "memory.choose.ready_slots": "MostSimilar MostRecent Unvalued Column",
        "memory.choose.selection": "AllRetrieved BestValue Coherent",
        "memory.choose.exemplars": "exemplars Capacity",
        "memory.choose.case_writers": "RawCases",
        "memory.choose.case_policies": "of_cases",
    },
    "writer": {"records.episode": "Operation OperationKind"},
    "stage": {"memory.search.stages": "Stage StageRequest", "memory.search.search": "Request"},
    "adapter": {"memory.memory": "Memory", "memory.item": "Item", "memory.search.search": "Hit Hits Ask"},
    "world": {
        "worlds.streams": "World",
        "worlds.scene": "Stream StreamTask Scene Staged goes_on ends",
        "worlds.course": "Course only_way stream_task",
        "worlds.made_up": "words phrase leanings check_split",
        "worlds.environment": "Environment Step Blocking",
        "records.episode": "Task Observation RewardTerm StopReason",
    },
    "benchmark": {"worlds.benchmark": "Benchmark", "records.episode": "Session Turn"},
    "objective": {
        "training.objective.presets": "preset_method preset vary_objective Citation",
        "training.objective.options": "Objective",
        "training.objective.batch": "Batch",
        "training.objective.parts": "part Advantage Weight Ratio Surrogate Correction Selection Overlong",
    },
    "recipe": {
        "training.recipe": "recipe_method Recipe",
        "training.front_door": "recipe_of",
        "training.settings": "Settings",
        "training.system": "System Measured",
        "training.hooks": "Hooks",
        "worlds.driver": "Play Limits",
        "worlds.agent": "Completer",
        "worlds.question": "Question",
    },
    "memory_module": {
        "control.memory_base": "SequenceMemory SegmentedMemory LinearRecurrence StepRecurrence stack",
    },
    "study": {"evaluation.study": "Study rows_of differences arms_of"},
    "system": {"evaluation.paper_system": "PaperSystem"},
}
"""The names by the kind of method that needs them first, each behind the module that it comes from."""
_HOMES = {name: home for homes in NAMES.values() for home, names in homes.items() for name in names.split()}
__all__ = ["NAMES", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = getattr(import_module(f"{__package__}.{home}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
