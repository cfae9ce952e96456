"""`keepworth serve --memory` as a process of its own, for tests that kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKEN = "kw_test-token-1905"


class MemoryProcess:
    def __init__(self, file: Path, options: Sequence[str] = ()) -> None:
        self.file, self.options = file, options
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> MemoryProcess:
        """At any port that is free; after a kill at the same again."""
        command = [sys.executable, "-m", "keepworth", "serve", "--memory", str(self.file), "--encoder", "hashing"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.options],
            env={**os.environ, "KEEPWORTH_API_KEY": TOKEN, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = next(line for line in self.process.stdout if line.startswith("http://")).split()[0]
        self.port = int(self.url.rpartition(":")[2])
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def stop(self) -> tuple[int, str]:
        """(exit code, what it said on standard error)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=300)
        return self.process.returncode, errors

    def __enter__(self) -> MemoryProcess:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.stop()
