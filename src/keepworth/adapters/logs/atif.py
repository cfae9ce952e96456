"""Trajectories in Harbor's format ATIF: `jobs/JOB/TRIAL/agent/trajectory.json`, with the trial's rewards beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from keepworth.adapters.logs.session import LogOutcome, LogReader, LogSession, texts_in
from keepworth.base.json_values import as_object, parsed

NAME = "atif"


def fits(row: dict[str, Any]) -> bool:
    """Return whether a file is a trajectory, or the result of a trial."""
    return str(row.get("schema_version")).startswith("ATIF-v") or row.keys() >= {"trial_name", "task_name"}


def belongs(path: str) -> bool:
    """Return whether a file in no known form is one that a trial's verifier wrote."""
    folder = os.path.dirname(path)
    return os.path.basename(folder) == "verifier" and os.path.exists(f"{os.path.dirname(folder)}/agent/trajectory.json")


class AtifReader(LogReader):
    """Reads a trajectory, which is a session. The rewards of its trial stand in `result.json` or `verifier/reward.json`."""

    def read(self, row: dict[str, Any], file: str) -> LogSession | None:
        """Read a trajectory. Steps that are copied from an earlier one are left out."""
        if "steps" not in row:
            return None
        extra = as_object(as_object(row.get("agent")).get("extra"))
        folder = str(next(iter(extra.get("cwds") or ()), extra.get("cwd") or ""))
        session = LogSession(NAME, str(row.get("session_id") or ""), file, folder)
        document = row.get("trajectory_id")
        self.sessions[file] = session
        for step in row["steps"]:
            if isinstance(step, dict) and not step.get("is_copied_context"):
                _read_step(session, step, "" if document is None else f"{document}/{step.get('step_id')}")
        trial = Path(file).parent.parent
        result = _json(trial / "result.json")
        verified = result.get("verifier_result")
        rewards = verified.get("rewards") if isinstance(verified, dict) else _json(trial / "verifier" / "reward.json")
        if isinstance(rewards, dict) and result.get("reward_valid") is not False:
            session.outcomes += [
                LogOutcome(name, value) for name, value in rewards.items() if isinstance(value, int | float)
            ]
        if result.get("exception_info"):
            session.interrupt()
        return session


def _read_step(session: LogSession, step: dict[str, Any], key: str) -> None:
    time, text = session.see(step.get("timestamp")), texts_in(step.get("message"))
    if step.get("source") == "user":
        session.ask(text, time, key)
    if step.get("source") != "agent":
        return
    session.say(text)
    for call in step.get("tool_calls") or ():
        session.call(str(call.get("tool_call_id")), str(call.get("function_name")), call.get("arguments"))
    for result in as_object(step.get("observation")).get("results") or ():
        failed = bool((result.get("extra") or {}).get("tool_result_is_error"))
        session.finish(str(result.get("source_call_id")), failed, texts_in(result.get("content")))


def _json(path: Path) -> dict[str, Any]:
    try:
        return as_object(parsed(path.read_bytes()))
    except OSError:
        return {}
