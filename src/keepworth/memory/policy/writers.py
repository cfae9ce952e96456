"""Writers: what is kept of an episode, or of messages. Rule and template forms; `prompts` holds the forms that ask a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import InvalidAdvice
from keepworth.memory.item import ItemKind
from keepworth.memory.policy.hashed_words import _WORD
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.memory.policy.slots import Finished, Use


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


@dataclass(frozen=True, slots=True)
class Facts:
    """The writer that keeps what `extract` finds in messages, as it is: such as `keepworth.models.chat.extractor(chat)`. Raises
    InvalidAdvice where that is no list of texts."""

    extract: Callable[[Sequence[Mapping[str, Any]]], Iterable[str]]

    def __post_init__(self) -> None:
        if not callable(self.extract):
            raise InvalidAdvice(
                f"Facts({self.extract!r:.40}) has nothing that finds facts.", "Give a function of messages."
            )

    def __call__(self, finished: Finished) -> list[Operation]:
        # What nobody put into words holds no facts: a model need not be asked.
        found: object = self.extract(transcript) if (transcript := finished.transcript) else ()
        facts = None if isinstance(found, (str, bytes, Mapping)) or not isinstance(found, Iterable) else list(found)
        if facts is None or not all(isinstance(fact, str) for fact in facts):
            raise InvalidAdvice(
                f"what finds facts gave {found if facts is None else facts!r:.60}, which is no list of texts.",
                "Let it return a list of str.",
            )
        return [Operation(OperationKind.ADD, text=fact) for fact in facts if fact.strip()]


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


def keywords(text: str, most: int = 5) -> list[str]:
    """The longest different words, in order of appearance: the rule form of a keyword extractor."""
    found = list(dict.fromkeys(_WORD.findall(text.lower())))
    kept = set(sorted(found, key=lambda word: (-len(word), found.index(word)))[:most])
    return [word for word in found if word in kept]
