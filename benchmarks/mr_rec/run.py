"""MR.Rec in small: how well the wanted item ranks, by what is asked of a user's memory.

    python -m benchmarks.mr_rec.run [--data FOLDER] [--read 60]

--data: a folder with ratings and items (`keepworth.tasks.ratings`, MovieLens' files among them); without it a world that
the study makes by seed. Users of the training side teach; one request of each user of the test side is asked
once. --read: of how many of these SmolLM2-135M, frozen, says the ideal item from the lines of memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from keepworth.episodes.model import SamplingParams
from keepworth.evaluation.statistics import estimate, paired_difference
from keepworth.learning.run_folder import versions
from keepworth.methods.studies._made_ratings import write
from keepworth.methods.studies.mr_rec import (
    MOST,
    GlobalMemory,
    Recommendation,
    asking,
    chance,
    crossed,
    ideal_prompt,
    rank_reward,
    requests,
    train_asking,
)
from keepworth.tasks.ratings import ratings

OUT = Path(__file__).parent / "mr_rec.json"
SEEDS = (0, 1, 2)
Floats = np.ndarray[Any, np.dtype[np.float64]]
MODEL = "smollm2-135m-instruct"


def top(values: Floats) -> tuple[int, ...]:
    return tuple(int(place) for place in np.argsort(-values, kind="stable")[:MOST])


def recent(each: Recommendation) -> Floats:
    """The aspects of the item that the user last rated above their usual."""
    liked = [one.item for one in each.request.history if one.rating > each.local.usual]
    own = set(each.items[liked[-1]].categories) if liked else set()
    return np.array([float(name in own) for name in each.aspects])


RULES: dict[str, Callable[[Recommendation], float]] = {
    "most popular": lambda each: each.rank(np.zeros(len(each.aspects))),
    "like the last one liked": lambda each: each.rank(recent(each)),
    "user's mean of every aspect": lambda each: each.rank(each.stances),
    "strongest stances": lambda each: each.rank(each.ideal(top(np.abs(each.stances)))),
    "global memory": lambda each: each.rank(each.ideal(top(each.x[:, 0]))),
}


def minilm() -> Any:
    from keepworth.models.encoders import encoder
    from keepworth.models.kept_vectors import KeptVectors

    return KeptVectors(encoder("minilm"), Path("runs") / "mr_rec")


def read(asked: list[Recommendation], slates: list[tuple[int, ...]]) -> dict[str, list[float]]:
    """Ranks by what the frozen model says, with the lines of memory and without them."""
    import torch

    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    torch.set_num_threads(1)
    model = InProcessModel.load(path_of(MODEL, kind=ModelKind.LANGUAGE), name=MODEL, precision="bf16")
    words, greedy = minilm(), SamplingParams(24, temperature=0.0, stop_ids=model.stop_ids_for("\n"))
    found = {}
    for name, lines in (
        ("SmolLM2-135M says it, without memory", [() for _ in asked]),
        ("SmolLM2-135M says it", [each.lines(slate) for each, slate in zip(asked, slates, strict=True)]),
    ):
        prompts = [model.encode(ideal_prompt(each.request, own)) for each, own in zip(asked, lines, strict=True)]
        answers = [model.decode(sample.ids).strip() for (sample,) in model.sample(prompts, greedy)]
        print(name, answers[:3], flush=True)
        found[name] = [
            each.rank_by_description(answer or each.request.scenario, words)
            for each, answer in zip(asked, answers, strict=True)
        ]
    return found


def measured(folder: Path, many: int) -> dict[str, Any]:
    of = ratings(folder)
    training, test = requests(of, "train"), requests(of, "test")
    memory, taught = GlobalMemory(training, of), crossed(training, of)
    asked = [Recommendation(request, of.items, memory) for request in test]
    ranks: dict[str, Any] = {name: [rule(each) for each in asked] for name, rule in RULES.items()}
    slates: list[tuple[int, ...]] = []
    for name, permuted, first in (
        ("learned", False, 4.0),
        ("learned, rewards permuted", True, 4.0),
        ("learned from nothing", False, 0.0),
        ("learned from nothing, rewards permuted", True, 0.0),
    ):
        seeds = []
        for seed in SEEDS:
            policy = train_asking(taught, seed=seed, permuted=permuted, first=first)
            own = [asking(policy, each.x) for each in asked]
            slates = slates or own
            seeds.append([each.rank(each.ideal(slate)) for each, slate in zip(asked, own, strict=True)])
        ranks[name] = seeds
    words = minilm()
    ranks["learned, in words, by MiniLM"] = [
        each.rank_by_description(each.described(slate), words) for each, slate in zip(asked, slates, strict=True)
    ]
    if (folder / "truth.json").exists():
        truth = json.loads((folder / "truth.json").read_text())
        ranks["told what decides"] = [
            each.rank(each.ideal([each.aspects.index(name) for name in truth[each.request.scenario]])) for each in asked
        ]
    ranks["oracle of asking"] = [each.rank(each.ideal(each.best_slate())) for each in asked]
    score = {
        name: np.mean([[rank_reward(rank) for rank in seed] for seed in (own if isinstance(own[0], list) else [own])], axis=0)
        for name, own in ranks.items()
    }  # fmt: skip
    score["chance"] = np.array([chance(len(each.request.candidates)) for each in asked])
    rows = [_row(name, list(values)) for name, values in score.items()]
    gaps = [
        _gap(one, other, score)
        for one, other in (
            *(("learned", name) for name in (*RULES, "learned, rewards permuted")),
            ("learned from nothing", "learned from nothing, rewards permuted"),
            ("learned from nothing", "global memory"),
            *((name, "learned") for name in ("told what decides", "oracle of asking")),
        )
        if one in score
    ]
    told: dict[str, Any] = {}
    if many:
        few = {name: [rank_reward(rank) for rank in own] for name, own in read(asked[:many], slates[:many]).items()}
        few |= {name: list(score[name][:many]) for name in ("learned, in words, by MiniLM", "chance")}
        told = {"requests": len(asked[:many]), "model": MODEL, "rows": [_row(name, own) for name, own in few.items()]}
        both = {name: np.array(own) for name, own in few.items()}
        one, other = "SmolLM2-135M says it", "SmolLM2-135M says it, without memory"
        told["gaps"] = [_gap(one, other, both), _gap(one, "chance", both)]
    return {
        "users": len(of.by_user), "items": len(of.items), "training": len(training), "requests": len(asked),
        "candidates": float(np.mean([len(each.request.candidates) for each in asked])), "seeds": len(SEEDS),
        "rows": rows, "gaps": gaps, "read": told,
    }  # fmt: skip


def _row(name: str, values: list[float]) -> dict[str, Any]:
    each = estimate(values)
    return {"arm": name, "ndcg": each.mean, "low": each.low, "high": each.high, "n": each.n}


def _gap(one: str, other: str, score: dict[str, Any]) -> dict[str, Any]:
    gap = paired_difference(f"{one} - {other}", list(score[one] - score[other]))
    return {"arm": one, "minus": other, "difference": gap.difference, "low": gap.low, "high": gap.high, "p": gap.p}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--read", type=int, default=60)
    parser.add_argument(
        "--output", type=Path, help="default: with --data mr_rec.json in this folder, else the table of the docs"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as made:
        record = measured(options.data or write(Path(made)), options.read)
    record |= {"world": "by --data" if options.data else "made, seed 0", "command": "python -m benchmarks.mr_rec.run",
               "versions": versions()}  # fmt: skip
    for rows in (record["rows"], record["read"].get("rows", [])):
        print(markdown(("arm", "1 / log2(1 + rank)"),
                       [(row["arm"], f"{row['ndcg']:.3f} ({row['low']:.3f} to {row['high']:.3f})") for row in rows]))  # fmt: skip
    for gap in (*record["gaps"], *record["read"].get("gaps", [])):
        print(f"{gap['arm']} - {gap['minus']}: {gap['difference']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]")
    output = options.output or (Path(OUT.name) if options.data else OUT)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
