"""UI-TARS-2: steadies reinforcement over many turns, with a flywheel of data."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="ui-tars-2",
    title="UI-TARS-2",
    paper="arXiv 2509.02544",
    about="Steadies reinforcement over many turns, with a flywheel of data",
    claim="It is 88.2 on Online-Mind2Web and 47.5 on OSWorld (no number checked).",
    label="small",
    make=PaperSystem(
        here="Decoupled advantages (`target_decay`), a warm-up of the critic, and critics that stay frozen; no flywheel.",
        command="keepworth train strings --set objective=ppo --set critic_warmup=2",
    ),
)
