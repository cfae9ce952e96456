"""Fits the weights by which `keepworth.memory.signals` tells what a user's next message says of the answer before it.

    python -m benchmarks.memory.reply_weights [--write] [--json benchmarks/memory/reply_weights.json]

The messages are in `tests/memory/signals`: `messages_dev.json`, `messages_more.json` and the next messages of `turns_dev.json`.
Beside them stands each message that was asked for something with another one before it: those judge nothing. The weights are
those of a multinomial regression against "it says nothing", with a penalty on their squares. A sign of praise may only speak for
thanks, a sign of failure only for a correction, and so on (`may`), since in so few messages a rare word may stand where it does
by chance. A sign that weighs next to nothing is left out. The least probabilities are the lowest at which `PRECISE` of what is
called so is so, in either file.

Printed is how well messages are read by weights that were fitted without them: without the messages of the same scenario (eight
folds), and without all messages of their language. Beside it is what the rules alone read. The words of the signs were written
by somebody who had read these messages, so that messages of another hand are read less well.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.memory import reply_signs, signals

HERE = Path(__file__).parents[2]
MESSAGES = HERE / "tests" / "memory" / "signals"
WEIGHTS = HERE / "src" / "keepworth" / "memory" / "reply_weights.toml"
NAMES = ("thanks", "correction", "repetition")
PENALTY, CROSSED, TURN, FOLDS = 10.0, 0.15, 3.0, 8
"""The penalty on the squares of the weights of scaled signs; what a crossed pair counts, and a message of a turn."""
PRECISE, STEP, LOWEST = 0.9, 0.01, 0.6
BY_RULE = 0.4
"""The least probability of thanks and of a correction where rules for single wordings say the same."""
LEAST = 0.05
"""The weight below which a sign is left out."""
SEEN, SCENARIOS, WORD, WORDS = 4, 3, 0.7, 300
"""In how many messages, and after how many others, a word has to stand that weighs by itself; how large its sign is while
weights are fitted, so that the penalty is the larger; and how many weigh."""

Array = npt.NDArray[np.float64]
Message = dict[str, str]


def load_messages() -> list[Message]:
    """Load the labelled messages, each with what kind of sample it is of."""
    rows: list[Message] = []
    for sample in ("dev", "more"):
        listed = json.loads((MESSAGES / f"messages_{sample}.json").read_text("utf-8"))
        rows += [{**row, "sample": sample, "group": f"{row['language']} {row['before'].lower()}"} for row in listed]
    for turn in json.loads((MESSAGES / "turns_dev.json").read_text("utf-8")):
        label = turn["labels"]["message"]
        if label is not None:
            label = label if label in NAMES else "correction" if label == "revert" else "none"
            row = {"language": turn["language"], "before": turn["before"], "message": turn["next"], "label": label}
            rows.append({**row, "sample": "turns", "group": turn["session"]})
    return rows


def cross(rows: Sequence[Message]) -> list[Message]:
    """Return what was asked for in one scenario as the message after what was asked for in another."""
    draw = np.random.default_rng(0)
    pairs: list[Message] = []
    for language in sorted({row["language"] for row in rows}):
        of = (row["before"] for row in rows if row["language"] == language and row["sample"] != "turns")
        befores = sorted(set(of))
        order = draw.permutation(len(befores))
        for one, other in zip(order[::2], order[1::2], strict=False):
            pair = {"language": language, "before": befores[one], "message": befores[other], "label": "none"}
            pairs.append({**pair, "sample": "crossed", "group": f"{language} {befores[one].lower()}"})
    return pairs


def may(sign: str) -> tuple[tuple[float, float], ...]:
    """Return between what the weights of a sign have to lie, for thanks, a correction and a repetition."""
    free, more, less = (-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0)
    thanks = correction = repetition = free
    kind = sign.removeprefix("begins: ")
    if kind in reply_signs.GOOD or sign in OF_PRAISE:
        thanks, correction = more, less
    elif (kind in (*reply_signs.BAD, *reply_signs.AGAINST) or sign in OF_BLAME) and sign not in (
        "negation",
        "contrast",
    ):
        thanks, correction = less, more
    if sign == "praise of a deed, and more":
        thanks, correction = less, more
    if sign in ("thanks behind a request", "good, and goes on", "mild, and goes on"):
        thanks, correction = less, less
    if kind in reply_signs.ASKING or sign in OF_ASKING or sign.endswith(", going on"):
        thanks, correction = less, less
    if sign in ("bad, where trouble was told", "bad, and tells of somebody") or sign.startswith("a choice before"):
        correction = less
    if sign in OF_REPEATING:
        repetition = more
    elif sign in OF_OTHERS:
        repetition = less
    return thanks, correction, repetition


OF_PRAISE = (
    "praise or thanks, nothing bad", "good, nothing bad", "nothing but praise", "little but praise", "kinds of good words",
    "the rules say thanks",
)  # fmt: skip
OF_BLAME = ("kinds of bad words", "bad, nothing good", "the rules say correction")
OF_ASKING = ("asks", "asks at last", "orders", "question mark")
OF_REPEATING = (
    "words return", "words are old", "words shared", "words shared, most", "words shared, nearly all", "letters shared",
    "letters shared, most", "letters return", "all words return", "all of three words return", "words shared, repeating",
    "asks what was asked", "the rules say repetition", "repeats",
)  # fmt: skip
OF_OTHERS = (
    "new words", "lost words", "exchanged words", "one word in the place of another", "other number", "new number",
    "no word returns", "words shared, going on", "follows", "asks for something else", "asks for another one",
)  # fmt: skip


class Fit:
    """Messages with their signs, and weights fitted to some of them."""

    def __init__(self, rows: Sequence[Message]) -> None:
        self.rows = rows
        self.rules = [signals.read_rules(row["message"], row["before"]) for row in rows]
        listed = [
            reply_signs.signs(signals.spoken(row["message"]), signals.spoken(row["before"]), rule)
            for row, rule in zip(rows, self.rules, strict=True)
        ]
        said = [reply_signs.list_words(signals.spoken(row["message"])) for row in rows]
        scenarios: dict[str, set[str]] = defaultdict(set)
        times = Counter(
            word for row, words in zip(rows, said, strict=True) if row["sample"] != "crossed" for word in words
        )
        for row, words in zip(rows, said, strict=True):
            if row["sample"] != "crossed":
                for word in words:
                    scenarios[word].add(row["before"])
        self.words = sorted(word for word in times if times[word] >= SEEN and len(scenarios[word]) >= SCENARIOS)
        self.names = [*listed[0], *self.words]
        self.values = np.array(
            [
                [*signs.values(), *(WORD * (word in words) for word in self.words)]
                for signs, words in zip(listed, said, strict=True)
            ]
        )
        self.labels = np.array([("none", *NAMES).index(row["label"]) for row in rows])
        self.counts = np.array([{"crossed": CROSSED, "turns": TURN}.get(row["sample"], 1.0) for row in rows])
        self.groups = np.array([row["group"] for row in rows])
        self.languages = np.array([row["language"] for row in rows])

    def fit(self, kept: npt.NDArray[np.bool_], names: Sequence[str] | None = None) -> tuple[Array, Array]:
        """Return the constants and the weights of signs, one column for each of NAMES.

        Args:
            kept: The messages that are fitted to.
            names: The signs that may weigh; all if not given.
        """
        names = self.names if names is None else names
        inputs = self.values[kept]
        scale = inputs.std(0) + 0.15
        rows = np.hstack([np.ones((len(inputs), 1)), inputs / scale])
        of_label, counts = np.eye(4)[self.labels[kept]], self.counts[kept][:, None]

        def loss(flat: Array) -> tuple[float, Array]:
            weights = flat.reshape(-1, 3)
            chances = probabilities(rows @ weights)
            slope = rows.T @ ((chances - of_label) * counts)[:, 1:]
            slope[1:] += PENALTY * weights[1:]
            fit = -float((counts[:, 0] * np.log((chances * of_label).sum(1) + 1e-12)).sum())
            return fit + 0.5 * PENALTY * float((weights[1:] ** 2).sum()), slope.ravel()

        bounds = [(-np.inf, np.inf)] * 3
        for name in self.names:
            bounds += may(name) if name in names else [(0.0, 0.0)] * 3
        start = np.zeros(rows.shape[1] * 3)
        weights = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300, "ftol": 1e-6}
        ).x.reshape(-1, 3)
        return weights[0], weights[1:] / scale[:, None]

    def judge_apart(self, groups: npt.NDArray[Any]) -> Array:
        """Return the probabilities of each message, by weights fitted without the messages of its group."""
        chances = np.zeros((len(self.rows), 4))
        for group in sorted(set(groups)):
            constant, weights = self.fit(groups != group)
            chances[groups == group] = probabilities(constant + self.values[groups == group] @ weights)
        return chances


def probabilities(scores: Array) -> Array:
    """Return the probabilities of "none" and of NAMES; the score of "none" is 0."""
    every = np.hstack([np.zeros((len(scores), 1)), scores])
    every = np.exp(every - every.max(1, keepdims=True))
    chances: Array = every / every.sum(1, keepdims=True)
    return chances


def name_of(chances: Array, least: dict[str, float], rule: str) -> str:
    """Return which of NAMES is likely enough, or "".

    Args:
        chances: The probabilities of "none" and of NAMES.
        least: The least probability of each.
        rule: What the rules make of the message.
    """
    best = max(NAMES, key=lambda name: chances[1 + NAMES.index(name)])
    enough = least["the rules say so"] if best == rule != "repetition" else least[best]
    return best if chances[1 + NAMES.index(best)] >= enough else ""


def read_turns_apart() -> dict[str, str]:
    """Return what the next message of each turn is read as, "" for none, by weights fitted without its session. The key is the
    message with the one before it, see `key_of`."""
    fitted, folds = load_fit()
    chances = fitted.judge_apart(folds)
    least = find_least(fitted, chances)
    return {
        key_of(row["message"], row["before"]): name_of(chances[at], least, fitted.rules[at])
        for at, row in enumerate(fitted.rows)
        if row["sample"] == "turns"
    }


def key_of(message: str, before: str) -> str:
    """Return the key of a message in what `read_turns_apart` returns."""
    return f"{before}\n\n{message}"


def load_fit() -> tuple[Fit, npt.NDArray[np.int_]]:
    """Load the messages with their signs, and the fold of each, which messages of a scenario share."""
    rows = load_messages()
    fitted = Fit([*rows, *cross(rows)])
    draw = np.random.default_rng(0)
    fold_of = {group: int(draw.integers(FOLDS)) for group in sorted(set(fitted.groups))}
    return fitted, np.array([fold_of[group] for group in fitted.groups])


def find_least(fitted: Fit, chances: Array) -> dict[str, float]:
    """Return for each of NAMES the lowest probability at which it is called so precisely enough in both files of messages."""
    labels = np.array([row["label"] for row in fitted.rows])
    samples = [np.array([row["sample"] == sample for row in fitted.rows]) for sample in ("dev", "more")]
    best = chances[:, 1:].argmax(1)
    least: dict[str, float] = {"the rules say so": BY_RULE}
    for index, name in enumerate(NAMES):

        def is_precise(at: float, index: int = index, name: str = name) -> bool:
            called = (best == index) & (chances[:, 1 + index] >= at)
            return all((labels[called & sample] == name).mean() >= PRECISE for sample in samples)

        least[name] = next(float(round(at, 2)) for at in np.arange(LOWEST, 1.0, STEP) if at > 0.94 or is_precise(at))
    return least


def count(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Count precision and recall of each of NAMES, and how many messages that say nothing are called something.

    Args:
        pairs: What a message is called, "" for nothing, and its label.
    """
    table = Counter(pairs)
    none = sum(n for (_, label), n in table.items() if label == "none")
    result: dict[str, Any] = {}
    for name in NAMES:
        called = sum(n for (call, _), n in table.items() if call == name)
        labelled = sum(n for (_, label), n in table.items() if label == name)
        right = table[name, name]
        result[name] = {
            "called": called,
            "labelled": labelled,
            "right": right,
            "precision": round(right / called, 3) if called else None,
            "recall": round(right / labelled, 3) if labelled else None,
        }
    wrong = sum(n for (call, label), n in table.items() if label == "none" and call in NAMES)
    return {**result, "none": {"labelled": none, "called": wrong, "share": round(wrong / none, 3) if none else None}}


SAMPLES: dict[str, Callable[[Message], bool]] = {
    "dev, English": lambda row: row["sample"] == "dev" and row["language"] == "en",
    "dev, other languages": lambda row: row["sample"] == "dev" and row["language"] != "en",
    "more": lambda row: row["sample"] == "more",
    "turns": lambda row: row["sample"] == "turns",
}


def show(title: str, table: dict[str, Any]) -> None:
    """Print one line of counts."""
    cells = [f"{name} {table[name]['precision']!s:>5} {table[name]['recall']!s:>5}" for name in NAMES]
    print(f"  {title:22} {'   '.join(cells)}   none called {table['none']['share']}")


def write(constant: Array, weights: Array, least: dict[str, float], names: Sequence[str]) -> None:
    """Write the file of the weights."""
    lines = [
        "# Weights of the signs of what a message says of the answer before it, fitted by `benchmarks/memory/reply_weights.py`."
    ]
    lines += ["", "# The least probabilities.", "[least]", *(f'"{name}" = {value}' for name, value in least.items())]
    lines += ["", "[constant]", *(f"{name} = {value:.3f}" for name, value in zip(NAMES, constant, strict=True))]
    for column, name in enumerate(NAMES):
        lines += ["", f"[{name}]"]
        lines += [
            f'"{sign}" = {weight:.3f}'
            for sign, weight in zip(names, weights[:, column], strict=True)
            if abs(weight) >= LEAST
        ]
    WEIGHTS.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Fit, print how well messages are read, and write the weights."""
    parser = arguments(__doc__)
    parser.add_argument("--write", action="store_true", help="write the weights into reply_weights.toml")
    options = parser.parse_args()
    fitted, folds = load_fit()
    apart = {"folds": fitted.judge_apart(folds), "languages": fitted.judge_apart(fitted.languages)}
    least = find_least(fitted, apart["folds"])
    record: dict[str, Any] = {
        "messages": sum(row["sample"] != "crossed" for row in fitted.rows),
        "least": least,
        "rules": {},
        **{name: {} for name in apart},
    }
    for sample, chosen in SAMPLES.items():
        places = [at for at, row in enumerate(fitted.rows) if chosen(row)]
        print(f"{sample}: {len(places)} messages; of each name precision and recall")
        record["rules"][sample] = count((fitted.rules[at], fitted.rows[at]["label"]) for at in places)
        show("rules alone", record["rules"][sample])
        for name, chances in apart.items():
            record[name][sample] = count(
                (name_of(chances[at], least, fitted.rules[at]), fitted.rows[at]["label"]) for at in places
            )
            show(f"weighed, apart by {name}", record[name][sample])
    every = np.ones(len(fitted.rows), dtype=bool)
    constant, weights = fitted.fit(every)
    largest = dict(zip(fitted.names, np.abs(weights).max(1), strict=True))
    heavy = set(sorted(fitted.words, key=largest.__getitem__)[-WORDS:])
    used = [
        name for name in fitted.names if largest[name] >= LEAST and (name not in set(fitted.words) or name in heavy)
    ]
    constant, weights = fitted.fit(every, used)
    weights[len(fitted.names) - len(fitted.words) :] *= WORD
    record["signs"] = len(used)
    print(f"{len(used)} signs weigh, {len(heavy)} of them words; least probabilities {least}")
    if options.write:
        write(constant, weights, least, fitted.names)
    save(options.json, {"command": "python -m benchmarks.memory.reply_weights", "machine": machine(), **record})


if __name__ == "__main__":
    main()
