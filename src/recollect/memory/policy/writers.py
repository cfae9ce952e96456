"""Writers: what is kept of an episode. Rule and template forms; `prompts` holds the forms that ask a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recollect.memory.item import ItemKind
from recollect.memory.policy.hashed_words import _WORD
from recollect.memory.policy.pool import Draft, Pool
from recollect.memory.policy.slots import Finished, Use


def last_moves(finished: Finished) -> list[Use]:
    """The last choice made in each situation, in order: where a step was tried again, what ended up being done."""
    last: dict[str, Use] = {}
    for use in finished.uses:
        last.pop(use.query.text, None)
        last[use.query.text] = use
    return list(last.values())


def no_writing(finished: Finished, pool: Pool) -> list[Draft]:
    return []


@dataclass(frozen=True, slots=True)
class RawCases:
    """The situation, the action and how it ended. failures: kept too, as warnings; else successes alone are kept.

    what_to_keep: `last_moves`, or another way to pick the steps worth a case.
    """

    failures: bool = True
    what_to_keep: Callable[[Finished], list[Use]] = last_moves

    def __call__(self, finished: Finished, pool: Pool) -> list[Draft]:
        if not finished.success and not self.failures:
            return []
        good = finished.success
        drafts = []
        for use in self.what_to_keep(finished):
            ended = "it worked" if good else "it failed"
            drafts.append(
                Draft(
                    use.query.text,
                    f"{use.query.text} -> {use.taken}: {ended}",
                    do=(use.taken,) if good else (),
                    avoid=() if good else (use.taken,),
                    good=good,
                )
            )
        return drafts


@dataclass(frozen=True, slots=True)
class StepCases:
    """Ours: every step of every episode by its own reward: what worked as advice, what did not as a warning."""

    failures: bool = True

    def __call__(self, finished: Finished, pool: Pool) -> list[Draft]:
        drafts: dict[tuple[str, str], Draft] = {}
        for use in finished.uses:
            good = use.told >= 0.5
            if not good and not self.failures:
                continue
            ended = "it worked" if good else "it failed"
            drafts[use.query.text, use.taken] = Draft(
                use.query.text,
                f"{use.query.text} -> {use.taken}: {ended}",
                do=(use.taken,) if good else (),
                avoid=() if good else (use.taken,),
                good=good,
            )
        return list(drafts.values())


@dataclass(frozen=True, slots=True)
class Distilled:
    """ReMe's acquisition, template form (arXiv 2512.10696): "when to use" is the key, the insight is the content.

    Selective addition: only episodes that succeeded give experiences. `alike`: a draft whose key is closer than this to
    a stored key with the same advice is dropped (the paper does not state its threshold).
    """

    alike: float = 0.98

    def __call__(self, finished: Finished, pool: Pool) -> list[Draft]:
        if not finished.success:
            return []
        drafts = []
        for use in last_moves(finished):
            if self._known(use, pool):
                continue
            scenario = use.query.text
            drafts.append(
                Draft(
                    scenario,
                    f"When you meet '{scenario}', choose {use.taken}.",
                    do=(use.taken,),
                    extra={"keywords": tuple(keywords(scenario)), "confidence": 0.5, "tools": (use.taken,)},
                )
            )
        return drafts

    def _known(self, use: Use, pool: Pool) -> bool:
        rows = pool.active()
        rows = rows[pool.content[rows] == pool.content_of(use.taken)]
        return bool(len(rows)) and float(pool.similarities(use.query.vector, rows).max()) > self.alike


@dataclass(frozen=True, slots=True)
class Notes:
    """A-MEM's notes, rule form: content, keywords, tags and a context sentence, all of them embedded (2502.12110)."""

    def __call__(self, finished: Finished, pool: Pool) -> list[Draft]:
        drafts = []
        for use in last_moves(finished):
            words = keywords(use.query.text)
            ended = "worked" if finished.success else "failed"
            context = f"{use.taken} {ended}"
            drafts.append(
                Draft(
                    note_key(use.query.text, tuple(words), (use.taken,), context),
                    f"{use.query.text} -> {use.taken}: it {ended}",
                    do=(use.taken,) if finished.success else (),
                    avoid=() if finished.success else (use.taken,),
                    good=finished.success,
                    kind=ItemKind.EPISODE,
                    extra={
                        "content": use.query.text,
                        "keywords": tuple(words),
                        "tags": (use.taken,),
                        "context": context,
                        "links": (),
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
