"""Regression Language Models for Code: a model writes a number, such as the length or the memory of an answer, from its text."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="regression-lm",
    title="Regression Language Models for Code",
    paper="arXiv 2509.26476",
    about="A model writes a number, such as the length or the memory of an answer, from its text",
    claim="Rank correlation is above .9 for memory on APPS.",
    label="small",
    make=PaperSystem(
        here="Decided against: no predictor of lengths saved a decoding step.",
    ),
)
