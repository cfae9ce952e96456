"""Shows an episode of a run, or of a memory, in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from keepworth.base.text import with_ends

if TYPE_CHECKING:
    from rich.console import RenderableType

    from keepworth.records.episode import Episode


def episode_panel(episode: Episode, title: Iterable[str]) -> RenderableType:
    """Makes the panel of an episode, with a title. Empty parts are left out."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text.assemble(("question  ", "bold"), with_ends(episode.question))] if episode.question else []
    if episode.shown:
        memories = Table.grid(padding=(0, 2))
        for shown in episode.shown:
            memories.add_row(Text(f"{shown.score:6.3f}", style="cyan"), Text(shown.item, style="dim"), Text(shown.text))
        parts += [Text("memories", style="bold"), memories]
    for event in episode.operations:
        operation = event.operation
        words = " ".join([operation.kind.value, *operation.targets, operation.text])
        parts.append(Text.assemble(("operation ", "bold"), words, (f"  {event.status.value}: {event.outcome}", "dim")))
    for exchange in episode.exchanges:
        parts.append(Text.assemble(("seen      ", "bold"), exchange.seen))
        parts.append(Text.assemble(("done      ", "bold"), exchange.done))
    right = "green" if episode.reward >= 0.5 else "yellow" if episode.reward > 0 else "red"
    if episode.answer or episode.segments:
        # A text of the model without words, such as a line break, says why there is no answer.
        reply = episode.answer or with_ends("".join(segment.text for segment in episode.segments[-1:]))
        parts.append(Text.assemble(("answer    ", "bold"), (reply, right)))
    if episode.expected:
        parts.append(Text.assemble(("expected  ", "bold"), " | ".join(episode.expected)))
    terms = "  ".join(f"{term.name} {term.value:.3f} x {term.weight:g}" for term in episode.rewards)
    reward = (f"{episode.reward:.3f}", right) if episode.rewards else "none yet"
    parts.append(Text.assemble(("reward    ", "bold"), reward, (f"  {terms}", "dim")))
    if episode.errors:
        parts.append(Text.assemble(("errors    ", "bold red"), "; ".join(episode.errors)))
    above = " · ".join(part for part in title if part)
    return Panel(Group(*parts), title=Text(above, style="dim"), title_align="left", border_style="dim")
