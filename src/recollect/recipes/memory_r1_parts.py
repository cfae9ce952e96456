"""What both halves of Memory-R1 need, from what all recipes share."""

from __future__ import annotations

from recollect.learning.learner import Learner
from recollect.learning.progress import Progress
from recollect.learning.run_folder import RunFolder
from recollect.models.inprocess import InProcessModel
from recollect.recipes import training
from recollect.recipes.memory_r1 import GROUP_RELATIVE, Config
from recollect.recipes.training import batch, keep_weights, kept_weights, loaded_model, settle_threads, with_weights

__all__ = ["batch", "keep_weights", "kept_weights", "loaded_model", "prepared", "settle_threads", "with_weights"]


def prepared(config: Config, run: RunFolder, progress: Progress) -> tuple[InProcessModel, Learner]:
    """A model with its trainable part, and the learner of `config.role`. Threads: as configured, or as the run began."""
    return training.prepared(config, GROUP_RELATIVE, config.role, run, progress)
