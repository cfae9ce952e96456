"""How often each verifier, and each way to tell an abstention, is wrong on answers whose truth is known by construction.

    python -m benchmarks.statistics.verifiers --out benchmarks/statistics/verifiers.json

A verifier that a training takes as its reward is learned from, mistakes included. math_verify is left out, by name, where its
package is not installed. A judge is measured on the same answers by `python -m benchmarks.statistics.judges`.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from keepworth.episodes.extras import MissingExtra
from keepworth.evaluation.judge import PLANTED, ScorerErrors, by_verifier, errors, planted_abstentions
from keepworth.tasks.metrics import abstains
from keepworth.tasks.verifiers import VERIFIERS


def row(found: ScorerErrors) -> dict[str, Any]:
    def cell(value: Any) -> Any:
        return None if value is None else asdict(value)

    return {
        "n": found.n,
        "failed": found.failed,
        **({"failure": found.failure} if found.failure else {}),
        "precision": cell(found.precision),
        "recall": cell(found.recall),
        "false accept": cell(found.false_accept),
        "accepted by form": {form: {"right": right, **asdict(share)} for form, (right, share) in found.by_form.items()},
    }


def measured() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, verifier in VERIFIERS.items():
        planted = PLANTED[name]()
        try:
            verifier(planted[0].answer, (planted[0].gold,))
        except MissingExtra as error:
            found[name] = {"left out": error.message}
            continue
        found[name] = row(errors(by_verifier(verifier), planted))
    # Here to abstain is what is looked for, so answers that do are the right ones.
    found["abstains"] = row(errors(lambda question, gold, answer: float(abstains(answer)), planted_abstentions()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    record = {
        "verifiers": measured(),
        "versions": {"python": platform.python_version(), "keepworth": version("keepworth")},
    }
    for name, each in record["verifiers"].items():
        if "left out" in each:
            print(f"{name:12} left out: {each['left out']}")
            continue
        print(
            f"{name:12} n={each['n']:<5} precision {each['precision']['mean']:.3f} recall {each['recall']['mean']:.3f}"
        )
        for form, share in each["accepted by form"].items():
            if share["mean"] != float(share["right"]):
                print(f"    {form:36} {'right' if share['right'] else 'wrong'}, accepted {share['mean']:.3f}")
    if asked.out:
        asked.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
