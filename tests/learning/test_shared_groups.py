"""Groups that runs share through a folder: what is learned from, what is refused and why, and that nothing of it ends a run."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keepworth.episodes import Episode, Task
from keepworth.learning.collect import shared_groups
from keepworth.learning.collect.groups import RecordedContext
from keepworth.learning.collect.pipeline import Pipeline, synchronous
from keepworth.learning.collect.shared_groups import (
    AHEAD,
    MOST_BYTES,
    TRIES,
    Refused,
    Sharing,
    SharingTerms,
    digest_of,
    shared_group,
)
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.models.adapter import unfreeze
from tests.learning.letters import OBJECTIVE, Letters
from tests.models.tiny import tiny_model

NOW = 1_800_000_000.0
LENGTH = 6


class Telling(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def letters() -> Letters:
    return Letters(lengths=lambda index: LENGTH)


def tasks() -> list[Task]:
    return [letters().task(index) for index in range(5)]


def node(
    root: Path,
    name: str,
    steps: int,
    foreign: int = 2,
    size: int = 3,
    own: int = 2,
    played: Letters | None = None,
    seed: int = 0,
    known: list[Task] | None = None,
    **schedule: int,
) -> tuple[RunFolder, Learner, list[str]]:
    """Trains a run that shares through root/shared, or continues it. played: what its episodes are; seed: of what it draws."""
    model = tiny_model(hidden=16)
    learner = Learner(model, unfreeze(model), OBJECTIVE, Optimisation(learning_rate=1e-2), "speaker")
    played, telling = played or letters(), Telling()
    with RunFolder.create(root / name, {}, clock=lambda: NOW) as run:
        inner = Pipeline(run, learner, played, synchronous(own, size, seed=seed))
        terms = SharingTerms(foreign, size, seed=seed)
        collector = Sharing(
            inner, run, root / "shared", model, played.rollout, tasks() if known is None else known, terms, lambda: NOW
        )
        train(run, learner, collector, Schedule(steps, 100, schedule.get("checkpoint_every", 2)), telling, "shared")
    return run, learner, telling.notes


def published(root: Path) -> list[Path]:
    return sorted((root / "shared").glob("*/*.json"))


def forged(path: Path, change: Callable[[dict[str, Any]], Any], to: Path | None = None) -> Path:
    """The group at `path` as a liar would write it, digest and all."""
    record = json.loads(path.read_text())
    change(record)
    target = to or path
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**record, "digest": digest_of(record)}))
    return target


def alone(path: Path) -> Path:
    """The only group that is left in the folder."""
    for each in published(path.parents[2]):
        if each != path:
            each.unlink()
    return path


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("donor")
    node(root, "b", 3, foreign=0, seed=5)
    return root


@pytest.fixture
def root(donor: Path, tmp_path: Path) -> Path:
    """A folder with what one other node has published."""
    for path in published(donor):
        copy = tmp_path / path.relative_to(donor)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert len(published(tmp_path)) >= 4
    return tmp_path


def test_groups_of_another_node_are_trained_on_once_and_the_run_says_where_they_came_from(root: Path) -> None:
    offered = {f"{path.parent.name}/{path.stem}" for path in published(root)}
    run, _, notes = node(root, "a", 4)
    rows = [row for row in run.shared() if row["what"] == "trained"]
    names = [row["name"] for row in rows]
    assert set(names) == offered
    assert len(names) == len(set(names))
    assert notes == []
    for row in rows:
        own = [each.episode for each in run.episodes(arm="train", step=row["step"])]
        foreign = [each for each in own if each.id.startswith(f"{row['name']}/")]
        assert [each.id for each in foreign] == [f"{row['name']}/{member}" for member in range(3)]
        record = json.loads((root / "shared" / f"{row['name']}.json").read_text())
        assert [[list(s.ids) for s in each.segments] for each in foreign] == [
            each["calls"] for each in record["members"]
        ]
        assert row["reward"] == pytest.approx(sum(each.reward for each in foreign) / 3)
        assert row["reward"] == pytest.approx(row["claimed"])
        assert (row["run"], row["model"], row["age"]) == ("b", "tiny", 0.0)
        assert row["digest"] == record["digest"]
    counted = [int(row["shared/foreign"]) for row in run.metrics()]
    assert [row["episodes"] for row in run.metrics()] == [3 * (2 + each) for each in counted]
    assert sum(counted) == len(names)
    assert counted[0] == 2


def test_log_probabilities_are_those_of_the_weights_that_learn(root: Path) -> None:
    model = tiny_model(hidden=16)
    run, _, _ = node(root, "a", 1)
    foreign = [each.episode for each in run.episodes(arm="train") if not each.episode.id[0].isdigit()]
    assert foreign
    for episode in foreign:
        (segment,) = episode.segments
        ((expected,),) = model.score([segment.context], [[segment.ids]])
        torch.testing.assert_close(torch.tensor(segment.logprobs), torch.tensor(expected))
        assert segment.context == tuple(f"letters {episode.task[-1]}:".encode())
        assert [span.version for span in segment.spans] == [0]
    assert "lag/0/reward" not in run.metrics()[0]
    assert run.metrics()[0]["lag_p95"] == 0


def test_a_claimed_reward_is_written_down_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    honest, learner, _ = node(root, "honest", 2)
    for path in published(root):
        if "honest" in path.parent.name:
            path.unlink()
        else:
            forged(path, lambda record: [each.update(reward=1e9) for each in record["members"]])
    lied, other, _ = node(root, "lied", 2)
    rows = [row for row in lied.shared() if row["what"] == "trained"]
    assert [row["claimed"] for row in rows] == [1e9] * len(rows)
    assert [row["reward"] for row in rows] == [row["reward"] for row in honest.shared() if row["what"] == "trained"]
    for name, value in learner.model.network.state_dict().items():
        assert torch.equal(value, other.model.network.state_dict()[name]), name


def test_without_foreign_groups_a_run_that_publishes_is_the_run_that_does_not(tmp_path: Path) -> None:
    node(tmp_path, "other", 2, foreign=0, seed=3)
    publishing, learner, _ = node(tmp_path, "publishing", 3, foreign=0)
    model = tiny_model(hidden=16)
    plain = Learner(model, unfreeze(model), OBJECTIVE, Optimisation(learning_rate=1e-2), "speaker")
    with RunFolder.create(tmp_path / "plain", {}, clock=lambda: NOW) as run:
        train(
            run,
            plain,
            Pipeline(run, plain, letters(), synchronous(2, 3)),
            Schedule(3, 100, 2),
            SilentProgress(),
            "plain",
        )
    for name, value in learner.model.network.state_dict().items():
        assert torch.equal(value, model.network.state_dict()[name]), name
    assert [each.episode.segments for each in publishing.episodes()] == [
        each.episode.segments for each in run.episodes()
    ]
    assert not (run.path / "shared.jsonl").exists()
    assert publishing.shared() == []


def refusals(root: Path, steps: int = 1, **more: Any) -> list[str]:
    """Why groups were refused in a run that ended well all the same."""
    run, _, notes = node(root, "a", steps, **more)
    assert [row["step"] for row in run.metrics()] == list(range(1, steps + 1))
    rows = [row for row in run.shared() if row["what"] == "refused"]
    assert sum(row["shared/refused"] for row in run.metrics()) == len(rows)
    assert len(notes) == len({row["reason"] for row in rows})
    return [row["reason"] for row in rows]


def member(record: dict[str, Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = record["members"][number]
    return found


LIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format": (lambda r: r.update(format=2), "format"),
    "unknown field": (lambda r: r.update(extra="rm -rf"), "extra"),
    "type": (lambda r: member(r).update(calls="aGVsbG8="), "members.0.calls"),
    "reward as text": (lambda r: member(r).update(reward="1.0"), "members.0.reward"),
    "id as float": (lambda r: member(r)["calls"].__setitem__(0, [1.5] * LENGTH), "members.0.calls.0.0"),
    "id as truth": (lambda r: member(r)["calls"].__setitem__(0, [True] * LENGTH), "members.0.calls.0.0"),
    "negative id": (lambda r: member(r)["calls"][0].__setitem__(0, -1), "members.0.calls.0.0"),
    "no calls": (lambda r: member(r).update(calls=[]), "members.0.calls"),
    "empty call": (lambda r: member(r).update(calls=[[]]), "members.0.calls.0"),
    "out of vocabulary": (lambda r: member(r)["calls"][0].__setitem__(0, 257), "token id 257"),
    "too long": (lambda r: member(r)["calls"][0].append(7), f"{LENGTH + 1} tokens where {LENGTH}"),
    "cut": (lambda r: member(r)["calls"][0].pop(), "stops in the middle"),
    "more calls": (lambda r: member(r)["calls"].append([7] * LENGTH), "goes on where the episode ended"),
    "unknown task": (lambda r: r.update(task="../../etc/passwd"), "none of those that are trained on"),
    "other question": (lambda r: r.update(task_digest="0" * 64), "asks something else"),
    "tokenizer": (lambda r: r.update(tokenizer="0" * 64), "of another tokenizer"),
    "future": (lambda r: r.update(time=NOW + AHEAD + 1), "from the future"),
    "members": (lambda r: r["members"].pop(), "2 members"),
    "identical": (lambda r: r.update(members=[member(r)] * 3), "say the same"),
    "other node": (lambda r: r.update(node="somebody-else"), "its place is not"),
    "other group": (lambda r: r.update(group=r["group"] + 1), "its place is not"),
    "traversal": (lambda r: r.update(node="../../a"), "node"),
    "worthless": (
        lambda r: [
            each.update(calls=[[200 + number] * LENGTH], reward=float(number))
            for number, each in enumerate(r["members"])
        ],
        "nothing to learn by the reward here: all 3 rewards are 0",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_fit_is_refused_by_name(root: Path, lie: str) -> None:
    change, reason = LIES[lie]
    forged(alone(published(root)[0]), change)
    (found,) = refusals(root)
    assert reason in found


def raw(text: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(text)


def replaced(old: str, new: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(path.read_text().replace(old, new, 1))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "not a group"),
    "empty": (raw(b""), "not a group"),
    "pickle": (raw(pickle.dumps({"format": 1})), "not a group"),
    "deep": (raw(b"[" * 100_000), "not a group"),
    "not text": (raw(b"\xff\xfe\x00{"), "not a group"),
    "oversized": (raw(b" " * (MOST_BYTES + 1)), "longer than"),
    "digest": (replaced('"version":', '"version": 1'), "digest"),
    "nan": (replaced('"reward":', '"reward": NaN, "was":'), "members.0"),
    "infinite": (replaced('"time":', '"time": 1e999, "was":'), "time"),
    "huge number": (replaced('"version":', f'"version": {"9" * 5000}'), "not a group"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "read"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "not a plain file"),
    "link": (lambda path: (path.rename(path.with_suffix(".was")), path.symlink_to(path.with_suffix(".was"))), "read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_refused_by_name(root: Path, damage: str) -> None:
    change, reason = DAMAGE[damage]
    change(alone(published(root)[0]))
    (found,) = refusals(root)
    assert reason in found


def test_a_pickle_in_the_folder_is_never_loaded(root: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(root / "exploded"),)

    path = alone(published(root)[0])
    path.write_bytes(pickle.dumps(Bomb()))
    (path.parent / "1.pkl").write_bytes(pickle.dumps(Bomb()))
    assert refusals(root)
    assert not (root / "exploded").exists()


def test_the_same_answers_under_another_name_are_trained_on_once(root: Path) -> None:
    path = alone(published(root)[0])
    copies = [forged(path, lambda record, n=n: record.update(group=n), path.with_name(f"{n}.json")) for n in (900, 901)]
    thief = forged(path, lambda record: record.update(node="thief"), path.parent.parent / "thief" / path.name)
    run, _, _ = node(root, "a", 3)
    rows = run.shared()
    assert [row["what"] for row in rows].count("trained") == 1
    assert (
        sorted(row["reason"].split(" as ")[0] for row in rows if row["what"] == "refused") == ["the same answers"] * 3
    )
    assert all(each.exists() for each in (path, *copies, thief))


def test_what_a_node_published_is_not_sold_back_to_it(tmp_path: Path) -> None:
    run, _, _ = node(tmp_path, "a", 2, foreign=1, checkpoint_every=1)
    path = published(tmp_path)[-1]
    forged(path, lambda record: record.update(node="thief"), path.parent.parent / "thief" / path.name)
    run, _, _ = node(tmp_path, "a", 3, foreign=1, checkpoint_every=1)
    assert ["the same answers as" in row["reason"] for row in run.shared()] == [True]


def test_answers_that_no_policy_near_this_one_wrote_are_refused(root: Path) -> None:
    model = tiny_model(hidden=16)
    path = alone(published(root)[0])
    task = json.loads(path.read_text())["task"]

    def unlikely(low: bool) -> list[int]:
        """The ids that the model thinks least likely, one after the other; the first one worth something here, or not."""
        prompt, ids = tuple(f"letters {task[-1]}:".encode()), []
        for place in range(LENGTH):
            some = range(100) if low and not place else range(100, 257)
            scored = model.score([(*prompt, *ids)], [[(each,) for each in some]])[0]
            ids.append(min(zip(scored, some, strict=True))[1])
        return ids

    calls = [[unlikely(True)], [unlikely(False)], [unlikely(False)]]
    forged(path, lambda record: [each.update(calls=own) for each, own in zip(record["members"], calls, strict=True)])
    (reason,) = refusals(root)
    assert "far below chance" in reason


def test_a_reward_that_fails_here_refuses_the_group_and_trains_on_the_rest(root: Path) -> None:
    calls: list[int] = []

    def fails(ids: tuple[int, ...]) -> float:
        calls.append(1)
        if len(calls) > 6:  # after the node's own
            raise OSError("the judge is gone")
        return sum(each < 100 for each in ids) / len(ids)

    alone(published(root)[0])
    (reason,) = refusals(root, played=Letters(lengths=lambda index: LENGTH, score=fails))
    assert "the judge is gone" in reason


def test_a_node_that_floods_gives_no_more_than_its_share_and_costs_few_tries(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood = root / "shared" / "flood"
    path = published(root)[0]
    draw = random.Random(0)
    for number in range(200):
        calls = [[[draw.randrange(257) for _ in range(LENGTH)]] for _ in range(3)]
        forged(
            path,
            lambda record, n=number, c=calls: (
                record.update(node="flood", group=n),
                [each.update(calls=own) for each, own in zip(record["members"], c, strict=True)],
            ),
            flood / f"{number}.json",
        )
    read: list[str] = []
    reading = shared_groups._read
    monkeypatch.setattr(shared_groups, "_read", lambda path: (read.append(path.parent.name), reading(path))[1])
    run, _, _ = node(root, "a", 2, foreign=2)
    taken = [(row["step"], row["node"]) for row in run.shared() if row["what"] == "trained"]
    assert taken.count((1, "flood")) == 1
    assert len([each for each in taken if each[0] == 1]) == 2
    for each in flood.iterdir():
        each.write_text("no group at all")
    for each in published(root):
        if each.parent != flood:
            each.unlink()
    read.clear()
    node(root, "c", 1, foreign=2)
    assert read == ["flood"] * TRIES


def test_folders_of_junk_do_not_hide_a_node(root: Path) -> None:
    for number in range(70):
        junk = root / "shared" / f"a{number:02}"
        junk.mkdir()
        (junk / "1.json").write_text("no group at all")
    run, _, _ = node(root, "a", 3, foreign=1)
    assert any(row["what"] == "trained" for row in run.shared())


def test_names_that_lead_elsewhere_are_ignored(root: Path, tmp_path: Path) -> None:
    shared, (first, *_) = root / "shared", published(root)
    hidden = tmp_path / "elsewhere"
    (shared / first.parent.name).rename(hidden)
    (shared / "linked").symlink_to(hidden)
    (shared / ".hidden").mkdir()
    (shared / "..name").mkdir()
    (shared / "file").write_text("x")
    (shared / "node").mkdir()
    for name in (".1.json.part", "1.pkl", "01.json", "-1.json", "1.json.gz", "x" * 200):
        (shared / "node" / name).write_text("x")
    assert refusals(root) == []


def test_a_folder_that_is_gone_costs_a_note_and_not_the_run(root: Path) -> None:
    class Vanishing(Letters):
        async def rollout(self, task: Task, context: RecordedContext) -> Episode:
            if context.group >= 2:
                (root / "shared").rename(root / "gone") if (root / "shared").exists() else None
            return await super().rollout(task, context)

    run, _, notes = node(root, "a", 3, played=Vanishing(lengths=lambda index: LENGTH))
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert any("nothing is published" in each for each in notes)
    assert any("cannot be read" in each for each in notes)


def test_a_run_that_is_continued_has_its_name_and_trains_nothing_twice(root: Path) -> None:
    class Killed(Letters):
        async def rollout(self, task: Task, context: RecordedContext) -> Episode:
            if context.group >= 6:
                raise KeyboardInterrupt
            return await super().rollout(task, context)

    with pytest.raises(KeyboardInterrupt):
        node(root, "a", 4, foreign=1, played=Killed(lengths=lambda index: LENGTH))
    before = RunFolder.open(root / "a")
    first = before.shared()
    name = before.environment["node"]
    assert [row["step"] for row in first] == [1, 2, 3]
    run, _, _ = node(root, "a", 4, foreign=1)
    rows = run.shared()
    assert run.environment["node"] == name
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[:2] == first[:2]
    assert (
        len({row["name"] for row in rows}) == 4
    )  # the third was trained by weights that are lost, and is trained again
    assert len(list((root / "shared").glob("a-*"))) == 1


def test_a_node_leaves_its_newest_groups_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(tmp_path, "all", 4, foreign=0)
    everything = [int(path.stem) for path in published(tmp_path)]
    monkeypatch.setattr(shared_groups, "KEPT", 3)
    node(tmp_path, "some", 4, foreign=0)
    (folder,) = (tmp_path / "shared").glob("some-*")
    assert sorted(each.name for each in folder.iterdir()) == [f"{number}.json" for number in sorted(everything)[-3:]]
    assert len(everything) > 3


def test_calls_of_several_turns_are_replayed_in_order(tmp_path: Path) -> None:
    two = Letters(lengths=lambda index: LENGTH, turns=2)
    node(tmp_path, "b", 1, foreign=0, seed=5, played=two)
    offered = len(published(tmp_path))
    run, _, _ = node(tmp_path, "a", 1, played=Letters(lengths=lambda index: LENGTH, turns=2))
    assert len([row for row in run.shared() if row["what"] == "trained"]) == offered > 0
    foreign = next(each.episode for each in run.episodes(arm="train") if not each.episode.id[0].isdigit())
    first, second = foreign.segments
    assert second.context == (*first.context, *first.ids, *b"/0")
    assert len(refusals(tmp_path / "..", played=letters())) == 0
    one, _, _ = node(tmp_path, "one", 1)
    assert {row["reason"] for row in one.shared()} == {"an answer goes on where the episode ended, after 1 calls"}
    three, _, _ = node(tmp_path, "three", 1, played=Letters(lengths=lambda index: LENGTH, turns=3))
    assert "an answer of 2 calls ends before the episode does" in {row["reason"] for row in three.shared()}


# -- the reader, given anything ------------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(st.binary(max_size=400))
@example(b"")
@example(b"{}")
@example(b'{"format": 1}')
def test_bytes_of_any_kind_are_refused_and_nothing_else_is_raised(data: bytes) -> None:
    with pytest.raises(Refused):
        shared_group(data, "node", 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_group_with_anything_in_any_place_is_read_as_it_is_or_refused(donor: Path, data: st.DataObject) -> None:
    path = published(donor)[0]
    record = json.loads(path.read_text())
    place: Any = record
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(ANY)
    if data.draw(st.booleans()):
        record["digest"] = digest_of(record)
    reason, found = "", None
    try:
        found = shared_group(json.dumps(record).encode(), path.parent.name, int(path.stem))
    except Refused as error:
        reason = str(error)
    assert "\n" not in reason
    assert len(reason) < 400
    assert found is None or json.loads(json.dumps(found.model_dump(mode="json"))) == record


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_group_with_one_byte_changed_is_refused(donor: Path, data: st.DataObject) -> None:
    path = published(donor)[0]
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    whole[at] = byte
    try:
        found = shared_group(bytes(whole), path.parent.name, int(path.stem))
    except Refused:
        return
    assert found == shared_group(path.read_bytes(), path.parent.name, int(path.stem))  # a blank, or 1.0 for 1.00
