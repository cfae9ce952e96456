"""Several engines for one training: who draws what, who leaves and comes back, and what must never be lost on the way."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes import FinishReason, Sample
from keepworth.episodes.episode import Task
from keepworth.episodes.model import VersionSpan
from keepworth.learning.collect import sampler as samplers
from keepworth.learning.collect.pipeline import Pipeline
from keepworth.learning.collect.sampler import PUBLISHED, HttpSampler, PooledEngine, engine_for
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.models.adapter import load_trained
from keepworth.models.errors import EngineError, NoEngineLeft
from keepworth.models.http_engine import HttpModel
from keepworth.serving.calls import NotServed
from tests.learning.letters import Letters, settings
from tests.learning.test_http_sampler import episodes, learner, whole
from tests.learning.test_pipeline_resume import FORKS
from tests.models.tiny import tiny_model
from tests.serving.engines import connect
from tests.serving.relay import Relay
from tests.stand_in.model import ServedModel
from tests.stand_in.server import ModelServer


class Watched(ServedModel):
    """Knows which groups it drew for and under which names. refuses: every sample, while it says that it is well. as_before:
    versions in whose place it loads the one before. slow: called while it loads. asked: called with each request of a group.
    forgets: with its next sample it is as if it had been started anew."""

    def __init__(self, model: Any = None, **options: Any) -> None:
        super().__init__(model or tiny_model(), **options)
        self.drew: list[tuple[int, str]] = []
        self.refuses = False
        self.as_before: set[int] = set()
        self.slow: Callable[[], None] = lambda: None
        self.asked: Callable[[], None] = lambda: None
        self.forgets = False

    def sample_as(
        self, name: str, request_id: str, prompts: Any, params: Any, caller: Any = None
    ) -> list[list[Sample]]:
        if match := re.match(r"g(\d+):", bytes(each for each in prompts[0] if each < 256).decode(errors="replace")):
            self.asked()
            if self.refuses:
                raise NotServed("CUDA error: an illegal memory access was encountered.", status=500)
            self.drew.append((int(match[1]), name))
        return super().sample_as(name, request_id, prompts, params, caller)

    def sample(self, prompts: Any, params: Any) -> list[list[Sample]]:
        if self.forgets:  # it is this request's turn: no publication comes in between
            self.forgets, self.labels = False, ["default"] * len(self.labels)
        return super().sample(prompts, params)

    def load_adapter(self, name: str, path: str) -> None:
        self.slow()
        super().load_adapter(name, self._path(path))

    def update_weights(self, folder: str) -> None:
        super().update_weights(self._path(folder))

    def _path(self, path: str) -> str:
        version = int(match[1]) if (match := re.search(r"version-(\d+)$", path)) else -1
        return path.replace(f"{version:06d}", f"{version - 1:06d}") if version in self.as_before else path


class Told(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


class Numbered(Letters):
    """Prompts that say their group. after: is called in the trainer's thread, after each update."""

    def __init__(self, after: Callable[[int], None] = lambda step: None, **options: Any) -> None:
        super().__init__(**options)
        self._after = after

    def task(self, index: int) -> Task:
        return replace(super().task(index), input=f"g{index}:")

    def evaluate(self, step: int) -> None:
        self._after(step)


class Served:
    """Servers, wires to them, and engines connected through these."""

    def __init__(self, stack: ExitStack, count: int, **options: Any) -> None:
        self._stack = stack
        self.models = [Watched() for _ in range(count)]
        self.servers = [stack.enter_context(ModelServer(each, **options)) for each in self.models]
        self.wires = [stack.enter_context(Relay(each.url)) for each in self.servers]
        self.engines = [stack.enter_context(connect(each.url, max_staleness=1)) for each in self.wires]
        self.told = Told()
        self.pipeline: Pipeline | None = None

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.engines]

    @property
    def in_pool(self) -> int:
        assert self.pipeline is not None
        assert isinstance(self.pipeline.sampler, HttpSampler)
        return len(self.pipeline.sampler._in_pool())

    def train(
        self, folder: Path, steps: int, letters: Letters, *, full: bool = False, every: int = 1, **changes: Any
    ) -> None:
        mind = learner(full)
        asynchrony = settings(
            **{"mode": "overlap", "max_staleness": 1, "pipeline_depth": 2.0, "caches": "keep", **changes}
        )
        with RunFolder.create(folder, {}, clock=lambda: 0.0) as run:
            self.pipeline = Pipeline(run, mind, letters, asynchrony, self.engines)
            train(run, mind, self.pipeline, Schedule(steps, 1, every), self.told, "letters")


@contextmanager
def served(count: int, **options: Any) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack, count, **options)


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it never came true"
        time.sleep(0.01)


def sound(folder: Path, steps: int, groups: int = 4) -> None:
    """Nothing lost, nothing begun anew, nothing trained twice, nothing too old."""
    run, found = RunFolder.open(folder), episodes(folder)
    trained = Counter((step, each.id.split("/")[0]) for step, each in found)
    assert Counter(step for step, _ in trained) == dict.fromkeys(range(1, steps + 1), groups)
    assert len({index for _, index in trained}) == groups * steps, "a group was trained twice"
    assert len({each.id for _, each in found}) == len(found) == 3 * groups * steps
    assert [stored.episode.errors for stored in run.episodes(arm="failed")] == []
    assert all(row["pipeline/retried"] == row["pipeline/over_bound"] == 0 for row in run.metrics())
    assert all(whole(each) for _, each in found if len(each.segments) == 1)
    lags = [step - 1 - min(span.version for s in each.segments for span in s.spans) for step, each in found]
    assert max(lags) <= 1


def pool_sizes(folder: Path) -> list[float]:
    return [row["pipeline/engines"] for row in RunFolder.open(folder).metrics()]


# -- who draws what


def pooled(running: int, slots: int = 4, left: str = "", publishing: bool = False, doubted: int = 0) -> PooledEngine:
    engine = PooledEngine(cast(HttpModel, None), slots, left, doubted=doubted)
    engine.running = dict.fromkeys(range(running), cast(Any, None))
    engine.publication = cast(Any, object()) if publishing else None
    return engine


@pytest.mark.parametrize(
    ("engines", "home", "chosen"),
    [
        ([pooled(2), pooled(1), pooled(3)], None, 1),
        ([pooled(1), pooled(1)], None, 0),  # the one that was named first
        ([pooled(3), pooled(0)], 0, 0),  # its group is there
        ([pooled(4), pooled(0)], 0, None),  # and waits for a slot there
        ([pooled(0, left="gone"), pooled(2)], 0, 1),
        ([pooled(0, publishing=True), pooled(2)], None, 1),
        ([pooled(0, publishing=True), pooled(2)], 0, None),
        ([pooled(0, doubted=1), pooled(2)], None, 1),
        ([pooled(4), pooled(4)], None, None),
        ([pooled(0, left="gone")], 0, None),
    ],
)
def test_where_a_draft_goes(engines: list[PooledEngine], home: int | None, chosen: int | None) -> None:
    found = engine_for(None if home is None else engines[home], engines)
    assert found is (None if chosen is None else engines[chosen])


STATES = st.builds(
    pooled,
    st.integers(0, 4),
    left=st.sampled_from(["", "", "gone"]),
    publishing=st.booleans(),
    doubted=st.integers(0, 1),
)


@given(st.lists(STATES, min_size=1, max_size=5), st.data())
def test_a_draft_goes_only_where_it_may_and_a_new_group_where_least_is_running(
    engines: list[PooledEngine], data: st.DataObject
) -> None:
    home = data.draw(st.none() | st.sampled_from(engines))
    found = engine_for(home, engines)
    free = [each for each in engines if each.takes]
    assert found is None or found.takes
    if home is not None and not home.left:
        assert found is (home if home.takes else None)
    elif free:
        least = min(len(each.running) for each in free)
        assert found is next(each for each in free if len(each.running) == least)
    else:
        assert found is None


def test_two_engines_share_the_groups_and_the_members_of_a_group_are_at_one(tmp_path: Path) -> None:
    with served(2) as pool:
        pool.train(tmp_path / "run", 3, Numbered(turns=2, lengths=lambda index: 6))
        assert [each.version for each in pool.engines] == [3, 3]
        groups = [{group for group, _ in each.drew} for each in pool.models]
    assert groups[0], "one engine did everything"
    assert groups[1], "one engine did everything"
    assert not groups[0] & groups[1]
    sound(tmp_path / "run", 3)
    assert pool_sizes(tmp_path / "run") == [2.0] * 3
    assert pool.told.lines == []


def test_each_engine_runs_as_many_requests_as_there_are_slots(tmp_path: Path) -> None:
    most = [0, 0]

    def look() -> None:
        for index, each in enumerate(pool.pipeline.sampler._engines):  # type: ignore[union-attr]
            most[index] = max(most[index], len(each.running))

    with served(2) as pool:
        for each in pool.models:
            each.asked = look
        pool.train(tmp_path / "run", 2, Numbered(lengths=lambda index: 12), slots=2, caches="recompute")
    assert most == [2, 2]
    sound(tmp_path / "run", 2)


# -- who leaves, and comes back


def test_an_engine_that_dies_in_the_middle_loses_no_draft_and_comes_back(tmp_path: Path) -> None:
    cut = threading.Event()

    def dies() -> None:
        if not cut.is_set():
            cut.set()
            pool.wires[1].cut()

    def after(step: int) -> None:
        if step == 1:
            pool.models[1].asked = dies  # with the next request, which is then under way
        if step == 3:
            assert pool.in_pool == 1
            pool.wires[1].join()
        if step == 4:
            until(lambda: pool.in_pool == 2)
            pool.models[1].drew.clear()

    with served(2) as pool:
        pool.train(tmp_path / "run", 5, Numbered(after, turns=2, lengths=lambda index: 16))
        url = pool.engines[1].url
        assert {name for _, name in pool.models[1].drew} <= {"tiny@4", "tiny@5"}
        assert pool.models[1].drew, "it was let in and given nothing"
    sound(tmp_path / "run", 5)
    assert sorted(set(pool_sizes(tmp_path / "run"))) == [1.0, 2.0]
    left, back = pool.told.lines
    assert re.search(rf"{url} left the pool at version \d: .*Nothing answers.* 1 of 2\.$", left)
    assert re.search(rf"{url} is back in the pool, with version 4\. .* 2 of 2\.$", back)


def test_an_engine_that_was_started_anew_has_forgotten_its_weights_and_gets_them_again(tmp_path: Path) -> None:
    restarted = threading.Event()

    def restart() -> None:
        pool.servers[0].close()
        port = int(pool.servers[0].url.rsplit(":", 1)[1])
        stack.enter_context(ModelServer(Watched(), port=port))
        restarted.set()

    def asked() -> None:
        pool.models[0].asked = lambda: None
        threading.Thread(target=restart).start()

    def after(step: int) -> None:
        if step == 2:
            pool.models[0].asked = asked  # with the next request, which is then under way
        if step == 3:
            assert restarted.wait(60)
        if step == 5:
            until(lambda: pool.in_pool == 2)

    with served(2) as pool, ExitStack() as stack:
        pool.train(tmp_path / "run", 6, Numbered(after, lengths=lambda index: 24))
        url = pool.engines[0].url
    sound(tmp_path / "run", 6)
    assert [url in line for line in pool.told.lines] == [True, True]
    assert "left the pool" in pool.told.lines[0]
    assert "is back in the pool" in pool.told.lines[1]


@pytest.mark.parametrize("full", [False, True], ids=["adapters", "full"])
def test_an_engine_that_fails_its_proof_draws_nothing_until_the_next_one(tmp_path: Path, full: bool) -> None:
    def after(step: int) -> None:
        if step == 3:
            until(lambda: pool.in_pool == 2)

    with served(2) as pool:
        pool.models[1].as_before = {2}
        pool.train(tmp_path / "run", 4, Numbered(after, lengths=lambda index: 8), full=full, groups=2)
        drew = {name for _, name in pool.models[1].drew}
        url = pool.engines[1].url
    sound(tmp_path / "run", 4, groups=2)
    if not full:
        assert "tiny@2" not in drew
    assert re.search(rf"{url} left the pool at version 1: Version 2 did not reach {url}", pool.told.lines[0])
    assert re.search(rf"{url} is back in the pool, with version 3", pool.told.lines[1])
    checked = 0
    for folder in sorted((tmp_path / "run" / PUBLISHED / "speaker").iterdir()):
        version = int(folder.name.split("-")[1])
        model = tiny_model()
        load_trained(model, folder)
        for _, episode in episodes(tmp_path / "run"):
            (segment,) = episode.segments
            if {span.version for span in segment.spans} == {version}:
                ((scores,),) = model.score([segment.context], [[segment.ids]])
                assert segment.logprobs == pytest.approx(scores, abs=1e-4)
                checked += 1
    assert checked


def test_what_an_engine_draws_under_weights_of_before_is_dropped_and_it_leaves(tmp_path: Path) -> None:
    """Full weights have no name that a request could ask for: after a start an engine draws under its first ones, and says so."""

    def after(step: int) -> None:
        if step == 2:  # the groups of the step after the next are begun while this waits
            pool.models[1].forgets = True
            until(lambda: pool.in_pool == 1)
        if step == 4:
            until(lambda: pool.in_pool == 2)

    with served(2) as pool:
        pool.train(tmp_path / "run", 4, Numbered(after, lengths=lambda index: 20), full=True, groups=2)
        url = pool.engines[1].url
    sound(tmp_path / "run", 4, groups=2)
    assert re.search(rf"{url} left the pool at version 2: {url} drew under weights older than", pool.told.lines[0])


def test_what_was_drawn_under_weights_whose_proof_failed_is_dropped() -> None:
    spans = (VersionSpan(3, 0, 2), VersionSpan(4, 2, 5))
    drawn = Sample((1, 2, 3, 4, 5), (-0.1, -0.2, -0.3, -0.4, -0.5), FinishReason.STOP, spans)
    assert samplers._until(drawn, 3) == Sample((1, 2), (-0.1, -0.2), FinishReason.ABORTED, spans[:1])
    assert samplers._until(drawn, 2) == Sample((), (), FinishReason.ABORTED, ())


def test_an_engine_that_is_slow_to_take_weights_is_gone_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = threading.Event()

    def after(step: int) -> None:
        if step == 1:
            pool.models[1].slow = lambda: cast(None, taken.wait(60))
            monkeypatch.setattr(samplers, "PATIENCE", 0.2)
        if step == 3:
            assert pool.in_pool == 1
            taken.set()
            monkeypatch.undo()
            until(lambda: pool.in_pool == 2)  # without waiting for another publication
            assert pool.engines[1].version == 3

    with served(2) as pool:
        pool.train(tmp_path / "run", 4, Numbered(after), groups=2)
        url = pool.engines[1].url
    sound(tmp_path / "run", 4, groups=2)
    assert f"{url} left the pool at version 1: It has not taken version 2 within 0.2 s" in pool.told.lines[0]
    assert f"{url} is back in the pool, with version 3" in pool.told.lines[1]


def test_an_engine_that_refuses_everything_and_says_that_it_is_well_leaves_where_there_is_another(
    tmp_path: Path,
) -> None:
    def after(step: int) -> None:  # other lines may come first: of the episodes that it refused
        pool.models[0].refuses = step >= 1 and not any("left the pool" in line for line in pool.told.lines)
        if step == 7:
            until(lambda: pool.in_pool == 2)

    with served(2) as pool:
        pool.train(tmp_path / "run", 8, Numbered(after, lengths=lambda index: 8), groups=2)
        url = pool.engines[0].url
    lines = [line for line in pool.told.lines if "the pool" in line]
    assert re.search(rf"{url} left the pool at version \d: {url} refused .*illegal memory access", lines[0])
    assert f"{url} is back in the pool" in lines[1]
    failed = list(RunFolder.open(tmp_path / "run").episodes(arm="failed"))
    assert all(url in each.episode.errors[-1] for each in failed)
    groups = Counter((step, each.id.split("/")[0]) for step, each in episodes(tmp_path / "run"))
    assert len(groups) == len({index for _, index in groups}) == 16


def test_the_run_ends_when_no_engine_is_left_and_says_why_of_each(tmp_path: Path) -> None:
    def after(step: int) -> None:
        if step == 1:
            for each in pool.wires:
                each.cut()

    with served(2) as pool:
        with pytest.raises(NoEngineLeft) as raised:
            pool.train(tmp_path / "run", 4, Numbered(after), groups=2)
        for each in pool.engines:
            assert re.search(rf"{each.url} left: .*Nothing answers at {each.url}", str(raised.value))
    with served(1) as pool:  # what was finished is there, and any pool goes on with it
        pool.train(tmp_path / "run", 4, Numbered(), groups=2)
    sound(tmp_path / "run", 4, groups=2)


# -- before the first sample


def test_engines_of_one_run_are_several_and_alike(tmp_path: Path) -> None:
    other = tiny_model()
    other.name = "another"
    with ModelServer(tiny_model()) as a, ModelServer(other) as b, ExitStack() as stack:
        first, again, another = (
            stack.enter_context(connect(url, max_staleness=1)) for url in (a.url, f"{a.url}/", b.url)
        )
        with RunFolder.create(tmp_path / "run", {}, clock=lambda: 0.0) as run:
            asynchrony = settings(mode="overlap", max_staleness=1, caches="keep")
            with pytest.raises(EngineError, match=rf"{a.url} and {a.url} are one engine"):
                Pipeline(run, learner(), Letters(), asynchrony, [first, again])
            with pytest.raises(EngineError, match=rf"{a.url} serves 'tiny' and {b.url} serves 'another'"):
                Pipeline(run, learner(), Letters(), asynchrony, [first, another])


def test_an_engine_with_other_weights_is_named_before_anything_is_sampled(tmp_path: Path) -> None:
    with (
        ModelServer(tiny_model()) as a,
        ModelServer(tiny_model(seed=1)) as b,
        connect(a.url, max_staleness=1) as first,
        connect(b.url, max_staleness=1) as second,
        RunFolder.create(tmp_path / "run", {}, clock=lambda: 0.0) as run,
    ):
        mind = learner()
        pipeline = Pipeline(
            run, mind, Letters(), settings(mode="overlap", max_staleness=1, caches="keep"), [first, second]
        )
        with pytest.raises(EngineError, match=f"Before any publication {b.url}"):
            train(run, mind, pipeline, Schedule(1, 1, 1), SilentProgress(), "letters")


# -- ten engines killed


def serve(port: int) -> None:
    """A process of its own: a small server that ends when it is killed."""
    ModelServer(tiny_model(), port=port).start().wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Engines:
    """Processes with a server each, at ports that stay."""

    def __init__(self, count: int) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self._processes: list[Any] = [None] * count
        for index in range(count):
            self.start(index)

    def start(self, index: int) -> None:
        self._processes[index] = FORKS.Process(target=serve, args=(self.ports[index],), daemon=True)
        self._processes[index].start()
        until(lambda: self._answers(index), 120)

    def signal(self, index: int, which: signal.Signals) -> None:
        os.kill(self._processes[index].pid, which)

    def kill(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].join()

    def close(self) -> None:
        for index in range(len(self.ports)):
            self.kill(index)

    def _answers(self, index: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.ports[index])).close()
        except OSError:
            return False
        return True


def finished(folder: Path) -> set[int]:
    """Groups that stand on disk as finished."""
    lines = [line for file in folder.glob("finished/*/*.jsonl") for line in file.read_text().splitlines()]
    return {int(json.loads(line)["group"]) for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_engine_that_hangs_leaves_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped where nothing is published, with all its places taken: whoever asks whether it is there finds out."""
    monkeypatch.setattr(samplers, "LOOK", 0.5)
    monkeypatch.setattr(samplers, "PATIENCE", 3.0)

    def after(step: int) -> None:
        if step == 2:
            engines.signal(0, signal.SIGSTOP)
            until(lambda: pool.in_pool == 1)
        elif step == 4:
            engines.signal(0, signal.SIGCONT)
        elif step == 8:
            until(lambda: pool.in_pool == 2)

    engines = Engines(2)
    try:
        with ExitStack() as stack:
            pool = Served(stack, 0)
            pool.engines = [stack.enter_context(connect(url, max_staleness=1)) for url in engines.urls]
            letters = Numbered(after, turns=2, lengths=lambda index: 8 + 8 * (index % 3))
            pool.train(tmp_path / "run", 10, letters, every=1000)
    finally:
        engines.close()
    sound(tmp_path / "run", 10)
    said = [line for line in pool.told.lines if "pool" in line]
    assert [engines.urls[0] in line for line in said] == [True, True]
    assert "left the pool" in said[0]
    assert "Nothing answered within 3 s." in said[0]
    assert "is back in the pool" in said[1]


def train_with_killed_engines(folder: Path, kills: int) -> tuple[Served, list[str], set[int], int]:
    """One of two is killed at a random instant while it draws or takes weights, started again, and let in again; so often.
    Returns what trained, the killed ones' URLs, groups that wait after the last step, and steps."""
    chance = random.Random(5)
    killed: list[str] = []
    timers: list[threading.Timer] = []

    def after(step: int) -> None:
        if step % 3 == 0 and step:
            until(lambda: pool.in_pool == 2)
            if len(killed) < kills:
                index = len(killed) % 2
                killed.append(engines.urls[index])
                timers.append(threading.Timer(0.3 * chance.random(), engines.kill, (index,)))
                timers[-1].start()
        elif step % 3 == 1 and timers:
            timers[-1].join()
        elif step % 3 == 2 and timers:  # at the latest the publication has found out
            assert pool.in_pool == 1
            engines.start(engines.urls.index(killed[-1]))

    engines = Engines(2)
    steps = 3 * (kills + 1) + 1  # the last to hear that the last one is back
    try:
        with ExitStack() as stack:
            pool = Served(stack, 0)
            pool.engines = [stack.enter_context(connect(url, max_staleness=1)) for url in engines.urls]
            letters = Numbered(after, turns=2, lengths=lambda index: 8 + 8 * (index % 3))
            pool.train(folder, steps, letters, every=1000)
            assert pool.pipeline is not None
            waiting = set(pool.pipeline._waiting.groups)
    finally:
        engines.close()
    return pool, killed, waiting, steps


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_engines_killed_ten_times_lose_nothing(tmp_path: Path) -> None:
    pool, killed, waiting, steps = train_with_killed_engines(tmp_path / "run", 10)
    assert len(killed) == 10
    sound(tmp_path / "run", steps)
    trained = {int(each.id.split("/")[0]) for _, each in episodes(tmp_path / "run")}
    on_disk = finished(tmp_path / "run")
    assert on_disk - trained == waiting, "a finished group was lost"
    assert trained <= on_disk
    left = [line for line in pool.told.lines if "left the pool" in line]
    assert [next(url for url in pool.urls if url in line) for line in left] == killed
    back = [line for line in pool.told.lines if "is back in the pool" in line]
    assert [next(url for url in pool.urls if url in line) for line in back] == killed
