"""What the usual search finds, and whether its score tells what is known, with encoders whose cosines are on another scale.

    python -m benchmarks.memory.other_encoders --data DATA --vectors FOLDER --json benchmarks/memory/other_encoders.json

Three encoders: the default one; the same with one direction added to all texts, so that every cosine c becomes 0.7 + 0.3 c, as
with encoders that find everything alike; and the mean of the last hidden states of SmolLM2-135M-Instruct, which were never
trained for this and have a high background by nature. Each is searched twice: with its cosines put on the default encoder's
scale, as the memory does, and with them as they are. Pools are halves for development of `benchmarks.memory.finding`. Known from
unknown: messages of BANKING77, whose intent is in the memory or is not; the area under the curve of the best score, 0.5 being
chance.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.memory.finding import FIRST, POOLS, Pool, arguments, default_encoder, intents
from benchmarks.tables import markdown
from keepworth.episodes.model import EncoderIdentity
from keepworth.evaluation.statistics import paired_difference
from keepworth.memory.memory import Memory
from keepworth.memory.search.background import USUAL
from keepworth.models.kept_vectors import KeptVectors

NEAR = 0.7
QUESTIONS = 150
"""Of each pool, at most."""
FOUND_IN = ("HotpotQA", "LongMemEval, turns", "BANKING77")
Array = np.ndarray[Any, np.dtype[np.float32]]


class Narrowed:
    """A cosine c of the inner encoder becomes NEAR + (1 - NEAR) c."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.identity = EncoderIdentity(f"{inner.identity.model}, narrowed", inner.identity.dimension + 1, True)

    def encode(self, texts: Sequence[str]) -> Array:
        vectors = np.asarray(self.inner.encode(list(texts)), np.float32)
        return np.hstack(
            [np.float32(np.sqrt(1 - NEAR)) * vectors, np.full((len(vectors), 1), np.sqrt(NEAR), np.float32)]
        )


class MeanOfStates:
    """Of a causal model: the mean of its last hidden states over the first 256 pieces of a text."""

    def __init__(self) -> None:
        from transformers import AutoModel, AutoTokenizer

        from keepworth.models.files import path_of

        path = str(path_of("smollm2-135m-instruct"))
        self.tokens, self.model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
        self.identity = EncoderIdentity("smollm2-135m, mean of states", int(self.model.config.hidden_size), True)

    def encode(self, texts: Sequence[str]) -> Array:
        import torch

        rows = []
        with torch.inference_mode():
            for text in texts:
                asked = self.tokens(text or " ", truncation=True, max_length=256, return_tensors="pt")
                rows.append(self.model(**asked).last_hidden_state[0].float().mean(0).numpy())
        found = np.stack(rows)
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def filled(items: Sequence[str], encoder: Any, *, read: bool) -> tuple[Memory, dict[str, int]]:
    """read: cosines are put on the usual scale; otherwise they are taken as they are."""
    memory = Memory(":memory:", encoder=encoder, policy=None)
    if not read:
        assert memory.store.embedder is not None
        memory.store.embedder._background = USUAL
    return memory, {item.id: place for place, item in enumerate(memory.add_many(list(items), repeat=True))}


def recall(pool: Pool, encoder: Any, *, read: bool, mode: str = "hybrid") -> list[float]:
    memory, place = filled(pool.items, encoder, read=read)
    out = []
    for question, wanted, _ in pool.questions:
        found = {place[hit.id] for hit in memory.search(question, top_k=FIRST, mode=mode)}
        out.append(len(wanted & found) / min(len(wanted), FIRST))
    return out


def told_apart(pool: Pool, encoder: Any, *, read: bool) -> dict[str, float]:
    """Every second intent is in the memory."""
    named = sorted({intent for *_, intent in pool.questions})
    inside = set(named[::2])
    of_item = {place: intent for _, wanted, intent in pool.questions for place in wanted}
    memory, _ = filled([text for n, text in enumerate(pool.items) if of_item.get(n) in inside], encoder, read=read)
    scores: dict[bool, list[float]] = {True: [], False: []}
    for question, _, intent in pool.questions:
        hits = memory.search(question, top_k=1)
        scores[intent in inside].append(hits[0].score if hits else 0.0)
    known, unknown = np.array(scores[True]), np.array(scores[False])
    area = float(((known[:, None] > unknown) + 0.5 * (known[:, None] == unknown)).mean())
    return {"area": area, "known": float(np.median(known)), "unknown": float(np.median(unknown))}


def main() -> None:
    options = arguments(__doc__).parse_args()
    usual = default_encoder(options.vectors)
    mean = MeanOfStates()
    encoders = [usual, Narrowed(usual), mean if options.vectors is None else KeptVectors(mean, options.vectors)]
    pools = {}
    for name in FOUND_IN:
        first = next(POOLS[name](options.data, "dev"))
        pools[name] = Pool(first.items, first.questions[:QUESTIONS])
    talked = next(intents(options.data, "dev"))
    result: dict[str, Any] = {
        "machine": machine(),
        "pools": {n: len(p.questions) for n, p in pools.items()},
        "rows": [],
    }
    for encoder in encoders:
        background = Memory(encoder=encoder, policy=None).store.embedder
        assert background is not None
        row: dict[str, Any] = {
            "encoder": encoder.identity.model,
            "unrelated": background.background.unrelated,
            "found": {},
            "told apart": {way: told_apart(talked, encoder, read=way == "read") for way in ("read", "as it is")},
        }
        for name, pool in pools.items():
            read, plain = recall(pool, encoder, read=True), recall(pool, encoder, read=False)
            halves = {
                mode: float(np.mean(recall(pool, encoder, read=True, mode=mode))) for mode in ("lexical", "dense")
            }
            gain = paired_difference(
                name,
                [one - other for one, other in zip(read, plain, strict=True)],
                clusters=[shared for *_, shared in pool.questions],
            )
            row["found"][name] = {
                "read": float(np.mean(read)),
                "as it is": float(np.mean(plain)),
                "difference": [gain.difference, gain.low, gain.high],
                **halves,
            }
            print(encoder.identity.model, name, json.dumps(row["found"][name]), flush=True)
        result["rows"].append(row)
        print(json.dumps(row["told apart"]), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


def table(result: dict[str, Any]) -> str:
    found, apart = [], []
    for row in result["rows"]:
        for pool, each in row["found"].items():
            gain, low, high = each["difference"]
            difference = f"{gain:+.3f} [{low:+.3f}, {high:+.3f}]"
            cells = [f"{each[key]:.3f}" for key in ("read", "as it is")]
            found.append(
                (row["encoder"], pool, *cells, difference, *(f"{each[key]:.3f}" for key in ("lexical", "dense")))
            )
        cells = [
            f"{told['area']:.2f} ({told['known']:.2f}, {told['unknown']:.2f})"
            for told in (row["told apart"][way] for way in ("read", "as it is"))
        ]
        apart.append((row["encoder"], f"{row['unrelated']:.2f}", *cells))
    head = ("encoder", "pool", "on one scale", "as they are", "difference", "words alone", "meaning alone")
    scores = ("encoder", "cosine of unrelated texts", "on one scale", "as they are")
    return markdown(head, found) + "\n\n" + markdown(scores, apart)


if __name__ == "__main__":
    main()
