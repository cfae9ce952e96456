"""What engines answer, taken apart and checked: whatever contradicts the request is a BadAnswer that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.models.errors import BadAnswer

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORTED}
NO_LOGPROBS = "The engine must return the log-probability of each sampled token; see the documentation of its version."


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sample as the engine reports it. labels: (weight version's label, start, end), empty where it reports none."""

    ids: Tokens
    logprobs: tuple[float, ...]
    finish: FinishReason
    labels: tuple[tuple[str, int, int], ...] = ()


def checked_sample(drawn: Drawn, params: SamplingParams) -> Drawn:
    """The sample, if it is what was asked for. Raises BadAnswer where counts, stops and reasons contradict each other."""
    if len(drawn.ids) != len(drawn.logprobs):
        raise BadAnswer(f"The engine drew {len(drawn.ids)} tokens and gave {len(drawn.logprobs)} log-probabilities.")
    if drawn.finish is FinishReason.ABORTED:
        return drawn
    if not drawn.ids or len(drawn.ids) > params.max_tokens:
        raise BadAnswer(f"The engine drew {len(drawn.ids)} tokens where 1 to {params.max_tokens} were asked for.")
    stopped = drawn.ids[-1] in params.stop_ids
    if any(each in params.stop_ids for each in drawn.ids[:-1]):
        raise BadAnswer("The engine went on past a stop id.", "It must honour stop_token_ids.")
    if drawn.finish is FinishReason.STOP and not stopped:
        raise BadAnswer(
            f"The engine stopped at token {drawn.ids[-1]}, which is no stop id of the request.",
            "Start it without stop strings or stop ids of its own; token ids must come back with the stop id.",
        )
    if stopped and drawn.finish is FinishReason.LENGTH:
        return Drawn(drawn.ids, drawn.logprobs, FinishReason.STOP, drawn.labels)  # both at once: it chose to stop
    if drawn.finish is FinishReason.LENGTH and len(drawn.ids) < params.max_tokens:
        raise BadAnswer(
            f"The engine ended a sample for its length after {len(drawn.ids)} of {params.max_tokens} tokens.",
            "Its context limit is shorter than its model card says: start it with a larger one.",
        )
    return drawn


def as_sample(drawn: Drawn, version: int, spans: Sequence[VersionSpan]) -> Sample:
    """spans: of the engine's labels; where there are none the whole sample is of `version`."""
    whole = (VersionSpan(version, 0, len(drawn.ids)),) if drawn.ids else ()
    return Sample(drawn.ids, drawn.logprobs, drawn.finish, tuple(spans) or whole)


def as_mapping(answer: Any) -> Mapping[str, Any]:
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, dict):
        raise BadAnswer(f"The engine answered a {type(answer).__name__} where an object was expected.")
    return answer


def choices_of(answer: Any, count: int) -> list[Mapping[str, Any]]:
    choices = as_mapping(answer).get("choices")
    if not isinstance(choices, list) or len(choices) != count:
        found = len(choices) if isinstance(choices, list) else "no"
        raise BadAnswer(f"The engine gave {found} choices where {count} were asked for.")
    return sorted(choices, key=lambda choice: int(choice.get("index", 0)))


def as_drawn(choice: Mapping[str, Any], logprobs: tuple[float, ...]) -> Drawn:
    ids = choice.get("token_ids")
    if ids is None:
        raise BadAnswer(
            "The engine returns no token ids, only text: decoding and encoding again would train on other tokens.",
            "Use an engine version whose completions route knows return_token_ids.",
        )
    spans = choice.get("weight_versions") or ()
    return Drawn(
        tuple(int(each) for each in ids),
        logprobs,
        finish_reason(choice.get("finish_reason")),
        tuple((str(each["version"]), int(each["start"]), int(each["end"])) for each in spans),
    )


def completion_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    found = (choice.get("logprobs") or {}).get("token_logprobs")
    if found is None:
        raise BadAnswer("The engine's answer has no logprobs.token_logprobs.", NO_LOGPROBS)
    return tuple(log_probability(each) for each in found)


def chat_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    found = (choice.get("logprobs") or {}).get("content")
    if found is None:
        raise BadAnswer("The engine's answer has no logprobs.content.", NO_LOGPROBS)
    return tuple(log_probability(each.get("logprob")) for each in found)


def prompt_logprobs(entries: Any, prompt: Tokens, branch: Tokens) -> tuple[float, ...]:
    if entries is None:
        raise BadAnswer("The engine's answer has no prompt_logprobs.", "It must be able to score what it is given.")
    if len(entries) != len(prompt) + len(branch):
        raise other_prompt(len(prompt) + len(branch), len(entries))
    scores = []
    for token, entry in zip(branch, entries[len(prompt) :], strict=True):
        own = (entry or {}).get(str(token))
        if own is None:
            raise BadAnswer(f"The engine scored other tokens than those that were sent: {token} is missing.")
        scores.append(log_probability(own["logprob"]))
    return tuple(scores)


def log_probability(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadAnswer(
            f"The engine gave {value!r} as a log-probability.",
            "Nothing can be learned from it; look for overflow in the engine (its dtype, a broken adapter).",
        )
    return float(value)


def finish_reason(reason: Any) -> FinishReason:
    if reason not in _REASONS:
        raise BadAnswer(f"The engine ended a sample for the reason {reason!r}; known: {', '.join(_REASONS)}.")
    return _REASONS[reason]


def require_same_prompt(echoed: Any, prompt: Tokens) -> None:
    if echoed is not None and tuple(echoed) != tuple(prompt):
        raise other_prompt(len(prompt), len(echoed))


def other_prompt(sent: int, used: int) -> BadAnswer:
    return BadAnswer(
        f"The engine read a prompt of {used} tokens where {sent} were sent, or other tokens.",
        "It must neither add special tokens nor cut prompts.",
    )
