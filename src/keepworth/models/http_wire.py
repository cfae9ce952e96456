"""What engines are asked and what they answer: pure functions between our types and the bodies of their routes.

* `Completions`: `POST /v1/completions` with token ids in and out, as vLLM documents it. One request per prompt.
* `Together`: the same route of our own server, which draws by (seed, prompt index, sample) and takes all prompts at once.
* `TokensInOut`: vLLM's `POST /inference/v1/generate`, which also says under which weights each token was drawn.
* `Native`: SGLang's `POST /generate`.

Servers fill in their own defaults (top-p and the like from the checkpoint's generation config, the end-of-text token as a
stop): every request states that nothing but temperature shapes the distribution and that only our stop ids end a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.episodes.model import SamplingParams, Tokens
from keepworth.models.errors import BadAnswer
from keepworth.models.http_answers import (
    NO_LOGPROBS,
    Drawn,
    as_drawn,
    as_mapping,
    chat_logprobs,
    choices_of,
    completion_logprobs,
    finish_reason,
    log_probability,
    other_prompt,
    prompt_logprobs,
    require_same_prompt,
)

_PLAIN = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, slots=True)
class Call:
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

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[Call]: ...

    def drawn(self, call: Call, answer: Any, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Drawn]]:
        """For each of the call's prompts its samples. One call may hold a part of a prompt's samples."""
        ...

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[Call]:
        """branches[i] is scored behind prompts[i]."""
        ...

    def scored(
        self, call: Call, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        """For each of the call's sequences the log-probability of each token of its branch."""
        ...


@dataclass(frozen=True, slots=True)
class Completions:
    path: str = "/v1/completions"
    id_form: str = "cmpl-{}-0"
    scores_at_any_temperature: bool = False

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[Call]:
        return [
            Call(
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

    def drawn(self, call: Call, answer: Any, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Drawn]]:
        choices = choices_of(answer, len(call.prompts) * params.n)
        for position, index in enumerate(call.prompts):
            for choice in choices[position * params.n : (position + 1) * params.n]:
                require_same_prompt(choice.get("prompt_token_ids", answer.get("prompt_token_ids")), prompts[index])
        samples = [as_drawn(choice, completion_logprobs(choice)) for choice in choices]
        return [samples[k * params.n : (k + 1) * params.n] for k in range(len(call.prompts))]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[Call]:
        return [
            Call(self.path, {"model": name, "prompt": [*prompt, *branch], **_SCORING}, (index,))
            for index, (prompt, branch) in enumerate(zip(prompts, branches, strict=True))
        ]

    def scored(
        self, call: Call, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        choices = choices_of(answer, len(call.prompts))
        return [
            prompt_logprobs(choice.get("prompt_logprobs"), prompts[index], branches[index])
            for choice, index in zip(choices, call.prompts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Together:
    """All prompts in one request, so that the in-process model behind the server batches them and draws as it always does."""

    path: str = "/v1/completions"
    id_form: str = "{}"
    scores_at_any_temperature: bool = True

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[Call]:
        body = {
            "model": name,
            "prompt": [list(p) for p in prompts],
            "return_token_ids": True,
            **_sampling(params, params.seed),
        }
        return [Call(self.path, body, tuple(range(len(prompts))))]

    def drawn(self, call: Call, answer: Any, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Drawn]]:
        return Completions().drawn(call, answer, prompts, params)

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[Call]:
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
        return [Call(self.path, body, tuple(range(len(prompts))))]

    def scored(
        self, call: Call, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        return Completions().scored(call, answer, prompts, branches)


@dataclass(frozen=True, slots=True)
class TokensInOut:
    path: str = "/inference/v1/generate"
    id_form: str = "generate-tokens-{}"
    scores_at_any_temperature: bool = False

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[Call]:
        return [
            Call(
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

    def drawn(self, call: Call, answer: Any, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Drawn]]:
        choices = choices_of(answer, params.n)
        require_same_prompt(answer.get("prompt_token_ids"), prompts[call.prompts[0]])
        return [[as_drawn(choice, chat_logprobs(choice)) for choice in choices]]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[Call]:
        return [
            Call(self.path, {"model": name, "token_ids": [*prompt, *branch], "sampling_params": _SCORING}, (index,))
            for index, (prompt, branch) in enumerate(zip(prompts, branches, strict=True))
        ]

    def scored(
        self, call: Call, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        choices_of(answer, 1)
        index = call.prompts[0]
        return [prompt_logprobs(answer.get("prompt_logprobs"), prompts[index], branches[index])]


@dataclass(frozen=True, slots=True)
class Native:
    """One request per sample: SGLang advises against n above 1. Seeds hold where it runs deterministically."""

    path: str = "/generate"
    id_form: str = "{}"
    base: str = ""  # the served name of the base weights: other names are adapters
    scores_at_any_temperature: bool = False

    def sample_calls(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[Call]:
        settings = _PLAIN | {
            "max_new_tokens": params.max_tokens,
            "temperature": params.temperature,
            "stop_token_ids": sorted(params.stop_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
        }
        return [
            Call(
                self.path,
                {
                    "input_ids": list(prompt),
                    "return_logprob": True,
                    "sampling_params": {**settings, "sampling_seed": derived_seed(params.seed, index, sample)},
                    **self._adapter(name),
                },
                (index,),
            )
            for index, prompt in enumerate(prompts)
            for sample in range(params.n)
        ]

    def drawn(self, call: Call, answer: Any, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Drawn]]:
        found = as_mapping(answer).get("meta_info", {})
        entries = found.get("output_token_logprobs")
        if entries is None:
            raise BadAnswer("The engine's answer has no meta_info.output_token_logprobs.", NO_LOGPROBS)
        counted = found.get("prompt_tokens")
        if counted is not None and counted != len(prompts[call.prompts[0]]):
            raise other_prompt(len(prompts[call.prompts[0]]), counted)
        reason = found.get("finish_reason") or {}
        ids = tuple(int(entry[1]) for entry in entries)
        label = found.get("weight_versions") or ()
        return [
            [
                Drawn(
                    ids,
                    tuple(log_probability(entry[0]) for entry in entries),
                    finish_reason(reason.get("type")),
                    tuple((str(each["version"]), int(each["start"]), int(each["end"])) for each in label),
                )
            ]
        ]

    def score_calls(
        self, name: str, prompts: Sequence[Tokens], branches: Sequence[Tokens], temperature: float
    ) -> list[Call]:
        settings = {**_PLAIN, "max_new_tokens": 0, "temperature": 1.0}
        return [
            Call(
                self.path,
                {
                    "input_ids": [*prompt, *branch],
                    "return_logprob": True,
                    "logprob_start_len": 0,
                    "sampling_params": settings,
                    **self._adapter(name),
                },
                (index,),
            )
            for index, (prompt, branch) in enumerate(zip(prompts, branches, strict=True))
        ]

    def scored(
        self, call: Call, answer: Any, prompts: Sequence[Tokens], branches: Sequence[Tokens]
    ) -> list[tuple[float, ...]]:
        prompt, branch = prompts[call.prompts[0]], branches[call.prompts[0]]
        entries = as_mapping(answer).get("meta_info", {}).get("input_token_logprobs")
        if entries is None:
            raise BadAnswer("The engine's answer has no meta_info.input_token_logprobs.", NO_LOGPROBS)
        if [int(entry[1]) for entry in entries] != [*prompt, *branch]:
            raise other_prompt(len(prompt) + len(branch), len(entries))
        return [tuple(log_probability(entry[0]) for entry in entries[len(prompt) :])]

    def _adapter(self, name: str) -> dict[str, str]:
        return {} if name == self.base else {"lora_path": name}


def derived_seed(*parts: int) -> int:
    """A seed below 2**31 of its own for each (seed, prompt index, ...): equal prompts in one batch must not draw alike."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (2**31 - 2**16)  # engines add the sample's number to it


def _sampling(params: SamplingParams, seed: int) -> dict[str, Any]:
    return {
        **_PLAIN,
        "n": params.n,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "seed": seed,
        "stop_token_ids": sorted(params.stop_ids),
        "ignore_eos": True,
        "logprobs": 1,
        "skip_special_tokens": False,
    }


# One token must be drawn for the prompt to be scored: it is thrown away.
_SCORING = {**_PLAIN, "n": 1, "max_tokens": 1, "temperature": 0.0, "ignore_eos": True, "prompt_logprobs": 1}
