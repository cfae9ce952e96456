"""`keepworth serve --memory` as a process of its own, for tests of what a process does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TOKEN = "kw_test-token-1905"


class MemoryProcess:
    def __init__(self, file: Path, *options: str) -> None:
        self.file, self.options = file, options
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> MemoryProcess:
        command = [sys.executable, "-m", "keepworth", "serve", "--memory", str(self.file), "--encoder", "hashing"]
        command += self.options
        environment = {**os.environ, "KEEPWORTH_API_KEY": TOKEN, "COLUMNS": "200", **self.environment}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*command, "--port", "0"], env=environment, **pipes)
        assert self.process.stdout is not None
        self.url = next(line for line in self.process.stdout if line.startswith("http://")).split()[0]
        return self

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
