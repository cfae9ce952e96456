"""Our side of `training_step`: one GRPO step per line of standard input, timed, until the input ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.speed.training_protocol import read_work, reward, serve

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.episode import Group
    from keepworth.records.model import Sample, Tokens


def groups(
    model: InProcessModel, name: str, prompts: Sequence[Tokens], drawn: Sequence[Sequence[Sample]]
) -> list[Group]:
    """The samples of each prompt as episodes, each with its reward. name: what their names begin with."""
    pairs = enumerate(zip(prompts, drawn, strict=True))
    return [_group(model, f"{name}/{number}", prompt, samples) for number, (prompt, samples) in pairs]


def _group(model: InProcessModel, name: str, prompt: Tokens, samples: Sequence[Sample]) -> Group:
    from keepworth.records.episode import Episode, Group, RewardTerm, Segment, StopReason

    episodes = []
    for index, sample in enumerate(samples):
        text = model.decode(sample.ids)
        segment = Segment(
            "policy", "excerpt", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, text
        )
        episodes.append(
            Episode(
                id=f"{name}#{index}",
                task=name,
                role="policy",
                question="",
                segments=(segment,),
                answer=text,
                expected=(),
                rewards=(RewardTerm("length", reward(text)),),
                stop=StopReason.MAX_TOKENS,
                memory_snapshot="",
                policy_version=model.version,
            )
        )
    return Group(name, "", tuple(episodes))


def main() -> None:
    work = read_work()
    import torch

    torch.set_num_threads(work.threads)
    from keepworth.models.adapter import attach_lora
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.model import SamplingParams
    from keepworth.training.learner import Learner, Optimisation
    from keepworth.training.objective.presets import preset

    model = InProcessModel.load(work.model, precision="bf16", device=work.device)
    named = attach_lora(model, rank=work.rank, alpha=2.0 * work.rank)
    # A group is learned from in one pass: the budget must hold it.
    group_tokens = max(len(model.encode(text)) for text in work.texts) + work.group * work.tokens
    optimisation = Optimisation(
        learning_rate=work.learning_rate,
        token_budget=max(2048, group_tokens),
        checkpointing="on" if work.recomputed else "auto",
    )
    learner = Learner(model, named, preset("grpo", kl=None), optimisation, "policy")

    def step(number: int) -> dict[str, float]:
        texts = work.batch(number)
        prompts = [model.encode(text) for text in texts]
        length = work.length(number)
        drawn = model.sample(prompts, SamplingParams(max_tokens=length, n=work.group, seed=number))
        assert {len(sample.ids) for samples in drawn for sample in samples} == {length}
        learned = learner.update(groups(model, str(number), prompts, drawn))
        return {"learning_seconds": learned["seconds/learn"], "trained_rows": learned["trained_rows"]}

    serve(step, {"trained_parameters": sum(value.numel() for value in named.values())})


if __name__ == "__main__":
    main()
