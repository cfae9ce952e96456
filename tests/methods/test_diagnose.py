"""Protocols on finished runs and evaluations, on numbers that were worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.finished_runs import FinishedRun
from keepworth.methods.studies import _finished_runs, domains, hierarchy, self_prm, spurious
from keepworth.methods.studies._finished_runs import share_out
from keepworth.methods.studies._passes import compare_passes, crossing, pass_at, pass_curves
from keepworth.methods.studies.persistbench import best_by_words, read_samples, still_shown
from keepworth.methods.studies.three_settings import place_evidence
from keepworth.methods.studies.tulving import mean_of_types
from keepworth.methods.studies.tulving import run as sum_up_books
from keepworth.records.episode import Task
from keepworth.records.model import FinishReason, Sample
from keepworth.worlds.entries import MemoryEntry
from tests.episode_of import call_of, episode_of
from tests.evaluation.finished import evaluation
from tests.methods.test_studies import BOOK


def test_pass_at_k_by_hand_and_by_counting() -> None:
    assert pass_at(4, 1, 1) == 0.25
    assert pass_at(5, 2, 2) == 0.7  # 1 - 3/10
    assert pass_at(10, 3, 5) == 1 - 21 / 252
    assert pass_at(20, 3, 5) == pytest.approx(0.6008771930)
    assert pass_at(64, 0, 64) == 0.0
    assert pass_at(64, 60, 5) == 1.0
    for n, c, k in ((6, 2, 3), (7, 1, 4), (5, 5, 1)):
        draws = list(combinations(range(n), k))
        assert pass_at(n, c, k) == sum(min(draw) < c for draw in draws) / len(draws)
    with pytest.raises(ValueError, match="k=5"):
        pass_at(4, 1, 5)


def test_pass_at_k_has_no_bias() -> None:
    right = np.random.default_rng(0).binomial(16, 0.1, size=4000)
    assert pass_curves(right.tolist(), 16)[:, 3].mean() == pytest.approx(1 - 0.9**4, abs=0.01)


def test_curves_cross_where_the_tuned_model_only_sharpened_the_base() -> None:
    # Tuned: half of the questions always, the others never. Base: all questions, one answer in four. By hand: pass@1 1/2 against
    # 1/4, pass@2 1/2 against 1 - C(6,2)/C(8,2) = 13/28, pass@3 1/2 against 1 - C(6,3)/C(8,3) = 9/14.
    counts = {"tuned": [8] * 10 + [0] * 10, "base": [2] * 20}
    rows = {row["arm"]: row for row in compare_passes(counts, 8, [str(number) for number in range(20)])}
    assert rows["base, pass@2"]["mean"] == pytest.approx(13 / 28)
    assert rows["tuned minus base, pass@1"]["mean"] == 0.25
    assert rows["tuned minus base, pass@2"]["mean"] == pytest.approx(1 / 2 - 13 / 28)
    assert rows["tuned minus base, pass@8"]["mean"] == -0.5
    assert rows["solved by base alone, in 8"]["mean"] == 0.5
    assert rows["solved by tuned alone, in 8"]["mean"] == 0.0
    crossed = rows["k from which the other is ahead, 9 for never"]
    assert crossed["mean"] == 3
    assert 1 <= crossed["low"] <= 3 <= crossed["high"] <= 9
    never = compare_passes({"tuned": [4] * 5, "base": [1] * 5}, 8, list("abcde"))[-1]
    assert (never["low"], never["mean"], never["high"]) == (9, 9, 9)
    assert crossing(np.zeros(3)) == math.inf


def test_a_cluster_of_questions_is_resampled_whole() -> None:
    counts = {"tuned": [8, 8, 0, 0] * 4, "base": [2] * 16}
    rows = compare_passes(counts, 8, [cluster for cluster in "abcd" for _ in range(4)])
    assert {row["clusters"] for row in rows} == {4}
    crossed = rows[-1]
    assert (crossed["low"], crossed["mean"], crossed["high"]) == (3, 3, 3), "all clusters are alike"


def test_an_answer_is_as_good_as_its_weakest_step() -> None:
    steps = ["g(red sun) = sun red,", " f(sun red) = sun blue"]
    assert self_prm.grounded("f(g(red sun))", steps) == 0.8, "four of the last step's five words were there before"
    assert self_prm.grounded("f(g(red sun))", []) == 0.0
    assert self_prm.choose([0.2, 0.9, 0.9], [1.0, 1.0, 0.0]) == 0.5, "of equals one is taken at random"
    assert self_prm.ahead([3.0, 1.0, 2.0, 1.0], [1.0, 0.0, 0.0, 1.0]) == (1 + 1 + 0.5 + 0) / 4


def test_answers_are_chosen_by_their_weakest_step() -> None:
    class Model:
        def encode(self, text: str) -> str:
            return text

        encode_continuation = encode

        def score(self, prompts: list[str], branches: list[list[str]]) -> list[list[tuple[float]]]:
            return [[(-1.0,), (-9.0,)] if "wrong" not in text else [(-9.0,), (-1.0,)] for text in prompts]

        def decode(self, ids: list[int]) -> str:
            return "," if ids == [2] else "x"

    texts = ("a is b, b is c", "a is b, wrong, b is c", "b is c")
    drawn = Sample((1, 2, 3), (-1.0, -2.0, -0.5), FinishReason.STOP, ())
    calls = [replace(call_of("a", (), drawn), text=text) for text in texts]
    episodes = [episode_of("e", [call], question="q", answer=call.text) for call in calls]
    assert self_prm.assess(Model(), episodes) == [8.0, -8.0, 8.0]
    assert self_prm.likelihood(Model(), episodes[0]) == -1.5
    assert self_prm.vote([episodes[0], episodes[1], episodes[0]], [1.0, 0.0, 1.0]) == 1.0


def test_a_tree_has_every_edge_once_and_answers_by_level() -> None:
    leaves = hierarchy.draw_tree(2, 0)
    names = {name for leaf in leaves for name in (leaf.name, *leaf.path)}
    assert len(leaves) == 16
    assert len(names) == 2 + 4 + 8 + 16
    assert len(hierarchy.edges_of(leaves)) == 4 + 8 + 16
    leaf = hierarchy.Leaf("Belko", ("Fam", "Ord", "Rea"))
    assert leaf.ask(2, path=True) == ("Which realm is Belko of? Name the path.", " Fam, Ord, Rea.")
    assert leaf.ask(2, path=False)[1] == " Rea."
    assert hierarchy.stated(" Fam, Ord, Rea. Then") == leaf.path


def test_questions_are_shared_among_sets_of_a_tier() -> None:
    sets = {"long": list("abcdefgh"), "short": list("xy"), "middle": list("pqrst")}
    assert {name: len(tasks) for name, tasks in share_out(sets, 9).items()} == {"short": 2, "middle": 3, "long": 4}  # type: ignore[arg-type]


class Asked(FinishedRun):
    """A run whose model is its name."""

    def weights(self) -> Any:
        return self.name

    def before(self) -> Any:
        return "base"


def asked(name: str, questions: str, objective: str = "") -> Asked:
    """A run that is asked four questions of four kinds."""
    folder: Any = SimpleNamespace(name=name, config={"model": "m", "objective": objective})
    tasks = [Task(f"{questions}/{number}", "", f"{questions} {number}?", ("1",), "exact_match") for number in range(4)]
    return Asked(folder, [], {"test": tasks}, None, {}, pytest.fail)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """The share of four answers that are right, by model and by whose questions they are."""
    right: dict[tuple[str, str], float] = {}

    def rewards_of(run: Asked, model: str, sets: dict[str, list[Task]], samples: int, seed: int) -> list[list[float]]:
        solved = round(right[model, run.name] * samples)
        return [[1.0] * solved + [0.0] * (samples - solved) for tasks in sets.values() for _ in tasks]

    monkeypatch.setattr(_finished_runs, "rewards_of", rewards_of)
    return right


Shares = dict[tuple[str, str], float]


def test_transfer_matrix_merges_domains_with_equal_questions(shares: Shares) -> None:
    shares |= {("base", "a"): 0.25, ("base", "b"): 0.25, ("a", "a"): 1.0, ("a", "b"): 0.0, ("b", "a"): 0.5}
    shares |= {("b", "b"): 0.75, ("again", "a"): 0.5, ("again", "b"): 0.25}
    runs = [asked("a", "sums"), asked("b", "words"), asked("again", "sums")]
    rows = {row["arm"]: row["mean"] for row in domains.diagnose(runs)}
    assert rows["a on b"] == 0.0
    assert {name for name in rows if " minus " in name and " on again" in name} == set()
    gains = [rows[f"{who} minus base on {on}"] for who in ("a", "b", "again") for on in "ab"]
    assert gains == [0.75, -0.25, 0.25, 0.5, 0.25, 0.0]
    assert rows["gain where it was trained"] == pytest.approx((0.75 + 0.5 + 0.25) / 3)
    assert rows["gain elsewhere"] == pytest.approx((-0.25 + 0.25 + 0.0) / 3)


def test_diagnosis_separates_rewards_from_random_ones(shares: Shares) -> None:
    shares |= {("base", "mine"): 0.25, ("mine", "mine"): 0.75, ("coins", "mine"): 0.5}
    runs = [asked("coins", "sums", "{'advantage': 'Spurious(0.5)'}"), asked("mine", "sums")]
    rows = {row["arm"]: row["mean"] for row in spurious.diagnose(runs)}
    alone = {"mine": 0.75, "coins": 0.5, "base": 0.25}
    apart = {"mine minus coins": 0.25, "mine minus base": 0.5, "coins minus base": 0.25}
    assert rows == {f"{arm}, unseen": mean for arm, mean in {**alone, **apart}.items()}
    with pytest.raises(KeepworthError, match="not trained from one model on one recipe"):
        spurious.diagnose([runs[0], asked("mine", "words")])


def test_a_book_has_two_scores_and_groups_count_alike(tmp_path: Path) -> None:
    # Of each of three books a question of each type. Simple recall: (0 + 1 + 1 + 0.5 + 0.5) / 5; chronology: (1 + 0.5) / 2.
    scores = [[0.0], [1.0], [1.0], [0.5], [0.5], [1.0], [0.5]] * 3
    evaluation(tmp_path / "book", {"a": scores, "none": [[0.0]] * 21}, BOOK, ["x", "y", "z"])
    rows = {row["arm"]: row for row in sum_up_books(folder=str(tmp_path / "book"))}
    means = {"simple recall": 0.6, "of what no event matches": 0, "chronological awareness": 0.75, "Kendall's tau": 0.5}
    assert {name: rows[f"a: {name}"]["mean"] for name in means} == pytest.approx(means)
    assert rows["none: simple recall"]["mean"] == 0.0
    assert {row["clusters"] for row in rows.values()} == {3}
    assert mean_of_types({"1": [1.0, 1.0, 1.0], "2": [0.0]}, ["1", "2"]) == 0.5, "a type counts once, whatever its size"
    assert mean_of_types({"1": [1.0]}, ["1", "2"]) is None


def test_an_evaluation_of_something_else_is_no_book(tmp_path: Path) -> None:
    evaluation(tmp_path / "other", {"a": [[1.0]] * 3})
    with pytest.raises(KeepworthError, match="holds no answers of all types"):
        sum_up_books(folder=str(tmp_path / "other"))


def test_evidence_stands_together_where_it_is_put() -> None:
    entries = [MemoryEntry(text, "s", number, 0, "user", "", text in "AB") for number, text in enumerate("pAqBrs")]
    placed = {place: "".join(entry.text for entry in place_evidence(entries, place)) for place in (0, 0.5, 1)}
    assert placed == {0: "ABpqrs", 0.5: "pqABrs", 1: "pqrsAB"}


def test_a_threshold_that_nine_of_ten_pass_is_put_to_the_others() -> None:
    needed = [float(score) for score in range(1, 11)]
    assert still_shown(needed, [0.5, 1.0, 2.0, 9.0]) == [0.0, 1.0, 1.0, 1.0]
    assert still_shown([3.0] * 10, [2.9, 3.0]) == [0.0, 1.0]
    assert best_by_words("Where is my bicycle?", ["Rain fell.", "Tea tastes good."]) == 0.0
    assert best_by_words("Where is my bicycle?", ["The bicycle rusts.", "Tea tastes good."]) > 0.0


def test_missing_samples_are_named_with_their_package(tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match="PersistBench is not shipped") as absent:
        read_samples(str(tmp_path))
    assert "pip install --no-deps inspect-evals" in absent.value.fix
