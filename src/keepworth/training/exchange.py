"""Writes the episodes of a run in the formats of others.

atif    a trajectory of Harbor's Agent Trajectory Interchange Format 1.8 for each episode, with the ids that the model read and
        drew and their log-probabilities
trl     two data sets of TRL: completions.jsonl (prompt, completion, reward), and preferences.jsonl (prompt, chosen, rejected)
        with the best and the worst answer of each group whose rewards differ"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keepworth import __version__
from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Episode
from keepworth.training.run_folder import TRAIN, RunFolder, StoredEpisode
from keepworth.training.trained import model_of

FORMATS = ("atif", "trl")
ATIF = "ATIF-v1.8"


def write_episodes(run: RunFolder, folder: Path, format: str) -> list[Path]:
    """Writes the episodes that a run was trained on into a folder, which must be empty or new. Returns the files.

    Args:
        run: The run, whose episodes of training are written.
        folder: Where the files are written.
        format: "atif" or "trl".

    Raises:
        KeepworthError: The folder holds something, or the run has no episodes.
    """
    if folder.exists() and any(folder.iterdir()):
        raise KeepworthError(f"{folder} holds something already.", "Give an empty folder, or a new one.")
    stored = list(run.episodes(arm=TRAIN))
    if not stored:
        raise KeepworthError(f"{run.path} holds no episodes that were trained on.")
    folder.mkdir(parents=True, exist_ok=True)
    if format == "atif":
        model = model_of(run)
        return [
            _write(folder / f"{number:06d}.json", [trajectory_of(one.episode, run.name, model)])
            for number, one in enumerate(stored)
        ]
    return [
        _write(folder / "completions.jsonl", [completion_of(one.episode) for one in stored]),
        _write(folder / "preferences.jsonl", list(preferences_of(stored))),
    ]


def _write(file: Path, rows: list[Mapping[str, Any]]) -> Path:
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return file


def trajectory_of(episode: Episode, session: str, model: str) -> dict[str, Any]:
    """Returns an episode as a trajectory of ATIF.

    Args:
        episode: The episode, with the ids of its calls.
        session: The name of its run, which its other episodes share.
        model: The name of the model that played it.
    """
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": episode.question}]
    for call in episode.segments:
        metrics = {
            "prompt_tokens": len(call.context),
            "completion_tokens": len(call.ids),
            "prompt_token_ids": list(call.context),
            "completion_token_ids": list(call.ids),
            **({"logprobs": list(call.logprobs)} if call.logprobs else {}),
        }
        extra: dict[str, Any] = {"role": call.role, "temperature": call.temperature, "finish": call.finish.value}
        if call.grammar is not None:  # the log-probabilities are among what it allows
            extra["grammar"] = call.grammar.text
        step = {"step_id": len(steps) + 1, "source": "agent", "message": call.text, "metrics": metrics}
        steps.append({**step, "llm_call_count": 1, "extra": extra})
    return {
        "schema_version": ATIF,
        "session_id": session,
        "trajectory_id": episode.id,
        "agent": {"name": "keepworth", "version": __version__, "model_name": model},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(len(call.context) for call in episode.segments),
            "total_completion_tokens": sum(len(call.ids) for call in episode.segments),
            "total_steps": len(steps),
        },
        "extra": {
            "task": episode.task,
            "answer": episode.answer,
            "reward": episode.reward,
            "rewards": {term.name: term.value for term in episode.rewards},
            "stop": episode.stop.value,
            "memory": [{"item": shown.item, "text": shown.text} for shown in episode.shown],
        },
    }


def completion_of(episode: Episode) -> dict[str, Any]:
    """Returns an episode as a row of TRL's conversational form, with its reward."""
    return {**_asked(episode), "completion": _answered(episode), "reward": episode.reward, "task": episode.task}


def preferences_of(stored: list[StoredEpisode]) -> Iterator[dict[str, Any]]:
    """Yields the best and the worst answer of each group, where their rewards differ."""
    groups: dict[tuple[int, str], list[Episode]] = {}
    for one in stored:
        groups.setdefault((one.step, one.episode.task), []).append(one.episode)
    for members in groups.values():
        worst, best = min(members, key=lambda member: member.reward), max(members, key=lambda member: member.reward)
        if best.reward > worst.reward:
            yield {**_asked(best), "chosen": _answered(best), "rejected": _answered(worst)}


def _asked(episode: Episode) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": episode.question}]}


def _answered(episode: Episode) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": episode.answer}]
