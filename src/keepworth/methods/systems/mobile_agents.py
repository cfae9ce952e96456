"""Generalisation of mobile agents: tests are split by instance, by template and by app."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="mobile-agents",
    title="Generalisation of mobile agents",
    paper="arXiv 2603.07432",
    about="Tests are split by instance, by template and by app",
    claim="Reinforcement is ahead of supervised training by 26.1, 15.7 and 8.3 % on unseen instances, templates and apps.",
    label="protocol",
    make=PaperSystem(
        here="Tables of every recipe by instance, template and family.",
        command="keepworth eval run RUN --diagnose pass_at_k",
    ),
)
