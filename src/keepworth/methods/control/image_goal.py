"""Episodic memory for image-goal navigation: two reads of the embeddings of past steps, one by the current input, one by the
goal.

    z_t = W x_t;  rows z_i of the episode's last `capacity` steps before t, each with a code of its age t - i
    here = Attention(z_t; rows),  goal = Attention(V g_t; rows),  y_t = GRU([z_t; here; goal], y_{t-1})

g_t is the part of the input that shows the goal, or the whole input. The first read says where one has been, the second whether
the goal has been seen. A step that is very similar to a row of the memory need not be stored.
Source: Mezghani et al., "Memory-augmented reinforcement learning for image-goal navigation", arXiv 2101.05181.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int,
    width: int = 128,
    *,
    goal_start: int = 0,
    goal_size: int = 0,
    capacity: int = 32,
    heads: int = 4,
    alike: float = 0.0,
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        goal_start, goal_size: The features of an input that show the goal; a size of 0 takes all.
        capacity: Rows of the memory.
        heads: The heads of attention, which divide the width.
        alike: A step with a greater cosine to one of the rows is not stored; 0 stores all.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cosine_similarity

    from keepworth.control.attention import RowAttention, age_code
    from keepworth.control.memory_base import StepRecurrence
    from keepworth.control.settings import SettingError

    if goal_start + goal_size > input_size:
        raise SettingError(
            f"goal_start + goal_size = {goal_start + goal_size} is more than the {input_size} features of an input.",
            "Set features that there are; with an encoder before the memory no feature shows the goal alone.",
        )
    of_goal = slice(goal_start, goal_start + goal_size) if goal_size else slice(None)

    class ImageGoal(StepRecurrence):
        state_shapes = (capacity, width), (capacity,), (), (), (width,)
        """Rows and their times, the newest at the end, the number of rows, the time, and the last output."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.embed = nn.Linear(input_size, width)
            self.goal = nn.Linear(goal_size or input_size, width)
            self.reads = nn.ModuleList(RowAttention(width, heads) for _ in range(2))
            self.recurrence = nn.GRUCell(3 * width, width)

        def project(self, x: Tensor) -> Tensor:
            """Returns embedded inputs, followed by the query of the goal."""
            return torch.cat([self.embed(x), self.goal(x[..., of_goal])], -1)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            rows, times, count, time, before = state
            z, goal = x.chunk(2, -1)
            valid = torch.arange(capacity, 0, -1, device=x.device) <= count.unsqueeze(1)
            code = age_code((time.unsqueeze(1) - times) * valid, width).to(x.dtype)
            reads = [read(query, rows, valid, code) for read, query in zip(self.reads, (z, goal), strict=True)]
            y = self.recurrence(torch.cat([z, *reads], 1), before)
            new = torch.ones_like(valid[:, 0])
            if alike:
                near = cosine_similarity(rows.detach(), z.detach().unsqueeze(1), 2)
                new = ~((near > alike) & valid).any(1)
            more_rows = torch.cat([rows[:, 1:], z.unsqueeze(1)], 1)
            rows = torch.where(new.view(-1, 1, 1), more_rows, rows)
            times = torch.where(new.unsqueeze(1), torch.cat([times[:, 1:], time.unsqueeze(1)], 1), times)
            return y, (rows, times, (count + new).clamp(max=capacity), time + 1, y)

    return ImageGoal()


METHOD = Method(
    kind="memory_module",
    name="image_goal",
    title="Episodic memory for image goals",
    about="Attends to the embeddings of past steps by the current input and by the goal, then runs a GRU",
    tags=("latent", "working", "formation", "retrieval"),
    paper="arXiv 2101.05181",
    claim="It is above all methods before it on Gibson, from colour images alone (no number checked).",
    differs=(
        "Embeddings are learned from reward alone, not beforehand by contrast of near and far views; a module is not told "
        "the goal unless settings name its features, else both queries are projections of the whole input; no images."
    ),
    label="analogue",
    make=make,
    extra="control",
)
