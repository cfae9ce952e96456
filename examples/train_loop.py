"""A training loop by hand: a memory is searched, a small model answers from what it is shown, and one reward teaches both.

    python train_loop.py [UPDATES]

`keepworth.train(...)` does the same with resuming, evaluation, asynchrony and a run's folder. Here every step stands in the open:
search, prompt, sample, reward, advantage, gradient, and the weights at the end as an adapter that PEFT loads.
"""

from __future__ import annotations

import sys
from pathlib import Path

from keepworth import Memory
from keepworth.base.model_files import path_of
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Group, RewardTerm, Sample, SamplingParams, Segment, StopReason
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.presets import preset

UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 3
ANSWERS = 8  # to each question, of which the better ones are made likelier
NOTES = [
    "The printer on floor two is called Heron.",
    "The printer on floor two was called Finch until May.",
    "The key of the archive is with Marta.",
    "The key of the archive was with Jonas last year.",
]
TASKS = [
    ("What is the printer on floor two called?", "Heron"),
    ("Who has the key of the archive?", "Marta"),
]


def prompt_of(model: InProcessModel, note: str, question: str) -> tuple[int, ...]:
    """In the model's own format of a conversation, as ids: what is drawn behind them is never decoded and encoded again."""
    return model.chat.opening([{"role": "user", "content": f"Note: {note}\n{question} Answer with one word."}])


def reward_of(answer: str, right: str) -> float:
    """1 for the right word alone, less where more is said, 0 without it."""
    words = answer.split()
    return 1 / max(1, len(words)) if any(right in word for word in words) else 0.0


def episode_of(name: str, number: int, prompt: tuple[int, ...], sample: Sample, text: str, reward: float) -> Episode:
    """What the learner reads: the ids that were drawn, with their log-probabilities, and what they earned."""
    drawn = Segment("policy", "note", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, text)
    return Episode(
        id=f"{name}#{number}",
        task=name,
        role="policy",
        question=name,
        segments=(drawn,),
        answer=text,
        expected=(),
        rewards=(RewardTerm("right", reward),),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=sample.spans[0].version,
    )


def main() -> None:
    memory = Memory("loop.mem", encoder="hashing", seed=1)
    memory.add_many(NOTES)

    model = InProcessModel.load(path_of("smollm2-135m-instruct"))  # fetched once
    named = attach_lora(model, rank=8)
    objective = preset("rloo")  # each answer against the mean of the others to its question
    learner = Learner(model, named, objective, Optimisation(learning_rate=1e-3), role="policy")

    for update in range(1, UPDATES + 1):
        searches = [memory.search(question, top_k=1) for question, _ in TASKS]
        prompts = [
            prompt_of(model, hits[0].text, question) for hits, (question, _) in zip(searches, TASKS, strict=True)
        ]
        params = SamplingParams(max_tokens=10, n=ANSWERS, seed=update, stop_ids=model.chat.stop_ids)
        groups, rewards = [], []
        for hits, (question, right), prompt, samples in zip(
            searches, TASKS, prompts, model.sample(prompts, params), strict=True
        ):
            texts = [model.decode(sample.ids).strip() for sample in samples]
            earned = [reward_of(text, right) for text in texts]
            groups.append(
                Group(
                    question,
                    "",
                    tuple(
                        episode_of(question, number, prompt, sample, text, reward)
                        for number, (sample, text, reward) in enumerate(zip(samples, texts, earned, strict=True))
                    ),
                )
            )
            memory.reward(hits.decision, sum(earned) / len(earned))  # which note is worth showing
            rewards += earned
        learned = learner.update(groups)  # which answer is worth giving
        norm = learned.get("gradient_norm", 0.0)
        print(f"update {update}: reward {sum(rewards) / len(rewards):.2f}, gradient {norm:.2f}", flush=True)

    save_trained(model, named, Path("adapter"))
    print(f"the adapter after {UPDATES} updates is in {Path('adapter')}")


if __name__ == "__main__":
    main()
