"""Put the tables of load.json and accuracy.json into docs/appendix/speed.md, so that no number is typed by hand.

python -m benchmarks.serving.page
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.serving import accuracy, load
from benchmarks.speed.setting import HERE
from benchmarks.tables import filled, markdown, takes_nothing

PAGE = load.PATH.parents[2] / "docs" / "appendix" / "speed.md"
ARRIVALS = {0.25: "bursts (0.25)", 1.0: "random (1)", 4.0: "regular (4)"}
ALONE, FOUR, SIXTEEN, TOGETHER, KEPT, ROUNDED = (arm.name for arm in load.ARMS)
UNKNOWN = "not looked at"
Run = dict[str, Any]


def runs(result: Run, arm: str, shape: float) -> list[Run]:
    return [each for each in result["runs"] if (each["arm"], each["shape"]) == (arm, shape)]


def cells(result: Run) -> list[tuple[str, float]]:
    """What was run, bursts first, arms in their order."""
    done = {(each["arm"], each["shape"]) for each in result["runs"]}
    return [(arm.name, shape) for shape in load.SHAPES for arm in load.ARMS if (arm.name, shape) in done]


def pooled(own: Sequence[Run], name: str) -> list[float]:
    """ "first", "last", or "further": seconds of each request of all seeds. Each further token is a mean over its answer."""
    if name != "further":
        return [each for run in own for each in run[name]]
    return [
        (last - first) / (tokens - 1)
        for run in own
        for first, last, tokens in zip(run["first"], run["last"], run["tokens"], strict=True)
        if tokens > 1
    ]


def percentile(seconds: Sequence[float], share: float) -> float:
    return float(np.percentile(seconds, share))


def percentiles(seconds: Sequence[float], digits: int, unit: float = 1.0) -> str:
    """p50, p95 and, of a hundred or more, p99."""
    shares = (50, 95, 99) if len(seconds) >= 100 else (50, 95)
    return " / ".join(f"{unit * percentile(seconds, share):.{digits}f}" for share in shares)


def mean(own: Sequence[Run], name: str) -> float:
    return float(np.mean([each[name] for each in own]))


def waits(result: Run) -> str:
    lines = []
    for arm, shape in cells(result):
        own = runs(result, arm, shape)
        lines.append(
            (
                ARRIVALS[shape],
                arm,
                len(pooled(own, "last")),
                percentiles(pooled(own, "first"), 1),
                percentiles(pooled(own, "further"), 0, 1000) if arm != ALONE else "",
                percentiles(pooled(own, "last"), 1),
                ", ".join(f"{percentile(each['last'], 95):.1f}" for each in own),
                f"{mean(own, 'busy_seconds') / result['requests']:.2f}",
                f"{sum(each['same_answers'] for each in own)} of {sum(len(each['tokens']) for each in own)}",
            )
        )
    waited = ("first token, s", "each further token, ms", "whole answer, s", "its p95 by seed")
    head = ("arrivals", "server", "n", *waited, "computing a request, s", "as drawn alone")
    about, prompts, alone = result["machine"], result["prompts"], result["alone"]
    answers = [len(each) for each in alone["answers"]]
    share = [each["cpu_seconds"] / each["busy_seconds"] for each in result["runs"]]
    return (
        markdown(head, lines, left=2)
        + f"\n\np50 / p95, and p99 where n is 100 or more (there it is the second longest), from when a request was due. Each "
        f"seed has {result['requests']} requests. Prompts of {min(prompts['tokens'])} to {max(prompts['tokens'])} "
        f"tokens, of which "
        f"{prompts['shared']} are shared; answers of {min(answers)} to {max(answers)} tokens (mean "
        f"{np.mean(answers):.0f}). A "
        f"request takes {np.mean(alone['seconds']):.2f} s alone; load {result['load']}. {about['processor']}; one "
        f"thread, other "
        f"work paused: the processor computed in {100 * min(share):.0f} to {100 * max(share):.0f} % of the time. "
        f"{result['model']}, "
        f"bf16; torch {about['versions']['torch']}; revision {about['revision']}, {about['measured_at'][:10]}."
    )


def memory(result: Run) -> str:
    lines = []
    for arm, shape in cells(result):
        own = runs(result, arm, shape)
        reserved = max(each["bytes_reserved"] for each in own)
        lines.append(
            (
                ARRIVALS[shape],
                arm,
                f"{mean(own, 'bytes_mean') / 1e6:.0f} ± {mean(own, 'bytes_deviation') / 1e6:.0f}",
                f"{max(each['bytes_highest'] for each in own) / 1e6:.0f}",
                f"{reserved / 1e6:.0f}" if reserved else "",
                f"{mean(own, 'live'):.1f}",
                f"{100 * mean(own, 'one_live'):.0f} %",
            )
        )
    head = (
        "arrivals",
        "server",
        "in use, MB, mean ± deviation",
        "highest",
        "reserved",
        "sequences",
        "one sequence alone",
    )
    return (
        markdown(head, lines, left=2)
        + "\n\nKeys and values, over all time from the first request to the last answer. Sequences drawn for together, and the "
        "share of time with one, are of the time of computing. Means over seeds; the highest of all."
    )


def turned(each: Run) -> str:
    """Answers that became right and wrong, and the sign test of them."""
    from scipy.stats import binomtest

    gained, lost = each["gained"], each["lost"]
    if not gained + lost:
        return ""
    return f"(+{gained}, -{lost}; p {binomtest(gained, gained + lost).pvalue:.2f})"


def correctness(result: Run) -> str:
    """The answers: greedy ones in bfloat16, and drawn ones in float64."""

    def same(each: Run | None) -> str:
        return f"{each['same_answers']} of {each['answers']}" if each else ""

    lines = [
        (
            name,
            same(each),
            f"{each['same_tokens']} of {each['tokens']}",
            f"{each['right']} {turned(each)}".strip(),
            same(result["drawn"].get(name)),
        )
        for name, each in result["greedy"].items()
    ]
    head = (
        "server",
        "same greedy answers",
        "tokens before the first that differs",
        "right",
        "same answers in float64, drawn",
    )
    return (
        markdown(head, lines)
        + "\n\nBeside whole answers, one at a time. Right: an answer contains the words that count as right; in brackets how "
        f"many became right, and wrong, and p of the sign test. Drawn: at temperature 1. Revision "
        f"{result['machine']['revision']}, "
        f"{result['machine']['measured_at'][:10]}."
    )


def held(*conditions: bool) -> str:
    return "yes" if all(conditions) else "in part" if any(conditions) else "no"


def claims(result: Run, answers: Run, weights: int) -> str:
    """What of the study's claims was looked at, and what was seen. weights: their bytes."""
    bursts = {arm.name: runs(result, arm.name, 0.25) for arm in load.ARMS}

    def seconds(name: str, what: str, share: int, shape: float = 0.25) -> float:
        return percentile(pooled(runs(result, name, shape), what), share)

    def of_all(name: str, what: str) -> float:
        return mean(bursts[name], what)

    highest = max(each["bytes_highest"] for each in bursts[SIXTEEN])
    varies = of_all(SIXTEEN, "bytes_deviation") / of_all(SIXTEEN, "bytes_mean")
    rounded, kept, plain = (answers["greedy"][name] for name in (ROUNDED, KEPT, SIXTEEN))
    longer = {name: seconds(name, "last", 95) / seconds(name, "last", 95, 4.0) for name in (ALONE, FOUR, SIXTEEN)}
    computing = {name: of_all(name, "busy_seconds") / of_all(SIXTEEN, "busy_seconds") for name in (ROUNDED, KEPT)}
    lines = [
        (
            "Memory in use is large, and goes up and down",
            held(highest > weights, varies > 0.5),
            f"It goes up and down: in bursts by {100 * varies:.0f} % of its mean. It is not large: "
            f"{highest / 1e6:.0f} MB at the "
            f"highest, {100 * highest / weights:.0f} % of the weights, because answers are short.",
        ),
        (
            "Long answers hold up the others",
            held(seconds(TOGETHER, "last", 95) > seconds(FOUR, "last", 95)),
            f"Where slots wait for each other: p95 of whole answers is {seconds(TOGETHER, 'last', 95):.1f} s if 4 slots are "
            f"refilled when all are free, and {seconds(FOUR, 'last', 95):.1f} s if each is refilled at once. One "
            f"sequence is alone "
            f"in {100 * of_all(TOGETHER, 'one_live'):.0f} and {100 * of_all(FOUR, 'one_live'):.0f} % of the time.",
        ),
        (
            "Harder questions take longer",
            UNKNOWN,
            "This model does not reason, and answers have 32 tokens at most.",
        ),
        ("How well it does depends on the domain", UNKNOWN, "All questions are of one kind."),
        (
            "Weights in fewer bits serve faster, at a small loss",
            held(computing[ROUNDED] < 0.95, rounded["same_answers"] > 0.9 * plain["same_answers"]),
            f"Computing takes {computing[ROUNDED]:.2f} times as long. {rounded['same_answers']} of "
            f"{rounded['answers']} greedy "
            f"answers stay the same, beside {plain['same_answers']} in bfloat16. {rounded['right']} are right, beside "
            f"{plain['right']}.",
        ),
        (
            "Drafted tokens serve faster, at a small loss",
            UNKNOWN,
            "See [a drafter](asynchrony.md#a-drafter-that-guesses-the-next-tokens).",
        ),
        (
            "Keeping a common beginning may hurt small models",
            held(computing[KEPT] > 1, kept["right"] < plain["right"]),
            f"Computing takes {computing[KEPT]:.2f} times as long, and the median first token comes after "
            f"{seconds(KEPT, 'first', 50):.1f} s in place of {seconds(SIXTEEN, 'first', 50):.1f}. {kept['same_answers']} of "
            f"{kept['answers']} greedy answers stay the same, beside {plain['same_answers']}. {kept['right']} are "
            f"right, beside "
            f"{plain['right']}.",
        ),
        ("Keys and values in fewer bits may hurt small models", UNKNOWN, "They are kept in float32."),
        (
            "It is alike where requests come in bursts",
            held(
                *(
                    seconds(name, "last", 95, shape) < seconds(ALONE, "last", 95, shape)
                    for name in (FOUR, SIXTEEN)
                    for shape in load.SHAPES
                )
            ),
            "Looked at: whether slots beat one at a time with all arrivals. In bursts callers wait longer, at the same load: p95 "
            "of whole answers is "
            + ", ".join(f"{each:.1f} times ({name})" for name, each in longer.items())
            + " that of regular arrivals.",
        ),
    ]
    return markdown(("what the study says", "here", "at this size"), lines, align="---")


def tables() -> dict[str, Callable[[], str]]:
    result, answers = (json.loads(path.read_text()) for path in (load.PATH, accuracy.PATH))
    weights = json.loads((HERE / "phases.json").read_text())["weight_bytes"]
    return {
        "serving": lambda: waits(result),
        "serving-memory": lambda: memory(result),
        "serving-accuracy": lambda: correctness(answers),
        "serving-claims": lambda: claims(result, answers, weights),
    }


def main() -> None:
    takes_nothing(__doc__)
    for name, render in tables().items():
        filled(PAGE, name, render())


if __name__ == "__main__":
    main()
