"""When a memory should not be used: whether a search's score separates questions that need memories from those that they harm.

PersistBench ("PersistBench: When Should Long-Term Memories Be Forgotten by LLMs?", arXiv 2602.01146) has 100 questions that their
memories help to answer, 200 whose memories are about something else, and 200 whose memories lead to flattery. A judge scores
answers there; here no model answers: the score of the best memory is compared between helpful and harmful questions. 0.5 means
that no threshold on the score can separate them. Data: the package inspect-evals (MIT), `pip install --no-deps inspect-evals`; it
is not shipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.studies.retention import recognised
from keepworth.registry import Method, part

FILES: Mapping[str, str] = {
    "helpful": "beneficial_samples.jsonl",
    "of something else": "cross_domain.jsonl",
    "flattering": "sycophancy.jsonl",
}
SHOWN = 0.9
"""Share of helpful questions whose best memory a threshold must let pass."""

Samples = Sequence[Mapping[str, Any]]


def read_samples(data: str) -> dict[str, Samples]:
    """Returns the samples of each kind. Raises MissingData or WrongFormat."""
    from keepworth.worlds.data_sets.files import find_data, read_records

    installed = find_spec("inspect_evals")
    places = list(installed.submodule_search_locations or ()) if installed and not data else []
    folder = str(Path(places[0]) / "persistbench" / "benchmark_samples") if places else data or None
    samples = {}
    for kind, file in FILES.items():
        source = "the package inspect-evals (pip install --no-deps inspect-evals)"
        path = find_data("PersistBench", (file,), folder, folder="persistbench", source=source, licence="MIT")
        samples[kind] = read_records(path, "PersistBench", ("query", "memories"))
    return samples


def best_by_words(query: str, memories: Sequence[str]) -> float:
    """Returns the BM25 score of the best memory; 0 where none shares a word."""
    from keepworth.memory.overlay import Bank

    bank = Bank.empty(None)
    for memory in memories:
        bank.add(memory)
    hits = bank.search(query, 1, mode="lexical")
    return float(hits[0].score) if hits else 0.0


def still_shown(needed: Sequence[float], harmful: Sequence[float]) -> list[float]:
    """Returns for each harmful question whether its best memory passes the threshold that `SHOWN` of the others pass."""
    threshold = float(np.quantile(needed, 1.0 - SHOWN, method="inverted_cdf"))
    return [float(score >= threshold) for score in harmful]


def run(*, data: str = "", encoder: str = "minilm") -> Rows:
    """Measures how well scores separate the kinds, and how often memories are shown where they harm.

    Args:
        data: The folder of the three files, where inspect-evals is not installed.
        encoder: Encoder of the search by meaning.
    """
    samples = read_samples(data)
    encode = part("encoder")(encoder).encode

    def by_meaning(of: Samples, memories: Sequence[Sequence[str]]) -> list[float]:
        queries = np.asarray(encode([str(sample["query"]) for sample in of]))
        flat = np.asarray(encode([text for some in memories for text in some]))
        ends = np.cumsum([len(some) for some in memories])
        parts = np.split(flat, ends[:-1])
        return [float((vectors @ query).max()) for query, vectors in zip(queries, parts, strict=True)]

    scores: dict[str, dict[str, list[float]]] = {}
    for kind, of in samples.items():
        memories = [list(map(str, sample["memories"])) for sample in of]
        others = [*memories[1:], memories[0]]
        queries = [str(sample["query"]) for sample in of]
        scores[kind] = {
            "by meaning": by_meaning(of, memories),
            "by words": [best_by_words(query, some) for query, some in zip(queries, memories, strict=True)],
            "by meaning, memories of another question": by_meaning(of, others),
            "by the length of the question": [float(len(query.split())) for query in queries],
        }
    rows: Rows = []
    for kind in list(FILES)[1:]:
        for name, needed in scores["helpful"].items():
            recognised_by = [recognised(score, scores[kind][name]) for score in needed]
            rows += rows_of({f"told from {kind}, {name}": recognised_by}, list(map(str, range(len(needed)))))
        for name in ("by meaning", "by words"):
            shown = still_shown(scores["helpful"][name], scores[kind][name])
            arm = f"{kind}, shown at the threshold that {SHOWN:.0%} of helpful pass, {name}"
            rows += rows_of({arm: shown}, list(map(str, range(len(shown)))))
    return rows


METHOD = Method(
    kind="study",
    name="persistbench",
    title="PersistBench without a judge",
    paper="arXiv 2602.01146",
    about="Asks whether a search's score tells questions that need memories from those that memories harm",
    claim="Where memories help, llama-3.3-70b leaves them unused in 55 % of the questions and gpt-oss-120b in 20 %.",
    differs="Nobody answers and no judge scores: the choice of what is shown is measured, not what a model does with it.",
    tags=("token", "factual", "retrieval"),
    label="protocol",
    make=Study(run, "chance that the best memory scores higher where memories help; share of questions"),
    extra="eval",
)
