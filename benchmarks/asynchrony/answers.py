"""Real answers of smollm2-135m-instruct to real prompts, and how long each was: what the studies of length are made from.

Four kinds of prompts, each in the model's chat format: arithmetic problems (GSM8K), sentences with a blank and opening messages
(from LongMemEval's conversations, at most one message for each of its questions), and LongMemEval's questions behind three
windows of memory. Each is answered several times at temperature 1, to its end or to `LONGEST` tokens. Only the lengths are kept.

Writes answers.json after every batch, and goes on where it stopped.

    python -m benchmarks.asynchrony.answers
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from benchmarks.asynchrony.setting import HERE, small, write
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.episodes.model import Tokens
from keepworth.models.inprocess import InProcessModel

PROMPTS, SAMPLES, LONGEST = 120, 6, 256
BATCH = 16
"""Prompts that are answered together."""
PATH = HERE / "answers.json"
KINDS = ("problem", "sentence", "opening", "recall")


def texts() -> dict[str, dict[str, str]]:
    """What the model is asked, by kind and by the task's key."""
    from keepworth.tasks.arithmetic import arithmetic
    from keepworth.tasks.cloze import training_cloze
    from keepworth.tasks.entries import candidates
    from keepworth.tasks.longmemeval import longmemeval

    questions = longmemeval("train")
    openings = {f"opening/{task.key}": next(t.text for t in task.sessions[0].turns) for task in questions}
    recalled = {}
    for task in questions[-PROMPTS:]:
        shown = "\n".join(f"- {entry.text}" for entry in candidates(task, 3, 0))
        recalled[task.key] = f"What you remember:\n{shown}\n\n{task.input}"
    return {
        "problem": {task.key: task.input for task in arithmetic("gsm8k", "train")[:PROMPTS]},
        "sentence": {task.key: task.input for task in training_cloze(limit=PROMPTS)},
        "opening": dict(list(openings.items())[:PROMPTS]),
        "recall": recalled,
    }


def prompts(model: InProcessModel) -> dict[str, dict[str, Tokens]]:
    """The same, as tokens in the model's chat format."""
    return {
        kind: {key: model.chat.opening([{"role": "user", "content": text}]) for key, text in own.items()}
        for kind, own in texts().items()
    }


def recorded() -> dict[str, dict[str, list[int]]]:
    """Tokens of each recorded answer, with its end mark, by kind and task; raises SystemExit where none are recorded."""
    if not PATH.exists():
        raise SystemExit(f"{PATH.name} is missing: run `python -m benchmarks.asynchrony.answers`")
    lengths: dict[str, dict[str, list[int]]] = json.loads(PATH.read_text())["lengths"]
    return lengths


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    model = small()
    model.token_budget = 1 << 20  # the whole batch at once: a step of many sequences costs little more than one of few
    params = SamplingParams(LONGEST, n=SAMPLES, stop_ids=model.chat.stop_ids, seed=1)
    found: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"machine": setting, "lengths": {}}
    found |= {"model": model.name, "samples": SAMPLES, "longest": LONGEST, "temperature": params.temperature}
    asked = prompts(model)
    for first in range(0, PROMPTS, BATCH):
        for kind in KINDS:
            done: dict[str, list[int]] = found["lengths"].setdefault(kind, {})
            keys = [key for key in list(asked[kind])[first : first + BATCH] if key not in done]
            if not keys:
                continue
            begun = time.perf_counter()
            drawn = model.sample([asked[kind][key] for key in keys], params)
            for key, samples in zip(keys, drawn, strict=True):
                done[key] = [len(each.ids) for each in samples]
            write(PATH.name, found)
            tokens = sum(sum(done[key]) for key in keys)
            print(f"{kind:9} {len(done):4} prompts, {tokens / (time.perf_counter() - begun):4.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
