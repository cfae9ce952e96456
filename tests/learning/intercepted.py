"""A model that says what a script says, and rollouts of programs that call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from keepworth.models.text_side import TextSide
from keepworth.records import Episode, FinishReason, Sample, Task
from keepworth.records.model import SamplingParams, Tokens, VersionSpan
from keepworth.training.interception import ProgramAgent, RolloutLimits
from keepworth.training.programs import program_of
from keepworth.training.rewards import scoring
from keepworth.worlds.driver import Play, play
from keepworth.worlds.own import own_tasks
from keepworth.worlds.question import JudgedQuestion
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% for c in m.get('tool_calls') or [] %}<tool_call>{{ c['function'] | tojson }}</tool_call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_chat_model(folder: Path) -> Path:
    """A tiny checkpoint with a chat template that takes tools."""
    write_tiny_checkpoint(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


class Scripted(TextSide):
    """Draws what `script` says to the text of a prompt, and keeps what it drew. A text that is longer than the limit is cut."""

    def __init__(self, folder: Path, script: Callable[[str], str]) -> None:
        text = TextSide.load(write_chat_model(folder), "tiny")
        super().__init__(text.tokenizer, "tiny", context_limit=text.context_limit)
        self.script = script
        self.drawn: list[tuple[Tokens, Tokens, tuple[float, ...]]] = []

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        return [[self._sample(prompt, params) for _ in range(params.n)] for prompt in prompts]

    def score(self, *given: Any) -> Any:
        raise NotImplementedError

    def _sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        said = self.script(self.tokenizer.decode(list(prompt)))
        ids = (*self.encode_continuation(said), self.tokenizer.eos_token_id)
        finish = FinishReason.LENGTH if len(ids) > params.max_tokens else FinishReason.STOP
        ids = ids[: params.max_tokens]
        logprobs = tuple(-0.5 - 0.001 * place for place in range(len(ids)))
        self.drawn.append((prompt, ids, logprobs))
        return Sample(ids, logprobs, finish, (VersionSpan(0, 0, len(ids)),))


def rollouts(
    model: Scripted,
    agent: Any,
    rows: Sequence[dict[str, Any]] = ({"prompt": "What is 3 + 4?", "answer": "7"},),
    reward: Any = "exact_match",
    **limits: Any,
) -> list[Episode]:
    """One episode of each row, played by a program."""
    tasks = own_tasks([{**row, "split": "train"} for row in rows]).by_split["train"]
    program = program_of(agent)
    assert program is not None
    allowed = RolloutLimits(**{"max_tokens": 200, "calls": 8, "seconds": 20.0, **limits})

    def made(task: Task, memory: Any) -> ProgramAgent:
        return ProgramAgent(program, task, model.name, "policy", "auto", allowed)

    score = scoring(reward)
    how = Play(lambda task: JudgedQuestion(score), made)
    return [episode for group in play(model, tasks, how) for episode in group.episodes]  # type: ignore[arg-type]
