"""Memory-R1: one role answers from memory, the other maintains it; both learn by reinforcement, each in its own run.

After "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via Reinforcement Learning"
(arXiv 2508.19828). What differs, because the model has 135M parameters and the machine two cores:

* prompts are worked examples in plain text instead of JSON after an instruction, and answers are a few words;
* the reward is token F1 (`reward = "exact_match"` is the paper's): with exact match most groups of a small model are
  all zero at first and teach nothing;
* one update per batch, exactly on policy, no clipping to do and no reference model (the paper reports neither its
  clip range nor its KL coefficient);
* the manager's reward is whether its operation is the right one on generated cases, where that is known; the paper's, what can be
  answered from the bank afterwards, is that of `memory_r1_joint`;
* each role is trained alone with the other frozen, as in the paper. The reader of a manager's banks is the untrained
  model, or the trained answerer of the run that `reader` names;
* the answerer learns with a low-rank adapter, the manager with all weights but the embeddings; `train` says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.methods.recipes._memory_r1.settings import Config
from keepworth.training.recipe import Recipe, recipe_method

if TYPE_CHECKING:
    from keepworth.records.model import Model
    from keepworth.training.collect.groups import TrainedRollout
    from keepworth.training.recipe import Origin
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.system import Questions
    from keepworth.training.watch.progress import Progress


class MemoryR1:
    """The training of one of the two roles."""

    def learn(self, settings: Config, run: RunFolder, progress: Progress, origin: Origin | None = None) -> None:
        """Trains and measures: see `recipe.Trainable`."""
        from keepworth.methods.recipes._memory_r1.answerer import train_answerer
        from keepworth.methods.recipes._memory_r1.manager import train_manager
        from keepworth.training.run import finish

        trained = train_answerer if settings.role == "answerer" else train_manager
        finish(run, trained(settings, run, progress))

    def rollout(self, settings: Config, model: Model) -> TrainedRollout:
        """Returns the answerer's rollout for a rollout worker; the manager has none."""
        from keepworth.methods.recipes._memory_r1.answerer import recall_for, rollout_of

        return rollout_of(settings, recall_for(settings), model)

    def questions(self, settings: Config) -> Questions | None:
        """Returns the answerer's questions; the manager's cannot be asked by themselves."""
        if settings.role != "answerer":
            return None
        from keepworth.methods.recipes._memory_r1.answerer import recall_for, rollout_of, task_sets
        from keepworth.training.system import Questions

        sets, recall = task_sets(settings), recall_for(settings)
        warm = settings.model_copy(update={"temperature": 1.0})
        tests = {"test": sets["test"]}
        return Questions(sets["train"], tests, None, {}, lambda name, model: rollout_of(warm, recall, model))


def system(config: Config) -> MemoryR1:
    return MemoryR1()


METHOD = recipe_method(
    name="memory_r1",
    title="Memory-R1",
    paper="arXiv 2508.19828",
    about="Trains an answerer and a memory manager by group-relative reinforcement",
    tags=("token", "factual", "formation", "evolution", "retrieval"),
    claim="LoCoMo F1 is 45.02 on LLaMA-3.1-8B and 43.14 on Qwen-2.5-7B.",
    differs="The model has 135M parameters, prompts are worked examples, the reward is F1, and each role has a run of its own.",
    label="small",
    make=Recipe(Config, system),
)
