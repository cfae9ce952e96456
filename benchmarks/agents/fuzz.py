"""What a fuzzer finds that reads the server's own description, and takes it at its word.

    python -m benchmarks.agents.fuzz --examples 200 --seeds 3 --json benchmarks/agents/fuzz.json

Schemathesis calls every route of a memory that is served for it, as the description allows and as it does not, alone and in
chains in which one answer gives the next call its ids. A failure is an answer with a status from 500, a request that the
description does not allow and that is taken, a method that is not refused as it should be, a route that answers without a token,
or an answer of another kind than described. A request that the description allows and that is refused is counted apart, by what
was answered: much depends on what is there, or on two fields at once, which no description says.

The package is none of this project's: it is found as `schemathesis` on the path, or by what KEEPWORTH_SCHEMATHESIS says.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.serving.memory_server import MemoryServer

ALLOWED = "positive_data_acceptance"
"""The check of what the description allows."""


def command() -> list[str]:
    """How it is called here; [] where it is not there."""
    return shlex.split(os.environ.get("KEEPWORTH_SCHEMATHESIS", shutil.which("schemathesis") or ""))


def fuzzed(examples: int, seed: int, phases: str = "coverage,fuzzing,stateful") -> dict[str, Any]:
    """One run: how many cases, and the failures by kind."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryServer(Path(folder) / "agent.mem", encoder="hashing", seed=seed) as server,
    ):
        headers = {"Authorization": f"Bearer {server.token}"}
        described = httpx.get(f"{server.url}/openapi.json", headers=headers, trust_env=False).json()
        document, report, events = (Path(folder) / name for name in ("openapi.json", "report.json", "events.ndjson"))
        document.write_text(json.dumps(_without_keys(described)))
        words = [
            *command(),
            *("run", str(document), "--url", server.url, "-H", f"Authorization: {headers['Authorization']}"),
            *("--checks", "all", "--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
            *("--continue-on-failure", "--warnings", "off", "--request-timeout", "20"),
            *("--report", "json,ndjson", "--report-json-path", str(report), "--report-ndjson-path", str(events)),
            *("--output-truncate", "false"),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
        if not report.exists():
            raise SystemExit(f"schemathesis gave no report:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        counts = json.loads(report.read_text())
        failed = list(_failures(events.read_text().splitlines()))
    failures = Counter(failure for failure in failed if failure[0] != ALLOWED)
    failures.update(("error", "", str(error)[:300]) for error in counts["errors"])
    refused = Counter(_plain(message) for check, _, message in failed if check == ALLOWED)
    return {
        "seed": seed,
        "cases": counts["test_cases"]["generated"],
        "operations": counts["operations"]["tested"],
        "complete": counts["complete"],
        "failures": [
            {"check": check, "operation": operation, "said": message, "times": times}
            for (check, operation, message), times in failures.items()
        ],
        "refused though described": dict(refused.most_common()),
        "schemathesis": counts["schemathesis_version"],
        "seconds": round(counts["running_time"], 1),
    }


def _failures(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(check, operation, what was answered), of each check that failed."""
    for line in lines:
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for id, checks in recorder.get("checks", {}).items():
            for check in checks:
                if check["status"] == "failure":
                    response = (recorder["interactions"].get(id) or {}).get("response") or {}
                    message = check["failure_info"]["failure"]["message"].splitlines()[0]
                    yield check["name"], recorder["label"], f"{_detail(response)} ({message})"[:300]


def _detail(response: Mapping[str, Any]) -> str:
    """What an answer says is wrong. Reports hold bodies in base64."""
    body = response.get("content") or {}
    try:
        return str(json.loads(base64.b64decode(body.get("$base64", "")))["detail"])
    except (ValueError, KeyError, TypeError):
        return str(response.get("status_code", "no answer"))


def _plain(message: str) -> str:
    """Without what differs from case to case."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|got .*? \(|\d+", "...", message)[:160]


def _without_keys(described: dict[str, Any]) -> dict[str, Any]:
    """Without the header Idempotency-Key: the same one twice is refused by design, and a fuzzer sends few different ones."""
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["parameters"] = [
                parameter for parameter in operation["parameters"] if parameter["name"] != "Idempotency-Key"
            ]
    return described


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--examples", type=int, default=200, help="of each route, in each run")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if not command():
        raise SystemExit("schemathesis is not on the path: pip install schemathesis, or set KEEPWORTH_SCHEMATHESIS.")
    runs = [fuzzed(options.examples, seed) for seed in range(options.seeds)]
    totals = {
        "cases": sum(run["cases"] for run in runs),
        "failures": sum(failure["times"] for run in runs for failure in run["failures"]),
        "refused": dict(sum((Counter(run["refused though described"]) for run in runs), Counter[str]())),
    }
    print(json.dumps(totals, indent=1))
    save(options.json, {**totals, "examples_per_operation": options.examples, "runs": runs, "machine": machine()})


if __name__ == "__main__":
    main()
