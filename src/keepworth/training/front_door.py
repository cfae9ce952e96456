"""The front door: turns tasks, a reward and a model into a run with evaluation, checkpoints, resume and a report.

    def score(answer, row):
        return float(answer.strip() == row["solution"])

    run = train("my.jsonl", reward=score, steps=40)
    print(run.report)

The same from the command line: `keepworth train --tasks my.jsonl --reward my_reward.py:score --steps 40`. A Python file is a
recipe, too: its names are the arguments of `train` (`keepworth train my_recipe.py`), or it defines `system(config)`. Other
packages add recipes as methods, by entry points of the group `keepworth.methods`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from keepworth.base.errors import KeepworthError, UnknownName, called_as, nearest
from keepworth.base.interruption import interruptible, postpone
from keepworth.registry import Method, method, methods
from keepworth.training.recipe import Origin, Recipe

if TYPE_CHECKING:
    from pydantic import BaseModel

    from keepworth.training.collect.workers import Rollouts
    from keepworth.training.export import Exported
    from keepworth.training.run_folder import RunFolder, Track
    from keepworth.training.user_tasks import Given
    from keepworth.training.watch.progress import Progress

T = TypeVar("T")
TASKS = "tasks"
"""The recipe's name in the record of a run of `train`."""
ARGUMENTS = ("tasks", "source", "reward", "environment", "agent", "memory")
"""Arguments of `train` besides settings. A recipe's file may define these names, and `settings`."""


class BadRecipe(KeepworthError):
    """A file or an entry point does not define a recipe."""


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A finished run. `path` is its folder."""

    path: Path

    @property
    def report(self) -> Path:
        """The page that reports on the run."""
        return self.path / "report.html"

    @property
    def memory(self) -> Path | None:
        """The file of the memory that learned with the weights, where a program was trained with one. A run that goes on writes
        it anew, so copy it to where it is used."""
        file = self.path / "memory" / "learned.mem"
        return file if file.exists() else None

    @property
    def result(self) -> Mapping[str, Any]:
        """The headline, and tables of measurements with their intervals."""
        from keepworth.training.run_folder import RunFolder

        return RunFolder.open(self.path).result() or {}

    def export(self, folder: str | Path, **options: Any) -> Exported:
        """Writes the weights into a folder that transformers loads. Options are those of `keepworth.training.export.export`."""
        from keepworth.training.export import export

        return export(self.path, folder, **options)

    def _repr_html_(self) -> str:
        """Returns the headline and the tables, for notebooks."""
        from keepworth.base.notebook import paragraph, table
        from keepworth.training.run_folder import RunFolder
        from keepworth.training.watch.tables import tables_of

        parts = [paragraph(str(self.result.get("headline", "")))]
        for result in tables_of(RunFolder.open(self.path)):
            rows = [
                (row.label, *(cell and f"{cell.text} {cell.interval}" for cell in row.cells), row.n)
                for row in result.rows
            ]
            parts.append(table(("", *result.metrics, result.counted), rows, result.title))
        return "".join((*parts, paragraph(f"Report: {self.report}")))

    def __str__(self) -> str:
        headline = str(self.result.get("headline", ""))
        return f"{headline}\n{self.report}".strip()


def train(
    tasks: str | Path | Iterable[Any] | None = None,
    *,
    source: Any = None,
    reward: Any = None,
    environment: Any = None,
    agent: Any = None,
    memory: Any = None,
    name: str = "",
    runs: str | Path = "runs",
    fresh: bool = False,
    track: str | Track = "",
    progress: Progress | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train a model on your own tasks, measure it before, during and after training, and write a report.

    Args:
        tasks: A file of JSON lines, or rows (see `keepworth.worlds.own`), or `verifiers:NAME` for a taskset of verifiers, which
            brings its rewards and plays itself; None if the environment brings its own.
        source: Instead of tasks, a file of conversations or a memory, whose answers with more reward than the average are
            imitated.
        reward: A function of (answer, row), one in TRL's form, the name of a verifier, "signals" for what a program's tools told,
            or several of them (`weights=`). By default answers are compared with those of the rows.
        environment: A function from a task to an environment, which replaces question and answer and gives the rewards. It may be
            one of Gymnasium (`keepworth.worlds.bridges`).
        agent: A program that calls a model at the address in `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`: a function of the row,
            asynchronous or not, or a command (`keepworth.training.programs`). Or a function of (task, memory) that makes an agent
            of this package.
        memory: A memory's file, or an open memory, whose items are shown with a question. The report says whether that helped.
            With a program as the agent, a copy of it learns from the rewards (`TrainedRun.memory`).
        name: The name of the run's folder in `runs`. The same call continues a run that was stopped; `fresh` starts over.
        runs: The folder in which runs have their folders.
        fresh: Whether to delete what a run of this name has done, and begin anew.
        track: What also gets the numbers of each step: "wandb", "tensorboard", "mlflow", or a function of (step, numbers), given
            itself or as FILE.py:NAME.
        progress: It is told what happens; None writes to the terminal.
        settings: Settings as `keepworth train --tasks FILE --print-config` shows them (model, objective, steps, learning_rate,
            system ...).

    Raises:
        KeepworthError: Something cannot work. It is raised before the first step where possible.
    """
    from keepworth.base.extras import require

    require("train", "keepworth.train")
    from keepworth.training.configuration import resolve
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import progress_for

    tracker = track_of(track)

    def run_it() -> Path:
        recipe = recipe_of(tasks, source=source, reward=reward, environment=environment, agent=agent, memory=memory)
        user = cast("Given", recipe.given)
        chosen = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        config = resolve(recipe.Config, base={**recipe.settings, **chosen})
        shown = progress or progress_for()
        path = Path(runs) / run_name(name or user.tasks.name)
        with RunFolder.create(path, record_of(recipe, config, TASKS), resume=not fresh) as run:
            try:
                with interruptible():
                    carry_out(run, lambda monitor: recipe.train(config, run, monitor), shown, tracker)
            except KeyboardInterrupt:
                shown.note(f"{describe_stop(run)} The same call continues.")
                raise
        return path

    # In a notebook an event loop runs in this thread: then no other can begin here.
    asyncio = sys.modules.get("asyncio")
    inside = asyncio is not None and asyncio._get_running_loop() is not None
    return TrainedRun(in_thread(run_it) if inside else run_it())


def in_thread(work: Callable[[], T]) -> T:
    """Runs `work` in a thread, where an event loop of its own can run, and returns its result. Ctrl-C is passed to the thread,
    and waited for."""
    import ctypes
    from concurrent.futures import Future

    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="keepworth.train")
    while not outcome.done():
        try:
            if thread.ident is None:
                thread.start()  # an interruption can break it off, too
            time.sleep(0.02)  # not a lock, which could stay locked after an interruption
        except KeyboardInterrupt:
            if thread.ident is None:
                raise
            if postpone(thread.ident):
                continue
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), interrupt)
    return outcome.result()


def recipe_of(
    tasks: Any = None,
    *,
    source: Any = None,
    reward: Any = None,
    environment: Any = None,
    agent: Any = None,
    memory: Any = None,
    settings: Mapping[str, Any] | None = None,
) -> Recipe:
    """Makes a recipe of the arguments of `train`, and checks them as far as possible without settings. Raises KeepworthError
    where both tasks and source are given, or neither.

    Args:
        tasks: A file of JSON lines, rows, or a function that returns them.
        source: A file of conversations or a memory, to make tasks of.
        reward: A function of (answer, row), the name of a verifier, or several of them; None compares answers with those of
            the rows.
        environment: A function from a task to an environment; None asks a question and scores the answer.
        agent: A program, or a function that makes an agent, as in `train`; None lets the model itself answer.
        memory: A memory's file, or an open memory; None shows nothing.
        settings: Values that take the place of the recipe's defaults.
    """
    from keepworth.training.tasksets import PREFIX, load_taskset, taskset_reward
    from keepworth.training.user_tasks import Config, Given, recall_from, system
    from keepworth.worlds.bridges import adapt
    from keepworth.worlds.own import OwnTasks, own_tasks

    defaults = dict(settings or {})
    recall, remembers = recall_from(memory) if memory is not None else (None, "")
    if source is not None:
        if tasks is not None:
            raise KeepworthError(
                "There are tasks and a source to make tasks of.",
                "Give tasks (--tasks) or a source (--source), one of the two.",
            )
        from keepworth.training.logs import tasks_of

        tasks, defaults = tasks_of(source), {"method": "supervised", **defaults}  # rewarded answers are imitated
    if isinstance(tasks, str) and tasks.startswith(PREFIX):
        if reward is not None or environment is not None or agent is not None:
            raise KeepworthError(
                f"{tasks} brings its own rewards, and the program that plays it.",
                "Leave reward, environment and agent out.",
            )
        taskset = load_taskset(tasks)
        tasks, reward, agent = taskset.tasks, taskset_reward, taskset.play
    if tasks is None:
        raise KeepworthError(
            "There are no tasks.", "Give a file of JSON lines (--tasks), or rows, such as {'prompt': ...}."
        )
    if not isinstance(tasks, OwnTasks):
        rows = tasks() if callable(tasks) else tasks
        if not isinstance(rows, str | Path | Iterable):
            raise KeepworthError(
                f"tasks is {rows!r:.60}, which is neither a file nor rows.",
                "Give a file of JSON lines, or mappings in a list.",
            )
        tasks = own_tasks(rows, by_row=environment is not None)
    make = None if environment is None else adapt(environment, tasks.all[0])
    given = Given(tasks, reward, make, agent, recall, remembers, memory)
    return Recipe(Config, lambda config, run: system(config, given, run), given=given, settings=defaults)


# Opening a run, training it and writing its report.


def run_name(name: str) -> str:
    """Returns the name. Raises KeepworthError where it is not that of a single folder."""
    if name in (".", "..") or any(letter in name for letter in "/\\\0"):
        raise KeepworthError(
            f"{name!r} cannot be the name of a run: it is one folder's name, not a path.",
            "Where the run folders are is said by runs (--runs).",
        )
    return name


def record_of(recipe: Recipe, config: BaseModel, name: str) -> dict[str, object]:
    """Returns the record that a run is created with and must be continued with. Raises what the recipe finds wrong before
    loading.

    Args:
        recipe: The recipe, which may add to the record.
        config: Its settings, resolved.
        name: The name under which the recipe was found.
    """
    return {"recipe": name, **config.model_dump(mode="json"), **recipe.record(config)}


def track_of(track: str | Track) -> Track | None:
    """Returns the function that receives a run's numbers, given itself, as FILE.py:NAME, or as a tracker's name; None for "".
    Raises BadRecipe, UnknownName, MissingTracker."""
    from keepworth.training.trackers import TRACKERS, Tracker

    if isinstance(track, str) and track and ":" not in track:
        if track not in TRACKERS:
            raise UnknownName("tracker", track, TRACKERS, where="--track; a function of yours is FILE.py:NAME")
        return Tracker(track)
    function: Track | None = load_object(track, "--track") if track and isinstance(track, str) else track or None
    return function


def describe_stop(run: RunFolder) -> str:
    """Returns a sentence about what a run that was stopped keeps."""
    last = run.latest_checkpoint(verify=False)
    done = "Nothing of it is done yet." if last is None else f"What is done until step {last.step} is in {run.path}."
    return f"Stopped. {done}"


def carry_out(run: RunFolder, work: Callable[[Progress], None], progress: Progress, track: Track | None = None) -> None:
    """Trains, unless the run is finished, and writes its report. Raises KeepworthError where training diverged.

    Args:
        run: The folder of the run.
        work: It trains, from the last checkpoint on where there is one.
        progress: It is told what happens.
        track: A function of (step, numbers) that also gets the numbers of each step, or a tracker; None for none.
    """
    from keepworth.training.run_folder import can_be_longer
    from keepworth.training.trackers import Tracker
    from keepworth.training.watch.report import write_report

    if run.result() is None:
        progress.note(f"Everything is written to {run.path}. Ctrl-C stops; the same command continues.")
        if run.resumed_from is not None:
            progress.note(f"Continuing {run.path} from step {run.resumed_from}.")
        run.track = track
        try:
            if isinstance(track, Tracker):
                track.begin(run)
            work(progress)
        except FloatingPointError as error:
            raise KeepworthError(
                f"Training diverged ({error}). The weights of the step before are saved in {run.path}.",
                "Try a lower learning rate (--set learning_rate=...), with another name.",
            ) from error
        finally:
            progress.finish()
            if isinstance(track, Tracker):
                track.end()
    else:
        more = "; a higher steps (--steps) continues it" if can_be_longer(run.config) else ""
        progress.note(f"{run.path} holds this run, finished. fresh (--fresh) runs it again{more}.")
    write_report(run)


# Recipes by name: those that are shipped, those of other packages, and files.


def make_recipe(origin: Origin) -> Recipe:
    """Makes the recipe that `origin` names, or that its tasks and other parts define. Raises UnknownName, BadRecipe,
    KeepworthError."""
    from keepworth.training.tool_outcomes import SIGNALS
    from keepworth.worlds.verifiers import VERIFIERS

    if origin.recipe:
        return find_recipe(origin.recipe)
    ready = (*VERIFIERS, SIGNALS)
    for name in origin.reward:
        if ":" not in name and name not in ready:
            raise UnknownName("verifier", name, ready, where="--reward; a function of yours is FILE.py:NAME")
    functions = [load_object(name, "--reward") if ":" in name else name for name in origin.reward]
    environment = None if origin.environment is None else load_object(origin.environment, "--environment")
    # What ends in .py:NAME, without a blank, is a function; anything else is a line of the shell.
    agent: Any = origin.agent
    if agent is not None and re.fullmatch(r"\S+\.py:\w+", agent):
        agent = load_object(agent, "--agent")
    source = None if origin.source is None else Path(origin.source)
    made = recipe_of(
        origin.tasks,
        source=source,
        reward=functions or None,
        environment=environment,
        agent=agent,
        memory=origin.memory,
    )
    return replace(made, origin=origin)


def find_recipe(name: str) -> Recipe:
    """Returns the recipe of that name or in that Python file. Raises UnknownName with the nearest, or BadRecipe."""
    if name.endswith(".py"):
        return _recipe_in(module_of(name), name)
    recipes = methods("recipe")
    key = name if name in recipes else name.replace("-", "_")
    return _recipe_of_method(method("recipe", key if key in recipes else name))


def _recipe_of_method(method: Method) -> Recipe:
    made = method.make
    if not isinstance(made, Recipe):
        with called_as(f"The make of the recipe {method.name!r}"):
            made = made()
    if not isinstance(made, Recipe):
        raise BadRecipe(
            f"The make of the method {method.name!r} gave {made!r:.60}, which is no Recipe.",
            "Write make=Recipe(Config, system), or a function that returns one, such as one that calls recipe_of.",
        )
    return replace(made, about=method.about, origin=Origin(method.name))


def module_of(path: str) -> ModuleType:
    """Imports a Python file, which can import files next to it. Raises BadRecipe."""
    file = Path(path).expanduser()
    if not file.is_file():
        near = nearest(file.stem, [path.stem for path in file.parent.glob("*.py")])
        fix = f"Did you mean {file.with_name(f'{near}.py')}?" if near else "Give the path of a file of Python."
        raise BadRecipe(f"There is no file {file}.", fix)
    name = f"keepworth_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except KeepworthError:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        raise BadRecipe(
            f"{file} cannot be imported: {type(error).__name__}: {error}{f' (line {lines[-1]})' if lines else ''}.",
            "Run it with Python to see the whole error.",
        ) from error
    return module


def load_object(reference: str, what: str) -> Any:
    """Returns the object that `FILE.py:NAME` or `package.module:NAME` names. Raises BadRecipe, UnknownName."""
    module_name, colon, name = reference.rpartition(":")
    if not colon or not module_name or not name:
        raise BadRecipe(f"{what} is {reference!r}.", "Write FILE.py:NAME or package.module:NAME.")
    if module_name.endswith(".py"):
        module = module_of(module_name)
    else:
        try:
            module = import_module(module_name)
        except ImportError as error:
            fix = f"Did you mean {module_name}.py:{name}?" if Path(f"{module_name}.py").is_file() else ""
            raise BadRecipe(
                f"{what} names the module {module_name!r}, which cannot be imported: {error}.", fix
            ) from error
    if not hasattr(module, name):
        raise UnknownName(
            "name", name, [attribute for attribute in vars(module) if not attribute.startswith("_")], where=module_name
        )
    return getattr(module, name)


def _settings_in(holds: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the settings that a recipe's file defines, in `settings` or by their names. Raises BadRecipe for a name that would
    be ignored."""
    from difflib import get_close_matches

    from keepworth.training.user_tasks import Config

    settings = dict(holds.get("settings", {}))
    for key, value in holds.items():
        if key in ARGUMENTS or key == "settings" or key.startswith("_") or isinstance(value, ModuleType | type):
            continue
        if key in Config.model_fields and not callable(value):
            if key in settings:
                raise BadRecipe(f"{name} sets {key} twice: by itself and in `settings`.", "Leave one of them out.")
            settings[key] = value
        elif meant := get_close_matches(key, (*ARGUMENTS, "settings"), n=1, cutoff=0.85):
            raise BadRecipe(f"{name}: {key} is nothing that a recipe holds.", f"Did you mean {meant[0]!r}?")
    return settings


def _recipe_in(module: ModuleType, name: str) -> Recipe:
    holds = vars(module)
    if isinstance(holds.get("METHOD"), Method):
        return replace(_recipe_of_method(holds["METHOD"]), origin=Origin(name))
    if callable(holds.get("system")):
        from keepworth.training.settings import Settings

        return Recipe(holds.get("Config", Settings), holds["system"], _first_line(module), Origin(name))
    if "tasks" in holds or "source" in holds:
        arguments = {key: holds[key] for key in ARGUMENTS if key in holds}
        made = recipe_of(**arguments, settings=_settings_in(holds, name))
        return replace(made, about=_first_line(module), origin=Origin(name))
    raise BadRecipe(
        f"{name} holds no recipe.",
        f"Give it `tasks`, and what of {', '.join(ARGUMENTS[1:])} and `settings` it needs; or `system(config)`, and `Config`.",
    )


def _first_line(module: Any) -> str:
    return (inspect.getdoc(module) or "").split("\n", 1)[0]


def make_worker(origin: Mapping[str, Any], config: Mapping[str, Any], run: str, record: Mapping[str, Any]) -> Rollouts:
    """Makes the object in a worker's process: a recipe found by its name, with its model's text side.

    Args:
        origin: Where the recipe is found.
        config: The settings of the run, as JSON has them.
        run: The run's folder, in which a worker writes nothing.
        record: What else the run was created with. Raises KeepworthError where files differ here.
    """
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.text_side import TextSide
    from keepworth.training.collect.workers import Rollouts
    from keepworth.training.run_folder import RunFolder

    recipe = make_recipe(Origin(**origin))
    settings: Any = recipe.Config.model_validate(config)
    if recipe.given is not None and record:
        here = json.loads(json.dumps(recipe.given.record(settings)))
        if differ := sorted(name for name in record if record[name] != here.get(name)):
            raise KeepworthError(
                f"What the run was begun with is not the same here: {', '.join(differ)}.",
                "Every host needs the same files.",
            )
    name = str(config["model"])
    text = TextSide.load(path_of(name, kind=ModelKind.LANGUAGE), name)
    # The text side only encodes and decodes; the context samples.
    return Rollouts(recipe.rollout(settings, RunFolder(Path(run)), cast("Any", text)), text)
