"""Agent Workflow Memory: whole procedures of successful tasks, retrieved by the goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.base.text import as_line
from keepworth.memory.choose.case_writers import judged
from keepworth.memory.choose.exemplars import Capacity
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.ready_slots import Unvalued, eligible, top
from keepworth.memory.choose.selection import AllRetrieved
from keepworth.memory.choose.slots import Candidates, Finished, Policy, Presented, Query, combined_advice, whole
from keepworth.memory.item import Item
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class ByGoal:
    """Retrieves the `k` workflows whose goals are most similar to the query's goal, whatever the observation."""

    k: int = 4

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        vector = pool.encode(query.goal) if query.goal else query.vector
        return top(pool.similarities(vector, rows), rows, self.k)


def workflows(finished: Finished) -> list[Advice]:
    """Writes one workflow per successful episode: the last action in each of its situations, in order.

    A workflow of the same goal and the same actions is not written again (arXiv 2409.07429: by template of the intent and by
    signature of the actions).
    """
    pool, good_uses = finished.pool, judged(finished, steps=False)
    assert pool is not None
    if not good_uses or not finished.success:
        return []
    goal = good_uses[0][0].query.goal or good_uses[0][0].query.text
    workflow = tuple((use.query.observation, use.taken) for use, _ in good_uses)
    actions = tuple(action for _, action in workflow)
    for row in pool.active().tolist():
        item = pool.items[row]
        if item.key == goal and tuple(action for _, action in item.metadata.get("workflow", ())) == actions:
            return []
    text = f"To {goal}: " + ", then ".join(actions)
    return [Advice(goal, text, do=tuple(dict.fromkeys(actions)), extra={"workflow": workflow})]


def _next_step(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Shows whole workflows. A workflow advises the action that it has for this observation, else the one at this step."""
    if not items:
        return Presented("")
    pairs: list[tuple[str, float, float]] = []
    for item, near in zip(items, similarities, strict=True):
        workflow = item.metadata.get("workflow", ())
        if not workflow:  # an observation of this episode, or a record from outside
            pairs += combined_advice([item], query, [near])
            continue
        here = [action for observation, action in workflow if observation == query.observation]
        here = here or [action for _, action in workflow[query.step : query.step + 1]]
        pairs += [(action, 1.0, near) for action in here[:1]]
    return Presented("\n".join(["Workflows:", *(f"- {as_line(item.text)}" for item in items)]), tuple(pairs))


def agent_workflow_memory(*, k: int = 4) -> Policy:
    """Agent Workflow Memory: the `k` workflows of the most similar goals."""
    name, selector = "agent-workflow-memory", AllRetrieved(k)
    return Policy(name, whole, ByGoal(k), Unvalued(), selector, _next_step, workflows, (Capacity(),))


METHOD = Method(
    kind="policy",
    name="agent-workflow-memory",
    title="Agent Workflow Memory",
    paper="arXiv 2409.07429",
    about="Stores the whole procedure of each task that succeeded and finds it again by the goal",
    tags=("token", "experiential", "formation"),
    claim="WebArena success rises from 23.5 % to 35.5 %, in 5.9 steps where it took 7.9.",
    differs="A rule keeps what was done last in each situation, where the paper's model writes workflows with placeholders.",
    label="analogue",
    make=agent_workflow_memory,
    notes="It learns by writing workflows of actions that were taken, and ranks by the goal alone.",
)
