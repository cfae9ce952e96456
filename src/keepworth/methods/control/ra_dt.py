"""RA-DT: a decision transformer that reads, beside a short context, a sub-trajectory of the task that an index finds.

    key of a sub-trajectory of C steps:  mean over its steps of tanh(W [o; a; r]), with a fixed random W, as a unit vector
    score = similar * minmax(cosine with the key of the last C steps) + worth * minmax(rewards in what would be read)
    read: the best candidate and the C steps after it, by attention from each layer of the transformer over the context

It learns from logs of many tasks: of each context what was done in it, while it reads another episode of the same task. In a task
that it has not seen no weight changes: its own episodes go into the index, which begins empty, and every C steps one
sub-trajectory is found. Tasks are worlds, or seeds of one world; the index is that of `keepworth.memory`, or one that is handed
in. Source: Schmied et al., "Retrieval-augmented decision transformer: external memory for in-context RL", arXiv 2410.07071."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from keepworth.control.logs import Logs, SpacesOf
    from keepworth.control.worlds import MakeWorld
    from keepworth.methods.control._sub_trajectories import Index, RetrievalTrainer


def make(
    world: str | MakeWorld | SpacesOf, *, logs: Logs, index: Callable[[int], Index] | None = None, **settings: Any
) -> RetrievalTrainer:
    """Returns a trainer whose `update` learns from logs, and whose `play` adapts to tasks that it has not seen.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are one choice.
        logs: By task, its episodes in the order in which they were played, two or more.
        index: Makes an index of vectors of a size; by default the exact one of the memory engine.
        settings: As in `keepworth.methods.control._sub_trajectories.RetrievalSettings`.
    """
    from keepworth.methods.control._sub_trajectories import RetrievalSettings, RetrievalTrainer

    return RetrievalTrainer(world, logs, index or _exact_index, RetrievalSettings(**settings))


def _exact_index(size: int) -> Index:
    """Returns the index of the memory engine. size: of a vector."""
    from keepworth.memory.search.index import DenseIndex, Within

    class Exact:
        def __init__(self) -> None:
            self.rows = DenseIndex(size)
            self.put = self.rows.put

        def search(
            self, query: NDArray[np.float32], count: int, scope: int, allowed: NDArray[np.bool_] | None
        ) -> list[tuple[int, float]]:
            return self.rows.search(query.reshape(1, -1), count, Within((scope,), allowed, scope))[0]

    return Exact()


METHOD = Method(
    kind="control_agent",
    name="ra_dt",
    title="RA-DT",
    about="Acts in a new task by its own earlier episodes, of which an index finds the sub-trajectory that a transformer reads",
    tags=("latent", "experiential", "retrieval"),
    paper="arXiv 2410.07071",
    claim="On grid worlds it is above in-context methods with a fraction of their context: 50 steps for 400 and more.",
    differs=(
        "Keys are a fixed random projection; the paper's are of a pretrained transformer or a frozen language model. While it "
        "learns, candidates are of the same task alone, and chance decides among the best four in place of perturbed queries. "
        "The return of a candidate is what would be read of it. No return is aimed at. One choice as an action."
    ),
    label="small",
    make=make,
    extra="control",
)
