"""Batch: the padded rows of one optimiser step, as tensors, and how groups of episodes become them.

An episode may have several rows (its context was rewritten between two model calls); its rows stand in the order in
which they happened. B rows, T columns, E episodes, S steps (turns).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from keepworth.episodes.needs import needs_train

import torch
from torch import Tensor

from keepworth.episodes.episode import Episode, Group, RewardScope, Segment
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, Tokens
from keepworth.learning.objective.options import Objective
from keepworth.models.attention import Tree, round_up, tree
from keepworth.models.inprocess import InProcessModel
from keepworth.models.recomputed import KeptBytes


@dataclass(frozen=True, slots=True)
class Steps:
    """Turns of the batch's episodes, for credit finer than the episode; all tensors are [S].

    episode: id as in `Batch.episode`; index: 0, 1, 2 ... within the episode; reward: what the environment gave for
    the turn; state: integer key of the environment's state before acting, equal for equal states (it leaves out step
    counters and timestamps), -1 for a state that is never compared.
    """

    episode: Tensor
    index: Tensor
    reward: Tensor
    state: Tensor

    def __post_init__(self) -> None:
        sizes = {tuple(getattr(self, field.name).shape) for field in fields(self)}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            raise ValueError(f"Steps: every tensor must have the same one-dimensional shape, got {sorted(sizes)}")


@dataclass(frozen=True, slots=True)
class Batch:
    """What an objective reads.

    mask [B,T]: 1 exactly at tokens the policy drew. lp_behaviour [B,T]: log-probabilities under the policy that drew
    them, at the sampling temperature. lp_proximal [B,T]: recomputed by the trainer before its first optimiser step
    on this batch. lp_reference, lp_teacher, values [B,T]: the reference model, a teacher, the critic, without
    gradient. rewards [B]: the episode's combined reward, the same on each of its rows. group, episode, task_type [B]:
    integer ids, not necessarily contiguous. version_lag [B,T]: trainer's version minus the token's. step [B,T]:
    position in `steps` of the turn a token belongs to, -1 where none. ids [B,T]: sampled token ids.
    truncated [B]: the answer hit the length limit. metric [B]: score before shaping (1 is right), for teacher
    masks; the reward where absent. bootstrap [B]: critic's value after a truncated end. soft_value [B]: the task's
    optimal value under the reference. score_norm [B]: ||grad log pi(episode)||, the same on each row. branch [B]:
    0 for whole rollouts, 1 for local re-rolls. entropy_behaviour [B,T]: the sampler's entropy.

    keep [B,T] and teacher_rows [B] are written by `select`.
    """

    mask: Tensor
    lp_behaviour: Tensor
    rewards: Tensor
    group: Tensor
    episode: Tensor
    lp_proximal: Tensor | None = None
    lp_reference: Tensor | None = None
    lp_teacher: Tensor | None = None
    values: Tensor | None = None
    task_type: Tensor | None = None
    version_lag: Tensor | None = None
    step: Tensor | None = None
    steps: Steps | None = None
    ids: Tensor | None = None
    truncated: Tensor | None = None
    metric: Tensor | None = None
    bootstrap: Tensor | None = None
    soft_value: Tensor | None = None
    score_norm: Tensor | None = None
    branch: Tensor | None = None
    entropy_behaviour: Tensor | None = None
    keep: Tensor | None = None
    teacher_rows: Tensor | None = None

    def __post_init__(self) -> None:
        if self.mask.dim() != 2:
            raise ValueError(f"Batch.mask must be [rows, tokens], got shape {tuple(self.mask.shape)}")
        rows, columns = self.mask.shape
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name == "steps":
                continue
            if value.shape not in ((rows, columns), (rows,)) or (value.dim() == 1) != (field.name in _PER_ROW):
                want = f"[{rows}]" if field.name in _PER_ROW else f"[{rows}, {columns}]"
                raise ValueError(f"Batch.{field.name} must be {want} like the mask, got {list(value.shape)}")
        if self.step is not None and self.steps is None:
            raise ValueError("Batch.step points into Batch.steps, which is missing")
        if not bool(torch.isfinite(self.rewards).all()):
            bad = self.episode[~torch.isfinite(self.rewards)].tolist()
            raise ValueError(f"Batch.rewards is not finite for episodes {bad}: drop them or give them a stated reward")

    def require(self, name: str, by: object) -> Tensor:
        """The field of that name. Raises ValueError where it is not there; by: who reads it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{by} needs Batch.{name}")
        tensor: Tensor = value
        return tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape[0], self.mask.shape[1]

    def rows(self, index: Tensor | Sequence[int] | slice) -> Batch:
        """The rows of a micro-batch; `steps` stays whole because `step` points into it."""
        where = torch.as_tensor(index, device=self.mask.device) if isinstance(index, Sequence) else index
        return replace(self, **{name: value[where] for name, value in _tensors(self).items()})


def _tensors(record: Batch) -> dict[str, Any]:
    named = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: value for name, value in named.items() if isinstance(value, Tensor)}


_PER_ROW = frozenset(
    {
        "rewards",
        "group",
        "episode",
        "task_type",
        "truncated",
        "metric",
        "bootstrap",
        "soft_value",
        "score_norm",
        "branch",
        "teacher_rows",
    }
)


@dataclass(frozen=True, slots=True)
class EpisodeTable:
    """One line per episode. of_row [B]: the line of a row; ids, reward, group, tokens [E]; groups: how many differ."""

    of_row: Tensor
    ids: Tensor
    reward: Tensor
    group: Tensor
    groups: int
    tokens: Tensor

    def first(self, per_row: Tensor) -> Tensor:
        """[B] -> [E]: the value on an episode's first row."""
        count, rows = len(self.ids), len(self.of_row)
        position = torch.full((count,), rows, dtype=torch.long, device=self.of_row.device)
        order = torch.arange(rows, device=self.of_row.device)
        position = position.scatter_reduce(0, self.of_row, order, "amin")
        return per_row[position]


def episode_table(batch: Batch) -> EpisodeTable:
    """Collapse rows to episodes, so that an episode of many rows counts once in every statistic.

    Raises ValueError if the rows of one episode disagree on its reward or its group.
    """
    ids, of_row = torch.unique(batch.episode, return_inverse=True)
    tokens = torch.zeros(len(ids), dtype=torch.float64, device=batch.mask.device)
    tokens.index_add_(0, of_row, batch.mask.to(torch.float64).sum(1))
    bare = EpisodeTable(of_row, ids, ids, ids, 0, tokens)
    reward, group_id = bare.first(batch.rewards.to(torch.float64)), bare.first(batch.group)
    for name, per_row, per_episode in (("reward", batch.rewards, reward), ("group", batch.group, group_id)):
        wrong = per_row.to(per_episode.dtype) != per_episode[of_row]
        if bool(wrong.any()):
            raise ValueError(f"rows of episode {batch.episode[wrong][0].item()} disagree on its {name}")
    return EpisodeTable(of_row, ids, reward, group_id, len(torch.unique(group_id)), tokens)


# From groups of episodes to the padded rows an objective reads.
#
# A row is a context and what followed it. Model calls whose context continues the call before (its context, what it drew,
# then what the environment wrote) share a row; a context that was rewritten begins a new one. Tokens that the policy did
# not draw have mask 0. Statistics and denominators are per episode, whatever the number of its rows.


class BadEpisode(KeepworthError, ValueError):
    """An episode that cannot be trained on as it is."""


class BudgetTooSmall(KeepworthError, ValueError):
    """A token_budget that cannot be kept: one answer and its prompt alone are larger."""


Checkpointing = Literal["auto", "on", "off"]
RECOMPUTED_COST = 1.4
"""Time of a recomputed pass in that of a plain one: its forward half is computed twice."""
_ALIKE = KeptBytes(1.0, 1.0)
_MASK_BYTES = 3
"""Of each pair of a branch column and what it may see, while a mask is made."""


@dataclass(frozen=True, slots=True)
class PassRoom:
    """What one forward and backward pass may hold: the activations of `token_budget` padded tokens.

    token_bytes: what a token takes; recomputed passes (gradient checkpointing) take less and fit more tokens. checkpointing:
    "on" recomputes every pass, "off" none, "auto" those that fit in no other way and those that save time because prompts are
    computed less often. shares_prompts: False where the network computes each answer with a prompt of its own."""

    token_budget: int
    checkpointing: Checkpointing = "off"
    token_bytes: KeptBytes = _ALIKE
    shares_prompts: bool = True

    def fits(self, prompts: int, prompt: int, branches: int, recompute: bool) -> bool:
        """Whether so many rows of padded widths `prompt` and `branches` fit."""
        return self._needed(prompts, prompt, branches, recompute) <= self.token_budget

    def _needed(self, prompts: int, prompt: int, branches: int, recompute: bool) -> float:
        tokens = prompts * (prompt + branches)
        if not recompute:
            return tokens
        return tokens * (self.token_bytes.recomputed + branches * _MASK_BYTES) / self.token_bytes.plain

    def refusal(self, prompt: int, answer: int) -> BudgetTooSmall:
        """What to say of an answer that does not fit with its prompt, of these lengths."""
        recompute = self.checkpointing != "off"
        padded = round_up(prompt, 16), round_up(answer, 16)
        needed = round_up(math.ceil(self._needed(1, *padded, recompute)), 256)
        how = ", even if its layers are computed again on the way back" if recompute else ""
        fix = f"Set token_budget to {needed} or more, or make answers shorter."
        if not recompute:
            fix = f"Set checkpointing to auto, or token_budget to {needed} or more, or make answers shorter."
        return BudgetTooSmall(
            f"token_budget = {self.token_budget}, and one answer of {answer} tokens behind a prompt of {prompt} "
            f"({sum(padded)} padded tokens) needs a budget of {needed}{how}.",
            f"{fix} A run that was stopped here continues with either.",
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """`contexts[b]`: the ids before row b's first drawn token. `answers[b]`: all ids behind them, drawn or not;
    `batch.mask[b]` says which were drawn. `tasks[b]`: the key of its task. `cut[b]`: the row ends its episode, which
    was cut off by the length limit."""

    batch: Batch
    contexts: tuple[Tokens, ...]
    answers: tuple[Tokens, ...]
    tasks: tuple[str, ...]
    cut: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Segments of one row, with their indices in the episode; `starts[k]`: where segment k's ids begin behind the
    first one's context."""

    segments: tuple[Segment, ...]
    indices: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def context(self) -> Tokens:
        return self.segments[0].context

    @property
    def answer(self) -> Tokens:
        last = self.segments[-1]
        return last.context[len(self.context) :] + last.ids


def stretches(episode: Episode, roles: Sequence[str], merge: bool = True) -> list[Stretch]:
    """The rows of an episode: the segments of `roles` in order, one row where a context continues the one before.

    merge=False gives every model call a row of its own. Raises BadEpisode where a segment contradicts itself.
    """
    found: list[list[tuple[int, Segment]]] = []
    for index, segment in enumerate(episode.segments):
        if segment.role not in roles:
            continue
        _check(episode, index, segment)
        if merge and found and _continues(found[-1][-1][1], segment):
            found[-1].append((index, segment))
        else:
            found.append([(index, segment)])
    return [
        Stretch(
            tuple(segment for _, segment in row),
            tuple(index for index, _ in row),
            tuple(len(segment.context) - len(row[0][1].context) for _, segment in row),
        )
        for row in found
    ]


def _continues(before: Segment, after: Segment) -> bool:
    known = len(before.context) + len(before.ids)
    return len(after.context) >= known and after.context[:known] == before.context + before.ids


def _check(episode: Episode, index: int, segment: Segment) -> None:
    where = f"segment {index} ({segment.role}) of episode {episode.id!r}"
    if len(segment.ids) != len(segment.logprobs):
        raise BadEpisode(
            f"{where} has {len(segment.ids)} sampled ids but {len(segment.logprobs)} log-probabilities.",
            "Keep what the sampler returned; never decode and encode it again.",
        )
    if not segment.context:
        raise BadEpisode(f"{where} has an empty context: nothing predicts its first token.", "Give it one.")
    if any(not 0 <= span.start <= span.end <= len(segment.ids) for span in segment.spans):
        raise BadEpisode(f"{where} has a version span outside its {len(segment.ids)} ids.", "Repair the sampler.")


def rows_of(groups: Sequence[Group], roles: Sequence[str], version: int, *, merge: bool = True) -> Rows:
    """The rows of every segment of `roles`; T is the longest answer. version: the learner's, for `version_lag`.

    Raises BadEpisode where there is nothing to train on.
    """
    found = [
        (number, index, episode, stretch)
        for number, group in enumerate(groups)
        for index, episode in enumerate(group.episodes)
        for stretch in stretches(episode, roles, merge)
        if any(segment.ids for segment in stretch.segments)
    ]
    if not found:
        named = " or ".join(repr(role) for role in roles)
        raise BadEpisode(f"No episode of this step has a segment of role {named} with a sampled token.")
    shape = len(found), max(len(stretch.answer) for *_, stretch in found)
    mask, behaviour, lag = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    ids, step = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    numbers: dict[tuple[int, int], int] = {}
    types: dict[str, int] = {}
    turns = _Turns()
    for row, (number, index, episode, stretch) in enumerate(found):
        numbers.setdefault((number, index), len(numbers))
        ids[row, : len(stretch.answer)] = torch.tensor(stretch.answer)
        for place, segment, start in zip(stretch.indices, stretch.segments, stretch.starts, strict=True):
            inside = slice(start, start + len(segment.ids))
            mask[row, inside] = 1
            behaviour[row, inside] = torch.tensor(segment.logprobs)
            for span in segment.spans:
                lag[row, start + span.start : start + span.end] = version - span.version
            step[row, inside] = turns.add(numbers[number, index], place, segment, episode)
    last = {(number, index): row for row, (number, index, *_) in enumerate(found)}
    cut = tuple(
        last[number, index] == row and stretch.segments[-1].finish is FinishReason.LENGTH
        for row, (number, index, _, stretch) in enumerate(found)
    )
    batch = Batch(
        mask=mask,
        lp_behaviour=behaviour,
        rewards=torch.tensor([episode.reward for _, _, episode, _ in found], dtype=torch.float64),
        metric=torch.tensor([episode.metric for _, _, episode, _ in found], dtype=torch.float64),
        group=torch.tensor([number for number, *_ in found]),
        episode=torch.tensor([numbers[number, index] for number, index, *_ in found]),
        task_type=torch.tensor([types.setdefault(kind_of(episode), len(types)) for _, _, episode, _ in found]),
        version_lag=lag,
        step=step,
        steps=turns.steps(),
        ids=ids,
        truncated=torch.tensor([s.segments[-1].finish is FinishReason.LENGTH for *_, s in found]),
        branch=torch.tensor([int(bool(episode.parent)) for _, _, episode, _ in found]),
    )
    return Rows(
        batch,
        tuple(stretch.context for *_, stretch in found),
        tuple(stretch.answer for *_, stretch in found),
        tuple(episode.task for _, _, episode, _ in found),
        cut,
    )


def kind_of(episode: Episode) -> str:
    """The kind of task that scale='task' compares within: its data set, or the first part of its key."""
    return episode.source or episode.task.partition("/")[0]


class _Turns:
    """Collects the turns of a step's episodes: one a segment, numbered within the episode among trained ones."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, float, int]] = []
        self._count: dict[int, int] = {}
        self._states: dict[str, int] = {}

    def add(self, number: int, place: int, segment: Segment, episode: Episode) -> int:
        index = self._count.get(number, 0)
        self._count[number] = index + 1
        reward = sum(
            term.value * term.weight
            for term in episode.rewards
            if term.scope is RewardScope.SEGMENT and term.segment == place
        )
        state = self._states.setdefault(segment.state, len(self._states)) if segment.state else -1
        self._rows.append((number, index, reward, state))
        return len(self._rows) - 1

    def steps(self) -> Steps:
        episode, index, reward, state = zip(*self._rows, strict=True)
        return Steps(
            torch.tensor(episode), torch.tensor(index), torch.tensor(reward, dtype=torch.float64), torch.tensor(state)
        )


def by_context(contexts: Sequence[Tokens], rows: Iterable[int]) -> dict[Tokens, list[int]]:
    """Rows that share their whole context become branches of one prompt."""
    shared: dict[Tokens, list[int]] = {}
    for row in rows:
        shared.setdefault(contexts[row], []).append(row)
    return shared


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """rows: of one forward and backward pass, those of a prompt side by side. recompute: whether its layers are computed again
    on the way back."""

    rows: tuple[int, ...]
    recompute: bool = False


def micro_batches(
    contexts: Sequence[Tokens], answers: Sequence[Tokens], chosen: Iterable[int], room: PassRoom, least: int = 1
) -> list[MicroBatch]:
    """The chosen rows in micro-batches that fit the room, largest first.

    Rows of one prompt stay together, so that the prompt is computed once. Where they do not fit together, they are split and
    each part computes the prompt again, or their layers are recomputed, whichever is less work. least: as many micro-batches as
    there are learners to share them, where there are rows enough: the largest are split. Raises BudgetTooSmall for a row
    that does not fit alone.
    """
    units: list[_Part] = []
    for prompt, members in by_context(contexts, chosen).items():
        for own in [members] if room.shares_prompts else [[row] for row in members]:
            units.extend(_parts(len(prompt), {row: len(answers[row]) for row in own}, room))
    batches: list[list[_Part]] = []
    for unit in sorted(units, key=lambda unit: -unit.columns):
        together = [*batches[-1], unit] if batches else []
        widest = (
            max((each.prompt for each in together), default=0),
            max((each.branches for each in together), default=0),
        )
        if (
            together
            and batches[-1][0].recompute == unit.recompute
            and room.fits(len(together), *widest, unit.recompute)
        ):
            batches[-1] = together
        else:
            batches.append([unit])
    found = [MicroBatch(tuple(row for unit in batch for row in unit.rows), batch[0].recompute) for batch in batches]
    while len(found) < least:
        divisible = [each for each in found if len(each.rows) > 1]
        if not divisible:
            break
        largest = max(divisible, key=lambda each: work(contexts, answers, each))
        place = found.index(largest)
        found[place : place + 1] = _halves(contexts, answers, largest, room)
    return found


def work(contexts: Sequence[Tokens], answers: Sequence[Tokens], part: MicroBatch) -> float:
    """How much a pass over it computes, in padded tokens of a plain pass."""
    prompts, prompt, branches = _widths(contexts, answers, part.rows)
    return prompts * (prompt + branches) * (RECOMPUTED_COST if part.recompute else 1.0)


def _widths(contexts: Sequence[Tokens], answers: Sequence[Tokens], rows: Sequence[int]) -> tuple[int, int, int]:
    """How many prompts there are, and the padded widths of the longest and of what stands behind them."""
    shared = by_context(contexts, rows)
    longest = max(sum(len(answers[row]) for row in members) for members in shared.values())
    return len(shared), *_padded(max(map(len, shared)), longest)


def _halves(
    contexts: Sequence[Tokens], answers: Sequence[Tokens], part: MicroBatch, room: PassRoom
) -> list[MicroBatch]:
    """Two parts of it whose larger one is as little work as can be; plain passes where they fit."""

    def of(rows: tuple[int, ...]) -> MicroBatch:
        fits = room.checkpointing != "on" and room.fits(*_widths(contexts, answers, rows), recompute=False)
        return MicroBatch(rows, part.recompute and not fits)

    ways = [[of(part.rows[:cut]), of(part.rows[cut:])] for cut in range(1, len(part.rows))]
    return min(ways, key=lambda way: max(work(contexts, answers, each) for each in way))


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that share a prompt, as one row of a tree: its padded widths."""

    rows: tuple[int, ...]
    prompt: int
    branches: int
    recompute: bool

    @property
    def columns(self) -> int:
        return self.prompt + self.branches


def _parts(prompt: int, lengths: Mapping[int, int], room: PassRoom) -> list[_Part]:
    """The rows of one prompt of that length: in the plain passes, recomputed ones, or both, that cost least time.

    lengths: of the answers, by row."""
    ways: list[list[_Part]] = []
    if room.checkpointing != "on":
        short = {row: each for row, each in lengths.items() if room.fits(1, *_padded(prompt, each), False)}
        long = {row: each for row, each in lengths.items() if row not in short}
        ways.append([*_packed(prompt, short, room, False), *_packed(prompt, long, room, room.checkpointing != "off")])
    if room.checkpointing != "off" and (not ways or len(ways[0]) > 1):
        ways.append(_packed(prompt, lengths, room, True))
    return min(ways, key=lambda way: sum(each.columns * (RECOMPUTED_COST if each.recompute else 1.0) for each in way))


def _packed(prompt: int, lengths: Mapping[int, int], room: PassRoom, recompute: bool) -> list[_Part]:
    """As few parts as the longest-first rule needs; all rows in one, in their order, where they fit."""
    bins: list[dict[int, int]] = []
    for row in sorted(lengths, key=lambda row: -lengths[row]):
        if not room.fits(1, *_padded(prompt, lengths[row]), recompute):
            raise room.refusal(prompt, lengths[row])
        own = (each for each in bins if room.fits(1, *_padded(prompt, sum(each.values()) + lengths[row]), recompute))
        found = next(own, None)
        if found is None:
            bins.append({row: lengths[row]})
        else:
            found[row] = lengths[row]
    return [
        _Part(tuple(row for row in lengths if row in each), *_padded(prompt, sum(each.values())), recompute)
        for each in bins
    ]


def _padded(prompt: int, branches: int) -> tuple[int, int]:
    """Widths in a tree."""
    return round_up(prompt, 16), round_up(max(1, branches), 16)


def require_credit(rows: Rows, groups: Sequence[Group], objective: Objective) -> None:
    """Raises BadEpisode naming what the episodes of this step do not say and the objective credits by."""
    name, term = objective.name, objective.reward_term
    assert rows.batch.steps is not None
    if "states of turns" in objective.advantage.episodes and not bool((rows.batch.steps.state >= 0).any()):
        raise BadEpisode(
            f"Objective {name!r} compares turns taken from the same state, and no segment of this step says its state.",
            "Set Observation.state in the environment, or Segment.state where you build the episodes yourself.",
        )
    episodes = [episode for group in groups for episode in group.episodes]
    if "rewards of turns" in objective.advantage.episodes and not any(
        each.scope is RewardScope.SEGMENT and each.segment is not None for e in episodes for each in e.rewards
    ):
        raise BadEpisode(
            f"Objective {name!r} credits single turns, and no reward term of this step names its segment.",
            "Give terms a scope of 'segment' and a segment, as keepworth.learning.collect.episode_credit.with_attribution does.",
        )
    for episode in episodes if term is not None else ():
        if all(each.name != term for each in episode.rewards):
            raise BadEpisode(
                f"Objective {name!r} trains on a reward term {term!r}, which episode {episode.id!r} does not have.",
                "Add it, as keepworth.learning.collect.episode_credit.with_episodic_reward does.",
            )


def soft_values_of(rows: Rows, values: Mapping[str, float], name: str) -> torch.Tensor:
    """[B] float64: the value under the reference of each row's task. Raises BadEpisode for a task without one."""
    for task in rows.tasks:
        if task not in values:
            raise BadEpisode(
                f"Objective {name!r} needs the value of task {task!r} under the reference, which was not measured.",
                "Sample about 8 answers of each task before training and hand "
                "keepworth.learning.reference.reference_values(groups, objective) to the learner.",
            )
    return torch.tensor([values[task] for task in rows.tasks], dtype=torch.float64)


# One forward pass over some rows: every shared context computed once, scores taken only where a token was drawn.


@dataclass(frozen=True, slots=True)
class BranchLayout:
    """`tree`: the chosen rows as branches of their contexts, its targets the drawn tokens [N]. place [N]: where each
    stands in the flattened [len(chosen), width]. last [len(chosen)]: flat column of each row's last token."""

    tree: Tree
    place: torch.Tensor
    last: torch.Tensor
    width: int


def layout(rows: Rows, chosen: Sequence[int]) -> BranchLayout:
    shared = by_context(rows.contexts, chosen)
    whole = tree(list(shared), [[rows.answers[row] for row in members] for members in shared.values()])
    at = {row: position for position, row in enumerate(chosen)}
    columns, first = whole.ids.shape[1], whole.ids.shape[1] - whole.mask.shape[2]
    width = rows.batch.shape[1]
    order: list[int] = []
    last = torch.empty(len(chosen), dtype=torch.long)
    for number, members in enumerate(shared.values()):
        column = number * columns + first  # branches stand one after the other behind the padded prompt
        for row in members:
            column += len(rows.answers[row])
            last[at[row]] = column - 1
            order.append(row)
    lengths = torch.tensor([len(rows.answers[row]) for row in order])
    rows_of_tokens = torch.repeat_interleave(torch.tensor(order), lengths)
    column_of = torch.cat([torch.arange(int(length)) for length in lengths])
    drawn = rows.batch.mask[rows_of_tokens, column_of] > 0
    place = torch.repeat_interleave(torch.tensor([at[row] for row in order]), lengths) * width + column_of
    picked = replace(whole, predictor=whole.predictor[drawn], target=whole.target[drawn])
    return BranchLayout(picked, place[drawn], last, width)


def row_scores(
    model: InProcessModel, rows: Rows, chosen: Sequence[int], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies [len(chosen), T] of the chosen rows, zero where nothing was drawn."""
    plan = layout(rows, chosen)
    flat_lp, flat_entropy = model.tree_scores(plan.tree, temperature)
    blank = flat_lp.new_zeros(len(chosen) * plan.width)
    lp, entropy = blank.index_copy(0, plan.place, flat_lp), blank.index_copy(0, plan.place, flat_entropy)
    return lp.view(-1, plan.width), entropy.view(-1, plan.width)
