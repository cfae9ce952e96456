"""Memory that learns from reward, around any agent.

    memory = LearningMemory.open("experience.jsonl", {"ours": ours}, encoder)
    with memory.episode("file the complaint") as episode:
        shown = episode.recall(actions=("refund", "replace"))
        episode.act(my_agent(shown.text))
        episode.reward(1.0)

Everything is one journal of JSON lines: a decision is on file, with its propensity, before its text is returned; so is the
action before any reward. A process that dies in between loses nothing: the episode is open when the journal is read again,
and `memory.reward(episode_id, r)` closes it. Rewards may come late, for one step or for the episode.

A reward that is not finite or out of range raises InvalidReward; one for an unknown episode UnknownDecision; the same final
reward twice changes nothing and returns False; a different one raises ClosedDecision.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from recollect.agents.experience import Experience
from recollect.episodes.encoder import Encoder
from recollect.episodes.errors import UnknownName
from recollect.memory.policy.errors import ClosedDecision, DamagedJournal, InvalidReward, UnknownDecision
from recollect.memory.policy.off_policy import Estimate, Logged, evaluate
from recollect.memory.policy.pool import Draft
from recollect.memory.policy.propensity import Mixture
from recollect.memory.policy.slots import Candidates, Method, Presented, Use, Values

Policies = Mapping[str, Callable[[], Method]]
Judge = Callable[[str, str], float]
"""(action, what came next) -> -1, 0 or 1: whether the next state speaks for the action (arXiv 2603.10165)."""


@dataclass(slots=True)
class OpenEpisode:
    """uses, actions and step rewards so far; outcome: None until its final reward came."""

    id: str
    goal: str
    uses: list[Use] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    outcome: float | None = None


class LearningMemory:
    """Not thread-safe; one process at a time may hold a journal open for writing."""

    def __init__(
        self,
        path: Path,
        policies: Policies,
        encoder: Encoder,
        *,
        policy: str,
        reward_range: tuple[float, float],
        seed: int,
        sync: bool,
    ) -> None:
        self.path, self.policies, self.encoder = path, policies, encoder
        self.low, self.high = reward_range
        self.seed, self.sync = seed, sync
        self.policy, self._earlier = policy, list[str]()
        self.experience = Experience(self._method(policy), encoder, seed=seed)
        self.episodes: dict[str, OpenEpisode] = {}
        self._file: Any = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        policies: Policies,
        encoder: Encoder,
        *,
        policy: str = "",
        reward_range: tuple[float, float] = (0.0, 1.0),
        seed: int = 0,
        sync: bool = False,
    ) -> LearningMemory:
        """The memory that the journal describes, or a fresh one. policies: by name; `policy` the one that runs at first.

        sync: also survive the loss of power, at the price of a disk flush per record.
        """
        place = Path(path)
        memory = cls(
            place,
            policies,
            encoder,
            policy=policy or next(iter(policies)),
            reward_range=reward_range,
            seed=seed,
            sync=sync,
        )
        if place.exists():
            whole = 0
            for number, (record, end) in enumerate(_records(place)):
                try:
                    memory._replay(record)
                except (KeyError, TypeError, IndexError) as error:
                    raise DamagedJournal(
                        f"line {number + 1} of {place} does not fit what came before it ({error!r}).",
                        "Open it with the policies it was written with, or restore it from a copy.",
                    ) from error
                whole = end
            with place.open("r+b") as file:
                file.truncate(whole)
        memory._file = place.open("a", encoding="utf-8")
        # Draws after a restart must not repeat those before it.
        memory.experience.generator = np.random.default_rng([31, seed, len(memory.experience.uses)])
        return memory

    def close(self) -> None:
        self._file.close()

    def episode(self, goal: str, id: str = "") -> EpisodeOfMemory:
        """A new episode. Leaving the `with` block without a reward leaves it open: reward it later by its id."""
        name = id or f"e{len(self.episodes)}"
        if name in self.episodes:
            raise ClosedDecision(f"there is an episode {name!r} already.", "Give another id, or none.")
        self._write({"kind": "episode", "id": name, "goal": goal})
        self.episodes[name] = OpenEpisode(name, goal)
        return EpisodeOfMemory(self, self.episodes[name])

    def reward(self, episode: str, reward: float) -> bool:
        """The final reward of an episode, whenever it comes. False where it had the same one already."""
        found = self._open(episode)
        value = self._checked(reward)
        if found.outcome is not None:
            if found.outcome == value:
                return False
            raise ClosedDecision(
                f"episode {episode!r} was rewarded with {found.outcome:g} and cannot become {value:g}.",
                "Open a new episode.",
            )
        self._write({"kind": "reward", "id": episode, "reward": value})
        self._finish(found, value)
        return True

    def add(self, draft: Draft) -> str | None:
        """An item from outside, through the gate; its id, or None where it was rejected."""
        row = self.experience.observe(draft)
        if row is None:
            return None
        names = ("key", "text", "do", "avoid", "good", "source", "trust", "trigger", "payload")
        self._write({"kind": "item", **{name: getattr(draft, name) for name in names}})
        return self.experience.pool.items[row].id

    def pending(self) -> list[str]:
        """Episodes that were acted in and have no reward yet."""
        return [name for name, each in self.episodes.items() if each.outcome is None and each.actions]

    def evaluate(self, policy: str, *, method: str = "snips") -> Estimate:
        """What mean reward `policy` would have had on the logged decisions; CannotEvaluate where the log cannot say.

        Prequential: before each decision the new policy has learned from the earlier ones alone. It is judged on the
        candidates that were logged, so it answers for selection and valuation, not for retrieval.
        """
        if policy not in self.policies:
            raise UnknownName("policy", policy, self.policies)
        other = self._method(policy)
        pool, rows = self.experience.pool, []
        for use, _ in self.experience.uses:
            values = other.valuer.estimate(use.query, use.candidates, pool)
            choice = other.selector(use.query, use.candidates, values, pool)
            rows.append(Logged(use.reward, use.propensity, choice.probability(use.slate)))
            other.valuer.learn(use, pool)
        return evaluate(rows, method)

    def promote(self, policy: str) -> None:
        """Let `policy` choose from now on, with values learned from the whole log; `demote` takes it back."""
        if policy not in self.policies:
            raise UnknownName("policy", policy, self.policies)
        self._write({"kind": "promote", "policy": policy})
        self._promote(policy)

    def demote(self) -> str:
        """Back to the policy before the last promotion; its name."""
        if not self._earlier:
            raise UnknownDecision(
                f"{self.policy!r} is the first policy of this memory.", "There is nothing to go back to."
            )
        self._write({"kind": "demote"})
        self._switch(self._earlier.pop())
        return self.policy

    def roll_back(self, source: str) -> list[str]:
        """Take out everything that came from `source`, and what was learned from showing it; the ids."""
        self._write({"kind": "rollback", "source": source})
        return [self.experience.pool.items[row].id for row in self.experience.roll_back_source(source)]

    def _method(self, name: str) -> Method:
        if name not in self.policies:
            raise UnknownName("policy", name, self.policies)
        return self.policies[name]()

    def _promote(self, policy: str) -> None:
        self._earlier.append(self.policy)
        self._switch(policy)

    def _switch(self, policy: str) -> None:
        fresh = self._method(policy)
        for use, reward in self.experience.uses:
            use.reward = reward
            fresh.valuer.learn(use, self.experience.pool)
        self.policy, self.experience.method = policy, fresh

    def _open(self, episode: str) -> OpenEpisode:
        if episode not in self.episodes:
            raise UnknownDecision(f"there is no episode {episode!r} in {self.path}.", "Use the id that `episode` gave.")
        return self.episodes[episode]

    def _checked(self, reward: float) -> float:
        if isinstance(reward, bool):
            reward = float(reward)
        if not isinstance(reward, (int, float)) or not math.isfinite(reward) or not self.low <= reward <= self.high:
            raise InvalidReward(
                f"the reward {reward!r} is not a finite number in [{self.low:g}, {self.high:g}].",
                "Scale it, or declare another reward_range.",
            )
        return float(reward)

    def _scaled(self, reward: float) -> float:
        return (reward - self.low) / (self.high - self.low)

    def _finish(self, episode: OpenEpisode, reward: float) -> None:
        episode.outcome = reward
        pairs = list(zip(episode.uses, episode.actions, strict=False))
        steps = None
        if any(math.isfinite(step) for step in episode.steps):
            steps = [self._scaled(step) if math.isfinite(step) else self._scaled(reward) for step in episode.steps]
        self.experience.finish(pairs, self._scaled(reward), per_step=steps)

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()
        if self.sync:
            os.fsync(self._file.fileno())

    def _replay(self, record: dict[str, Any]) -> None:
        kind = record["kind"]
        if kind == "episode":
            self.episodes[record["id"]] = OpenEpisode(record["id"], record["goal"])
        elif kind == "decision":
            episode = self.episodes[record["id"]]
            episode.uses.append(self._use(episode, record))
        elif kind == "act":
            episode = self.episodes[record["id"]]
            episode.actions.append(record["action"])
            episode.steps.append(math.nan)
        elif kind == "step":
            self.episodes[record["id"]].steps[-1] = record["reward"]
        elif kind == "reward":
            self._finish(self.episodes[record["id"]], record["reward"])
        elif kind == "item":
            data = {name: value for name, value in record.items() if name != "kind"}
            self.experience.observe(Draft(**{**data, "do": tuple(data["do"]), "avoid": tuple(data["avoid"])}))
        elif kind == "promote":
            self._promote(record["policy"])
        elif kind == "demote":
            self._switch(self._earlier.pop())
        elif kind == "rollback":
            self.experience.roll_back_source(record["source"])
        else:
            raise KeyError(f"kind {kind}")

    def _use(self, episode: OpenEpisode, record: dict[str, Any]) -> Use:
        query = self.experience.query(episode.goal, record["observation"], record["actions"], len(episode.uses))
        choice = record["choice"]
        conflicts = None if choice["conflicts"] is None else np.array(choice["conflicts"], dtype=bool)
        return Use(
            query,
            Candidates(np.array(record["rows"], dtype=np.intp), np.array(record["similarities"], dtype=np.float64)),
            Values(np.array(record["means"]), np.array(record["deviations"])),
            Mixture(
                choice["kind"],
                np.array(choice["first"], dtype=np.float64),
                np.array(choice["second"], dtype=np.float64),
                choice["k"],
                -np.inf if choice["floor"] is None else choice["floor"],
                choice["off"],
                choice["explore"],
                choice["probe"],
                tuple(choice["waiting"]),
                conflicts,
            ),
            tuple(record["slate"]),
            record["part"],
        )


class EpisodeOfMemory:
    """One episode of a LearningMemory: recall, act, reward, in this order, as often as the episode has steps."""

    def __init__(self, memory: LearningMemory, record: OpenEpisode) -> None:
        self._memory, self._record = memory, record
        self.id = record.id

    def __enter__(self) -> EpisodeOfMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def recall(self, observation: str = "", actions: Sequence[str] = ()) -> Presented:
        """What memory shows here: text for a prompt, advice for a policy. On file before it is returned."""
        if len(self._record.uses) != len(self._record.actions):
            raise ClosedDecision(
                f"episode {self.id!r} recalled twice without acting.", "Say with `act` what was done after each recall."
            )
        if self._record.outcome is not None:
            raise ClosedDecision(f"episode {self.id!r} has its reward.", "Open a new episode.")
        use = self._memory.experience.recall(self._record.goal, observation, actions, step=len(self._record.uses))
        choice = use.choice
        self._memory._write(
            {
                "kind": "decision",
                "id": self.id,
                "observation": observation,
                "actions": list(actions),
                "rows": use.candidates.rows.tolist(),
                "similarities": use.candidates.similarities.tolist(),
                "means": use.values.means.tolist(),
                "deviations": use.values.deviations.tolist(),
                "slate": list(use.slate),
                "part": use.part,
                "propensity": use.propensity,
                "policy": self._memory.policy,
                "choice": {
                    "kind": choice.kind,
                    "first": choice.first.tolist(),
                    "second": choice.second.tolist(),
                    "k": choice.k,
                    "floor": choice.floor if math.isfinite(choice.floor) else None,
                    "off": choice.off,
                    "explore": choice.explore,
                    "probe": choice.probe,
                    "waiting": choice.waiting,
                    "conflicts": None if choice.conflicts is None else choice.conflicts.astype(int).tolist(),
                },
            }
        )
        self._record.uses.append(use)
        return self._memory.experience.present(use)

    def act(self, action: str) -> None:
        """What was done after the last recall."""
        if len(self._record.actions) != len(self._record.uses) - 1:
            raise ClosedDecision(f"episode {self.id!r} acted without recalling.", "Call `recall` before `act`.")
        self._memory._write({"kind": "act", "id": self.id, "action": action})
        self._record.actions.append(action)
        self._record.steps.append(math.nan)

    def step_reward(self, reward: float) -> None:
        """The reward of the last action alone; steps without one are credited with the final reward."""
        if not self._record.actions or self._record.outcome is not None:
            raise UnknownDecision(f"episode {self.id!r} has no open action to reward.", "Call `act` first.")
        value = self._memory._checked(reward)
        self._memory._write({"kind": "step", "id": self.id, "reward": value})
        self._record.steps[-1] = value

    def next_state(self, text: str, judge: Judge) -> float:
        """Let what came next speak for the last action: the judge's vote of -1, 0 or 1, scaled to the reward range."""
        if not self._record.actions:
            raise UnknownDecision(f"episode {self.id!r} has no action yet.", "Call `act` first.")
        vote = judge(self._record.actions[-1], text)
        memory = self._memory
        value = memory.low + (max(-1.0, min(1.0, float(vote))) + 1.0) / 2.0 * (memory.high - memory.low)
        self.step_reward(value)
        return value

    def reward(self, reward: float) -> bool:
        """The final reward: what was shown is credited, what is worth keeping is written."""
        return self._memory.reward(self.id, reward)


def answered(memory: LearningMemory, task: str, agent: Callable[[str], str], grade: Callable[[str], float]) -> str:
    """One whole turn around an agent that is a function of its prompt (a wrapper of any chat endpoint is one)."""
    with memory.episode(task) as episode:
        shown = episode.recall()
        answer = agent(f"{shown.text}\n\n{task}".strip())
        episode.act(answer)
        episode.reward(grade(answer))
    return answer


def _records(path: Path) -> Iterable[tuple[dict[str, Any], int]]:
    """Records with the offset behind each. A last line without its end was being written when the process died."""
    data = path.read_bytes()
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        try:
            record = json.loads(data[start:end])
        except ValueError as error:
            raise DamagedJournal(
                f"{path} is damaged at byte {start}.", "Restore it from a copy, or cut it off there."
            ) from error
        yield record, end + 1
        start = end + 1
