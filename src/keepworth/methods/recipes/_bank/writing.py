"""Trains a writer of the bounded bank: shared by `bounded_bank`, `memory_r2`, `fine_mem` and the writers by calls.

The streams are of LongMemEval's extractive questions. Their order is uninformative, and a stream consists of facts of its own
split. The reader's answers and the share of stored evidence are measured before and after training, next to rules that learn
nothing and one that knows the evidence. There the importance of a fact is the mean of the digits that the model would draw, which
avoids ties. A writer by calls (`ByCalls`) sees its bank and answers turn by turn; its greedy response is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.methods.recipes._bank.course import ROLE
from keepworth.methods.recipes._bank.rerolls import rolled_again
from keepworth.methods.recipes._bank.writer_training import WriterTraining
from keepworth.methods.recipes._bank.writers import ByCalls, WriterStreams
from keepworth.methods.recipes._reader import found_reader
from keepworth.models.inprocess import InProcessModel
from keepworth.training.collect.sources import Source
from keepworth.training.hooks import Hooks
from keepworth.training.run import finish, train_role
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import refuse_workers
from keepworth.training.watch.progress import Progress

if TYPE_CHECKING:
    from keepworth.methods.recipes.bounded_bank import Config
    from keepworth.training.recipe import Origin

ARMS = ("untrained", "first_in_first_out", "most_specific", "warm_start", "trained", "all_evidence")
"""The arms of the table, in the order of its rows."""


@dataclass(frozen=True, slots=True)
class BankWriter:
    """A writer of the bounded bank that learns: the system of its recipes.

    Attributes:
        calls: Settings of a writer by calls; without them it draws a digit for each fact.
        remembered: Makes a source of additional rewards.
    """

    calls: ByCalls | None = None
    remembered: Callable[[Progress], Source] | None = None

    def learn(self, settings: Config, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Trains and measures: see `recipe.Trainable`."""
        tokens, turns = (1, settings.length) if self.calls is None else (self.calls.max_tokens, self.calls.turns)
        named = found_reader(settings.reader, settings.model, settings.style, run)
        streams, made = WriterStreams(settings), list[WriterTraining]()
        regroup = None
        if settings.local is not None:  # the re-rolls need the training, which exists once the model is loaded
            size, share = settings.local
            regroup = rolled_again(lambda *given: made[0].reroll(*given), size, share, settings.seed, settings.refill)
        hooks = Hooks(regroup=regroup, sources=() if self.remembered is None else (self.remembered(progress),))

        def training(model: InProcessModel) -> WriterTraining:
            reader = named.loaded(settings, settings.max_tokens, settings.style, run, progress)
            made.append(WriterTraining(settings, run, model, reader, streams, progress, self.calls))
            return made[0]

        refuse_workers(settings, "what a bank is worth says a reader that is loaded in this process")
        remark = train_role(
            settings,
            run,
            progress,
            training,
            role=ROLE,
            title="the writer learns what to keep",
            length_budget=tokens * turns,
            row_budget=tokens,
            seconds=settings.environment_seconds + 3600,
            hooks=hooks,
        )
        finish(run, writer_tables(run, settings, remark))


def writer_tables(run: RunFolder, config: Config, remark: str = "") -> list[dict[str, Any]]:
    """Returns the table of the run's results on test streams. `remark` is added to its note."""
    rows = [row for row in run.evals() if row.get("role") == ROLE and row.get("split") == "test"]
    if not rows:
        return []
    rows.sort(key=lambda row: ARMS.index(row["arm"]))
    f1 = {row["arm"]: row["mean"] for row in rows if row["metric"] == "f1"}
    note = f"{config.budget} {config.unit} of {config.length} facts, read by {rows[0]['reader']}. Seed {config.seed}."
    if config.permuted:
        note += " The rewards it learned from were permuted."
    if failed := max(int(row["reader_failed"]) for row in rows):
        note += f" The reader failed on up to {failed} banks of an arm, which count 0."
    table: dict[str, Any] = {
        "title": "Answers from a bounded bank",
        "tier": "template",
        "note": f"{note} {remark}.".removesuffix(" ."),
        "rows": [{**row, "emphasis": row["arm"] == "trained"} for row in rows],
    }
    begin = "warm_start" if "warm_start" in f1 else "untrained"
    if {"trained", begin} <= set(f1):
        table["headline"] = (
            f"F1 of the reader: {f1['trained']:.2f} after reward, {f1[begin]:.2f} before it, "
            f"{f1['most_specific']:.2f} by the rule, {f1['all_evidence']:.2f} with all evidence."
        )
    return [table]
