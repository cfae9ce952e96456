"""Logs in: episodes that others played, in Minari's format, and as rows of a replay.

    logs = read_logs("logs/pendulum")                        # a sequence of episodes, each read when it is asked for
    write_logs("logs/mine", episodes, world.observation_space, world.action_space, by="rsac")

A folder of logs is Minari's (https://minari.farama.org, version 0.5): `data/metadata.json` says which spaces observations and
actions are of, and `data/main_data.hdf5` has a group `episode_0`, `episode_1`, ... for each episode, with `observations` (one
more than there are steps), `actions`, `rewards`, `terminations` and `truncations`. Reading and writing need h5py alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from keepworth.base.needs import needs_control

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.base.json_values import read_json
from keepworth.control.dials import Transition
from keepworth.control.errors import WorldError
from keepworth.control.network import as_tensor
from keepworth.control.spaces import ActionSpace, ObservationSpace

Episode = Sequence[Transition]
Logs = Mapping[str, Sequence[Episode]]
"""By source, episodes of transitions, as `keepworth.control.dials.behave` yields them."""
DATA, METADATA = "main_data.hdf5", "metadata.json"
Space = gymnasium.Space[Any]


class LogError(KeepworthError):
    """A folder is no logs, or logs lack what learning from them needs."""


class MinariLogs(Sequence[list[Transition]]):
    """Episodes of a folder in Minari's format, each read when it is asked for.

    Attributes:
        name: The name of the folder.
        observation_space: The space of observations.
        action_space: The space of actions.
        by: Who acted, as the folder says; "" where it does not.
        world: The Gymnasium id of the world that was logged; "" where the folder does not say.
        steps: By episode, how many steps it has.
        terminated: By episode, whether its world ended it; the others were cut off.
        paid: By episode, the sum of its rewards; NaN where one is missing.
    """

    def __init__(self, folder: Path, episodes: int | None) -> None:
        require("control", "Reading logs", "h5py")
        import h5py

        self._data, metadata = _open(folder)
        self.name = folder.name if folder.name != "data" else folder.resolve().parent.name
        self.observation_space, self.action_space = (
            _space(metadata, name, folder) for name in ("observation_space", "action_space")
        )
        author = metadata.get("author") or ""
        self.by = str(metadata.get("algorithm_name") or (author if isinstance(author, str) else ", ".join(author)))
        self.world = str(json.loads(metadata.get("env_spec") or "{}").get("id", ""))
        self.steps, self.terminated, self.paid = list[int](), list[bool](), list[float]()
        with h5py.File(self._data / DATA, "r") as file:
            count = len(file) if episodes is None else min(episodes, len(file))
            if not count:
                raise LogError(f"The logs of {folder} have no episode.", "Log some, or name another folder.")
            for number in range(count):
                self._check(file, number, folder)

    def _check(self, file: Any, number: int, folder: Path) -> None:
        """Notes the length, the end and the rewards of an episode."""
        where = f"Episode {number} of the logs {folder}"
        group = file.get(f"episode_{number}")
        if group is None:
            raise LogError(f"{where} is missing.", "Number the episodes from 0 on, without a gap.")
        lacking = [name for name in ("observations", "actions", "terminations", "truncations") if name not in group]
        if lacking:
            ends = " Mark where an episode ended." if "terminations" in lacking or "truncations" in lacking else ""
            raise LogError(f"{where} has no {' and no '.join(lacking)}.", f"Write them as Minari does.{ends}")
        over, cut = group["terminations"][()], group["truncations"][()]
        steps = len(over)
        if not steps:
            raise LogError(f"{where} has no step.", "Leave it out.")
        if not (over[-1] or cut[-1]):
            raise LogError(
                f"{where} has no end: its last step neither terminated nor was it cut off.",
                "Set the last of truncations to true where logging just stopped.",
            )
        goes_on = np.flatnonzero((over | cut)[:-1])
        if len(goes_on):
            raise LogError(
                f"{where} goes on after step {goes_on[0]}, which ended it.", "Begin another episode after an end."
            )
        for name, wanted in (("observations", steps + 1), ("actions", steps)):
            length = _length(group[name])
            if length != wanted:
                raise LogError(f"{where} has {length} {name} for {steps} steps.", f"Write {wanted} of them.")
        rewards = group["rewards"][()] if "rewards" in group else np.full(steps, np.nan)
        self.steps.append(steps)
        self.terminated.append(bool(over[-1]))
        self.paid.append(float(np.sum(rewards, dtype=np.float64)))

    @property
    def rows(self) -> int:
        """The number of rows that a replay needs for them."""
        return sum(self.steps) + self.terminated.count(False)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> list[Transition]: ...

    @overload
    def __getitem__(self, index: slice) -> list[list[Transition]]: ...

    def __getitem__(self, index: int | slice) -> list[Transition] | list[list[Transition]]:
        """Reads an episode, or several."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        import h5py

        number = range(len(self))[index]
        with h5py.File(self._data / DATA, "r") as file:
            group = file[f"episode_{number}"]
            seen = _read(group["observations"], self.observation_space)
            done = _read(group["actions"], self.action_space)
            rewards = group["rewards"][()].tolist() if "rewards" in group else [math.nan] * self.steps[number]
        over = [False] * (self.steps[number] - 1) + [self.terminated[number]]
        return list(zip(seen[:-1], done, rewards, seen[1:], over, strict=True))


def read_logs(folder: str | Path, episodes: int | None = None) -> MinariLogs:
    """Opens a folder of logs in Minari's format.

    Args:
        folder: A folder that Minari or `write_logs` wrote, or its folder `data`.
        episodes: How many of the first episodes; by default all.

    Raises:
        LogError: It is none, or an episode lacks what learning from it needs.
        MissingExtra: h5py is not installed.
    """
    return MinariLogs(Path(folder), episodes)


def write_logs(
    folder: str | Path,
    episodes: Iterable[Episode],
    observation_space: Space,
    action_space: Space,
    *,
    by: str,
    world: str = "",
) -> MinariLogs:
    """Writes episodes as Minari does, completely or not at all, and opens them.

    Args:
        folder: A folder that does not exist yet, or is empty. Its name, with a version such as -v0, becomes the dataset's.
        episodes: Episodes of transitions. A reward that is missing is None or NaN, an action of numbers that is missing None.
        observation_space: The space of observations.
        action_space: The space of actions.
        by: Who acted.
        world: The Gymnasium id of the world, where it has one.

    Raises:
        LogError: The folder holds logs, there is no episode, or an observation or an action is not of its space.
    """
    require("control", "Writing logs", "h5py")
    import h5py

    folder = Path(folder)
    data, unfinished = folder / "data", folder / "data.part"
    if data.exists():
        raise LogError(f"{folder} holds logs.", "Choose another folder: logs are never written over.")
    unfinished.mkdir(parents=True, exist_ok=True)
    steps = count = 0
    with h5py.File(unfinished / DATA, "w", track_order=True) as file:
        for count, episode in enumerate(episodes, 1):
            where = f"Episode {count - 1}"
            if not episode:
                raise LogError(f"{where} has no step.", "Leave it out.")
            before, done, paid, after, over = zip(*episode, strict=True)
            group = file.create_group(f"episode_{count - 1}")
            group.attrs["id"], group.attrs["total_steps"] = count - 1, len(episode)
            for name, space, values in (
                ("observations", observation_space, [*before, after[-1]]),
                ("actions", action_space, list(done)),
            ):
                wrong = first_outside(space, [value for value in values if value is not None])
                if wrong is not None:
                    raise LogError(f"{where} has {name} such as {values[wrong]!r}, outside {space}.", "Name its space.")
                _write(group, name, space, values)
            group["rewards"] = np.array([math.nan if reward is None else reward for reward in paid], np.float64)
            group["terminations"] = np.array(over, np.bool_)
            group["truncations"] = np.array([*[False] * (len(over) - 1), not over[-1]], np.bool_)
            steps += len(episode)
    if not count:
        raise LogError("There is no episode to write.", "Give at least one.")
    name = folder.name if folder.name.rpartition("-v")[2].isdigit() else f"{folder.name}-v0"
    metadata = {
        "total_episodes": count,
        "total_steps": steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(space_as_json(observation_space)),
        "action_space": json.dumps(space_as_json(action_space)),
        "dataset_id": name,
        "algorithm_name": by,
        "minari_version": "0.5.4",
        "dataset_size": round((unfinished / DATA).stat().st_size / 1e6, 1),
        **({"env_spec": gymnasium.spec(world).to_json()} if world else {}),
    }
    (unfinished / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
    os.replace(unfinished, data)
    return read_logs(folder)


def count_rows(source: str, episodes: Sequence[Episode]) -> int:
    """Returns how many rows of a replay logs need. Raises WorldError for an episode without a step."""
    if isinstance(episodes, MinariLogs):
        return episodes.rows
    empty = next((number for number, episode in enumerate(episodes) if not len(episode)), None)
    if empty is not None:
        raise WorldError(f"Episode {empty} of the log {source!r} has no step.", "Leave it out.")
    return sum(len(episode) + (not episode[-1][4]) for episode in episodes)


def rows_of(
    episode: Episode, where: str, observations: ObservationSpace, actions: ActionSpace, *, paid: bool = True
) -> dict[str, Tensor]:
    """Returns the rows of a logged episode.

    Args:
        episode: Its transitions.
        where: What it is called in an error.
        observations: The world's observations.
        actions: What the learner may do in the world.
        paid: Whether rewards are needed; without, one that is missing is 0.

    Raises:
        WorldError: It is not of the world, goes on after its end, or a reward is missing.
    """
    before, done, rewards, after, over = zip(*episode, strict=True)
    cut = not over[-1]
    seen = [*before, *([after[-1]] if cut else [])]
    for name, space, values in (("an observation", observations.space, seen), ("an action", actions.space, done)):
        wrong = first_outside(space, values)
        if wrong is not None:
            raise WorldError(
                f"{where} has {name} {values[wrong]!r} that is not of the world's space {space}.",
                "Give logs of the same world, with values as the world gives and takes them.",
            )
    if any(over[:-1]):
        raise WorldError(f"{where} goes on after its end.", "Begin another episode where one terminated.")
    numbers = np.array([math.nan if reward is None else reward for reward in rewards], np.float32)
    if not paid:
        numbers = np.nan_to_num(numbers)
    if not np.isfinite(numbers).all():
        raise WorldError(
            f"{where} has a reward that is no finite number, at step {int(np.argmin(np.isfinite(numbers)))}.",
            'Give a number for each step, set learner to "bc", which needs none, or fill them in from the others '
            "(keepworth.control.labels).",
        )
    acted, steps = actions.from_world(done), len(episode)
    last = torch.arange(steps + cut) == steps  # the observation after an episode that was cut off is no step
    return {
        "features": as_tensor(observations.encode(seen)),
        "starts": torch.arange(steps + cut) == 0,
        "actions": torch.cat([acted, acted[:1] * 0]) if cut else acted,
        "rewards": torch.from_numpy(np.append(numbers, [np.float32(0.0)] * cut)),
        "terminated": (torch.arange(steps + cut) == steps - 1) & (not cut),
        "valid": ~last,
    }


def as_batch(
    episodes: Sequence[Episode], source: str, observations: ObservationSpace, actions: ActionSpace
) -> dict[str, Tensor]:
    """Returns the rows of logged episodes side by side, [episodes, rows, ...], without their rewards. Where an episode is
    shorter than the longest, rows are no step.

    Args:
        episodes: Logged episodes.
        source: What they are called in an error.
        observations: The world's observations.
        actions: What the learner may do in the world.

    Raises:
        WorldError: One is not of the world, has no step, or goes on after its end.
    """
    count_rows(source, episodes)
    rows = [
        rows_of(episode, f"Episode {number} of the log {source!r}", observations, actions, paid=False)
        for number, episode in enumerate(episodes)
    ]
    names = ("features", "starts", "actions", "valid")
    return {name: pad_sequence([of[name] for of in rows], batch_first=True) for name in names}


def first_outside(space: Space, values: Sequence[Any]) -> int | None:
    """Returns the place of the first value that is not of a space; None if there is none. Numbers may have another precision."""
    if isinstance(space, spaces.Box):
        try:
            array = np.asarray(values).astype(space.dtype)
        except (TypeError, ValueError):
            array = np.zeros(0)
        if array.shape[1:] == space.shape and len(array) == len(values):
            inside = ((array >= space.low) & (array <= space.high)).reshape(len(values), -1).all(1)
            return None if inside.all() else int(np.argmin(inside))
    return next((place for place, value in enumerate(values) if not space.contains(value)), None)


class SpacesOf:
    """Makes, in the place of a world, what has its spaces alone: for logs of a world that is not here."""

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.spaces = observation_space, action_space

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Returns a world that cannot be played."""
        world = gymnasium.Env[Any, Any]()
        world.observation_space, world.action_space = self.spaces
        return world

    def as_json(self) -> list[Any]:
        """Returns both spaces as values of JSON, of which `of_json` makes them again."""
        return [space_as_json(space) for space in self.spaces]

    @classmethod
    def of_json(cls, values: Sequence[Any]) -> SpacesOf:
        """Returns what `as_json` wrote down."""
        return cls(*map(space_of_json, values))


def space_as_json(space: Space) -> dict[str, Any]:
    """Returns a space as values of JSON, as Minari writes them. Raises LogError for a space that networks here do not take."""
    kind = type(space).__name__
    match space:
        case spaces.Box():
            limits = {"low": space.low.tolist(), "high": space.high.tolist()}
            return {"type": kind, "dtype": str(space.dtype), "shape": list(space.shape), **limits}
        case spaces.Discrete():
            return {"type": kind, "dtype": "int64", "start": int(space.start), "n": int(space.n)}
        case spaces.MultiDiscrete():
            sizes = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"type": kind, "dtype": str(space.dtype), **sizes}
        case spaces.MultiBinary():
            return {"type": kind, "n": space.n if isinstance(space.n, int) else list(map(int, space.n))}
        case spaces.Dict():
            return {"type": kind, "subspaces": {key: space_as_json(of) for key, of in space.spaces.items()}}
        case spaces.Tuple():
            return {"type": kind, "subspaces": [space_as_json(of) for of in space.spaces]}
    raise LogError(f"Logs cannot hold values of the space {space}.", "Wrap the world so that it gives numbers.")


def space_of_json(values: Mapping[str, Any]) -> Space:
    """Returns the space that `space_as_json` or Minari wrote down. Raises LogError for one that networks here do not take."""
    match values["type"]:
        case "Box":
            kind = np.dtype(values["dtype"]).type
            low, high = (np.array(values[name], kind) for name in ("low", "high"))
            return spaces.Box(low, high, tuple(values["shape"]), kind)
        case "Discrete":
            return spaces.Discrete(values["n"], start=values.get("start", 0))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(values["nvec"], start=values.get("start"))
        case "MultiBinary":
            return spaces.MultiBinary(values["n"])
        case "Dict":
            return spaces.Dict({key: space_of_json(of) for key, of in values["subspaces"].items()})
        case "Tuple":
            return spaces.Tuple([space_of_json(of) for of in values["subspaces"]])
    raise LogError(
        f"The logs have values of the space {values['type']}, which networks here do not take.",
        "Write them anew as numbers or categories.",
    )


def _open(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the folder of the data, and its metadata."""
    data = next((path for path in (folder / "data", folder) if (path / METADATA).is_file()), None)
    if data is None:
        below = sorted(path.parent.parent for path in folder.glob(f"**/data/{METADATA}"))
        near = f"Name one of those below it: {', '.join(map(str, below[:5]))}." if below else ""
        raise LogError(
            f"{folder} holds no logs: no data/{METADATA}.",
            near or "Name a folder that Minari or keepworth.control.logs.write_logs wrote.",
        )
    metadata = read_json(data / METADATA, "Write the logs anew.", LogError)
    if metadata.get("data_format", "hdf5") != "hdf5" or not (data / DATA).is_file():
        kind = metadata.get("data_format")
        raise LogError(
            f"{data} holds logs in the format {kind!r} and no {DATA}.", 'Write them anew with data_format="hdf5".'
        )
    return data, metadata


def _space(metadata: Mapping[str, Any], name: str, folder: Path) -> Space:
    """Returns a space of the metadata."""
    if name not in metadata:
        raise LogError(
            f"The logs of {folder} do not say their {name}.", f"Write {name} into {METADATA}, as Minari does."
        )
    space = space_of_json(json.loads(metadata[name]))
    sizes = space.shape or ()
    image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(sizes) in (2, 3)
    if image and min(sizes[:2]) >= 32 and metadata.get("jpeg_encoding", True):
        raise LogError(
            f"The logs of {folder} hold images as JPEG, which are not read here.",
            "Write them anew with jpeg_encoding=False.",
        )
    return space


def _branches(space: Space) -> list[tuple[str, Any, Space]]:
    """Returns the parts of a space that has some: the name of each in a file, its key in a value, and its space."""
    if isinstance(space, spaces.Dict):
        return [(key, key, of) for key, of in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return [(f"_index_{place}", place, of) for place, of in enumerate(space.spaces)]
    return []


def _read(node: Any, space: Space) -> list[Any]:
    """Returns the values of a node of the file."""
    branches = _branches(space)
    if branches:
        columns = [_read(node[name], of) for name, _, of in branches]
        if isinstance(space, spaces.Tuple):
            return list(zip(*columns, strict=True))
        return [dict(zip([key for _, key, _ in branches], row, strict=True)) for row in zip(*columns, strict=True)]
    values = node[()]
    return list(values.tolist() if isinstance(space, spaces.Discrete) else values.astype(space.dtype))


def _write(group: Any, name: str, space: Space, values: Sequence[Any]) -> None:
    """Writes values as a node of the file."""
    branches = _branches(space)
    if branches:
        below = group.create_group(name)
        for label, key, of in branches:
            _write(below, label, of, [value[key] for value in values])
    else:
        if isinstance(space, spaces.Box):
            values = [np.full(space.shape, np.nan) if value is None else value for value in values]
        if any(value is None for value in values):
            raise LogError(f"An action of {space} is missing, which a file cannot say.", "Fill it in first.")
        group[name] = np.asarray(values, space.dtype)


def _length(node: Any) -> int:
    while not hasattr(node, "shape"):
        node = node[next(iter(node))]
    return int(node.shape[0])
