"""vLLM's token route, `POST /inference/v1/generate`: builds its requests and parses its answers, as pure functions.

Requests and answers hold ids. The server has defaults of its own (top-p from the checkpoint's generation config, the end-of-text
token as a stop), so every request sets everything that shapes the distribution, and only our stop ids end a sample. An answer
that contradicts the request raises a BadAnswer that says so."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from keepworth.base.model_errors import BadAnswer
from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan

ROUTE = "/inference/v1/generate"
_PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
# One token must be drawn for the prompt to be scored: it is thrown away.
_SCORING = {**_PLAIN, "n": 1, "max_tokens": 1, "temperature": 0.0, "ignore_eos": True, "prompt_logprobs": 1}
_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORTED}


def sampling_body(name: str, prompt: Tokens, params: SamplingParams, seed: int) -> dict[str, Any]:
    """Returns the request for the samples after a prompt.

    Args:
        name: The name of the weights or the adapter, as the engine knows it.
        prompt: The ids of the prompt.
        params: The distribution, the number of samples `n`, and where a sample ends.
        seed: The seed of the engine's random numbers for this request.
    """
    settings = {
        **_PLAIN,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "n": params.n,
        "max_tokens": params.max_tokens,
        "seed": seed,
        "stop_token_ids": sorted(params.stop_ids),
        "ignore_eos": True,
        "logprobs": 1,
        "skip_special_tokens": False,
    }
    return {"model": name, "token_ids": list(prompt), "sampling_params": settings}


def scoring_body(name: str, prompt: Tokens, branch: Tokens) -> dict[str, Any]:
    """Returns the request for the log-probabilities of a branch after a prompt.

    Args:
        name: The name of the weights or the adapter, as the engine knows it.
        prompt: The ids of the prompt.
        branch: The ids that are scored.
    """
    return {"model": name, "token_ids": [*prompt, *branch], "sampling_params": _SCORING}


def samples_in(answer: Any, prompt: Tokens, params: SamplingParams, version: int) -> list[Sample]:
    """Parses the samples of an answer. Raises BadAnswer for an answer that cannot be trained on, or that echoes another prompt.

    Args:
        answer: The JSON of the engine's answer.
        prompt: The ids that were sent.
        params: The parameters that were sent; the answer must hold `params.n` samples.
        version: The version of the weights in service when the request was made.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != params.n:
        count = len(choices) if isinstance(choices, list) else "no"
        raise BadAnswer(f"The engine gave {count} choices where {params.n} were asked for.")
    echoed = answer.get("prompt_token_ids")
    if echoed is not None and tuple(echoed) != tuple(prompt):
        raise _other_prompt(len(prompt), len(echoed))
    ordered = sorted(choices, key=lambda choice: int(choice.get("index", 0)))
    return [_sample(choice, params, version) for choice in ordered]


def _sample(choice: Mapping[str, Any], params: SamplingParams, version: int) -> Sample:
    ids, content = choice.get("token_ids"), (choice.get("logprobs") or {}).get("content")
    if ids is None or content is None:
        raise BadAnswer(
            f"The engine's answer has no {'token_ids' if ids is None else 'logprobs.content'}.",
            "It must return the id and the log-probability of each sampled token; see the documentation of its version.",
        )
    ids = tuple(int(token) for token in ids)
    logprobs = tuple(_log_probability(entry.get("logprob")) for entry in content)
    finish = _checked_finish(ids, logprobs, choice.get("finish_reason"), params)
    return Sample(ids, logprobs, finish, (VersionSpan(version, 0, len(ids)),) if ids else ())


def _checked_finish(ids: Tokens, logprobs: tuple[float, ...], reason: Any, params: SamplingParams) -> FinishReason:
    """Returns how the sample ended. Raises BadAnswer where counts, stops and reasons contradict each other."""
    if reason not in _REASONS:
        raise BadAnswer(f"The engine ended a sample for the reason {reason!r}; known: {', '.join(_REASONS)}.")
    if len(ids) != len(logprobs):
        raise BadAnswer(f"The engine drew {len(ids)} tokens and gave {len(logprobs)} log-probabilities.")
    if _REASONS[reason] is FinishReason.ABORTED:
        return FinishReason.ABORTED
    if not ids or len(ids) > params.max_tokens:
        raise BadAnswer(f"The engine drew {len(ids)} tokens where 1 to {params.max_tokens} were asked for.")
    if params.stop_ids.intersection(ids[:-1]):
        raise BadAnswer("The engine went on past a stop id.", "It must honour stop_token_ids.")
    if ids[-1] in params.stop_ids:
        return FinishReason.STOP  # also where the limit was reached at once: it chose to stop
    if _REASONS[reason] is FinishReason.STOP:
        raise BadAnswer(
            f"The engine stopped at token {ids[-1]}, which is no stop id of the request.",
            "Start it without stop strings or stop ids of its own; token ids must come back with the stop id.",
        )
    if len(ids) < params.max_tokens:
        raise BadAnswer(
            f"The engine ended a sample for its length after {len(ids)} of {params.max_tokens} tokens.",
            "Its context limit is shorter than its model card says: start it with a larger one.",
        )
    return FinishReason.LENGTH


def scores_in(answer: Any, prompt: Tokens, branch: Tokens) -> tuple[float, ...]:
    """Parses the log-probability of each token of a branch. Raises BadAnswer for an answer about other ids than those that were
    sent.

    Args:
        answer: The JSON of the engine's answer.
        prompt: The ids of the prompt that was sent.
        branch: The ids that were scored behind it.
    """
    entries = answer.get("prompt_logprobs") if isinstance(answer, dict) else None
    if entries is None:
        raise BadAnswer("The engine's answer has no prompt_logprobs.", "It must be able to score what it is given.")
    if len(entries) != len(prompt) + len(branch):
        raise _other_prompt(len(prompt) + len(branch), len(entries))
    scores = []
    for token, entry in zip(branch, entries[len(prompt) :], strict=True):
        scored = (entry or {}).get(str(token))
        if scored is None:
            raise BadAnswer(f"The engine scored other tokens than those that were sent: {token} is missing.")
        scores.append(_log_probability(scored["logprob"]))
    return tuple(scores)


def _log_probability(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadAnswer(
            f"The engine gave {value!r} as a log-probability.",
            "Nothing can be learned from it; look for overflow in the engine (its dtype, a broken adapter).",
        )
    return float(value)


def _other_prompt(sent: int, used: int) -> BadAnswer:
    return BadAnswer(
        f"The engine read a prompt of {used} tokens where {sent} were sent, or other tokens.",
        "It must neither add special tokens nor cut prompts.",
    )


def derive_seed(*parts: int) -> int:
    """Returns a seed below 2**31 for (seed, prompt index, ...), so that equal prompts in one batch are drawn differently."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (2**31 - 2**16)  # engines add the sample's number to it
