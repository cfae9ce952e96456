"""A study: how often a note is found first by a question in other words, as a memory grows."""

import random
from typing import Any

from keepworth.kit import Memory, Method, Study, arms_of, differences, rows_of

PEOPLE = ("Ana", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
WORDS = {"bought a car": "purchased an automobile", "broke a leg": "was injured", "adopted a cat": "has a pet"}


def share(facts: list[tuple[str, str]], encoder: str) -> float:
    with Memory(encoder=encoder, policy=None, writer=None) as memory:
        for text, _ in facts:
            memory.add(text)
        return sum(memory.search(question, top_k=1)[0].text == text for text, question in facts) / len(facts)


def run(*, sizes: str = "4,24", encoder: str = "default", seeds: int = 5) -> list[dict[str, Any]]:
    """Returns the shares for each size of the memory, over seeds, and what is lost from the first size to the last."""
    facts = [(f"{name} {said}.", f"{name} {asked}") for name in PEOPLE for said, asked in WORDS.items()]
    measured = []
    for seed in range(seeds):
        drawn = random.Random(seed).sample(facts, len(facts))
        measured.append({f"{size} notes": share(drawn[: int(size)], encoder) for size in sizes.split(",")})
    arms, clusters = arms_of(measured), [str(seed) for seed in range(seeds)]
    first, *_, last = arms
    return rows_of(arms, clusters) + differences(arms, [(last, first)], clusters)


METHOD = Method(
    kind="study",
    name="paraphrase",
    title="Paraphrases",
    about="Asks for notes in other words, as a memory grows",
    make=Study(run, "share found"),
    tags=("token", "factual", "retrieval"),
    label="unmeasured",
)
