"""What placing and killing share: a run of the recipe, what must be equal in two runs, and a Ray of two raylets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.speed.setting import machine
from keepworth.learning.run_folder import RunFolder
from keepworth.recipes.training import kept_weights
from keepworth.recipes.workers import Origin
from tests.recipes.test_workers import Noting, rows, run_of

HERE = Path(__file__).parent
ORIGIN = Origin(str(HERE / "even.py"))
ROLE = "policy"
SIZE = {"tasks_per_step": 4, "group_size": 4, "questions": 8, "token_budget": 256}


def trained(
    checkpoint: Path, path: Path, progress: Noting | None = None, **settings: Any
) -> tuple[RunFolder, list[str]]:
    """The run of the recipe, and its notes."""
    return run_of(ORIGIN, checkpoint, path, progress, **{**SIZE, "evaluate_every": settings["steps"], **settings})


def episodes(run: RunFolder) -> list[Any]:
    return [(stored.step, stored.episode) for stored in run.episodes(arm="train")]


def said(run: RunFolder) -> dict[str, str]:
    """Of what a run leaves, what does not depend on a clock: SHA-256 of each part."""
    kept = [(step, each.id, each.task, each.segments, each.rewards) for step, each in episodes(run)]
    parts = {
        "weights": (kept_weights(run, ROLE) / "adapter_model.safetensors").read_bytes(),
        "metrics": json.dumps(rows(run), sort_keys=True).encode(),
        "episodes": repr(kept).encode(),
    }
    return {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}


def mean_reward(run: RunFolder) -> float:
    """Over all episodes that were trained on."""
    values = [each.reward for _, each in episodes(run)]
    return sum(values) / len(values)


@contextmanager
def two_raylets() -> Iterator[Any]:
    """A Ray on this host: two raylets with one core each, so that of two workers each has its own."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=1)
        yield nodes
    finally:
        nodes.shutdown()


def described() -> dict[str, Any]:
    import ray

    return {**machine(1), "ray": ray.__version__}


def write(name: str, found: Mapping[str, Any]) -> None:
    (HERE / name).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
