"""A recipe of rows and a reward: is there an even or an odd number of a word in a line?"""

import random

from keepworth.kit import Method, Recipe, recipe_of

WORDS = ("red", "blue")


def rows(count: int = 400, seed: int = 0) -> list[dict[str, str]]:
    draw = random.Random(seed)
    lines = sorted({" ".join(draw.choices(WORDS, k=draw.randint(3, 7))) for _ in range(4 * count)})[:count]
    parity = {line: ("even", "odd")[line.split().count(WORDS[0]) % 2] for line in lines}
    return [{"prompt": f"{line}\nIs the number of {WORDS[0]} even or odd?", "answer": parity[line]} for line in lines]


def reward(answer: str, row: dict[str, str]) -> float:
    """1 for the right word, and a tenth for an answer that is one of the two at all."""
    said = answer.lower().split()[:1]
    return float(said == [row["answer"]]) or 0.1 * (said in (["even"], ["odd"]))


def make() -> Recipe:
    return recipe_of(rows(), reward=reward, settings={"max_tokens": 4})


METHOD = Method(
    kind="recipe",
    name="parity",
    title="Parity",
    about="Learns to say whether a word comes an even number of times",
    make=make,
    extra="train",
    label="unmeasured",
)
