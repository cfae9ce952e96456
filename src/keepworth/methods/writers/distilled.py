"""ReMe (arXiv 2512.10696): experiences distilled from an episode, by a template or by a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepworth.base.text import as_line
from keepworth.memory.choose.case_writers import AskModel, advised, judged, keywords, parsed
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.slots import Finished, Use, Writer
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Distilled:
    """Writes ReMe's experiences by a template (arXiv 2512.10696): "when to use" is the key, the insight is the content.

    Only episodes that succeeded give experiences. `alike`: a draft whose key has a greater cosine than this to a stored key with
    the same advice is dropped (the paper does not state its threshold).
    """

    alike: float = 0.98
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, self.steps):
            if not good or self._known(use, finished.pool):
                continue
            scenario = use.query.text
            extra = {"keywords": tuple(keywords(scenario)), "confidence": 0.5, "tools": (use.taken,)}
            drafts.append(
                Advice(scenario, f"When you meet '{scenario}', choose {use.taken}.", (use.taken,), extra=extra)
            )
        return drafts

    def _known(self, use: Use, pool: Pool | None) -> bool:
        if pool is None:
            return False
        rows = pool.active()
        rows = rows[pool.content[rows] == pool.content_of(use.taken)]
        return bool(len(rows)) and float(pool.similarities(use.query.vector, rows).max()) > self.alike


def _steps(finished: Finished) -> str:
    pairs = [(as_line(use.query.text, "|"), as_line(use.taken, "|")) for use in finished.uses]
    steps = "\n".join(f"{n}. saw: {text} | did: {action}" for n, (text, action) in enumerate(pairs, start=1))
    return f"{steps}\nThe episode {'succeeded' if finished.success else 'failed'}."


def distil_prompt(finished: Finished) -> str:
    """Returns the prompt of ReMe's step 1 (arXiv 2512.10696): name the decision that made it work, or the earliest bad one."""
    wanted = "the step that made it work" if finished.success else "the earliest step that made it fail"
    return (
        f"Here is what an agent did.\n\n{_steps(finished)}\n\nName {wanted}, as advice for later. Answer with a JSON list of at "
        'most 3 objects: {"when": the situation in which the advice applies, "advice": one or two sentences, "action": the '
        'action to take, "keywords": [words], "confidence": 0 to 1}.'
    )


def parse_experiences(reply: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Returns at most three well-formed experiences of a reply, each (when, advice, action, extra); others are dropped."""
    value = parsed(reply)
    experiences: list[Any] = []
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        texts = [entry.get(name) for name in ("when", "advice", "action")]
        if all(isinstance(text, str) and text.strip() for text in texts):
            sure, words = entry.get("confidence"), entry.get("keywords")
            keywords = tuple(map(str, words)) if isinstance(words, list) else ()
            confidence = min(1.0, max(0.0, float(sure))) if isinstance(sure, (int, float)) else 0.5
            experiences.append((*texts, {"keywords": keywords, "confidence": confidence}))
    return experiences[:3]


def judge_prompt(advice: str) -> str:
    """Returns the prompt of ReMe's validation of a candidate."""
    return (
        f"Advice from experience:\n{as_line(advice)}\n\nIs it actionable, accurate and useful in later tasks? Answer with JSON: "
        '{"accept": true or false}.'
    )


def parse_accept(reply: str) -> bool:
    """Returns whether a reply accepts explicitly."""
    value = parsed(reply)
    return isinstance(value, dict) and value.get("accept") is True


@dataclass(frozen=True, slots=True)
class DistilledByModel:
    """Writes ReMe's experiences with a model: distil, then judge. `ask` is called once, and once per candidate."""

    ask: AskModel
    failures: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        if not finished.choices or (not finished.success and not self.failures):
            return []
        return [
            advised(action, finished.success, when, advice, extra=extra)
            for when, advice, action, extra in parse_experiences(self.ask(distil_prompt(finished)))
            if parse_accept(self.ask(judge_prompt(advice)))
        ]


def distilled(
    *, ask: AskModel | None = None, failures: bool = False, alike: float = 0.98, steps: bool = False
) -> Writer:
    """Returns a writer of experiences, keyed by when to use them.

    Args:
        ask: A chat model as a function; None uses a template, on successes only.
        failures: Whether the model also distils failures.
        alike, steps: See `Distilled`, for the template only.
    """
    return Distilled(alike, steps) if ask is None else DistilledByModel(ask, failures)


METHOD = Method(
    kind="writer",
    name="distilled",
    title="ReMe distillation",
    paper="arXiv 2512.10696",
    about="Writes experiences with a description of when to use them, each only once",
    tags=("token", "experiential", "formation"),
    differs=(
        "A template writes where no model is given, and the prompts and the threshold of similarity are ours "
        "because the paper states neither."
    ),
    make=distilled,
)
