"""How often the scan for secrets errs on conversations that hold hardly any, and what it takes.

    python -m benchmarks.agents.scan --json benchmarks/agents/scan.json

All sessions of LongMemEval, sentence by sentence, each different one once: the share that is flagged, by kind, with an interval
over sessions. These are generated and collected conversations with invented people, so that what is flagged is nobody's secret;
some of it has the form of one all the same (a phone number in a template), and is counted as flagged, too.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base.statistics import pooled_estimate, rate
from keepworth.memory.sensitive import PERSONAL, SECRETS, sensitive
from keepworth.worlds.data_sets.longmemeval import sessions_of
from keepworth.worlds.splits import SPLITS

_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")


def measured() -> dict[str, Any]:
    seen: set[str] = set()
    flags: dict[str, list[float]] = {kind: [] for kind in ("any secret", *SECRETS, *PERSONAL)}
    clusters: list[str] = []
    used, characters = 0.0, 0
    sessions = {session.id: session for split in SPLITS for session in sessions_of(split)}
    for session in sessions.values():
        for turn in session.turns:
            for sentence in _ENDS.split(turn.text):
                if not sentence.strip() or sentence in seen:
                    continue
                seen.add(sentence)
                begun = time.process_time()
                spans = sensitive(sentence)
                used += time.process_time() - begun
                characters += len(sentence)
                kinds = {span.kind for span in spans}
                clusters.append(session.id)
                for kind in (*SECRETS, *PERSONAL):
                    flags[kind].append(float(kind in kinds))
                flags["any secret"].append(float(any(kind in SECRETS for kind in kinds)))
    rates = {}
    for kind, values in flags.items():
        flagged = int(sum(values))
        row: dict[str, Any] = {"flagged": flagged}
        if flagged:
            found_ = pooled_estimate(values, clusters, within=(0.0, 1.0))
            row.update(per_million=round(1e6 * found_.mean), low=round(1e6 * found_.low), high=round(1e6 * found_.high))
        else:
            row["sessions_at_most"] = round(rate(0, len(sessions)).high, 6)
        rates[kind] = row
    return {
        "sentences": len(clusters),
        "sessions": len(sessions),
        "rates": rates,
        "microseconds_per_sentence": round(1e6 * used / len(clusters), 1),
        "mean_characters": round(characters / len(clusters), 1),
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    result = {**measured(), "machine": machine()}
    print(json.dumps(result["rates"], indent=1))
    save(options.json, result)


if __name__ == "__main__":
    main()
