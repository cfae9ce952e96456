"""What a checkpoint holds, read without a model: so that somebody can look before they trust it or build on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run_folder import (
    LEARNER,
    RECORD,
    Checkpoint,
    RunFolder,
    checkpoints_in,
    find_run,
    read_json,
    read_learner,
    reading,
)

if TYPE_CHECKING:
    import torch

_DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Inspection:
    """step and path of the checkpoint; files: bytes by name, each one as the manifest says (its sum was compared);
    sections: what is in them, as lines of (what, value), by heading."""

    step: int
    path: Path
    files: Mapping[str, int]
    sections: Mapping[str, Mapping[str, Any]]


def find_checkpoint(name: str, runs: Path, step: int | None = None) -> Checkpoint:
    """A checkpoint's folder, or a run's latest checkpoint, or its checkpoint of `step`.

    Raises KeepworthError where there is none, with those that there are, and UnknownName for a run that is not there."""
    folder = Path(name)
    own = [each for each in checkpoints_in(folder.parent) if each.path.name == folder.name]
    if own and not (folder / RECORD).is_file():
        if step not in (None, own[0].step):
            raise KeepworthError(
                f"{folder} is the checkpoint of step {own[0].step}, not of {step}.", "Leave --step out."
            )
        return own[0]
    if folder.is_dir() and (folder / "manifest.json").is_file():
        raise KeepworthError(f"{folder} is not called step-NNNNNN.", "Give the folder its name back.")
    run = find_run(name, runs)
    found = run.checkpoints()
    if not found:
        raise KeepworthError(
            f"{run.path} holds no checkpoint yet.", "The first one is written at checkpoint_every steps."
        )
    if step is None:
        return found[-1]
    chosen = [each for each in found if each.step == step]
    if not chosen:
        listed = ", ".join(str(each.step) for each in found)
        raise KeepworthError(f"{run.path} holds no checkpoint of step {step}.", f"There are those of steps {listed}.")
    return chosen[0]


def inspect(checkpoint: Checkpoint) -> Inspection:
    """Compare every file with its sum, then say what is in it. Raises CheckpointCorrupt, naming file and way out."""
    checkpoint.verify()
    files = {
        each.relative_to(checkpoint.path).as_posix(): each.stat().st_size
        for each in sorted(checkpoint.path.rglob("*"))
        if each.is_file() and each.name != "manifest.json"
    }
    sections: dict[str, Mapping[str, Any]] = {}
    if LEARNER in files:
        with reading(checkpoint.path / LEARNER, checkpoint):
            sections |= _learner(checkpoint)
    for name in files:
        if name.endswith(".safetensors"):
            role = name.split("/", 1)[0] if "/" in name else name
            sections[f"weights of {role}"] = _weights(checkpoint.path / name, checkpoint)
    if "pipeline.json" in files:
        sections["collecting ahead"] = _pipeline(checkpoint.path / "pipeline.json", checkpoint)
    run = checkpoint.path.parent.parent
    if (run / RECORD).is_file():
        environment = RunFolder(run).environment
        sections["where it ran"] = {key: value for key, value in environment.items() if not isinstance(value, Mapping)}
    return Inspection(checkpoint.step, checkpoint.path, files, sections)


def _learner(checkpoint: Checkpoint) -> dict[str, Mapping[str, Any]]:
    import torch

    state = read_learner(checkpoint, mapped=True)  # a gigabyte of moments is described without being read
    learner = state["learner"]
    known = {"learner", "torch_rng"}
    training = {_words(key): value for key, value in state.items() if key not in known}
    training |= {_words(key): learner[key] for key in ("version", "steps") if key in learner}
    if isinstance(random := state.get("torch_rng"), torch.Tensor):
        training["random state"] = f"{random.numel()} bytes, {_digest(random)}"
    sections: dict[str, Mapping[str, Any]] = {"training": training}
    weights = learner.get("master_weights", learner.get("masters"))  # checkpoints of before called them "masters"
    if isinstance(weights, dict):
        sections["master weights"] = _tensors(list(_leaves(weights)))
    if isinstance(optimiser := learner.get("optimiser"), dict):
        sections["optimiser"] = _optimiser(optimiser)
    if isinstance(controls := learner.get("controls"), dict) and controls:
        sections["controls"] = {_words(key): value for key, value in controls.items()}
    for key, value in learner.items():
        if key not in ("master_weights", "masters", "optimiser", "controls", "version", "steps"):
            leaves = list(_leaves(value))
            sections[_words(key)] = _tensors(leaves) if leaves else {"value": _brief(value)}
    return sections


def _optimiser(state: Mapping[str, Any]) -> dict[str, Any]:
    per_parameter = list(state.get("state", {}).values())
    groups = state.get("param_groups", [])
    said: dict[str, Any] = {"parameters with moments": len(per_parameter)}
    steps = sorted({int(each["step"]) for each in per_parameter if isinstance(each, dict) and "step" in each})
    if steps:
        said["updates"] = steps[0] if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    for name in sorted({key for each in per_parameter for key in each if key != "step"}):
        said[_words(name)] = sum(each[name].numel() for each in per_parameter if name in each)
    for key in ("lr", "betas", "weight_decay"):
        if groups and key in groups[0]:
            said[_words(key)] = groups[0][key]
    return said


def _tensors(tensors: list[torch.Tensor]) -> dict[str, Any]:
    return {
        "tensors": len(tensors),
        "parameters": sum(each.numel() for each in tensors),
        "type": ", ".join(sorted({str(each.dtype).removeprefix("torch.") for each in tensors})),
    }


def _weights(path: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """From the header alone: its length in eight bytes, then JSON (the safetensors format)."""
    with reading(path, checkpoint):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                raise ValueError("its header would be longer than the file")
            header = json.loads(file.read(length))
        tensors = {name: each for name, each in header.items() if name != "__metadata__"}
        counted = sum(_product(each["shape"]) for each in tensors.values())
        types = sorted({_DTYPE_NAMES.get(each["dtype"], each["dtype"]) for each in tensors.values()})
    said = {"tensors": len(tensors), "parameters": counted, "type": ", ".join(types)}
    adapter = path.parent / "adapter_config.json"
    if adapter.is_file():
        settings = read_json(adapter, f"Delete {checkpoint.path}: the run continues from the checkpoint before it.")
        said["adapter"] = (
            f"{settings.get('peft_type', '?')}, rank {settings.get('r', '?')}, alpha {settings.get('lora_alpha', '?')}"
        )
    return said


def _pipeline(path: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    state = read_json(path, f"Delete {checkpoint.path}: the run continues from the checkpoint before it.")
    with reading(path, checkpoint):
        opened = state["open"]
        drawn = sum(len(each["episodes"]) for each in opened)
        return {
            "policy version": state["version"],
            "groups trained or dropped": sum(past - first for first, past in state["done"]),
            "finished groups that wait": len(state["finished"]),
            "groups under way": len(opened),
            "episodes of theirs that are done": drawn,
            **{_words(name): count for name, count in state["counts"].items()},
        }


def _leaves(value: object) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)


def _brief(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:12]


def _product(shape: list[int]) -> int:
    total = 1
    for each in shape:
        total *= int(each)
    return total


def _words(name: str) -> str:
    known = {
        "lr": "learning rate",
        "exp_avg": "first moments",
        "exp_avg_sq": "second moments",
        "first": "begins after step",
        "step": "steps done",
        "steps": "learner's steps",
        "version": "policy version",
    }
    return known.get(name, name.replace("_", " "))
