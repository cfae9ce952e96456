"""The models that the policy is compared with: its own base, a copy of itself, or a teacher.

With an adapter, the reference is the base with the adapter switched off and costs nothing. Where all weights are trained, or
where the reference is reset to the policy (ProRL, arXiv 2505.24864), it is a frozen copy of the trained weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from keepworth.base.needs import needs_train

import torch

from keepworth.base.errors import KeepworthError
from keepworth.models.adapter import Named
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import Model
from keepworth.training.objective.options import Objective
from keepworth.training.passes import MicroBatch
from keepworth.training.rows import Rows


class Reference:
    """Makes the model compute as the reference inside `active`.

    Args:
        model: The policy.
        named: The trained weights, of which the reference keeps a frozen copy; None for the base under the adapter, which needs
            no copy and cannot change.
    """

    def __init__(self, model: InProcessModel, named: Named | None = None) -> None:
        self._model, self._named = model, named or {}
        self._weights = {name: value.detach().clone() for name, value in self._named.items()}

    def retake(self) -> None:
        """Copies the current policy to the reference."""
        for name, value in self._named.items():
            self._weights[name].copy_(value.detach())

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        if not self._named:
            with self._model.without_adapter():
                yield
            return
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Swaps pointers to the weights, without copying."""
        for name, value in self._named.items():
            value.data, self._weights[name] = self._weights[name], value.data

    def state(self) -> dict[str, torch.Tensor]:
        return self._weights

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, value in state.items():
            self._weights[name].copy_(value)


def reference_for(model: InProcessModel, named: Named, objective: Objective) -> Reference | None:
    """Returns the reference that an objective reads: the base where it is frozen under an adapter, else a copy; None if the
    objective reads none.

    Args:
        model: The model that is trained.
        named: Its trained parameters, by name, which a copy keeps as they are now.
        objective: The objective, which says whether the reference is renewed.
    """
    if not objective.needs_reference:
        return None
    return Reference(model, None if objective.reset is None and hasattr(model.network, "disable_adapter") else named)


_PROBE = 'Ana moved to Oslo in May 2024.\n\n  {\'id\': 17, "city": "Zürich"} <|im_start|>user'


def require_same_tokens(teacher: Model, student: Model) -> None:
    """Raises KeepworthError where the teacher's tokenizer differs from the student's."""
    theirs, ours = teacher.encode(_PROBE), student.encode(_PROBE)
    if theirs != ours:
        raise KeepworthError(
            f"The teacher {teacher.name} reads a probe text as {len(theirs)} tokens, {student.name} as {len(ours)} "
            "others: it cannot score what the student draws.",
            "Take a teacher with the same tokenizer, for example a larger model of the same family.",
        )


def teacher_scores(teacher: Model, rows: Rows, parts: Sequence[MicroBatch], temperature: float) -> torch.Tensor:
    """Returns the teacher's log-probabilities of the drawn tokens, [B,T], zero elsewhere.

    Args:
        teacher: The model that scores them.
        rows: The rows of the update.
        parts: The micro-batches, each of which is scored at once.
        temperature: The logits are divided by it before the softmax.
    """
    if any(rows.grammars):
        raise KeepworthError(
            f"The teacher {teacher.name} scores tokens among all others, and some calls were drawn under a grammar.",
            "Leave response_format and the choice of a tool out of the agent's calls, or take an objective without a teacher.",
        )
    scores = torch.zeros_like(rows.batch.lp_behaviour)
    for part in parts:
        shared = rows.by_context(part.rows)
        answers = teacher.score(list(shared), rows.branches(shared), temperature)
        for members, scored in zip(shared.values(), answers, strict=True):
            for row, logprobs in zip(members, scored, strict=True):
                scores[row, : len(logprobs)] = torch.tensor(logprobs)
    return torch.where(rows.batch.mask > 0, scores, 0.0)
