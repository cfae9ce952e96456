"""Every number in the documentation, written anew from the JSON files that the benchmarks' commands left.

    python -m benchmarks.pages [--check]

Each benchmark's `page.py` writes its own tables; this runs them all and says which pages changed. --check: say it and fail. The
README's picture of the demo is read from a run (`python -m benchmarks.readme`) and is left as it is where there is none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pages() -> list[str]:
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/page.py"))


def texts() -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = texts()
    for name in pages():
        print(name, flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}.page"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"benchmarks/{name}/page.py failed:\n{done.stderr}")
    if (ROOT / "runs" / "demo").is_dir():
        subprocess.run([sys.executable, "-m", "benchmarks.readme"], cwd=ROOT, check=True)
    else:
        print("readme: left out, there is no run runs/demo")
    changed = [str(path.relative_to(ROOT)) for path, text in texts().items() if before.get(path) != text]
    print(f"changed: {', '.join(changed)}" if changed else "every page holds what the files say")
    if changed and options.check:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
