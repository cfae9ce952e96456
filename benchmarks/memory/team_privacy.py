"""What a member of a team can guess of the questions of another from what the team agrees on.

    python -m benchmarks.memory.team_privacy --json benchmarks/memory/team_privacy.json

A team shares two notes for each of 20 topics, of which one is right, and nothing about 20 topics more. Each of 1, 2, 5 or 10
members asks three times about each topic of a half that is drawn for that member, and rewards truly. Then another member, who
knows how this was drawn, asks about every topic, and reads whether the team agrees on a note that is found: guessed is whether
the first member asked about the topic. AUC is the probability that a topic that was asked about is told from one that was not,
ties counting half: .5 says that nothing is told.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.memory.learning import interval
from benchmarks.record import arguments, save
from keepworth import Memory

TOPICS, TIMES, MEMBERS = 20, 3, (1, 2, 5, 10)
WAYS = ("hold the button", "pull the plug")


def compare(told: np.ndarray[Any, Any], asked_about: np.ndarray[Any, Any]) -> float:
    """Return the AUC of a reading that is true or false."""
    return float(0.5 + 0.5 * (told[asked_about].mean() - told[~asked_about].mean()))


def guess(seed: int, members: int) -> tuple[float, float]:
    """Return the AUC over the topics that the team's notes answer, and over the others."""
    generator = np.random.default_rng([13, seed])
    answered = [f"fix thing{number}" for number in range(TOPICS)]
    topics = [*answered, *(f"paint wall{number}" for number in range(TOPICS))]
    with Memory(encoder="hashing", seed=seed) as memory:
        team, right = memory.within(user_id="team"), set[str]()
        for topic in answered:
            pair = team.add_many([f"to {topic} {way}" for way in WAYS])
            right.add(pair[int(generator.integers(2))].id)
        asks = [generator.permutation(len(topics)) < TOPICS for _ in range(members)]
        for _ in range(TIMES):
            for member, half in enumerate(asks):
                handle = memory.within(user_id=f"member {member}", shared={"team": False})
                for topic in np.array(topics)[half].tolist():
                    hits = handle.search(f"how do I {topic}", top_k=1)
                    if hits:
                        # An answer to another topic is no answer.
                        good = hits[0].id in right and topic in hits[0].text
                        handle.reward(hits.decision, float(good), by=f"member {member}")
        reader = memory.within(user_id="reader", shared={"team": False})
        found = [reader.search(f"how do I {topic}", top_k=5, explain=True, explore=False) for topic in topics]
        told = np.array(
            [
                any(hit.why.reason.startswith("most who share") for hit in hits if index >= TOPICS or topic in hit.text)
                for index, (topic, hits) in enumerate(zip(topics, found, strict=True))
            ]
        )
    return compare(told[:TOPICS], asks[0][:TOPICS]), compare(told[TOPICS:], asks[0][TOPICS:])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=40)
    options = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python -m benchmarks.memory.team_privacy --draws {options.draws}",
        "machine": machine(),
        "auc": {},
    }
    for members in MEMBERS:
        pairs = [guess(seed, members) for seed in range(options.draws)]
        for name, values in zip(("topics with notes", "topics without notes"), zip(*pairs, strict=True), strict=True):
            record["auc"][f"{members} members, {name}"] = row = interval(values, (0.0, 1.0))
            print(f"{members} members, {name}: {row}", flush=True)
    save(options.json, record)


if __name__ == "__main__":
    main()
