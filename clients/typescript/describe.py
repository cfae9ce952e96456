"""Prints the server's OpenAPI description, from which the types of the TypeScript client are made."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from keepworth.serving.memory_server import describe

HERE = Path(__file__).parent
SCHEMA = HERE / "src" / "schema.d.ts"


def digest() -> str:
    """Return a digest of the description, which stands in the first line of the types that were made from it."""
    return hashlib.sha256(json.dumps(describe(), sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    if sys.argv[1:] == ["--mark"]:
        made = SCHEMA.read_text(encoding="utf-8")
        SCHEMA.write_text(
            f"// Of the description with digest {digest()}: `make typescript` writes this file.\n{made}",
            encoding="utf-8",
        )
    else:
        sys.stdout.write(json.dumps(describe(), indent=1) + "\n")
