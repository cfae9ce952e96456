"""A run folder with made-up numbers of the shape a real one has: for tests of what reads run folders, never for documentation."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from keepworth.records import Episode, Operation, OperationKind, ParseStatus, RewardTerm
from keepworth.records.episode import MemoryEvent, Shown
from keepworth.records.model import FinishReason, Sample, VersionSpan
from keepworth.training.run_folder import RunFolder
from tests.episode_of import call_of, episode_of

SCALES = {"f1": 1.0, "em": 0.8}
"""Of the metrics: what a mean of the first is worth in each."""
QUESTIONS = [  # what is asked, the right answer, the memory that holds it
    ("What degree did I graduate with?", "Business Administration", "I graduated in Business Administration."),
    ("How long is my daily commute to work?", "45 minutes", "My commute takes 45 minutes each way."),
    ("Where did I redeem a $5 coupon on coffee creamer?", "Target", "I redeemed a $5 coupon at Target on Sunday."),
    ("What is the name of the playlist I made?", "Summer Vibes", "I made a playlist called Summer Vibes."),
    ("</script><b>Which</b> play did I attend?", "The Glass Menagerie", "We went to see The Glass Menagerie."),
]


def sample_run(path: Path, *, steps: int = 45, finished: bool = True, group: int = 4) -> RunFolder:
    """The folder of an answerer's run of `steps` steps and a manager's of a third of that."""
    draw = random.Random(7)
    config = {
        "recipe": "memory_r1",
        "model": "smollm2-135m-instruct",
        "seed": 0,
        "answerer": {"steps": steps, "learning_rate": 1e-4, "group_size": group, "lora_rank": 16},
        "manager": {"steps": steps // 3, "warm_start": True, "data": None},
    }
    with RunFolder.create(path, config) as run:
        run.record_environment(threads=1, dtype="bfloat16")
        for step in range(0, steps + 1, 5):
            mean = 0.35 + 0.25 * (1 - math.exp(-step / 15)) + draw.uniform(-0.01, 0.01)
            _measure(run, step, "dev", {"with memory": mean})
        after = {"trained": 0.62, "no_memory": 0.08, "wrong_memory": 0.08, "oracle": 0.7}
        before = dict(
            zip(("untrained", *(f"{arm}_untrained" for arm in [*after][1:])), (0.35, 0.09, 0.07, 0.45), strict=True)
        )
        _measure(run, 0, "test", before)
        _measure(run, steps, "test", after)
        for step in range(1, steps + 1):
            grown = 1 - math.exp(-step / 15)
            f1, form = 0.28 + 0.3 * grown + draw.uniform(-0.08, 0.08), 0.02 + 0.01 * draw.random()
            rewards = {"reward": f1 + form, "reward/f1": f1, "reward/format": form}
            others = {"response_length": 9 - 4 * grown, "entropy": 1.4 - 0.7 * grown, "mismatch_mean": 0.004}
            seconds = {"seconds/sample": 2.0 + 0.4 * draw.random(), "seconds/reward": 0.2, "seconds/learn": 4.0}
            run.append_metrics(step, {"role": "answerer", **rewards, **others, **seconds})
            run.write_episodes(step, [_answer(draw, step, member, grown) for member in range(group)])
        for step in range(steps + 1, steps + 1 + steps // 3):
            numbers = {"reward": 0.4 + 0.1 * draw.random(), "invalid_operations": 0.2 * draw.random(), "entropy": 0.5}
            run.append_metrics(step, {"role": "manager", **numbers, "seconds/sample": 1.0, "seconds/learn": 2.0})
            run.write_episodes(step, [_manage(draw, step, member) for member in range(group)])
        with run.checkpoint(steps) as folder:
            (folder / "adapter.bin").write_bytes(b"x" * 64)
        if finished:
            answering = [
                {"arm": arm, "metric": metric, "mean": mean * scale, "n": 54}
                | {"low": mean * scale - 0.08, "high": mean * scale + 0.09}
                for metric, scale in SCALES.items()
                for arm, mean in {**before, **after}.items()
            ]
            untrained = {"arm": "untrained", "metric": "accuracy", "mean": 0.3, "n": 200}
            operations = [{**untrained, "low": 0.25, "high": 0.36}, {**untrained, "arm": "trained", "mean": 0.6}]
            note = "95 % intervals by bootstrap over questions."
            tables = [
                {"title": "Answerer: held-out questions", "note": note, "rows": answering},
                {"title": "Manager: operations on unseen names", "rows": operations},
            ]
            headline = "These numbers are invented, to look at the page."
            run.write_result({"title": "A made-up run", "headline": headline, "tables": tables})
    return run


def _measure(run: RunFolder, step: int, split: str, arms: dict[str, float]) -> None:
    for arm, mean in arms.items():
        for metric, scale in SCALES.items():
            low, high = scale * max(0.0, mean - 0.09), scale * mean + 0.09
            about: dict[str, Any] = {"arm": arm, "metric": metric, "role": "answerer", "split": split, "n": 54}
            run.append_eval(step, mean=scale * mean, low=low, high=high, **about)


def _answer(draw: random.Random, step: int, member: int, grown: float) -> Episode:
    question, expected, memory = QUESTIONS[step % len(QUESTIONS)]
    right = draw.random() < 0.3 + 0.5 * grown
    answer = expected if right else draw.choice(["I don't know", expected.split()[0], "The memory does not say."])
    f1 = 1.0 if right else 0.5 if answer == expected.split()[0] else 0.0
    sample = Sample((4, 5), (-0.1, -0.2), FinishReason.STOP, (VersionSpan(step, 0, 2),))
    others = ("user: Could you suggest some podcasts about history?", "assistant: Here are five ideas for a dinner.")
    texts = (f"[2023-05-20] user: {memory}", f"[2023-05-21] {others[0]}", f"[2023-05-02] {others[1]}")
    task, seconds = f"longmemeval/{step % len(QUESTIONS):08x}", {"sample": 0.2}
    about: dict[str, Any] = {"role": "answerer", "task": task, "question": question, "seconds": seconds}
    about |= {"answer": answer, "expected": (expected,), "policy_version": step}
    shown = tuple(Shown(f"s{step}:t{n}", 0.93 / n, text) for n, text in enumerate(texts, start=1))
    rewards = [RewardTerm("f1", f1), RewardTerm("format", 0.1, 0.2)]
    return episode_of(f"{step}-{member}", [call_of("answerer", (1, 2, 3), sample)], rewards, shown=shown, **about)


def _manage(draw: random.Random, step: int, member: int) -> Episode:
    right = draw.random() < 0.6
    kind = OperationKind.SUPERSEDE if right else OperationKind.ADD
    operation = Operation(kind, ("m3",) if right else (), "Lives in Lisbon since March.")
    event = MemoryEvent(operation, ParseStatus.OK if draw.random() < 0.9 else ParseStatus.INVALID, "applied")
    about: dict[str, Any] = {"task": f"facts/{step}", "question": "New fact: I moved to Lisbon in March."}
    about |= {"answer": f"{kind.value} m3", "expected": ("SUPERSEDE m3",), "policy_version": step, "role": "manager"}
    shown = (Shown("m3", 0.88, "Lives in Porto."), Shown("m1", 0.31, "Has a dog called Pim."))
    rewards = [RewardTerm("operation", float(right)), RewardTerm("valid", 1.0, 0.1)]
    return episode_of(f"{step}-{member}", rewards=rewards, shown=shown, operations=(event,), **about)
