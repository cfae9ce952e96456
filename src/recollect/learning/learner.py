"""The weight learner: groups of episodes in, better weights out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from recollect.episodes.episode import Group
from recollect.episodes.model import Tokens
from recollect.learning.masters import Masters
from recollect.learning.objective.advantage import advantages
from recollect.learning.objective.aggregation import denominators
from recollect.learning.objective.batch import Batch
from recollect.learning.objective.control import Controls, advanced, initial, learning_rate_scale
from recollect.learning.objective.correction import effective_sample_size
from recollect.learning.objective.filters import kept_groups
from recollect.learning.objective.inputs import require_inputs
from recollect.learning.objective.options import Objective
from recollect.learning.objective.policy_loss import group_metrics, loss, merge_metrics
from recollect.learning.objective.selection import select
from recollect.learning.rows import Rows, by_context, rows_of
from recollect.models.adapter import Named
from recollect.models.inprocess import InProcessModel
from recollect.models.tree import micro_batches, tree


@dataclass(frozen=True, slots=True)
class Optimisation:
    """AdamW and its schedule. token_budget: padded tokens of one forward and backward pass; it bounds memory only."""

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_norm: float = 1.0
    warmup_steps: int = 0
    token_budget: int = 2048


PROVIDED = frozenset(
    {"lp_proximal", "lp_reference", "version_lag", "ids", "truncated", "learning_rate_scale", "group_filter"}
)
"""What this learner gives an objective; one that needs more (a critic, a teacher, turns) is refused at the start."""


class Learner:
    """Improves `model` in place: sampler and learner are the same weights, so nothing has to be published."""

    def __init__(
        self, model: InProcessModel, named: Named, objective: Objective, optimisation: Optimisation, role: str
    ) -> None:
        require_inputs(objective, PROVIDED, "the learner")
        self.model = model
        self.objective = objective
        self.optimisation = optimisation
        self.role = role
        self.masters = Masters(
            named,
            optimisation.learning_rate,
            optimisation.betas,
            optimisation.weight_decay,
            optimisation.max_norm,
        )
        self.controls = initial(objective)
        self.steps = 0

    def update(self, groups: Sequence[Group]) -> dict[str, float]:
        """One optimiser step on these groups. Raises FloatingPointError, changing nothing, where it would diverge."""
        begun = time.perf_counter()
        kept, rejected = kept_groups(
            {i: [e.reward for e in group.episodes] for i, group in enumerate(groups)}, self.objective
        )
        if rejected and not kept:
            self.steps += 1
            self.model.version += 1
            return {"rejected_groups": float(len(rejected)), "trained_rows": 0.0}
        rows = rows_of([groups[i] for i in kept], self.role, self.model.version)
        temperature = self._temperature(groups)
        batch = rows.batch
        has_proximal = self.objective.anchor in ("proximal", "interpolated")
        if has_proximal and self._reads_proximal_first():
            batch = replace(batch, lp_proximal=self._scores(rows, temperature))
        if self.objective.needs_reference:
            with self.model.without_adapter():
                batch = replace(batch, lp_reference=self._scores(rows, temperature))
        advantage = advantages(batch, self.objective)
        if self.objective.needs_selection:
            batch = select(batch, self.objective, advantage, self.controls, torch.Generator().manual_seed(self.steps))
        divisors = denominators(batch, self.objective)

        learning = self._rows_with_gradient(batch, advantage)
        parts: list[dict[str, float]] = []
        gaps: list[torch.Tensor] = []
        for chosen in self._micro_batches(rows, learning):
            lp, entropy = self._forward(rows, chosen, temperature)
            part = batch.rows(chosen)
            if has_proximal and part.lp_proximal is None:
                part = replace(part, lp_proximal=lp.detach().to(part.lp_behaviour.dtype))
            scalar, metrics = loss(
                self.objective, lp, entropy, advantage[torch.tensor(chosen)], part, divisors, self.controls
            )
            scalar.backward()  # type: ignore[no-untyped-call]
            parts.append(metrics)
            gaps.append((lp.detach() - part.lp_behaviour)[part.mask > 0])
        measured = group_metrics(batch)
        if parts:
            gap = torch.cat(gaps)
            measured |= merge_metrics(parts)
            # Sampler and learner run the same weights: what is left is the arithmetic of the two batch shapes.
            measured |= {"mismatch_mean": float(gap.abs().mean()), "mismatch_max": float(gap.abs().max())}
            measured["gradient_norm"] = self.masters.step(self._learning_rate_scale(batch, measured))
            self.controls = advanced(
                self.controls, self.objective, entropy=measured.get("entropy"), kl=measured.get("reference_kl")
            )
        self.steps += 1
        self.model.version += 1
        if self.objective.group_filter != "none":
            measured["rejected_groups"] = float(len(rejected))
        return measured | {"trained_rows": float(len(learning)), "seconds/learn": time.perf_counter() - begun}

    def imitate(self, pairs: Sequence[tuple[Tokens, Tokens]], learning_rate: float | None = None) -> dict[str, float]:
        """One supervised step on (prompt, completion) pairs: token-mean cross-entropy, in nats."""
        begun = time.perf_counter()
        by_prompt: dict[Tokens, list[Tokens]] = {}
        for prompt, completion in pairs:
            by_prompt.setdefault(prompt, []).append(completion)
        prompts, completions = list(by_prompt), list(by_prompt.values())
        total = sum(len(completion) for _, completion in pairs)
        value = 0.0
        for index in micro_batches(prompts, completions, self.optimisation.token_budget):
            lp, _ = self.model.tree_scores(tree([prompts[i] for i in index], [completions[i] for i in index]))
            scalar = -lp.sum() / total
            scalar.backward()  # type: ignore[no-untyped-call]
            value += float(scalar.detach())
        scale = 1.0 if learning_rate is None else learning_rate / self.optimisation.learning_rate
        norm = self.masters.step(scale)
        self.steps += 1
        self.model.version += 1
        return {"loss": value, "gradient_norm": norm, "seconds/learn": time.perf_counter() - begun}

    def forget_moments(self) -> None:
        """Start the optimiser's moments afresh: what comes next has gradients of another kind."""
        self.masters.optimiser.state.clear()
        self.steps = 0

    def state(self) -> dict[str, Any]:
        """Everything the next step depends on, apart from the data."""
        return {
            **self.masters.state(),
            "controls": asdict(self.controls),
            "steps": self.steps,
            "version": self.model.version,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.masters.load({"masters": state["masters"], "optimiser": state["optimiser"]})
        self.controls = Controls(**state["controls"])
        self.steps = int(state["steps"])
        self.model.version = int(state["version"])

    # -- parts ----------------------------------------------------------------------------------------------------

    def _temperature(self, groups: Sequence[Group]) -> float:
        found = {s.temperature for g in groups for e in g.episodes for s in e.segments if s.role == self.role}
        if len(found) != 1 or 0.0 in found:
            raise ValueError(
                f"a step must be sampled at one temperature above 0, not {sorted(found)}: ratios would mean nothing"
            )
        return found.pop()

    def _reads_proximal_first(self) -> bool:
        """Whether something needs the proximal log-probabilities of the whole step before its first gradient.

        Elsewhere they cost nothing: with one optimiser step per update, the weights of the forward pass are the
        proximal ones.
        """
        objective = self.objective
        return (
            objective.kl_placement == "reward"
            or objective.center == "optimal"
            or objective.denominator == "kept"
            or objective.step_control != "constant"
            or objective.needs_selection
        )

    def _rows_with_gradient(self, batch: Batch, advantage: torch.Tensor) -> list[int]:
        """Rows of zero advantage teach nothing unless a regulariser also reads them."""
        if self.objective.reads_every_row:
            return list(range(batch.shape[0]))
        return [int(i) for i in advantage.abs().sum(1).nonzero().flatten()]

    def _micro_batches(self, rows: Rows, learning: Sequence[int]) -> list[list[int]]:
        """Rows in micro-batches; rows of one prompt stay together, so that the prompt is computed once."""
        shared = by_context(rows.contexts, learning)
        prompts = list(shared)
        branches = [[rows.answers[row] for row in members] for members in shared.values()]
        members = list(shared.values())
        return [
            [row for i in index for row in members[i]]
            for index in micro_batches(prompts, branches, self.optimisation.token_budget)
        ]

    def _forward(self, rows: Rows, chosen: Sequence[int], temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies [len(chosen), T] of the chosen rows, zero where nothing was drawn."""
        shared = by_context(rows.contexts, chosen)
        batch = tree(list(shared), [[rows.answers[row] for row in members] for members in shared.values()])
        flat_lp, flat_entropy = self.model.tree_scores(batch, temperature)
        order = [row for members in shared.values() for row in members]
        place = {row: position for position, row in enumerate(chosen)}
        width = rows.batch.shape[1]
        index = torch.tensor([place[row] * width + t for row in order for t in range(len(rows.answers[row]))])
        blank = flat_lp.new_zeros(len(chosen) * width)
        lp, entropy = blank.index_copy(0, index, flat_lp), blank.index_copy(0, index, flat_entropy)
        return lp.view(-1, width), entropy.view(-1, width)

    @torch.no_grad()
    def _scores(self, rows: Rows, temperature: float) -> torch.Tensor:
        """[B, T] under the weights as they are, for the proximal and the reference policy."""
        scores = torch.zeros_like(rows.batch.lp_behaviour)
        for chosen in self._micro_batches(rows, range(len(rows.contexts))):
            scores[torch.tensor(chosen)] = self._forward(rows, chosen, temperature)[0].to(scores.dtype)
        return scores

    def _warmup(self) -> float:
        warmup = self.optimisation.warmup_steps
        return min(1.0, (self.steps + 1) / warmup) if warmup else 1.0

    def _learning_rate_scale(self, batch: Batch, measured: Mapping[str, float]) -> float:
        if self.objective.step_control == "constant":
            return self._warmup()
        assert batch.lp_proximal is not None
        drift = ((batch.lp_proximal - batch.lp_behaviour) * batch.mask).sum(1)
        return self._warmup() * learning_rate_scale(self.objective, float(effective_sample_size(drift)))
