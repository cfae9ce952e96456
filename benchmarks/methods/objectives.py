"""Writes the evidence of objectives that have none: `objectives.json` beside a control that is trained here, permuted rewards.

python -m benchmarks.methods.objectives [NAME ...]

The control has the same updates, episodes, seeds and learning rate, but the rewards of an update are dealt out anew among its
episodes: what is left of a gain was not learned from rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.objectives.run import SETTINGS, rate_of, train
from benchmarks.objectives.world import Permuted
from benchmarks.record import arguments
from benchmarks.tables import read
from keepworth.registry import evidence, methods

ELSEWHERE = ("stale", "timed", "utterances")
"""Settings of the claims of others."""
LEAKS = {"fine_mem": " Its rewards of turns know here which moves go forward, so that this world cannot judge it."}


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="two updates of the control with 3 seeds")
    parser.add_argument("names", nargs="*", help="those without evidence where none is named")
    options = parser.parse_args()
    begin(options)
    measured = read("objectives/objectives")["settings"]
    recipes = methods("recipe")
    for name, declared in methods("objective").items():
        if name in options.names or (not options.names and evidence(declared) is None):
            command = f"python -m benchmarks.objectives.run; python -m benchmarks.methods.objectives {name}"
            kind = "objective" if name in recipes else ""
            write(name, command, kind=kind, **judge(name, declared.claim, measured, options.smallest))


def judge(name: str, claim: str, measured: Mapping[str, Any], smallest: bool = False) -> dict[str, Any]:
    """The fields of the evidence of one objective.

    Args:
        name: Of the objective.
        claim: Of its paper.
        measured: The settings of `objectives.json`.
        smallest: Whether its control only shows that it can be trained.
    """
    tried = [
        (setting, row, next(arm for arm in result["arms"] if arm["name"] == result["baseline"]))
        for setting, result in measured.items()
        for row in result["arms"]
        if row["preset"] == name and setting not in ELSEWHERE
    ]
    first, trained, _ = tried[0]
    seeds = 3 if smallest else len(trained["area"])
    control = permuted(first, trained["name"], seeds, **({"steps": 2} if smallest else {}))
    learned = gap(f"permuted rewards: {trained['name']}, {first}", trained["area"][:seeds], control)
    others = [gap(f"{base['name']}: {row['name']}, {setting}", row["area"], base["area"])
              for setting, row, base in tried if row["name"] != base["name"]]  # fmt: skip
    arms = {f"{row['name']}, {setting}": arm(f"{row['name']}, {setting}", row["area"]) for setting, row, _ in tried}
    arms |= {f"{row['name']}, {setting}": arm(f"{row['name']}, {setting}", row["area"]) for setting, _, row in tried}
    sentence = f"{worded(learned, 2, '')} over permuted rewards"
    sentence += "".join(f"; {worded(other, 2, ' against ').replace(': ' + name, '')}" for other in others)
    return {
        "model": "a model of a few thousand weights",
        "n": len(trained["area"]),
        "seeds": len(trained["area"]),
        "unit": "share of the reward, mean over measurements while it learns; settings of benchmarks/objectives/world.py",
        "arms": [*arms.values(), arm(f"{trained['name']}, {first}, permuted rewards", control)],
        "comparisons": [learned, *others],
        "controls": ["permuted rewards", "the baseline of each setting", "learning rates tuned on other seeds"],
        "sentence": sentence
        + "."
        + LEAKS.get(name, "")
        + (" Tried on this tiny model, not on the paper's." if claim else ""),
    }


def permuted(name: str, arm_name: str, seeds: int, **changes: Any) -> list[float]:
    """The area of an arm for each seed, with rewards dealt out anew.

    Args:
        name: The setting.
        arm_name: The arm.
        seeds: How many.
        changes: To the setting.
    """
    setting = SETTINGS[name]
    chosen = next(one for one in setting.arms if one.name == arm_name)
    setting = replace(setting, rate=rate_of(name, chosen), **changes)
    chosen = replace(chosen, world=Permuted(setting.world))
    return [float(train(setting, chosen, seed)["area"]) for seed in range(seeds)]


if __name__ == "__main__":
    main()
