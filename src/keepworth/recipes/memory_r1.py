"""Memory-R1: one role answers from memory, the other maintains it; both learn by reinforcement, each in its own run.

After "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via Reinforcement Learning"
(arXiv 2508.19828). What differs, because the model has 135M parameters and the machine two cores:

* prompts are worked examples in plain text instead of JSON after an instruction, and answers are a few words;
* the reward is token F1 (`reward = "exact_match"` is the paper's): with exact match most groups of a small model are
  all zero at first and teach nothing;
* one update per batch, exactly on policy, no clipping to do and no reference model (the paper reports neither its
  clip range nor its KL coefficient);
* the manager's reward is by default whether its operation is the right one on generated cases, where that is known;
  `manager_reward = "answer"` is the paper's: what a frozen reader can answer from the bank afterwards;
* each role is trained alone with the other frozen, as in the paper. The reader of a manager's banks is the untrained
  model, or the trained answerer of the run that `reader` names;
* the answerer learns with a low-rank adapter, the manager with all weights but the embeddings; `train` says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.recipes.memory_r1_settings import Config as Config

if TYPE_CHECKING:
    from keepworth.learning.run_folder import RunFolder
    from keepworth.learning.watch.progress import Progress

SUMMARY = "Memory-R1 (arXiv 2508.19828): an answerer and a memory manager, trained by group-relative reinforcement."


def train(config: Config, run: RunFolder, progress: Progress) -> None:
    """Train one role and measure it. Called again on the same folder, it continues from the last checkpoint."""
    if config.role == "answerer":
        from keepworth.recipes.memory_r1_answerer import train_answerer

        finish(run, train_answerer(config, run, progress))
    else:
        from keepworth.recipes.memory_r1_manager import train_manager

        finish(run, train_manager(config, run, progress))


def finish(run: RunFolder, tables: list[dict[str, Any]], **more: Any) -> None:
    """Write the result: the sentence of the first table is the run's headline. more: other facts of it."""
    run.write_result({"headline": tables[0].get("headline", "") if tables else "", "tables": tables, **more})
