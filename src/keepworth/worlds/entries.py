"""Divides conversations into sentences and memory entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from keepworth.base.metrics import tokens
from keepworth.memory.sentences import sentences
from keepworth.records.episode import Session, Task
from keepworth.worlds.splits import draw_order

# Words without a topic: grammar, and the words that questions about one's own past consist of.
_GRAMMAR_TEXT = """
about after ago all also am and any are as at be been before by can current currently day days did do does during each
ever far first for from get go got had has have he her his hours how i in into is it its ive last long made many me mention
mentioned minutes month months more most much my myself name new now of often on or other our out past previous
previously recent recently remind she since so some spend spent start started take than that their them there these they
this those time times to today total two type up use used using usually was we week weeks went were what whats when
where which while who whom whose why will with would year years you your
"""
_GRAMMAR = frozenset(_GRAMMAR_TEXT.split())


# A task's conversations as memory entries: windows of at most `words` words, cut between sentences, with their
# provenance.


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One window of one turn. `turn` is the index in the session, `window` the index in the turn, `date` the turn's in ISO 8601.
    `evidence`, whether the turn is marked as evidence, is part of the hidden key: for scoring retrieval, never for choosing."""

    text: str
    session: str
    turn: int
    window: int
    speaker: str
    date: str
    evidence: bool


def entries(task: Task, words: int = 60, speakers: Collection[str] | None = None) -> list[MemoryEntry]:
    """Returns every window of the haystack, in order of date, turn and window: the content of a bank when retrieval is real. The
    cut never depends on the question or the answer.

    Args:
        task: The task whose sessions are the haystack.
        words: The most words of a window.
        speakers: Those whose turns count; None is the user only, or everybody for questions about what the assistant said and
            for conversations without a speaker called "user".
    """
    if speakers is None:
        speakers = everybody(task)
        if "user" in speakers and task.tags.get("type") != "single-session-assistant":
            speakers = {"user"}
    return [entry for session in task.sessions for entry in _session_entries(session, words, speakers)]


def everybody(task: Task) -> set[str]:
    """Returns the speakers of the haystack."""
    return {turn.speaker for session in task.sessions for turn in session.turns}


def candidates(task: Task, count: int, seed: int, words: int = 60) -> list[MemoryEntry]:
    """Returns at most `count` entries: the evidence, and distractors from the rest of the haystack, in seeded order.

    This is the "evidence plus distractors" setting and uses oracle information twice: evidence turns are always present, and each
    is represented by the one window that holds all words of an answer, else by the one with most topic words of question and
    answers, else by the earliest. Its scores measure how well a reader uses a memory, not how well the memory is found: for that,
    put `entries` into a bank and use a retriever.

    Where more turns are evidence than `count`, the turns that add most new answer words are taken, then the latest. Distractors
    come from turns that are not evidence, each text once; fewer than `count` are returned where the haystack has no more. The
    order depends only on (seed, task key), so that the place of the evidence is uninformative.

    Args:
        task: The task, whose answers decide which windows stand for the evidence.
        count: The most entries, at least 1. Otherwise ValueError is raised.
        seed: The seed of the order and of the distractors.
        words: The most words of a window.
    """
    if count < 1:
        raise ValueError(f"count={count}: a candidate set has at least one entry")
    by_turn: dict[tuple[str, int], list[MemoryEntry]] = {}
    for entry in entries(task, words):
        by_turn.setdefault((entry.session, entry.turn), []).append(entry)
    gold = {token for answer in task.answers for token in tokens(answer)}
    topic = topic_words(" ".join((task.input, *task.answers)))

    def relevance(entry: MemoryEntry) -> tuple[bool, int, int]:
        whole = any(covers(answer, (entry.text,)) for answer in task.answers)
        return (whole, len(topic & set(tokens(entry.text))), -entry.window)

    evidence = [max(windows, key=relevance) for windows in by_turn.values() if windows[0].evidence]
    chosen = evidence if len(evidence) <= count else _covering(evidence, gold, count)
    texts = {entry.text for entry in evidence}
    others = [entry for windows in by_turn.values() if not windows[0].evidence for entry in windows]
    others.sort(key=lambda entry: draw_order(seed, task.key, "distractor", entry.session, entry.turn, entry.window))
    for entry in others:
        if len(chosen) >= count:
            break
        if entry.text not in texts:
            texts.add(entry.text)
            chosen = [*chosen, entry]
    return sorted(
        chosen, key=lambda entry: draw_order(seed, task.key, "order", entry.session, entry.turn, entry.window)
    )


def topic_words(text: str) -> frozenset[str]:
    """Returns the normalised tokens of `text` that carry a topic: without grammar and the words of every such question."""
    return frozenset(tokens(text)) - _GRAMMAR


def covers(answer: str, texts: Iterable[str]) -> bool:
    """Whether every normalised token of `answer` (one at least) occurs somewhere in `texts`."""
    wanted = set(tokens(answer))
    return bool(wanted) and wanted <= {token for text in texts for token in tokens(text)}


def windows_of(text: str, words: int = 60) -> list[str]:
    """Divides `text` into pieces of at most `words` white-space words: whole sentences packed greedily; a longer sentence is cut.
    No word is lost or repeated: joining the pieces gives the words of `text` in order."""
    if words < 1:
        raise ValueError(f"words={words}: a window has at least one word")
    pieces: list[list[str]] = []
    for sentence in sentences(text):
        rest = sentence.split()
        if pieces and rest and len(pieces[-1]) + len(rest) <= words:
            pieces[-1].extend(rest)
            continue
        pieces.extend(rest[start : start + words] for start in range(0, len(rest), words))
    return [" ".join(piece) for piece in pieces]


def _session_entries(session: Session, words: int, heard: Collection[str]) -> list[MemoryEntry]:
    return [
        MemoryEntry(piece, session.id, turn.index, window, turn.speaker, session.date_of(turn), turn.evidence)
        for turn in session.turns
        if turn.speaker in heard
        for window, piece in enumerate(windows_of(turn.text, words))
    ]


def _covering(evidence: list[MemoryEntry], gold: set[str], count: int) -> list[MemoryEntry]:
    left, covered_words, covering = list(evidence), set[str](), list[MemoryEntry]()
    while left and len(covering) < count:
        best = max(
            left, key=lambda entry: (len((gold - covered_words) & set(tokens(entry.text))), entry.date, entry.turn)
        )
        left.remove(best)
        covering.append(best)
        covered_words |= set(tokens(best.text))
    return covering
