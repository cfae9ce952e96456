"""What the arms of the study of serving cost in answers: how many greedy ones stay the same, and how many are right.

    python -m benchmarks.serving.accuracy [greedy] [drawn]
    python -m benchmarks.serving.page

The questions are those of `benchmarks.serving.load`, all of them. An answer is right where it contains the words that count
as right. Slots and a kept beginning may change rounding alone. That this is so is seen in float64, where some answers are drawn
at temperature 1: there they are to be the same. In float32 sums over the vocabulary differ enough to be seen. Nothing is timed.

Writes accuracy.json after each way.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchrony.setting import small
from benchmarks.serving.load import ARMS, Clock, common, serve
from benchmarks.serving.requests import MOST_TOKENS, questions
from benchmarks.serving.servers import Arm, Servers
from benchmarks.speed.setting import MODEL, machine
from keepworth.episodes import SamplingParams
from keepworth.episodes.model import Tokens
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel, PartialSample
from keepworth.tasks.verifiers import contains_answer

PATH = Path(__file__).with_name("accuracy.json")
GREEDY = [arm for arm in ARMS if arm.slots != 4]
"""With 4 slots the computing is that of 16."""
IN_FLOAT64 = [arm for arm in GREEDY if not arm.rounded]
DRAWN = 8


def answers(servers: Servers, arm: Arm, prompts: Sequence[Tokens], temperature: float) -> list[list[int]]:
    stops = servers.model.stop_ids_for("\n")
    drafts = [
        PartialSample(prompt, SamplingParams(MOST_TOKENS, temperature=temperature, seed=seed, stop_ids=stops), (0, 0))
        for seed, prompt in enumerate(prompts)
    ]
    with servers.open(arm) as server:
        serve(server, drafts, [0.0] * len(drafts), Clock())
    return [each.ids for each in drafts]


def beside(own: Sequence[Sequence[int]], alone: Sequence[Sequence[int]]) -> dict[str, int]:
    """How many answers, and how many tokens before the first that differs, are what they are alone."""
    pairs = list(zip(own, alone, strict=True))
    return {
        "answers": len(pairs),
        "same_answers": sum(list(a) == list(b) for a, b in pairs),
        "tokens": sum(len(b) for _, b in pairs),
        "same_tokens": sum(common(a, b) for a, b in pairs),
    }


def changed(own: Sequence[bool], before: Sequence[bool]) -> dict[str, int]:
    """Right answers, those that became right, and those that became wrong."""
    pairs = list(zip(own, before, strict=True))
    return {
        "right": sum(own),
        "gained": sum(a and not b for a, b in pairs),
        "lost": sum(b and not a for a, b in pairs),
    }


def greedy(result: dict[str, Any]) -> None:
    servers = Servers(small())
    asked = questions(servers.model)
    alone: list[list[int]] = []
    right: list[bool] = []
    for arm in GREEDY:
        own = answers(servers, arm, [each.prompt for each in asked], 0.0)
        said = [servers.model.decode(ids) for ids in own]
        good = [contains_answer(text, each.gold) > 0 for text, each in zip(said, asked, strict=True)]
        alone, right = alone or own, right or good
        result["greedy"][arm.name] = {**beside(own, alone), **changed(good, right)}
        _write(arm, "greedy", result)


def drawn(result: dict[str, Any]) -> None:
    servers = Servers(InProcessModel.load(path_of(MODEL), name=MODEL, precision="fp64"))
    prompts = [each.prompt for each in questions(servers.model)[:DRAWN]]
    alone: list[list[int]] = []
    for arm in IN_FLOAT64:
        own = answers(servers, arm, prompts, 1.0)
        alone = alone or own
        result["drawn"][arm.name] = beside(own, alone)
        _write(arm, "drawn", result)


PARTS = {"greedy": greedy, "drawn": drawn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named")
    parts = parser.parse_args().parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"there is no part {min(unknown)}: there are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    result: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {part: {} for part in PARTS}
    result |= {"machine": machine(1), "model": MODEL, **{part: {} for part in parts}}
    for part in parts:
        PARTS[part](result)


def _write(arm: Arm, part: str, result: dict[str, Any]) -> None:
    PATH.write_text(json.dumps(result, indent=1) + "\n")
    print(part, arm.name, result[part][arm.name], flush=True)


if __name__ == "__main__":
    main()
