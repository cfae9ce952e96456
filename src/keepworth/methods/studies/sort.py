"""Sequence order recall in three arms: from the text itself, from a search of it, and from weights that learned it.

The question shows two sentences of conversations: which came first? Their order in the question is uninformative, so chance is
one half. After "Assessing Episodic Memory in LLMs with Sequence Order Recall Tasks" (SORT), arXiv 2410.08133: models are accurate
with the text in their context and poor from training alone. Control: the results of a search in reverse order; a reader that
relies on their order is wrong there as often as it was right.
"""

from __future__ import annotations

from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.reading import open_reader
from keepworth.evaluation.study import Rows, Study, differences, rows_of
from keepworth.methods.studies._readers import imitate, learning_reader
from keepworth.registry import Method, part

TOGETHER = 8
"""Consecutive entries that weights learn in one step."""
OPENING = "The conversation:"
MET = "Which of these were you told?"
"""The question that shows a sentence of the text and one of another text."""


def run(
    *,
    texts: int = 20,
    distances: str = "1,2,4,8",
    items: int = 8,
    passes: int = 0,
    rate: float = 3e-4,
    reader: str = "smollm2-135m-instruct",
    model: str = "",
    encoder: str = "minilm",
    words: int = 60,
    seed: int = 0,
) -> Rows:
    """Measures the share of pairs ordered correctly, in all and by distance.

    Args:
        texts: Most texts, of one conversation each.
        distances: Turns between the two sentences, with commas.
        items: Entries that a search shows.
        passes: How often weights learn a text; 0 leaves that arm out.
        rate: Their learning rate.
        reader: A model's name or folder, or the URL of an endpoint.
        model: The model's name there.
        encoder: Encoder of the search.
        words: Most words of an entry.
        seed: Seed of the draws.
    """
    from keepworth.methods.benchmarks.order_recall import order_recall
    from keepworth.worlds.benchmark import cluster_of, haystack
    from keepworth.worlds.recall import recall_by_search

    asked = order_recall("test", sessions=1, distances=distances.split(","), seed=seed)
    chosen = list(dict.fromkeys(map(cluster_of, asked)))[:texts]
    tasks = [task for task in asked if cluster_of(task) in chosen]
    if len(chosen) < 3:
        raise KeepworthError(
            f"there are {len(chosen)} texts with such pairs.", "An interval needs 3: ask for more, or nearer."
        )
    if passes and reader.startswith(("http://", "https://")):
        raise KeepworthError(
            "weights behind an endpoint are not trained here.", "Leave passes out, or name a model's folder."
        )
    search = recall_by_search(items, part("encoder")(encoder), words=words)
    texts_found = [[hit.text for hit in search(task).shown] for task in tasks]
    whole = [[entry.text for entry in haystack(task, words)] for task in tasks]
    answerer = open_reader(reader, model)

    def right(who: Any, places: list[int], shown: list[list[str]]) -> list[float]:
        queries = [
            (tasks[place].input, some, list(tasks[place].options)) for place, some in zip(places, shown, strict=True)
        ]
        picks = who.choices(queries) if queries else []
        return [
            float(pick >= 0 and tasks[place].options[pick] in tasks[place].answers)
            for place, pick in zip(places, picks, strict=True)
        ]

    everywhere = list(range(len(tasks)))
    fits = [place for place in everywhere if sum(map(answerer.tokens, whole[place])) <= answerer.room]
    arms = {
        "nothing shown": (everywhere, right(answerer, everywhere, [[] for _ in tasks])),
        "retrieval": (everywhere, right(answerer, everywhere, texts_found)),
        "retrieval, in reverse": (everywhere, right(answerer, everywhere, [some[::-1] for some in texts_found])),
        "context, where it fits": (fits, right(answerer, fits, [whole[place] for place in fits])),
    }
    if passes:
        lures = [
            next(other.answers[0] for other in (*tasks[place:], *tasks) if cluster_of(other) != cluster_of(task))
            for place, task in enumerate(tasks)
        ]

        def met(who: Any, places: list[int]) -> list[float]:
            pairs: list[tuple[str, list[str], list[str]]] = [
                (MET, [], [tasks[place].answers[0], lures[place]]) for place in places
            ]
            return [float(pick == 0) for pick in who.choices(pairs)]

        ordered, learned = list[float](), list[float]()
        for text in chosen:
            places = [place for place in everywhere if cluster_of(tasks[place]) == text]
            weights = _learned(reader, whole[places[0]], passes, rate, seed)
            ordered += right(weights, places, [[] for _ in places])
            learned += met(weights, places)
        arms["weights"] = (everywhere, ordered)
        arms["weights, its text from another"] = (everywhere, learned)
        arms["nothing shown, its text from another"] = (everywhere, met(answerer, everywhere))
    rows: Rows = [{"arm": "chance", "mean": 0.5, "low": 0.5, "high": 0.5, "n": len(tasks), "clusters": len(chosen)}]
    for arm, (places, values) in arms.items():
        for kind in ("", *(() if "another" in arm else dict.fromkeys(task.tags["type"] for task in tasks))):
            at = [n for n, place in enumerate(places) if not kind or tasks[place].tags["type"] == kind]
            if len({cluster_of(tasks[places[n]]) for n in at}) >= 3:
                name = f"{arm}, {kind}" if kind else arm
                rows += rows_of({name: [values[n] for n in at]}, [cluster_of(tasks[places[n]]) for n in at])
    for one, other in (
        ("retrieval", "retrieval, in reverse"),
        ("context, where it fits", "weights"),
        ("weights, its text from another", "nothing shown, its text from another"),
    ):
        if one in arms and other in arms:
            first, second = (dict(zip(*arms[name], strict=True)) for name in (one, other))
            both = [place for place in everywhere if place in first and place in second]
            clusters = [cluster_of(tasks[place]) for place in both]
            if len(set(clusters)) >= 3:
                paired = {name: [of[place] for place in both] for name, of in ((one, first), (other, second))}
                rows += differences(paired, [(one, other)], clusters)
    return rows


def _learned(name: str, text: list[str], passes: int, rate: float, seed: int) -> Any:
    """Returns a reader whose adapter has learned a text in its order, some entries at a time."""
    from keepworth.worlds.answerer import ModelReader

    model, learner = learning_reader(name, rate, seed)
    chunks = ["\n".join(text[start : start + TOGETHER]) for start in range(0, len(text), TOGETHER)]
    for _ in range(passes):
        for chunk in chunks:
            imitate(model, learner, [(OPENING, f" {chunk}")])
    learner.close()
    return ModelReader(model)


METHOD = Method(
    kind="study",
    name="sort",
    title="SORT in three arms",
    paper="arXiv 2410.08133",
    about="Which of two sentences came first: from the text in context, from a search, and from weights, by distance",
    claim="Models tell the order with the text in their context, and are poor from training alone.",
    differs="Texts are conversations of LongMemEval instead of nine books, and the model has 135M parameters.",
    tags=("token", "parametric", "factual", "retrieval"),
    label="analogue",
    make=Study(run, "share of pairs whose order is told; chance is 0.5"),
    extra="train",
)
