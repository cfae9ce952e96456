"""What lies in logs, before anything is learned from them: folders, people, sizes and the time that they span."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from keepworth.adapters.logs.learning import TurnNames
from keepworth.adapters.logs.reading import LogFiles
from keepworth.adapters.logs.session import LogSession


@dataclass(slots=True)
class FolderSurvey:
    """What is in the logs of one project, or of one folder of logs where they name no project."""

    files: set[str] = field(default_factory=set)
    sessions: int = 0
    turns: int = 0
    started: str = ""
    ended: str = ""


@dataclass(slots=True)
class LogSurvey:
    """What was found in logs. `scores` are counted by name, `formats` by files, `people` and `folders` by what the logs name."""

    folders: dict[str, FolderSurvey] = field(default_factory=dict)
    people: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    scores: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    turns: int = 0
    steps: int = 0
    started: str = ""
    ended: str = ""

    def add(self, session: LogSession, new: int) -> None:
        """Count a session with so many turns that no other file had."""
        whole = session.before == 0
        place = session.folder or os.path.dirname(session.file)
        folder = self.folders.setdefault(place, FolderSurvey())
        folder.files.add(session.file)
        self.people[session.person] += whole
        self.scores.update(outcome.name for outcome in session.outcomes)
        self.steps += sum(len(turn.steps) for turn in session.turns)
        for counts in (self, folder):
            counts.sessions += whole
            counts.turns += new
            for time in filter(None, (session.started, session.ended)):
                counts.started, counts.ended = min(counts.started or time, time), max(counts.ended, time)


def survey(files: LogFiles, sessions: Iterable[LogSession] | None = None) -> LogSurvey:
    """Read logs, and return what is in them."""
    counts, names, seen = LogSurvey(), TurnNames(), set[str]()
    for session in files.sessions() if sessions is None else sessions:
        ids = {names.name(session, index) for index in range(len(session.turns))}
        if session.turns:
            counts.add(session, len(ids - seen))
        seen |= ids
    counts.formats.update(files.formats.values())
    return counts
