"""What engines are asked and what they answer: pure functions between our types and the bodies of their routes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.models.errors import BadAnswer

# What engines answer, taken apart and checked: whatever contradicts the request is a BadAnswer that says so.


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


# What engines are asked and what they answer: pure functions between our types and the bodies of their routes.
#
# * `Completions`: `POST /v1/completions` with token ids in and out, as vLLM documents it. One request per prompt.
# * `Together`: the same route of our own server, which draws by (seed, prompt index, sample) and takes all prompts at once.
# * `TokensInOut`: vLLM's `POST /inference/v1/generate`, which also says under which weights each token was drawn.
#
# Servers fill in their own defaults (top-p and the like from the checkpoint's generation config, the end-of-text token as a
# stop): every request states all that shapes the distribution, and that only our stop ids end a sample.


_PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, slots=True)
class RouteCall:
    """One request. prompts: the indices of the prompts that it samples from, or of the sequences that it scores."""

    path: str
    body: dict[str, Any]
    prompts: tuple[int, ...]


class Wire(Protocol):
    """How one kind of server is spoken to. `name`: of the weights or adapter that are to answer."""

    @property
    def scores_at_any_temperature(self) -> bool: ...

    @property
    def id_form(self) -> str:
        """What the engine makes of the id that a request names itself by: what ends a request has to name that."""
        ...

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[RouteCall]: ...

    def drawn(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], params: SamplingParams
    ) -> list[list[Drawn]]:
        """For each of the call's prompts its samples. One call may hold a part of a prompt's samples."""
        ...

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[RouteCall]:
        """branches[i] is scored behind prompts[i]."""
        ...

    def scored(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        """For each of the call's sequences the log-probability of each token of its branch."""
        ...


@dataclass(frozen=True, slots=True)
class Completions:
    path: str = "/v1/completions"
    id_form: str = "cmpl-{}-0"
    scores_at_any_temperature: bool = False

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[RouteCall]:
        return [
            RouteCall(
                self.path,
                {
                    "model": name,
                    "prompt": list(prompt),
                    "return_token_ids": True,
                    **_sampling(params, derived_seed(params.seed, index)),
                },
                (index,),
            )
            for index, prompt in enumerate(prompts)
        ]

    def drawn(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], params: SamplingParams
    ) -> list[list[Drawn]]:
        choices = choices_of(answer, len(call.prompts) * params.n)
        for position, index in enumerate(call.prompts):
            for choice in choices[position * params.n : (position + 1) * params.n]:
                require_same_prompt(choice.get("prompt_token_ids", answer.get("prompt_token_ids")), prompts[index])
        samples = [as_drawn(choice, completion_logprobs(choice)) for choice in choices]
        return [samples[k * params.n : (k + 1) * params.n] for k in range(len(call.prompts))]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[RouteCall]:
        return [
            RouteCall(self.path, {"model": name, "prompt": [*prompt, *branch], **_SCORING}, (index,))
            for index, (prompt, branch) in enumerate(zip(prompts, branches, strict=True))
        ]

    def scored(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        choices = choices_of(answer, len(call.prompts))
        return [
            prompt_logprobs(choice.get("prompt_logprobs"), prompts[index], branches[index])
            for choice, index in zip(choices, call.prompts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Together(Completions):
    """All prompts in one request, so that the in-process model behind the server batches them and draws as it always does."""

    id_form: str = "{}"
    scores_at_any_temperature: bool = True

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[RouteCall]:
        body = {
            "model": name,
            "prompt": [list(p) for p in prompts],
            "return_token_ids": True,
            **_sampling(params, params.seed),
        }
        return [RouteCall(self.path, body, tuple(range(len(prompts))))]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[RouteCall]:
        body = {
            "model": name,
            "prompt": [[*p, *b] for p, b in zip(prompts, branches, strict=True)],
            **_SCORING,
            "max_tokens": 0,
            # Where each prompt ends: sequences with one prompt are then branches of one row, as in process.
            "vllm_xargs": {
                "prompt_logprobs_start": [len(p) for p in prompts],
                "prompt_logprobs_temperature": temperature,
            },
        }
        return [RouteCall(self.path, body, tuple(range(len(prompts))))]


@dataclass(frozen=True, slots=True)
class TokensInOut:
    path: str = "/inference/v1/generate"
    id_form: str = "generate-tokens-{}"
    scores_at_any_temperature: bool = False

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[RouteCall]:
        return [
            RouteCall(
                self.path,
                {
                    "model": name,
                    "token_ids": list(prompt),
                    "sampling_params": _sampling(params, derived_seed(params.seed, index)),
                },
                (index,),
            )
            for index, prompt in enumerate(prompts)
        ]

    def drawn(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], params: SamplingParams
    ) -> list[list[Drawn]]:
        choices = choices_of(answer, params.n)
        require_same_prompt(answer.get("prompt_token_ids"), prompts[call.prompts[0]])
        return [[as_drawn(choice, chat_logprobs(choice)) for choice in choices]]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[RouteCall]:
        return [
            RouteCall(
                self.path, {"model": name, "token_ids": [*prompt, *branch], "sampling_params": _SCORING}, (index,)
            )
            for index, (prompt, branch) in enumerate(zip(prompts, branches, strict=True))
        ]

    def scored(
        self, call: RouteCall, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        choices_of(answer, 1)
        index = call.prompts[0]
        return [prompt_logprobs(answer.get("prompt_logprobs"), prompts[index], branches[index])]


def derived_seed(*parts: int) -> int:
    """A seed below 2**31 of its own for each (seed, prompt index, ...): equal prompts in one batch must not draw alike."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (2**31 - 2**16)  # engines add the sample's number to it


def _shaped(params: SamplingParams) -> dict[str, Any]:
    """What shapes the distribution, all of it."""
    return {**_PLAIN, "temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k or -1}


def _sampling(params: SamplingParams, seed: int) -> dict[str, Any]:
    return {
        **_shaped(params),
        "n": params.n,
        "max_tokens": params.max_tokens,
        "seed": seed,
        "stop_token_ids": sorted(params.stop_ids),
        "ignore_eos": True,
        "logprobs": 1,
        "skip_special_tokens": False,
    }


# One token must be drawn for the prompt to be scored: it is thrown away.
_SCORING = {**_PLAIN, "n": 1, "max_tokens": 1, "temperature": 0.0, "ignore_eos": True, "prompt_logprobs": 1}
