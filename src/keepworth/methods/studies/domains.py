"""What carries over from one domain to another: the weights of each run, tested on the questions of all of them.

`keepworth methods run domains --set trained=strings,arithmetic` asks the test questions of every run, of the weights of every
run and of the model that all began from. The rows "A minus base on B" are the matrix of "Can One Domain Help Others? A
Data-Centric Study on Multi-Domain Reasoning via Reinforcement Learning", arXiv 2507.17512; where A is B, it is what was trained
for.
"""

from __future__ import annotations

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.studies._passes import difference_row, need_clusters
from keepworth.registry import Method
from keepworth.tasks.splits import draw_order

BASE = "base"


def run(
    *,
    trained: str = "strings,arithmetic",
    questions: int = 32,
    samples: int = 4,
    right: float = 0.5,
    seed: int = 0,
    runs: str = "runs",
) -> Rows:
    """The share of right answers of every run on every run's test questions, and what that is above the model before.

    Args:
        trained: Finished runs that began from one model, with commas.
        questions: Of each run's test questions, at most.
        samples: Answers to each.
        right: The reward from which an answer counts as right.
        seed: Of the draws.
        runs: The folder that runs are in.
    """
    from keepworth.methods.studies._runs import finished_run, rewards_of

    names = [name.strip() for name in trained.split(",") if name.strip()]
    if len(set(names)) < max(2, len(names)) or samples < 1 or questions < 3:
        raise KeepworthError(
            f"trained={trained}, questions={questions}, samples={samples}: two runs or more, each once, 3 questions, 1 sample.",
            "Write --set trained=ONE,OTHER",
        )
    finished = {name: finished_run(name, runs) for name in names}
    bases = {run.base for run in finished.values()}
    if len(bases) > 1:
        raise KeepworthError(
            f"the runs began from several models: {', '.join(sorted(bases))}.", "Name runs that began from one model."
        )
    asked, clusters = {}, {}
    for name, run in finished.items():
        tests = [(name_of_set, task) for name_of_set, tasks in run.test.items() for task in tasks]
        drawn = sorted(tests, key=lambda pair: draw_order("domains", seed, pair[1].key))[:questions]
        asked[name] = {of: [task for at, task in drawn if at == of] for of in dict.fromkeys(at for at, _ in drawn)}
        clusters[name] = [f"{name}/{run.cluster(task)}" for tasks in asked[name].values() for task in tasks]
        need_clusters(f"the test of {name}", clusters[name])
    shares: dict[tuple[str, str], list[float]] = {}
    for who in (BASE, *names):
        model = finished[names[0]].before() if who == BASE else finished[who].weights()
        for name, sets in asked.items():
            rewards = rewards_of(finished[name], model, sets, samples, seed)
            shares[who, name] = [sum(value >= right for value in of_one) / samples for of_one in rewards]
        del model
    rows: Rows = []
    transfer: dict[bool, tuple[list[float], list[str]]] = {True: ([], []), False: ([], [])}
    for name in names:
        rows += rows_of({f"{who} on {name}": shares[who, name] for who in (BASE, *names)}, clusters[name])
        for who in names:
            gains = [new - old for new, old in zip(shares[who, name], shares[BASE, name], strict=True)]
            rows.append(difference_row(f"{who} minus {BASE} on {name}", gains, clusters[name]))
            transfer[who == name][0].extend(gains)
            transfer[who == name][1].extend(clusters[name])
    rows.append(difference_row("gain where it was trained", *transfer[True]))
    rows.append(difference_row("gain elsewhere", *transfer[False]))
    return rows


METHOD = Method(
    kind="study",
    name="domains",
    title="Cross-domain matrix",
    paper="arXiv 2507.17512",
    about="Tests the weights of each run on the questions of all runs: what carries over, and what is lost",
    claim="Reinforcement in one domain may help or harm in another; which it does depends on the pair.",
    differs="The domains are recipes of small tasks, where the paper has mathematics, code and puzzles.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(run, "share of answers that are right"),
    extra="train",
)
