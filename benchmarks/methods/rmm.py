"""Measures RMM, its topics and its reranker, on dated dialogues of people (`benchmarks.methods.dialogues`).

    pip install --no-deps chitchat-dataset==0.9.0
    python -m benchmarks.methods.rmm

The first conversations of a person are remembered: turn by turn, or as the topics that `reflect` makes of them. In the later ones
somebody says something to them, which is the query, and they reply. What is worth showing are the remembered turns that hold
most words of that reply, and half of them at least: a rule in the place of a reader that cites. An arm succeeds where such a turn
is among the first 60 words that it shows, so that long and short items cost what they are. The reranker learns on other people
from the same rule over the five that it shows, once; settings, and how many people it takes to decide, come from yet others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.methods.dialogues import DATA, INSTALL, Person, load
from benchmarks.methods.write import FOLDER, needed, weigh, worded, write_with_record
from benchmarks.record import takes_nothing
from keepworth.episodes.arrays import Floats
from keepworth.episodes.episode import Turn
from keepworth.memory.memory import Memory
from keepworth.methods.policies._slates import gumbel_top_k
from keepworth.methods.policies.rmm import Reranker, cites_by_words, reflect
from keepworth.methods.studies._slates import lexical_scores
from keepworth.models.encoders import encoder
from keepworth.tasks.entries import topic_words
from keepworth.tasks.splits import draw_order

COMMAND = f"{INSTALL}; python -m benchmarks.methods.rmm"
RECORD = FOLDER.parent / "learning" / "rmm_dialogues.json"
LATEST, REMEMBERED, OF_PERSON, POOL, SHOWN, WORDS = 60, 0.7, 15, 20, 5, 60
SEEDS = (0, 1, 2)
GAIN = 0.05
LEARNED, RERANKED, CONTROL = "topics, reranked", "turns, reranked", "topics, reranked, citations permuted"
COMPARED = ["turns", "topics", CONTROL, "turns by words"]
PUBLISHED: Mapping[str, Any] = {"temperature": 0.5, "rate": 1e-3, "baseline": 0.5, "passes": 1}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "published": PUBLISHED,
    "published, 4 passes": {**PUBLISHED, "passes": 4},
    "tau 0.05": {"temperature": 0.05, "rate": 3e-3, "baseline": 0.5, "passes": 2},
    "tau 0.05, b -0.5": {"temperature": 0.05, "rate": 3e-3, "baseline": -0.5, "passes": 2},
    "tau 0.05, b -0.5, slow": {"temperature": 0.05, "rate": 3e-4, "baseline": -0.5, "passes": 2},
}


Encode = Callable[[Sequence[str]], Floats]


@dataclass(frozen=True)
class Shelf:
    """What is remembered of a person. texts: of the items; pieces: of each item its turns, with their words; vectors: (n, d)."""

    texts: Sequence[str]
    pieces: Sequence[Sequence[tuple[str, int]]]
    vectors: Floats


@dataclass(frozen=True)
class Question:
    """own: words of the reply. gold: the turns that are worth showing. pool: of the items, the best by cosine, best first."""

    person: str
    text: str
    own: str
    gold: frozenset[str]
    query: Floats
    shelf: Shelf

    @cached_property
    def pool(self) -> list[int]:
        return [int(at) for at in np.argsort(-(self.shelf.vectors @ self.query), kind="stable")[:POOL]]

    def score(self, order: Sequence[int]) -> float:
        """Whether a turn that is worth showing is among the first `WORDS` words of items in this order."""
        left = WORDS
        for turn, words in (piece for at in order for piece in self.shelf.pieces[at]):
            left -= words
            if left < 0:
                break
            if turn in self.gold:
                return 1.0
        return 0.0


def usual_words(people: Sequence[Person]) -> frozenset[str]:
    """Words of more than one in two hundred of what people say: of them nobody is told by what they share."""
    turns = [turn for person in people for turn in remember(person).values()]
    counts = Counter(word for turn in turns for word in topic_words(turn.text))
    return frozenset(word for word, count in counts.items() if count > len(turns) / 200)


def own_words(text: str, reply: str, usual: Collection[str], least: int) -> str:
    """What a reply says beyond what it replies to, usual words apart; "" where that is less than so many words."""
    words = (topic_words(reply) - topic_words(text)).difference(usual)
    return " ".join(sorted(words)) if len(words) >= least else ""


def exchanges(person: Person) -> list[tuple[str, str]]:
    """What was said to the person in the later conversations, with what they replied."""
    later = person.sessions[int(REMEMBERED * len(person.sessions)) :]
    pairs = [
        (before.text, turn.text)
        for session in later
        for before, turn in zip(session.turns, session.turns[1:], strict=False)
        if turn.speaker == "user" != before.speaker and len(before.text.split()) >= 3
    ]
    return sorted(pairs, key=lambda pair: draw_order(person.id, *pair))


def remember(person: Person) -> dict[str, Turn]:
    """The person's turns of the earlier conversations, by `session#number`."""
    earlier = person.sessions[: int(REMEMBERED * len(person.sessions))]
    turns = {f"{session.id}#{turn.index}": turn for session in earlier for turn in session.turns}
    return {name: turn for name, turn in turns.items() if turn.speaker == "user" and len(turn.text.split()) >= 4}


def by_turns(person: Person, encode: Encode) -> Shelf:
    turns = remember(person)
    texts = [turn.text for turn in turns.values()]
    return Shelf(texts, [[(name, len(turn.text.split()))] for name, turn in turns.items()], encode(texts))


def by_topics(person: Person, encode: Encode, made: Any) -> Shelf:
    """The topics of `reflect`, after each conversation, searched by their summaries."""
    turns, items = remember(person), dict[str, Any]()
    with Memory(encoder=made, policy=None, log="off") as memory:
        for session in person.sessions[: int(REMEMBERED * len(person.sessions))]:
            messages = [{"role": turn.speaker, "content": turn.text} for turn in session.turns]
            reflect(memory, messages, session=session.id)
        items = {item.id: item for item in memory.bank().items()}
    pieces = [
        [(name, len(turns[name].text.split())) for name in item.metadata["turns"] if name in turns]
        for item in items.values()
    ]
    return Shelf([item.text for item in items.values()], pieces, encode([item.key for item in items.values()]))


def worth_asking(person: Person, usual: Collection[str], least: int) -> list[tuple[str, str, frozenset[str]]]:
    """What was said to the person, the own words of their reply, and the turns that hold most of them, some at least."""
    turns, made = remember(person), list[tuple[str, str, frozenset[str]]]()
    names, texts = list(turns), [turn.text for turn in turns.values()]
    for text, reply in exchanges(person):
        own = own_words(text, reply, usual, least)
        gold = frozenset(names[at] for at in cites_by_words(own, text, texts))
        if gold and len(made) < OF_PERSON:
            made.append((text, own, gold))
    return made


def teach(lessons: Sequence[Question], settings: Mapping[str, Any], seed: int, permuted: bool = False) -> Reranker:
    """A reranker that learned from what a reply would cite of the five items shown. permuted: what is cited is another item of
    the pool, the same whenever it is shown."""
    generator = np.random.default_rng([41, seed])
    reranker = Reranker(**{name: value for name, value in settings.items() if name != "passes"})
    places = [generator.permutation(len(question.pool)).tolist() for question in lessons]
    for number in [int(at) for _ in range(settings["passes"]) for at in generator.permutation(len(lessons))]:
        question, pool = lessons[number], lessons[number].pool
        vectors = question.shelf.vectors[pool]
        slate = gumbel_top_k(reranker.logits(question.query, vectors), SHOWN, generator)
        shown = [pool[places[number][at] if permuted else at] for at in slate]
        used = cites_by_words(question.own, question.text, [question.shelf.texts[at] for at in shown])
        reranker.learn(question.query, vectors, slate, [1.0 if at in used else -1.0 for at in range(len(slate))])
    return reranker


def rerank(question: Question, reranker: Reranker) -> list[int]:
    pool = question.pool
    return [
        pool[at] for at in np.argsort(-reranker.logits(question.query, question.shelf.vectors[pool]), kind="stable")
    ]


def score_all(questions: Sequence[Question], rerankers: Sequence[Reranker]) -> list[float]:
    """Of each question, the mean over rerankers."""
    rows = [[question.score(rerank(question, one)) for question in questions] for one in rerankers]
    return [float(value) for value in np.mean(rows, axis=0)]


def measure() -> dict[str, Any]:
    sides, made = load(LATEST), encoder("minilm")
    usual, empty = usual_words(sides["train"]), np.zeros((0, made.identity.dimension))

    def encode(texts: Sequence[str]) -> Floats:
        return np.asarray(made.encode(list(texts)), dtype=np.float64) if texts else empty

    def asked(side: str, least: int) -> dict[str, list[Question]]:
        """By shelf, the same questions. Nothing is encoded of who is asked nothing."""
        questions: dict[str, list[Question]] = {"turns": [], "topics": []}
        for person in sides[side]:
            pairs = worth_asking(person, usual, least)
            if pairs:
                shelves = {"turns": by_turns(person, encode), "topics": by_topics(person, encode, made)}
                queries = encode([text for text, _, _ in pairs])
                for name, shelf in shelves.items():
                    questions[name] += [
                        Question(person.id, text, own, gold, query, shelf)
                        for (text, own, gold), query in zip(pairs, queries, strict=True)
                    ]
        print(side, len(questions["turns"]), "questions", flush=True)
        return questions

    lessons, tuned = asked("train", 2), asked("dev", 3)
    best, learned = dict[str, str](), dict[str, list[Reranker]]()
    for shelf in ("turns", "topics"):
        scores = {
            name: float(np.mean(score_all(tuned[shelf], [teach(lessons[shelf], of, seed) for seed in SEEDS])))
            for name, of in SETTINGS.items()
        }
        best[shelf] = max(scores, key=lambda name: scores[name])
        print(shelf, float(np.mean([question.score(question.pool) for question in tuned[shelf]])), scores, flush=True)
        settings = SETTINGS[best[shelf]]
        learned[shelf] = [teach(lessons[shelf], settings, seed) for seed in SEEDS]
        learned[f"{shelf}, permuted"] = [teach(lessons[shelf], settings, seed, permuted=True) for seed in SEEDS]
    learned["turns, published"] = [teach(lessons["turns"], PUBLISHED, seed) for seed in SEEDS]
    before = [question.score(question.pool) for question in tuned["turns"]]
    gaps = np.subtract(score_all(tuned["topics"], learned["topics"]), before).tolist()
    people = needed(gaps, [question.person for question in tuned["turns"]], GAIN, len(COMPARED))
    tests = asked("test", 3)
    turns, topics = tests["turns"], tests["topics"]
    clusters = [question.person for question in turns]
    print(f"to see {GAIN} over turns takes {people} people; there are {len(set(clusters))}", flush=True)

    def draw(question: Question) -> float:
        generator = np.random.default_rng(0)
        return float(
            np.mean([question.score(generator.permutation(len(question.shelf.texts)).tolist()) for _ in range(50)])
        )

    def by_words(question: Question) -> list[int]:
        return [int(at) for at in np.argsort(-lexical_scores(question.text, question.shelf.texts), kind="stable")]

    arms = {
        "chance": [draw(question) for question in turns],
        "latest turns": [question.score(range(len(question.shelf.texts))[::-1]) for question in turns],
        "turns": [question.score(question.pool) for question in turns],
        "turns by words": [question.score(by_words(question)) for question in turns],
        "turns, reranked": score_all(turns, learned["turns"]),
        "turns, reranked, published": score_all(turns, learned["turns, published"]),
        "turns, reranked, citations permuted": score_all(turns, learned["turns, permuted"]),
        "topics": [question.score(question.pool) for question in topics],
        LEARNED: score_all(topics, learned["topics"]),
        CONTROL: score_all(topics, learned["topics, permuted"]),
        "oracle of 20 turns": [max((question.score([at]) for at in question.pool), default=0.0) for question in turns],
        "oracle of 20 topics": [
            max((question.score([at]) for at in question.pool), default=0.0) for question in topics
        ],
    }
    fields = weigh(arms, clusters, LEARNED, COMPARED)
    more = weigh(arms, clusters, RERANKED, ["turns", "turns, reranked, citations permuted", "turns by words"])
    fields["comparisons"] += [{**gap, "against": f"{gap['against']} ({RERANKED})"} for gap in more["comparisons"]]
    return {
        "model": "none: words of the reply stand for citations, MiniLM embeds",
        "seeds": len(SEEDS),
        "unit": f"a turn worth showing among the first {WORDS} words",
        "controls": ["chance", "latest turns", CONTROL, "turns by words", "oracle of 20 turns"],
        **fields,
        "planned": {"gain": GAIN, "clusters": people, "tuned": best},
        "data": DATA,
    }


def conclude(fields: dict[str, Any]) -> tuple[str, str]:
    """Held where topics with their reranker are above everything; in part where either half is above plain turns."""
    gaps = {gap["against"]: gap for gap in fields["comparisons"]}
    above = {name: gap["interval"][0] > 0.0 for name, gap in gaps.items()}
    half = above["turns"] or (
        above[f"turns ({RERANKED})"] and above[f"turns, reranked, citations permuted ({RERANKED})"]
    )
    verdict = "held" if all(above[name] for name in COMPARED) else "held in part" if half else "not held"
    means = {arm["name"]: arm["mean"] for arm in fields["arms"]}
    unmoved = all(abs(gap["mean"]) < 0.0005 for name, gap in gaps.items() if name in ("topics", f"turns ({RERANKED})"))
    idle = "The reranker, as tuned, changed nothing, so that nothing is shown of it. " if unmoved else ""
    return verdict, (
        f"On {fields['n']} replies of {fields['clusters']} people a turn worth showing is among the first {WORDS} words of "
        f"{means['turns']:.2f} by plain turns, {means[RERANKED]:.2f} reranked, {means['topics']:.2f} by topics, "
        f"{means[LEARNED]:.2f} by topics reranked (chance {means['chance']:.2f}, oracle of 20 turns "
        f"{means['oracle of 20 turns']:.2f}): {worded(gaps['turns'])}, {worded(gaps[CONTROL])}; turns reranked "
        f"{worded(gaps[f'turns ({RERANKED})'])}. {idle}Rules make the topics, and no model cites."
    )


def main() -> None:
    takes_nothing(__doc__)
    fields = measure()
    write_with_record("rmm", COMMAND, RECORD, conclude(fields), **fields)


if __name__ == "__main__":
    main()
