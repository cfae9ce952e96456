"""The steps that papers do with a large model, as prompts with parsers: any function of a prompt can carry them out.

Each step is a pair: a function that writes the prompt, and a total parser of the reply. A reply that cannot be parsed gives
the safe answer (nothing is written, nothing is linked, every record is held to be inconsistent), never an error. The prompts
are ours; the papers' steps are named. The rule forms in `writers`, `maintainers` and `selectors` need no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.text import as_line
from keepworth.memory.item import Item
from keepworth.memory.policy.pool import Advice, numbered
from keepworth.memory.policy.slots import Finished
from keepworth.memory.policy.writers import ended, judged

Ask = Callable[[str], str]
"""A chat model as a function: the prompt in, the reply out."""

_BLOCK = re.compile(r"[\[{].*[\]}]", re.DOTALL)


def parsed(reply: str) -> Any:
    """The first JSON value in a reply, fences and talk around it allowed; None where there is none."""
    found = _BLOCK.search(reply)
    if found is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(found.group())[0]
    except (ValueError, RecursionError):  # a model may nest without end
        return None


def _steps(finished: Finished) -> str:
    seen = [(as_line(use.query.text, "|"), as_line(use.taken, "|")) for use in finished.uses]
    steps = "\n".join(f"{n}. saw: {text} | did: {taken}" for n, (text, taken) in enumerate(seen, start=1))
    return f"{steps}\nThe episode {'succeeded' if finished.success else 'failed'}."


def distil_prompt(finished: Finished) -> str:
    """ReMe, step 1 (arXiv 2512.10696): the decision that made it work, or the earliest one that made it fail."""
    wanted = "the step that made it work" if finished.success else "the earliest step that made it fail"
    return (
        f"Here is what an agent did.\n\n{_steps(finished)}\n\nName {wanted}, as advice for later. Answer with a JSON list of at "
        'most 3 objects: {"when": the situation in which the advice applies, "advice": one or two sentences, "action": the '
        'action to take, "keywords": [words], "confidence": 0 to 1}.'
    )


def parse_experiences(reply: str) -> list[dict[str, Any]]:
    """Well-formed experiences alone; others are dropped."""
    value = parsed(reply)
    experiences = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            continue
        texts = [each.get(name) for name in ("when", "advice", "action")]
        if all(isinstance(text, str) and text.strip() for text in texts):
            confidence = each.get("confidence")
            words = each.get("keywords")
            experiences.append(
                {
                    "when": texts[0],
                    "advice": texts[1],
                    "action": texts[2],
                    "keywords": tuple(str(word) for word in words) if isinstance(words, list) else (),
                    "confidence": min(1.0, max(0.0, float(confidence)))
                    if isinstance(confidence, (int, float))
                    else 0.5,
                }
            )
    return experiences[:3]


def compare_prompt(better: Finished, worse: Finished) -> str:
    """ReMe's comparison of the best and the worst attempt at one task."""
    return (
        f"Two attempts at the same task.\n\nBetter:\n{_steps(better)}\n\nWorse:\n{_steps(worse)}\n\nName the decision that "
        'separates them. Answer with a JSON list of one object with the keys "when", "advice", "action", "keywords", '
        '"confidence".'
    )


def judge_prompt(advice: str) -> str:
    """ReMe's validation of a candidate."""
    return (
        f"Advice from experience:\n{as_line(advice)}\n\nIs it actionable, accurate and useful in later tasks? Answer with JSON: "
        '{"accept": true or false}.'
    )


def parse_accept(reply: str) -> bool:
    """Only a clear yes is one."""
    value = parsed(reply)
    return isinstance(value, dict) and value.get("accept") is True


def rewrite_prompt(items: Sequence[Item], task: str) -> str:
    """ReMe, step 2: several experiences made into one guidance text for this task."""
    return (
        f"Experiences:\n{numbered(items)}\n\nTask: {as_line(task)}\n\nWrite short guidance for this task from those "
        "experiences that apply to it. If none applies, answer with the single word NONE."
    )


def parse_guidance(reply: str) -> str:
    text = reply.strip()
    return "" if not text or text.upper().strip(".") == "NONE" else text


def note_prompt(text: str) -> str:
    """A-MEM's note construction (arXiv 2502.12110)."""
    return (
        f"Text:\n{as_line(text)}\n\nDescribe it for later retrieval. Answer with JSON: "
        '{"keywords": [at least three], "context": one sentence, "tags": [at least three]}.'
    )


def parse_note(reply: str) -> dict[str, Any]:
    """Empty where the reply is not a note: the plain text is stored then."""
    value = parsed(reply)
    if not isinstance(value, dict):
        return {}
    lists = {name: value.get(name) for name in ("keywords", "tags")}
    if not all(isinstance(each, list) for each in lists.values()) or not isinstance(value.get("context"), str):
        return {}
    return {
        "context": value["context"],
        **{name: tuple(str(word) for word in each) for name, each in lists.items() if isinstance(each, list)},
    }


def evolve_prompt(note: Item, neighbours: Sequence[Item]) -> str:
    """A-MEM's linking and evolution, as one call like the released code. Neighbours are named by id."""
    near = "\n".join(
        f"{each.id}: {as_line(each.text)} (tags: {as_line(', '.join(each.metadata.get('tags', ())))})"
        for each in neighbours
    )
    return (
        f"New note {note.id}: {as_line(note.text)}\n\nNeighbours:\n{near}\n\nWhich neighbours should the new note link "
        'to, and which neighbours\' tags should change? Answer with JSON: {"links": [ids], "tags": {id: [tags]}}.'
    )


def parse_evolution(reply: str, known: Sequence[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Links and new tags, of notes that exist alone."""
    value = parsed(reply)
    if not isinstance(value, dict):
        return (), {}
    links, tags = value.get("links"), value.get("tags")
    kept = tuple(each for each in links if each in known) if isinstance(links, list) else ()
    fresh = {
        id: tuple(str(tag) for tag in each)
        for id, each in (tags.items() if isinstance(tags, dict) else ())
        if id in known and isinstance(each, list)
    }
    return kept, fresh


def path_prompt(item: Item, task: str) -> str:
    """A-MemGuard's reasoning path that one record alone supports (arXiv 2510.02373)."""
    return (
        f"Task: {as_line(task)}\nThe only record you have: {as_line(item.text)}\n\nWrite the chain of reasoning "
        "and the action that this record alone supports, in one line: fact -> inference -> action."
    )


def consensus_prompt(paths: Sequence[str], task: str) -> str:
    listed = "\n".join(f"{place}. {as_line(path)}" for place, path in enumerate(paths, start=1))
    return (
        f"Task: {as_line(task)}\nReasoning paths of single records:\n{listed}\n\nForm the consensus, then say of each path "
        'whether it agrees with it. Answer with JSON: {"consistent": [true or false for each path]}.'
    )


def parse_consensus(reply: str, count: int) -> list[bool]:
    """Fails closed: a reply that cannot be parsed rejects every record."""
    value = parsed(reply)
    verdicts = value.get("consistent") if isinstance(value, dict) else None
    if not isinstance(verdicts, list) or len(verdicts) != count or not all(isinstance(each, bool) for each in verdicts):
        return [False] * count
    return verdicts


def prune_prompt(items: Sequence[Item], task: str) -> str:
    """ReMem's Refine step (arXiv 2511.20857): which retrieved experiences to drop."""
    return (
        f"Task: {as_line(task)}\nRetrieved experiences:\n{numbered(items)}\n\nWhich of them do not help? Answer in one line: "
        "Think-Prune: numbers separated by commas, or Think-Prune: none."
    )


def parse_prune(reply: str, count: int) -> tuple[int, ...]:
    """Positions to drop, from 0; numbers out of range are ignored."""
    found = re.search(r"think-prune\s*:\s*(.*)", reply, re.IGNORECASE)
    numbers = re.findall(r"\d+", found.group(1)) if found else []
    return tuple(sorted({int(each) - 1 for each in numbers if 1 <= int(each) <= count}))


def hint_prompt(action: str, after: str) -> str:
    """Next-state judgement with a hint (OpenClaw-RL, arXiv 2603.10165)."""
    return (
        f"An agent did: {as_line(action)}\nThen this happened: {as_line(after)}\n\nDoes what happened speak for the "
        'action (1), against it (-1), or neither (0)? Answer with JSON: {"vote": -1, 0 or 1, "hint": what '
        "should have been done, in one sentence}."
    )


def parse_vote(reply: str) -> tuple[float, str]:
    value = parsed(reply)
    if not isinstance(value, dict) or value.get("vote") not in (-1, 0, 1):
        return 0.0, ""
    hint = value.get("hint")
    return float(value["vote"]), hint.strip() if isinstance(hint, str) else ""


@dataclass(frozen=True, slots=True)
class DistilledByModel:
    """ReMe's writer with a model: distil, judge, drop what is known. `ask` is called once, and once per candidate."""

    ask: Ask
    failures: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        if not finished.choices or (not finished.success and not self.failures):
            return []
        drafts = []
        for each in parse_experiences(self.ask(distil_prompt(finished))):
            if not parse_accept(self.ask(judge_prompt(each["advice"]))):
                continue
            good = finished.success
            drafts.append(
                Advice(
                    each["when"],
                    each["advice"],
                    do=(each["action"],) if good else (),
                    avoid=() if good else (each["action"],),
                    good=good,
                    extra={"keywords": each["keywords"], "confidence": each["confidence"]},
                )
            )
        return drafts


@dataclass(frozen=True, slots=True)
class NotesByModel:
    """A-MEM's writer with a model; a reply that is no note leaves the plain text."""

    ask: Ask

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, steps=False):
            text = f"{use.query.text} -> {use.taken}: {ended(use, good)}"
            note = parse_note(self.ask(note_prompt(text)))
            key = " ".join([use.query.text, *note.get("keywords", ()), *note.get("tags", ()), note.get("context", "")])
            drafts.append(
                Advice(
                    key.strip(),
                    text,
                    do=(use.taken,) if good else (),
                    avoid=() if good else (use.taken,),
                    good=good,
                    extra={
                        "content": use.query.text,
                        "keywords": note.get("keywords", ()),
                        "tags": note.get("tags", ()),
                        "context": note.get("context", ""),
                        "links": (),
                    },
                )
            )
        return drafts
