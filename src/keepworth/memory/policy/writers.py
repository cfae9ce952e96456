"""Writers: what is kept of an episode, or of messages.

Most work by rules and templates. `DistilledByModel` and `NotesByModel` ask a model: any function from a prompt to a reply. Every
reply can be parsed, and where it makes no sense nothing is made of it. The prompts are ours; the papers' steps are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from keepworth.episodes.episode import Operation, OperationKind, StatedFact
from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidAdvice
from keepworth.memory.item import Item, ItemKind, timestamp
from keepworth.memory.policy.claims import (
    Claim,
    asked_for,
    claims,
    corrected,
    parsed_claim,
    stems,
    taken_over,
)
from keepworth.memory.policy.hashed_words import WORD
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.memory.policy.replacing import BOUND, replaces, told_as_change
from keepworth.memory.policy.slots import Finished, Use

if TYPE_CHECKING:
    from keepworth.memory.overlay import Bank


def judged(finished: Finished, steps: bool) -> list[tuple[Use, bool]]:
    """What there is to keep of an episode, in order, each with whether it was good.

    steps: every step by its own reward. Else, as papers do it, the last choice made in each situation (where a step was tried
    again, what ended up being done) by how the episode ended.
    """
    last: dict[tuple[str, ...], tuple[Use, bool]] = {}
    for use in finished.choices:
        key = (use.query.text, use.taken) if steps else (use.query.text,)
        last.pop(key, None)
        last[key] = (use, use.good if steps else finished.success)
    return list(last.values())


def ended(use: Use, good: bool) -> str:
    """How it ended, in words; the number where the reward was neither the best nor the worst."""
    if 0.0 < use.raw_reward < 1.0:
        return f"it earned {use.raw_reward:.2g} of 1"
    return "it worked" if good else "it failed"


def earned(use: Use) -> dict[str, Any]:
    """What an item keeps of a reward whose meaning may change with later ones."""
    return {"earned": use.raw_reward} if 0.0 < use.raw_reward < 1.0 else {}


Outdated = Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[Sequence[int]]]
"""(new facts, for each what is known that is like it) -> for each the positions of what it takes the place of."""
KNOWN = 12
"""Items that a new fact is compared with, for each search for them."""
NEAREST = 6
"""Statements nearest in meaning among which there may be one that a statement takes the place of."""
ANOTHER_DAY = timedelta(hours=12)
"""After this something is said anew: within one talk, what is near in meaning goes with what was said before."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The writer that keeps the facts of messages, and updates: a fact that contradicts an older item takes its place.

    extract: finds the facts, each a text or a `StatedFact`, such as `keepworth.models.chat.extractor(chat)`; None finds what
    the user and named people state by the rules of `claims`. outdated: says what gives way, such as
    `keepworth.models.chat.comparison(chat)`; None goes by those rules. updates: False keeps all that is found beside what is
    there. Items of other people never give way. Raises InvalidAdvice where `extract` gives no list of texts."""

    extract: Callable[[Sequence[Mapping[str, Any]]], Iterable[str | StatedFact]] | None = None
    outdated: Outdated | None = None
    updates: bool = True

    def __post_init__(self) -> None:
        for function, what in ((self.extract, "finds facts"), (self.outdated, "compares them")):
            if function is not None and not callable(function):
                raise InvalidAdvice(
                    f"Facts({function!r:.40}) has nothing that {what}.", "Give a function, or None for the rules."
                )

    @property
    def by_rules(self) -> bool:
        """Whether no model is asked."""
        return self.extract is None and self.outdated is None

    def __call__(self, finished: Finished) -> Iterator[Operation]:
        facts = [fact for fact in self._found(finished) if fact.text.strip()]
        bank = finished.bank() if finished.bank is not None and self.updates else None
        if bank is None:
            yield from facts
            return
        if self.outdated is None:
            for fact in facts:  # one after the other: each is compared with what those before it left
                claim = parsed_claim(fact.text)
                known = _like(claim, bank)
                gone = taken_over(claim, [stated_in(item.text) for item in known])
                yield _taking_over(fact, [known[place] for place in gone] or _closest(claim, bank, finished.said_at))
            return
        beside = [_like(parsed_claim(fact.text), bank) for fact in facts]
        asked = [place for place, known in enumerate(beside) if known]
        answers: Sequence[Sequence[int]] = ()
        if asked:
            answers = self.outdated(
                [facts[place].text for place in asked], [[item.text for item in beside[place]] for place in asked]
            )
        gone_of = dict(zip(asked, answers, strict=False))
        for place, fact in enumerate(facts):
            rows = [row for row in gone_of.get(place, ()) if 0 <= row < len(beside[place])]
            yield _taking_over(fact, [item for row in rows if _is_open(item := beside[place][row], bank)])

    def _claims(self, text: str, message: Mapping[str, Any], speaker: str, said_at: str) -> list[Claim]:
        at = timestamp(message.get("said_at")) or said_at
        if speaker == "assistant":
            return claims(text, at, speaker=speaker)
        before = message.get("before")
        anew = corrected(text, before) if isinstance(before, str) else ""
        return [replace(claim, news=True) for claim in claims(anew, at)] if anew else claims(text, at)

    def _found(self, finished: Finished) -> list[StatedFact]:
        # What nobody put into words holds no facts: a model need not be asked.
        transcript = finished.transcript
        if self.extract is None:
            return [
                StatedFact(OperationKind.ADD, (), claim.text, turn, speaker, claim.day)
                for turn, message in enumerate(finished.messages or transcript)
                if (speaker := str(message.get("role", "user"))) not in ("system", "tool", "developer", "function")
                and isinstance(text := message.get("content"), str)
                for claim in self._claims(text, message, speaker, finished.said_at)
            ]
        told = [{"said_at": finished.said_at, **message} for message in transcript]
        found: object = self.extract(told) if told else ()
        facts = None if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Iterable) else list(found)
        if facts is None or not all(isinstance(fact, (str, StatedFact)) for fact in facts):
            raise InvalidAdvice(
                f"what finds facts gave {found if facts is None else facts!r:.60}, which is no list of texts.",
                "Let it return a list of str.",
            )
        return [fact if isinstance(fact, StatedFact) else _attributed(fact, finished) for fact in facts]


def _attributed(fact: str, finished: Finished) -> StatedFact:
    """With the message that says most of its words; which day it speaks of is read in it."""
    words = stems(fact)
    shared = [
        (len(words & stems(text)), -turn, str(message.get("role", "user")))
        for turn, message in enumerate(finished.messages)
        if isinstance(text := message.get("content"), str)
    ]
    most, turn, speaker = max(shared, default=(0, 1, ""))
    if not most and len({role for _, _, role in shared}) > 1:
        turn, speaker = 1, ""
    return StatedFact(OperationKind.ADD, (), fact, -turn, speaker, parsed_claim(fact, finished.said_at).day)


@lru_cache(4096)
def stated_in(text: str) -> tuple[Claim, ...]:
    """What an item says: its statements, or the whole of it where the rules see none."""
    return tuple(claims(text)) or (parsed_claim(text),)


def _like(claim: Claim, bank: Bank) -> list[Item]:
    """What `claim` may take the place of: of the same person, agent and session alone."""
    if claim.attribute == "plan" or not len(bank):
        return []
    near = {item.id: item for found in bank.nearest_to(asked_for(claim), KNOWN) for item in found}
    return [item for item in near.values() if item.scope == bank.scope and item.open]


def _closest(claim: Claim, bank: Bank, at: str) -> list[Item]:
    """What `claim`, said at `at`, takes the place of where no rule says so: of the nearest statements in meaning the one for
    which most speaks, where enough does."""
    if not told_as_change(claim):
        return []
    near = [
        (replaces(stated[0], claim, cosine), item)
        for item, cosine in bank.similar(claim.text, NEAREST)
        if item.scope == bank.scope and _long_before(item, at) and len(stated := stated_in(item.text)) == 1
    ]
    surest = max(near, key=lambda pair: pair[0], default=None)
    return [surest[1]] if surest is not None and surest[0] >= BOUND else []


def _long_before(item: Item, at: str) -> bool:
    """Whether what `item` holds was said, or stored, on an earlier day than `at`. Not where one of them is no time, or only one
    has an offset: dates of an import are as they were found."""
    said = item.provenance.date or item.event_time or item.written_at
    try:
        return datetime.fromisoformat(at) - datetime.fromisoformat(said) >= ANOTHER_DAY
    except (TypeError, ValueError):
        return False


def _is_open(item: Item, bank: Bank) -> bool:
    now = bank.find(item.id)
    return now is not None and now.open


def _taking_over(fact: StatedFact, gone: Sequence[Item]) -> StatedFact:
    # What was said before the fact cannot give way to it where somebody else said it: an assistant corrects nobody.
    ids = tuple(item.id for item in gone if fact.speaker != "assistant" or item.provenance.speaker == "assistant")
    return replace(fact, kind=OperationKind.SUPERSEDE, targets=ids) if ids else fact


@dataclass(frozen=True, slots=True)
class RawCases:
    """The situation, the action and how it ended. failures: kept too, as warnings; else successes alone are kept. steps: of
    every step by its own reward (see `judged`)."""

    failures: bool = True
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        return [
            Advice(
                use.query.text,
                f"{use.query.text} -> {use.taken}: {ended(use, good)}",
                do=(use.taken,) if good else (),
                avoid=() if good else (use.taken,),
                good=good,
                extra=earned(use),
            )
            for use, good in judged(finished, self.steps)
            if good or self.failures
        ]


@dataclass(frozen=True, slots=True)
class Distilled:
    """ReMe's acquisition, template form (arXiv 2512.10696): "when to use" is the key, the insight is the content.

    Selective addition: only episodes that succeeded give experiences. `alike`: a draft whose key is closer than this to
    a stored key with the same advice is dropped (the paper does not state its threshold).
    """

    alike: float = 0.98
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, self.steps):
            if not good or self._known(use, finished.pool):
                continue
            scenario = use.query.text
            drafts.append(
                Advice(
                    scenario,
                    f"When you meet '{scenario}', choose {use.taken}.",
                    do=(use.taken,),
                    extra={"keywords": tuple(keywords(scenario)), "confidence": 0.5, "tools": (use.taken,)},
                )
            )
        return drafts

    def _known(self, use: Use, pool: Pool | None) -> bool:
        if pool is None:
            return False
        rows = pool.active()
        rows = rows[pool.content[rows] == pool.content_of(use.taken)]
        return bool(len(rows)) and float(pool.similarities(use.query.vector, rows).max()) > self.alike


@dataclass(frozen=True, slots=True)
class Notes:
    """A-MEM's notes, rule form: content, keywords, tags and a context sentence, all of them embedded (2502.12110)."""

    failures: bool = True
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, self.steps):
            if not good and not self.failures:
                continue
            words = keywords(use.query.text)
            context = f"{use.taken} {'worked' if good else 'failed'}"
            drafts.append(
                Advice(
                    note_key(use.query.text, tuple(words), (use.taken,), context),
                    f"{use.query.text} -> {use.taken}: {ended(use, good)}",
                    do=(use.taken,) if good else (),
                    avoid=() if good else (use.taken,),
                    good=good,
                    kind=ItemKind.EPISODE,
                    extra={
                        "content": use.query.text,
                        "keywords": tuple(words),
                        "tags": (use.taken,),
                        "context": context,
                        "links": (),
                        **earned(use),
                    },
                )
            )
        return drafts


def note_key(content: str, keywords: tuple[str, ...], tags: tuple[str, ...], context: str) -> str:
    return " ".join([content, *keywords, *tags, context])


def keywords(text: str) -> list[str]:
    """The five longest different words, in order of appearance: the rule form of a keyword extractor."""
    found = list(dict.fromkeys(WORD.findall(text.lower())))
    kept = set(sorted(found, key=lambda word: (-len(word), found.index(word)))[:5])
    return [word for word in found if word in kept]


@dataclass(slots=True)
class ExperienceTable:
    """REMEMBERER's writer (arXiv 2306.07929): a record per (goal, observation) with a value for each action tried.

    G_t = sum of the next n rewards + gamma^n * max_a Q(k_{t+n}, a); Q <- Q + (G - Q) / N. n = 0 sums to the episode's end,
    as the released scripts do. The step rewards are 0 but for the last, which is the outcome scaled to +1 or -1
    where `signed`; with `steps` every choice has its own reward, scaled alike.
    """

    n: int = 0
    gamma: float = 1.0
    signed: bool = True
    steps: bool = False
    most_actions: int = 20

    def __call__(self, finished: Finished) -> list[Advice]:
        uses, pool = finished.choices, finished.pool
        assert pool is not None
        given = [use.reward for use in uses] if self.steps else [finished.outcome]
        if self.signed:
            given = [2.0 * reward - 1.0 for reward in given]
        rewards = [0.0] * (len(uses) - len(given)) + given
        drafts: dict[tuple[str, str], dict[str, Any]] = {}
        index = {
            (pool.items[row].metadata["goal"], pool.items[row].metadata["observation"]): int(row)
            for row in pool.active()
            if "goal" in pool.items[row].metadata
        }
        for place, use in enumerate(uses):
            reach = len(uses) if not self.n else min(len(uses), place + self.n)
            total = sum(self.gamma ** (step - place) * rewards[step] for step in range(place, reach))
            if reach < len(uses):
                ahead = uses[reach].query
                row = index.get((ahead.goal, ahead.observation))
                if row is not None:
                    total += self.gamma ** (reach - place) * max(pool.items[row].metadata["q"].values())
            key = (use.query.goal, use.query.observation)
            row = index.get(key)
            known = drafts.get(key) or (None if row is None else dict(pool.items[row].metadata))
            record = known or {"goal": key[0], "observation": key[1], "q": {}, "n": {}, "visits": 0}
            q, n = dict(record["q"]), dict(record["n"])
            n[use.taken] = n.get(use.taken, 0) + 1
            q[use.taken] = q.get(use.taken, 0.0) + (total - q.get(use.taken, 0.0)) / n[use.taken]
            if len(q) > self.most_actions:
                worst = min(q, key=lambda action: q[action])
                del q[worst], n[worst]
            fresh = {**record, "q": q, "n": n, "visits": record["visits"] + 1}
            if row is not None:
                best = max(q, key=lambda action: q[action])
                fresh["do"] = (best,) if q[best] > 0 else ()
                fresh["avoid"] = tuple(action for action in q if q[action] <= 0)
                pool.revise(row, time=finished.time, why="value of an action", **fresh)
            else:
                drafts[key] = fresh
        return [_case_of(fresh) for fresh in drafts.values()]


def _case_of(data: dict[str, Any]) -> Advice:
    q = data["q"]
    best = max(q, key=lambda action: q[action])
    text = f"{data['goal']} {data['observation']}".strip()
    return Advice(
        text,
        text,
        do=(best,) if q[best] > 0 else (),
        avoid=tuple(action for action in q if q[action] <= 0),
        good=q[best] > 0,
        kind=ItemKind.CASE,
        extra={key: data[key] for key in ("goal", "observation", "q", "n", "visits")},
    )


AskModel = Callable[[str], str]
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


@dataclass(frozen=True, slots=True)
class DistilledByModel:
    """ReMe's writer with a model: distil, judge, drop what is known. `ask` is called once, and once per candidate."""

    ask: AskModel
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

    ask: AskModel

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
