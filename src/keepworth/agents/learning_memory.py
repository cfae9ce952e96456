"""Memory that learns from reward, around any agent.

    memory = LearningMemory.open("experience.mem", {"advantage": advantage}, encoder)
    with memory.episode("file the complaint") as episode:
        shown = episode.recall(actions=("refund", "replace"))
        episode.act(my_agent(shown.text))
        episode.reward(1.0)

Everything is in one file of the memory engine: a decision is on file, with its propensity, before its text is returned; so is
the action before any reward; the reward, the credit of what was shown and the items written are one transaction. A process
that dies in between loses nothing: the episode is pending when the file is opened again, and `memory.reward(episode_id, r)`
closes it. Rewards may come late, for one step or for the episode.

Say for whom an episode is (`episode(goal, by="ana")`) and who rewarded it (`reward(1.0, by="ana")`, the same if not said): what
stands on the word of one person is tried on others before it is believed, and `roll_back(rewarder="ana")` takes all of it back.
Where nobody is named the program itself vouches for the reward, as a test or a verifier does.

A reward that is not finite or out of range raises InvalidReward; one for an unknown episode UnknownDecision; the same final
reward twice changes nothing and returns False; a different one raises ClosedDecision.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.agents.experience import Experience
from keepworth.episodes.encoder import Encoder
from keepworth.episodes.errors import UnknownName
from keepworth.memory.memory import Memory
from keepworth.memory.policy.errors import (
    ClosedDecision,
    InvalidDraft,
    InvalidPolicy,
    InvalidReward,
    SetAside,
    UnknownDecision,
)
from keepworth.memory.policy.journal import Journal, Note
from keepworth.memory.policy.off_policy import Estimate, Logged, SlateModel, evaluate, known
from keepworth.memory.policy.pool import Draft, learned, on_word_of
from keepworth.memory.policy.records import draft_problem, source_problem
from keepworth.memory.policy.slots import Candidates, Method, Use, Values
from keepworth.memory.policy.wording import worded

if TYPE_CHECKING:
    from keepworth.agents.episode_of_memory import EpisodeOfMemory

DRAWS = 32
Policies = Mapping[str, Callable[[], Method]]


@dataclass(slots=True)
class OpenEpisode:
    """by: for whom. uses, actions and step rewards so far; None among the uses stands for a choice that showed an item which was
    rolled back since; outcome: None until its final reward came, rewarder: whose it was."""

    id: str
    goal: str
    by: str = ""
    uses: list[Use | None] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    outcome: float | None = None
    rewarder: str = ""


def _identity(by: object, what: str) -> str:
    """Raises InvalidPolicy where this is no name of a person."""
    if source_problem(by):
        raise InvalidPolicy(
            f"{what} is {by!r:.60}, which is no name.", "Give text that can be printed, at most 1,000 characters."
        )
    assert isinstance(by, str)
    return by


class LearningMemory:
    """Not thread-safe; one object at a time may learn within one scope of a file. `engine` is the memory it stands on.

    set_aside: what the file holds and cannot be read, why by id; it takes no part, and opening says so with a `SetAside` warning.
    """

    def __init__(
        self,
        engine: Memory,
        policies: Policies,
        *,
        policy: str,
        reward_range: tuple[float, float],
        seed: int,
        trusted: Collection[str] = (),
    ) -> None:
        self.engine, self.policies = engine, policies
        self.low, self.high = reward_range
        self.seed, self._first, self.trusted = seed, policy, frozenset(trusted)
        self.set_aside: dict[str, str] = {}
        self.journal = Journal(engine)
        self._load()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        policies: Policies,
        encoder: Encoder,
        *,
        policy: str = "",
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
        sync: bool = False,
        trusted: Collection[str] = (),
        **scope: str,
    ) -> LearningMemory:
        """The memory that the file describes, or a fresh one. policies: by name; `policy` the one that runs at first.

        sync: also survive the loss of power, at the price of a disk flush per record. trusted: rewarders whose word is as good as
        the program's own, such as the name of a test suite. scope: `user_id`, `agent_id`, ... as
        for the engine: items outside are neither seen nor written.
        """
        if not policies:
            raise InvalidPolicy(
                "a learning memory was opened without a policy.", 'Give one by name: {"advantage": advantage}.'
            )
        low, high = reward_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidReward(
                f"the reward range {reward_range} holds no rewards.", "Give (lowest, highest), both finite."
            )
        first = policy or next(iter(policies))
        if first not in policies:
            raise UnknownName("policy", first, policies)
        if isinstance(trusted, str):
            raise InvalidPolicy(f"trusted is the text {trusted!r:.60}.", "Give a list of names: [name].")
        for name in trusted:
            _identity(name, "a trusted rewarder")
        policies[first]()  # A setting that cannot take effect is refused before there is a file.
        durability = "power" if sync else "process"
        engine = Memory(Path(path), encoder=encoder, durability=durability, log="off", **scope)  # type: ignore[arg-type]
        try:
            return cls(engine, policies, policy=first, reward_range=reward_range, seed=seed, trusted=trusted)
        except BaseException:
            engine.close()
            raise

    def close(self) -> None:
        self.engine.close()

    def episode(self, goal: str, *, by: str = "") -> EpisodeOfMemory:
        """A new episode. Leaving the `with` block without a reward leaves it open: reward it later by its id.

        by: for whom, as the program knows it (from a login, never from the text); "" where it serves nobody but itself.
        Raises InvalidText."""
        from keepworth.agents.episode_of_memory import EpisodeOfMemory

        task = worded(goal, "the goal")
        person = _identity(by, "by") if by != "" else ""
        id = self.journal.begin(task, person)
        self.episodes[id] = OpenEpisode(id, task, person)
        return EpisodeOfMemory(self, id)

    def reward(self, episode: str, reward: float, *, by: str | None = None) -> bool:
        """The final reward of an episode, whenever it comes. False where it had the same one already.

        by: whose judgement it is; whom the episode is for if not given, "" for the program's own (a test, a verifier)."""
        found = self.opened(episode)
        value = self.checked(reward)
        person = found.by if by is None else _identity(by, "by") if by != "" else ""
        if found.outcome is not None:
            if found.outcome == value:
                return False
            raise ClosedDecision(
                f"episode {episode!r} was rewarded with {found.outcome:g} and cannot become {value:g}.",
                "Open a new episode.",
            )
        if found.uses and not found.actions:
            raise UnknownDecision(
                f"episode {episode!r} recalled and did not say what was done.", "Call `act` before the reward."
            )
        pairs, steps = self._taken(found, value)
        pool = self.experience.pool
        before = pool.version

        def learn() -> None:
            self.experience.finish(pairs, self._scaled(value), per_step=steps, by=person)
            self.journal.finish(episode, value, [use for use, _ in pairs], pool, before, person)

        self._whole(learn)
        found.outcome, found.rewarder = value, person
        return True

    def add(self, draft: Draft) -> str | None:
        """An item from outside, through the gate; its id, or None where the gate rejected it. `draft.source` says where it comes
        from: never memory's own experience, whatever its trust. Raises InvalidDraft."""
        problem = draft_problem(draft)
        if problem:
            raise InvalidDraft(
                f"the draft cannot be kept: {problem}.", "Give a Draft(key, text, do=(action,), source=name)."
            )
        if learned(draft.source):
            raise InvalidDraft(
                f"the draft says that its source is {draft.source!r}, which is what memory learned itself.",
                "Name where it comes from, such as source='import:wiki'.",
            )
        pool = self.experience.pool
        before = pool.version
        row = self.experience.observe(draft)
        if row is None:
            return None
        self._whole(lambda: self.journal.add(pool, before))
        return pool.items[row].id

    def pending(self) -> list[str]:
        """Episodes that were acted in and have no reward yet."""
        return [name for name, each in self.episodes.items() if each.outcome is None and each.actions]

    def evaluate(self, policy: str, *, method: str = "snips") -> Estimate:
        """What mean reward `policy` would have had on the logged decisions; CannotEvaluate where the log cannot say.

        Prequential: before each decision the new policy has learned from the earlier ones alone. It is judged on the
        candidates that were logged, so it answers for selection and valuation, not for retrieval. method: "snips", "ips", or
        "dr", whose reward model is learned from the earlier decisions too and averaged over `DRAWS` slates of the new policy.
        """
        known(method)
        other, model, generator = self._method(policy), SlateModel(), np.random.default_rng([37, self.seed])
        pool, rows = self.experience.pool, []
        for use, told in self.experience.uses:
            values = other.valuer.estimate(use.query, use.candidates, pool)
            choice = other.selector(use.query, use.candidates, values, pool)
            likeness, means = use.candidates.similarities, values.means
            predicted = expected = 0.0
            if method == "dr":
                predicted = model.predict(use.slate, likeness, means)
                slates = [choice.draw(generator)[0] for _ in range(DRAWS)]
                expected = float(np.mean([model.predict(slate, likeness, means) for slate in slates]))
                model.learn(use.slate, likeness, means, told)
            rows.append(Logged(told, use.propensity, choice.probability(use.slate), predicted, expected))
            other.valuer.learn(use, pool)
        return evaluate(rows, method)

    def promote(self, policy: str) -> None:
        """Let `policy` choose from now on, with values learned from the whole log; `demote` takes it back."""
        self._method(policy)
        self.journal.note("promote", policy=policy)
        self._promote(policy)

    def demote(self) -> str:
        """Back to the policy before the last promotion; its name."""
        if not self._earlier:
            raise UnknownDecision(
                f"{self.policy!r} is the first policy of this memory.", "There is nothing to go back to."
            )
        self.journal.note("demote")
        self._switch(self._earlier.pop())
        return self.policy

    def snapshot(self) -> str:
        """A name for the present state, for `roll_back(since=...)`."""
        return self.engine.snapshot()

    def roll_back(self, source: str = "", *, episode: str = "", since: str = "", rewarder: str = "") -> list[str]:
        """Undo everything from a source, of an episode, since a snapshot, or that follows from the rewards of `rewarder`, with
        all that was learned from it; the ids of the items that differ now. Episodes whose reward is undone are pending again.
        The engine's rollback: `engine.rollback` of its id undoes it."""
        if rewarder:
            names = sorted({each.rewarder for each in self.episodes.values()} - {""})
            if source or rewarder not in names:
                raise InvalidPolicy(
                    "give a source or a rewarder." if source else f"{rewarder!r} rewarded nothing in this memory.",
                    f"Known: {', '.join(names) or 'nobody by name'}.",
                )
        elif source and source not in self.experience.pool.sources:
            known = ", ".join(self.experience.pool.sources)
            raise InvalidPolicy(f"nothing in this memory came from {source!r}.", f"Known: {known}.")
        changed = self.journal.roll_back(on_word_of(rewarder) if rewarder else source, episode, since).changed
        self._load()
        return list(changed)

    # What EpisodeOfMemory needs.

    def opened(self, episode: str) -> OpenEpisode:
        if self.journal.newest_purge() != self._purge:
            self._load()  # what was erased meanwhile is neither shown nor written again
        if not isinstance(episode, str) or episode not in self.episodes:
            raise UnknownDecision(
                f"there is no episode {episode!r} in {self.engine.path}.", "Use the id that `episode` gave."
            )
        return self.episodes[episode]

    def checked(self, reward: float) -> float:
        number = isinstance(reward, (Real, np.bool_))
        if not number or not self.low <= reward <= self.high:  # what is not a number is in no range either
            raise InvalidReward(
                f"the reward {reward!r:.80} is not a finite number in [{self.low:g}, {self.high:g}].",
                "Scale it, or declare another reward_range." if number else "Give a plain number.",
            )
        return float(reward)

    def _whole(self, change: Callable[[], None]) -> None:
        """All of a change or none: where a writer or the file refuses, memory goes back to what the file says."""
        try:
            change()
        except BaseException:
            self._load()
            raise

    def _load(self) -> None:
        """Everything from the file: items as they are, values learned again from the episodes that count."""
        self.policy, self._earlier = self._first, list[str]()
        self._purge = self.journal.newest_purge()
        embedder = self.engine.store.embedder
        assert embedder is not None
        first = self._method(self._first)
        self.experience = Experience(first, embedder.encoder, seed=self.seed, trusted=self.trusted)
        self.episodes: dict[str, OpenEpisode] = {}
        aside = self.journal.unreadable()
        rows = {item.id: self.experience.restore(item, vector) for item, vector in self.journal.items()}
        pool = self.experience.pool
        for row, item in enumerate(pool.items):
            if "links" in item.metadata:
                links = tuple(rows[id] for id in item.metadata["links"] if id in rows)
                pool.items[row] = replace(item, metadata={**item.metadata, "links": links})
        for number, note in enumerate(self.journal.notes()):
            try:
                self._again(note, rows)
            except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
                if isinstance(error, UnknownName):
                    raise
                # An episode that cannot be read takes no part, with what comes after in it; the others do.
                aside.setdefault(
                    note.episode or f"note {number}", f"{note.what!r} does not fit what came before it: {error!r}"
                )
                self.episodes.pop(note.episode, None)
        self._put_aside(aside)
        self.experience.settle()
        # Draws after a restart must not repeat those before it.
        self.experience.generator = np.random.default_rng([31, self.seed, len(self.experience.uses)])

    def _put_aside(self, found: dict[str, str]) -> None:
        fresh = {id: why for id, why in found.items() if id not in self.set_aside}
        self.set_aside = found
        if not fresh:
            return
        shown = {item.id for item in self.engine.store.items(self.engine.scope) if item.current}
        if shown & set(fresh):
            self.journal.set_aside(sorted(shown & set(fresh)))
        some = "; ".join(f"{id}: {why}" for id, why in list(fresh.items())[:3])
        warnings.warn(
            f"{len(fresh)} records of {self.engine.path} cannot be read and were set aside ({some}). They are in "
            "`memory.set_aside`; the rest of the memory is as it was.",
            SetAside,
            stacklevel=4,
        )

    def _again(self, note: Note, rows: Mapping[str, int]) -> None:
        body = note.body
        if note.what == "episode":
            self.episodes[note.episode] = OpenEpisode(note.episode, body["goal"], body.get("by", ""))
        elif note.what == "promote":
            self._promote(body["policy"])
        elif note.what == "demote":
            self._switch(self._earlier.pop())
        else:
            episode = self.episodes[note.episode]
            if note.what == "decision":
                episode.uses.append(self._use(episode, body, rows))
            elif note.what == "act":
                episode.actions.append(body["action"])
                episode.steps.append(math.nan)
            elif note.what == "step":
                episode.steps[-1] = body["reward"]
            elif note.what == "reward":
                pairs, steps = self._taken(episode, body["reward"])
                episode.rewarder = body.get("by", "")
                self.experience.remember(pairs, self._scaled(body["reward"]), per_step=steps, by=episode.rewarder)
                episode.outcome = body["reward"]
            else:
                raise KeyError(f"what {note.what}")

    def _use(self, episode: OpenEpisode, body: Mapping[str, Any], rows: Mapping[str, int]) -> Use | None:
        """The choice that a note describes, among the items that are still there; None where one that it showed is not."""
        ids = body["ids"]
        there = [place for place, id in enumerate(ids) if id in rows]
        moved = {place: position for position, place in enumerate(there)}
        if any(place not in moved for place in body["slate"]):
            return None
        time = body["time"]
        query = self.experience.query(
            episode.goal, body["observation"], body["actions"], len(episode.uses), by=episode.by
        )
        query = replace(query, time=time, episode=body.get("of", time))
        candidates = Candidates(
            np.array([rows[ids[place]] for place in there], dtype=np.intp),
            np.array([body["similarities"][place] for place in there], dtype=np.float64),
            # As it was at the time of the choice, whatever became of the items since.
            sum(place >= len(ids) - body.get("waiting", 0) for place in there),
        )
        # Valuers may learn from what they knew at the time of the choice, so they are asked again.
        self.experience.method.valuer.estimate(query, candidates, self.experience.pool)
        return Use(
            query,
            candidates,
            Values(
                np.array([body["means"][place] for place in there], dtype=np.float64),
                np.array([body["deviations"][place] for place in there], dtype=np.float64),
            ),
            None,
            tuple(moved[place] for place in body["slate"]),
            body["part"],
            logged=body["propensity"],
        )

    def _taken(self, episode: OpenEpisode, reward: float) -> tuple[list[tuple[Use, str]], list[float] | None]:
        """Choices with their actions and step rewards; what showed a rolled-back item teaches nothing."""
        steps = [self._scaled(step if math.isfinite(step) else reward) for step in episode.steps]
        listed = [
            (use, action, step)
            for use, action, step in zip(episode.uses, episode.actions, steps, strict=False)
            if use is not None
        ]
        stepwise = any(math.isfinite(step) for step in episode.steps)
        return [(use, action) for use, action, _ in listed], [step for _, _, step in listed] if stepwise else None

    def _scaled(self, reward: float) -> float:
        return (reward - self.low) / (self.high - self.low)

    def _method(self, name: str) -> Method:
        if name not in self.policies:
            raise UnknownName("policy", name, self.policies)
        return self.policies[name]()

    def _promote(self, policy: str) -> None:
        self._earlier.append(self.policy)
        self._switch(policy)

    def _switch(self, policy: str) -> None:
        fresh = self._method(policy)
        self.policy, self.experience.method = policy, fresh
        self.experience.relearn()
