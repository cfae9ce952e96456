"""Asks whether a package of the lock file is known to be vulnerable: `make audit`.

    python requirements/audit.py [PIP-AUDIT ...]

Exits with 1 where one is. Where the vulnerability service cannot be reached, or knows none of the packages (as a mirror of an
index does), nothing is audited; that is said, and is no failure.
"""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("lock.txt")


def main(command: list[str]) -> int:
    asked = [*command, "--disable-pip", "--no-deps", "--progress-spinner=off", "--format=json", f"--requirement={LOCK}"]
    process = subprocess.run(asked, capture_output=True, text=True, check=False)
    try:
        found = json.loads(process.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (process.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"NOT AUDITED: the vulnerability service cannot be asked here ({last}).")
        return 0
    audited = [each for each in found if "skip_reason" not in each]
    vulnerable = [each for each in audited if each["vulns"]]
    for each in vulnerable:
        for known in each["vulns"]:
            fixed = ", ".join(known["fix_versions"]) or "no release yet"
            print(f"VULNERABLE: {each['name']} {each['version']}: {known['id']}, fixed in {fixed}")
    if not audited:
        print(f"NOT AUDITED: the vulnerability service that can be reached here knows none of {len(found)} packages.")
        return 0
    print(f"Audited {len(audited)} of {len(found)} packages; {len(vulnerable)} are known to be vulnerable.")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["pip-audit"]))
