"""Recurrent PPO with a bonus for novelty: E3B, NovelD and their product. Formulas: `keepworth.control.exploration`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from keepworth.methods.control.recurrent_ppo import make
from keepworth.registry import Method

E3B = Method(
    kind="control_agent",
    name="e3b",
    title="E3B",
    about="Pays a bonus for observations that lie outside the ellipsoid of those of the episode",
    paper="arXiv 2210.05805",
    claim="It solves sparse-reward MiniHack families whose episodes differ, without counts or hand-made features.",
    differs="PPO replaces IMPALA, features are of one observation, and the last step of an episode earns nothing.",
    make=partial(make, bonus="e3b"),
    extra="control",
)
METHODS = [
    E3B,
    replace(
        E3B,
        name="noveld",
        title="NovelD",
        about="Pays a bonus for first visits that are more novel than the last observation",
        paper="NeurIPS 2021",
        claim="It solves all static MiniGrid tasks in 120 M steps without a curriculum, where the one before solved half.",
        differs="The last step of an episode earns nothing, and the bonus is divided by its running deviation.",
        make=partial(make, bonus="noveld"),
    ),
    replace(
        E3B,
        name="e3b_noveld",
        title="E3B x NovelD",
        about="Pays the product of a bonus within the episode and one over all episodes",
        paper="arXiv 2306.03236",
        claim="It works whether episodes share much or little, and is the best combination on 16 MiniHack tasks.",
        differs="It differs as its two parts do.",
        make=partial(make, bonus="both"),
    ),
]
