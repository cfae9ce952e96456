"""`keepworth learn`: learns from the logs of agents that lie on the disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from keepworth.cli.command import argument, option
from keepworth.cli.output import ModelSignals, Personal, confirm, say, say_json, say_text, stopping, working
from keepworth.memory.place import MemoryPlace, place_of

if TYPE_CHECKING:
    from keepworth.adapters.logs.learning import LogLearned
    from keepworth.adapters.logs.reading import LogFiles
    from keepworth.adapters.logs.survey import LogSurvey

DEFAULT = MemoryPlace("keepworth.mem")
MOST_LINES = 20
"""The most folders, and the most problems, that are listed."""


def learn(
    paths: Annotated[list[Path], argument("PATH...", "Files of logs, and folders that hold them.")],
    memory: Annotated[
        MemoryPlace,
        option(
            "--memory FILE",
            "A file, or an address in Postgres; made if not there.",
            parser=place_of,
            envvar="KEEPWORTH_MEMORY",
        ),
    ] = DEFAULT,
    user: Annotated[str, option("--user -u NAME", "Whose sessions they are; by default whom the logs name.")] = "",
    dry_run: Annotated[bool, option("--dry-run", "Say what would be learned, and change nothing.")] = False,
    yes: Annotated[bool, option("--yes -y", "Do not ask.")] = False,
    facts: Annotated[bool, option("--facts/--no-facts", "Keep what users state, by rules.")] = True,
    encoder: Annotated[
        str, option("--encoder NAME", "minilm, hashing, a folder, or none to use words only.")
    ] = "default",
    secrets: Annotated[
        str, option("--secrets ACTION", "What becomes of cases with keys or passwords: redact, quarantine, refuse.")
    ] = "redact",
    personal: Personal = "allow",
    model_signals: ModelSignals = 0,
    as_json: Annotated[bool, option("--json", "Print what was read and learned as JSON.")] = False,
) -> None:
    """Learn from logs that lie on the disk: what was asked, what was done, and how it ended.

    Read are, by their content: sessions of Claude Code, Codex, Gemini CLI and opencode; trajectories in ATIF, of verifiers and of
    ART; messages of LangChain and LangGraph; OpenTelemetry, agent-lightning, Langfuse and LangSmith as JSON lines; and lines of
    {"task", "steps", "reward"}. It says first what is there, and asks. Nothing is sent anywhere without --model-signals. The same
    log can be given again: nothing is counted twice. What a file taught is taken back by `keepworth memory rollback --source
    log:FILE`."""
    from keepworth.adapters.logs.reading import LogFiles
    from keepworth.adapters.logs.survey import survey
    from keepworth.base.errors import KeepworthError

    if missing := [path for path in paths if not path.exists()]:
        raise KeepworthError(f"There is no {missing[0]}.", "Name files or folders, such as ~/.claude/projects.")
    if odd := [path for path in paths if not (path.is_file() or path.is_dir())]:
        raise KeepworthError(
            f"{odd[0]} is a pipe or a device, and a log is read more than once.", "Save what it gives as a file first."
        )
    with working("reading") as report:
        files = LogFiles(paths, report)
        counts = survey(files)
    if not as_json:
        _say_survey(counts, files)
    elif not counts.turns:
        say_json({"read": _record(counts, files), "learned": None})
    if not counts.turns:
        return
    if not dry_run:
        confirm(f"Learn from {_counted(counts.turns)} into {memory}?", yes, "Logs are private")
    learned = _learn(paths, memory, user, dry_run, facts, encoder, secrets, personal, model_signals)
    if as_json:
        say_json({"read": _record(counts, files), "learned": _fields(learned)})
    else:
        _say_learned(learned, dry_run)


def _learn(
    paths: list[Path],
    place: MemoryPlace,
    user: str,
    dry: bool,
    facts: bool,
    encoder: str,
    secrets: str,
    personal: str,
    calls: int,
) -> LogLearned:
    from keepworth.adapters.logs.learning import LogLearner
    from keepworth.adapters.logs.reading import LogFiles
    from keepworth.cli.memory.group import opened
    from keepworth.memory import by_name
    from keepworth.memory.model_signals import load_model_signals
    from keepworth.memory.scan import scan_of

    there = place.on_server or place.file.exists()
    if dry and not there:
        place, encoder = MemoryPlace(":memory:"), "none"
    with opened(place, "none" if dry else encoder, make=True, policy="default") as memory:
        memory.store.scan = scan_of(secrets, personal)
        memory.writer = by_name.writer("statements") if facts else None
        memory.model_signals = load_model_signals(0 if dry else calls)
        learner = LogLearner(memory, user=user, dry=dry)
        turns = 0
        with stopping("What was learned so far stays; the same command goes on."), working("learning") as report:
            for count in learner.learn(LogFiles(paths).sessions()):
                turns += count
                report(_counted(turns))
    return learner.learned


def _counted(count: int, noun: str = "turn") -> str:
    return f"{count:,} {noun if count == 1 else f'{noun}s'}"


def _record(counts: LogSurvey, files: LogFiles) -> dict[str, Any]:
    folders = {
        name: {**_fields(folder), "files": len(folder.files), "bytes": sum(files.sizes[file] for file in folder.files)}
        for name, folder in counts.folders.items()
    }
    problems = [_fields(problem) for problem in files.problems]
    return {
        **_fields(counts),
        "of_nobody": files.of_nobody,
        "folders": folders,
        "bytes": sum(files.sizes.values()),
        "problems": problems,
    }


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _say_survey(counts: LogSurvey, files: LogFiles) -> None:
    """Print what lies in the logs, and what could not be read."""
    for problem in files.problems[:MOST_LINES]:
        say(f"Not read: {problem}", error=True)
    if more := len(files.problems) - MOST_LINES:
        say(f"Not read: {more} more." if more > 0 else "", error=True, end="\n" if more > 0 else "")
    if not counts.turns:
        say_text("There is nothing to learn from: no file holds a session in a known form.")
        return
    listed = sorted(counts.folders.items(), key=lambda pair: -pair[1].turns)
    for name, folder in listed[:MOST_LINES]:
        size = sum(files.sizes[file] for file in folder.files) / 1e6
        sessions, span = _counted(folder.sessions, "session"), _span(folder.started, folder.ended)
        say(f"{name}  {sessions}, {_counted(folder.turns)}, {size:.1f} MB, {span}")
    if len(listed) > MOST_LINES:
        say(f"and {len(listed) - MOST_LINES} more folders")
    people = ", ".join([name for name, _ in counts.people.most_common() if name][:MOST_LINES])
    span = _span(counts.started, counts.ended)
    say(f"In all: {_counted(counts.sessions, 'session')}, {_counted(counts.turns)}, {counts.steps:,} steps, {span}.")
    say(
        f"Formats (files): {_listed(counts.formats)}. People: {people or 'none is named'}. Scores: {_listed(counts.scores)}."
    )

    if files.of_nobody:
        say(f"{files.of_nobody:,} scores name nothing in these files.", error=True)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common() if count) or "none"


def _span(started: str, ended: str) -> str:
    return f"{started[:10]} to {ended[:10]}" if started else "no time"


def _say_learned(learned: LogLearned, dry: bool) -> None:
    """Print what was learned, or would be."""
    for problem in learned.problems[:MOST_LINES]:
        say(f"Left out: {problem}", error=True)
    would = "Would be learned" if dry else "Learned"
    facts = f"{learned.messages:,} messages would be read for facts" if dry else f"{learned.facts:,} facts"
    say(
        f"{would}: {_counted(learned.new)} that are new, and {learned.longer:,} that went on; {learned.repeated:,} were learned "
        f"before. {learned.cases:,} cases, {facts}."
    )
    say(f"Scores of episodes: {_listed(learned.scores)}. Rewards of what was shown: {_listed(learned.rewards)}.")
    if learned.unusable:
        say(f"No rewards, as they are texts or outside the range of rewards: {_listed(learned.unusable)}.")
