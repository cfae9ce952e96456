"""Converts groups of episodes to the padded rows that an objective reads.

A row is a context and what followed it. A model call whose context continues the call before (its context, the tokens it drew,
then what the environment wrote) shares its row; a context that was rewritten begins a new one. Tokens that the policy did not
draw have mask 0. Statistics and denominators are per episode, whatever the number of its rows. Where a reward is of one role
alone, each role of an episode counts as an episode of its own, compared with the same role of the group's other members."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from keepworth.base.needs import needs_train

import torch

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Episode, Group, RewardScope, Segment
from keepworth.records.model import FinishReason, Grammar, Tokens
from keepworth.training.objective.batch import Batch, Steps
from keepworth.training.objective.options import Objective


class BadEpisode(KeepworthError, ValueError):
    """An episode cannot be trained on."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of rows. `contexts[b]` are the ids before row b's first drawn token, `answers[b]` all ids after them, drawn or
    not."""

    contexts: Sequence[Tokens]
    answers: Sequence[Tokens]

    def by_context(self, rows: Iterable[int]) -> dict[Tokens, list[int]]:
        """Groups rows by context: those that share it become branches of one prompt."""
        shared: dict[Tokens, list[int]] = {}
        for row in rows:
            shared.setdefault(self.contexts[row], []).append(row)
        return shared

    def branches(self, shared: Mapping[Tokens, Sequence[int]]) -> list[list[Tokens]]:
        """Returns the answers to each context."""
        return [[self.answers[row] for row in members] for members in shared.values()]


@dataclass(frozen=True, slots=True)
class Rows(Texts):
    """Rows with their batch.

    `batch.mask[b]` says which ids of row b's answer were drawn. `tasks[b]` is the key of its task, `shown[b]` the texts that were
    shown in its episode. `cut[b]` says that the row ends an episode which the length limit cut off. `unscored` [B, T] marks drawn
    tokens whose log-probability is not known yet. `grammars[b]` are the calls of the row that were drawn under a grammar."""

    batch: Batch
    tasks: tuple[str, ...]
    cut: tuple[bool, ...]
    unscored: torch.Tensor
    shown: tuple[tuple[str, ...], ...] = ()
    grammars: tuple[tuple[Restricted, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Restricted:
    """Ids of an answer, from `start` on, that were drawn under a grammar."""

    start: int
    ids: Tokens
    grammar: Grammar


@dataclass(slots=True)
class Stretch:
    """One row: its context, the ids that follow it, and its segments, with their indices in the episode."""

    context: Tokens
    answer: Tokens = ()
    segments: list[Segment] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)


def stretches(episode: Episode, roles: Sequence[str], merge: bool = True) -> list[Stretch]:
    """Divides an episode's segments into rows: a segment whose context continues the one before shares its row. Raises
    BadEpisode where a segment contradicts itself.

    Args:
        episode: One episode, with the calls of any roles.
        roles: The roles whose segments are taken.
        merge: False gives every model call a row of its own.
    """
    rows: list[Stretch] = []
    for index, segment in enumerate(episode.segments):
        if segment.role not in roles:
            continue
        _check(episode, index, segment)
        whole = rows[-1].context + rows[-1].answer if rows else ()
        if not (merge and rows and segment.context[: len(whole)] == whole):
            rows.append(Stretch(segment.context))
        rows[-1].answer = segment.context[len(rows[-1].context) :] + segment.ids
        rows[-1].segments.append(segment)
        rows[-1].indices.append(index)
    return rows


def _check(episode: Episode, index: int, segment: Segment) -> None:
    where = f"segment {index} ({segment.role}) of episode {episode.id!r}"
    if segment.logprobs and len(segment.ids) != len(segment.logprobs):
        raise BadEpisode(
            f"{where} has {len(segment.ids)} sampled ids but {len(segment.logprobs)} log-probabilities.",
            "Keep what the sampler returned; never decode and encode it again.",
        )
    if not segment.context:
        raise BadEpisode(f"{where} has an empty context: nothing predicts its first token.", "Give it one.")
    if any(not 0 <= span.start <= span.end <= len(segment.ids) for span in segment.spans):
        raise BadEpisode(f"{where} has a version span outside its {len(segment.ids)} ids.", "Repair the sampler.")


def rows_of(groups: Sequence[Group], roles: Sequence[str], version: int, *, merge: bool = True) -> Rows:
    """Builds the rows of all segments of some roles; T is the longest answer. Raises BadEpisode where there is nothing to train
    on.

    Args:
        groups: The groups of the update.
        roles: The roles that are trained. Where a reward term names a role, each has rows of its own.
        version: The learner's version, from which `version_lag` counts.
        merge: False gives every model call a row of its own.
    """
    split = any(term.role for group in groups for episode in group.episodes for term in episode.rewards)
    parts = [(role,) for role in roles] if split else [tuple(roles)]
    token_rows = [
        ((number * len(parts) + part, index), episode, stretch)
        for number, group in enumerate(groups)
        for part, of in enumerate(parts)
        for index, episode in enumerate(group.episodes)
        for stretch in stretches(episode, of, merge)
        if any(segment.ids for segment in stretch.segments)
    ]
    if not token_rows:
        named = " or ".join(repr(role) for role in roles)
        raise BadEpisode(f"No episode of this step has a segment of role {named} with a sampled token.")
    places = [place for place, *_ in token_rows]  # of episodes: the group, and the member
    episodes = [episode for _, episode, _ in token_rows]
    lines = [stretch for *_, stretch in token_rows]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    kinds = [episode.source or episode.task.partition("/")[0] for episode in episodes]  # of tasks
    types = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    shape = len(lines), max(len(line.answer) for line in lines)
    mask, behaviour, lag = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    unscored = torch.zeros(shape, dtype=torch.bool)
    ids, step = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    turns: list[tuple[int, int, Segment, Episode]] = []  # the episode's number, and the segment's in the episode
    for row, (place, episode, line) in enumerate(token_rows):
        ids[row, : len(line.answer)] = torch.tensor(line.answer)
        for position, segment in zip(line.indices, line.segments, strict=True):
            start = len(segment.context) - len(line.context)
            inside = slice(start, start + len(segment.ids))
            mask[row, inside] = 1
            if segment.logprobs:
                behaviour[row, inside] = torch.tensor(segment.logprobs)
                for span in segment.spans:
                    lag[row, start + span.start : start + span.end] = version - span.version
            else:
                unscored[row, inside] = True
            step[row, inside] = len(turns)
            turns.append((numbers[place], position, segment, episode))
    last = {place: row for row, place in enumerate(places)}
    truncated = [line.segments[-1].finish is FinishReason.LENGTH for line in lines]
    rewards = [
        episode.reward_of(line.segments[0].role) if split else episode.reward
        for episode, line in zip(episodes, lines, strict=True)
    ]
    batch = Batch(
        mask=mask,
        lp_behaviour=behaviour,
        rewards=torch.tensor(rewards, dtype=torch.float64),
        metric=torch.tensor([episode.metric for episode in episodes], dtype=torch.float64),
        group=torch.tensor([number for number, _ in places]),
        episode=torch.tensor([numbers[place] for place in places]),
        task_type=torch.tensor([types[kind] for kind in kinds]),
        version_lag=lag,
        step=step,
        steps=_steps(turns),
        ids=ids,
        truncated=torch.tensor(truncated),
        branch=torch.tensor([int(bool(episode.parent)) for episode in episodes]),
    )
    return Rows(
        tuple(line.context for line in lines),
        tuple(line.answer for line in lines),
        batch,
        tuple(episode.task for episode in episodes),
        tuple(is_cut and last[place] == row for row, (place, is_cut) in enumerate(zip(places, truncated, strict=True))),
        unscored,
        tuple(tuple(item.text for item in episode.shown) for episode in episodes),
        tuple(
            tuple(
                Restricted(len(segment.context) - len(line.context), segment.ids, segment.grammar)
                for segment in line.segments
                if segment.grammar is not None
            )
            for line in lines
        ),
    )


def _steps(turns: Sequence[tuple[int, int, Segment, Episode]]) -> Steps:
    """Returns the turns of a step's episodes, one for each trained segment, numbered within the episode. A turn is given as the
    number of its episode, the segment's position there, the segment and the episode."""
    counts, states = Counter[int](), dict[str, int]()
    rows: list[tuple[int, int, float, int, float]] = []
    for number, position, segment, episode in turns:
        reward = sum(
            term.value * term.weight
            for term in episode.rewards
            if term.scope is RewardScope.SEGMENT and term.segment == position
        )
        state = states.setdefault(segment.state, len(states)) if segment.state else -1
        rows.append((number, counts[number], reward, state, math.nan if segment.seconds is None else segment.seconds))
        counts[number] += 1
    of_episode, index, rewards, keys, seconds = zip(*rows, strict=True)
    return Steps(
        torch.tensor(of_episode),
        torch.tensor(index),
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(keys),
        None if all(map(math.isnan, seconds)) else torch.tensor(seconds, dtype=torch.float64),
    )


def require_credit(rows: Rows, groups: Sequence[Group], objective: Objective) -> None:
    """Raises BadEpisode where the objective assigns credit by something that no episode of this step has.

    Args:
        rows: The rows of the step.
        groups: The groups that they were built of.
        objective: What is optimised.
    """
    steps, episodes = rows.batch.steps, [episode for group in groups for episode in group.episodes]
    assert steps is not None
    terms = [term for episode in episodes for term in episode.rewards]
    there = {
        "states of turns": (bool((steps.state >= 0).any()), "Observation.state in the environment, or Segment.state"),
        "durations of turns": (steps.duration is not None, "Step.seconds in the environment, or Segment.seconds"),
        "rewards of turns": (
            any(term.scope is RewardScope.SEGMENT and term.segment is not None for term in terms),
            "a term's scope to 'segment', and its segment",
        ),
    }
    for needed in (words for part in objective.all_parts for words in part.episodes):
        is_there, fix = there.get(needed, (True, ""))
        if not is_there:
            raise BadEpisode(
                f"Objective {objective.name!r} needs {needed}, and no episode of this step has any.", f"Set {fix}."
            )
    wanted = objective.reward_term
    for episode in episodes if wanted is not None else ():
        if all(term.name != wanted for term in episode.rewards):
            raise BadEpisode(
                f"Objective {objective.name!r} trains on a reward term {wanted!r}, which episode {episode.id!r} does not have.",
                "Add it, as the recipe memory_r_plus does.",
            )


def require_roles(groups: Sequence[Group], roles: Sequence[str]) -> None:
    """Raises BadEpisode where a role that is trained or rewarded has no call in these groups."""
    there = {segment.role for group in groups for episode in group.episodes for segment in episode.segments}
    rewarded = {term.role for group in groups for episode in group.episodes for term in episode.rewards if term.role}
    for role in (*roles, *sorted(rewarded)):
        if role not in there:
            raise BadEpisode(
                f"The role {role!r} is {'trained' if role in roles else 'rewarded'}, and no call of this step's episodes has it.",
                f"Their calls have: {', '.join(sorted(there))}. Give it an agent whose calls name it, or leave it out.",
            )
