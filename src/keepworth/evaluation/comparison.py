"""Compares the arms of two evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import read_json
from keepworth.base.statistics import Comparison, compare
from keepworth.evaluation.harness import EvaluationFolder, Row, unlike
from keepworth.evaluation.summary import arm_of, per_question


def rows_of(folder: Path) -> list[Row]:
    """Returns the rows of an evaluation. Raises KeepworthError where it is not finished or the folder holds none."""
    if not (folder / "summary.json").is_file():
        raise KeepworthError(f"the evaluation in {folder} is not finished.", "Give its command again: it continues.")
    rows = EvaluationFolder(folder, _plan(folder)).read()
    if not rows:
        raise KeepworthError(f"{folder} holds no rows.", "Give its command again.")
    return rows


def _plan(folder: Path) -> dict[str, Any]:
    return read_json(folder / "plan.json", "Remove the folder, and give the command of the evaluation again.")


def compare_arms(one: str, other: str, allow: Sequence[str]) -> list[Comparison]:
    """Compares arms of two evaluations, question by question. Raises KeepworthError where they differ otherwise, or an arm is
    missing.

    Args:
        one, other: `FOLDER:ARM`, or a folder for all of its arms.
        allow: Parts of the identity that are meant to differ.
    """
    (first, arms), (second, others) = name_arm(one), name_arm(other)
    identities = [_plan(folder) for folder in (first, second)]
    if unknown := [name for name in allow if name not in identities[0]]:
        raise KeepworthError(
            f"--allow names {unknown[0]!r}, which no evaluation has.", f"There are {', '.join(identities[0])}."
        )
    differing = [name for name in unlike(*identities) if name not in allow]
    if differing:
        pairs = "; ".join(f"{name}: {identities[0].get(name)} and {identities[1].get(name)}" for name in differing)
        raise KeepworthError(
            f"these are not alike: {pairs}.",
            f"Run both under the same, or say with --allow {','.join(differing)} that it is meant to differ.",
        )
    same = first.resolve() == second.resolve()
    scores: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    sides: list[dict[str, str]] = []  # of each side, by arm, what it is called
    for folder, called, wanted in zip((first, second), _distinguish(first, second), (arms, others), strict=True):
        by_arm: dict[str, list[Row]] = {}
        for row in rows_of(folder):
            by_arm.setdefault(arm_of(row), []).append(row)
            clusters[row.key] = row.cluster
        if missing := [arm for arm in wanted if arm not in by_arm]:
            raise KeepworthError(f"{folder} has no arm {missing[0]!r}.", f"There are {', '.join(by_arm)}.")
        sides.append({arm: arm if same else f"{called}:{arm}" for arm in wanted or by_arm})
        scores |= {
            name: per_question(by_arm[arm], lambda row: row.scores.get("score")) for arm, name in sides[-1].items()
        }
    if not any(scores.values()):
        raise KeepworthError(
            "no answer of these was scored.", "Run them with a reader: --reader none finds and does not answer."
        )
    # If no arms are named, all pairs of one evaluation are compared, or each arm with the same arm of the other.
    whole = not arms and not others
    two_by_two = {
        frozenset((a, b)): (a, b)
        for one_arm, a in sides[0].items()
        for other_arm, b in sides[1].items()
        if a != b and (same or not whole or one_arm == other_arm)
    }
    if not two_by_two:
        raise KeepworthError(
            f"{one} and {other} have nothing to compare.", "Name two arms that differ, or evaluations that share one."
        )
    return compare(scores, list(two_by_two.values()), clusters, within=(-1.0, 1.0))


def name_arm(text: str) -> tuple[Path, list[str]]:
    """Splits a text into a folder and the arm after it. Arms have colons too, so the folder is the longest part that is an
    evaluation."""
    parts = text.split(":")
    for many in range(len(parts), 0, -1):
        path = Path(":".join(parts[:many]))
        if (path / "plan.json").is_file():
            return path, [":".join(parts[many:])] if many < len(parts) else []
    raise KeepworthError(f"{text} names no evaluation.", "Name a folder of `keepworth eval run`, and :ARM behind it.")


def _distinguish(first: Path, second: Path) -> tuple[str, str]:
    """Returns names of two folders, with as many of their parents as are needed to tell them apart."""
    one, other = first.resolve().parts, second.resolve().parts
    many = next((many for many in range(1, len(one) + 1) if one[-many:] != other[-many:]), len(one))
    return "/".join(one[-many:]), "/".join(other[-many:])
