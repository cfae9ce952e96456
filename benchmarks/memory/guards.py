"""Whether a memory that learns does harm where rewards say nothing, or lie: the default policy beside `policy=None`.

    python -m benchmarks.memory.guards --data path/to/banking77 --out benchmarks/memory/guards.json

A memory holds ten labelled customer queries of each of 77 intents (BANKING77, Casanueva et al. 2020, CC BY 4.0). Other queries
come one after the other, the same ones in both arms: few of them asked again and again, where there is something to learn, or
many of them asked a few times; the agent takes the intent that most of the items shown have (the best
ranked wins a tie), and it is right or wrong. What memory is told is the truth, nothing, always 1, the reward of an earlier
query drawn at random, or the truth with one in five turned round. A pair of runs is a draw of items and queries; intervals are
over draws.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from keepworth import Memory
from keepworth.defaults import encoder as encoder_named
from keepworth.environments.data_sets import labelled_table
from keepworth.episodes.model import Encoder
from keepworth.evaluation.statistics import paired_difference

CONDITIONS = ("true", "absent", "constant", "permuted", "flipped")
PER_INTENT = 10
WORLDS = ((20, 2000), (500, 1000))
"""How many different queries are asked, and how often in all."""


class Remembered:
    """An encoder that encodes each text once, as all runs hold the same ones."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._known = encoder, dict[str, npt.NDArray[np.float32]]()
        self.identity = encoder.identity

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._encoder.encode(fresh), strict=True))
        return np.stack([self._known[text] for text in texts])


def drawn(folder: Path, seed: int, length: int, distinct: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Items and queries, of the training half."""
    generator = np.random.default_rng([101, seed])
    pairs = labelled_table(folder / "train.csv.gz")
    order = [pairs[place] for place in generator.permutation(len(pairs))]
    items, rest, counts = [], [], dict[str, int]()
    for text, intent in order:
        counts[intent] = counts.get(intent, 0) + 1
        (items if counts[intent] <= PER_INTENT else rest).append((text, intent))
    asked = rest[:distinct]
    picked = [asked[int(place)] for place in generator.integers(len(asked), size=length)]
    return items, picked


def run(
    encoder: Remembered,
    items: list[tuple[str, str]],
    queries: list[tuple[str, str]],
    condition: str,
    top_k: int,
    seed: int,
    policy: str | None,
) -> list[float]:
    generator = np.random.default_rng([102, seed])
    options = {} if policy is None else {"seed": seed}
    right, past = [], list[float]()
    with Memory(encoder=encoder, policy=policy, **options) as memory:  # type: ignore[arg-type]
        intents = {
            item.id: intent
            for item, (_, intent) in zip(memory.add_many([text for text, _ in items], repeat=True), items, strict=True)
        }
        for text, intent in queries:
            hits = memory.search(text, top_k=top_k)
            votes = [intents[hit.id] for hit in hits]
            taken = max(dict.fromkeys(votes), key=votes.count) if votes else ""
            success = float(taken == intent)
            right.append(success)
            past.append(success)
            told = {
                "true": success,
                "constant": 1.0,
                "permuted": past[int(generator.integers(len(past)))],
                "flipped": 1.0 - success if generator.random() < 0.2 else success,
            }
            if policy is not None and condition != "absent":
                memory.reward(hits.decision, told[condition])
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of BANKING77")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/memory/guards.json"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--encoder", default="minilm")
    options = parser.parse_args()
    encoder = Remembered(encoder_named(options.encoder))
    rows = []
    for distinct, length in WORLDS:
        for top_k in (1, 4):
            gains: dict[str, list[float]] = {condition: [] for condition in CONDITIONS}
            plain = []
            for seed in range(options.seeds):
                started = time.monotonic()
                items, queries = drawn(options.data, seed, length, distinct)
                base = run(encoder, items, queries, "absent", top_k, seed, None)
                plain.append(100.0 * float(np.mean(base)))
                for condition in CONDITIONS:
                    found = run(encoder, items, queries, condition, top_k, seed, "default")
                    gains[condition].append(100.0 * float(np.mean(found) - np.mean(base)))
                print(
                    f"{distinct} queries, top_k {top_k}, draw {seed + 1}: {time.monotonic() - started:.0f} s",
                    flush=True,
                )
            for condition, values in gains.items():
                each = paired_difference(condition, values)
                rows.append(
                    {
                        "distinct": distinct,
                        "length": length,
                        "top_k": top_k,
                        "rewards": condition,
                        "plain": float(np.mean(plain)),
                        "gain": each.difference,
                        "low": each.low,
                        "high": each.high,
                        "n": options.seeds,
                    }
                )
                print(f"  {condition}: {each.difference:+.2f} [{each.low:+.2f}, {each.high:+.2f}]", flush=True)
    facts = {
        "command": f"python -m benchmarks.memory.guards --data banking77 --seeds {options.seeds}",
        "encoder": encoder.identity.model,
        "versions": {name: version(name) for name in ("numpy", "scipy")},
        "rows": rows,
    }
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
