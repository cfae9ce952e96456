"""`pip install keepworth` alone is a memory that learns: nothing here may be imported from an extra.

The heavy packages are hidden from a fresh process. The wheel itself, in an environment of its own: `end_to_end/test_wheel.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from keepworth.base.extras import EXTRAS

HIDDEN = sorted({module for extra in EXTRAS.values() for module in extra.modules} | {"onnx", "pandas", "sympy", "ray"})
HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Hiding:
    find_distributions = PathFinder.find_distributions

    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] in {HIDDEN} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""

EVERY_POLICY = """
import keepworth
from keepworth.memory.by_name import policies
for name in policies():
    with keepworth.Memory(f"{name}.mem", policy=name, encoder="hashing") as memory:
        memory.add_many([f"fact {number} about routers" for number in range(5)])
        for number in range(4):
            with memory.episode(task=f"reset router {number}") as episode:
                hits = episode.search("reset a router", top_k=2)
                episode.reward(number % 2)
    with keepworth.Memory(f"{name}.mem", policy=name, encoder="hashing") as memory:
        memory.reward(memory.search("router", top_k=1).decision, 1.0)
"""

SLOTS = (
    *("agent_framework", "agno", "claude", "claude_agent", "crewai", "google_adk", "llama_index", "openai_agents"),
    *("pydantic_ai", "strands"),
)
"""The adapters of frameworks that no extra brings along."""

EVERY_ROOM = f"""
import importlib, pkgutil, re
SLOTS = {SLOTS!r}
import keepworth
from keepworth.base.extras import MissingExtra

needs = set()
for each in pkgutil.walk_packages(keepworth.__path__, "keepworth."):
    if each.name == "keepworth.__main__":
        continue
    try:
        importlib.import_module(each.name)
    except MissingExtra as error:
        slot = each.name.removeprefix("keepworth.adapters.") in SLOTS  # it names the package of its framework
        assert re.fullmatch('pip install "[a-z-]+>=[0-9.]+"', error.fix) if slot else "keepworth[" in error.fix, error.fix
        needs.add(each.name)
rooms = ("episodes", "tasks", "memory", "environments", "cli", "evaluation")
light = [name for name in needs if name.split(".")[1] in rooms and ".postgres." not in name]
assert not light, f"these must work without an extra: {{light}}"
assert "keepworth.training.objective.advantage" in needs
assert not needs & {{f"keepworth.training.objective.{{name}}" for name in ("options", "parts", "presets", "inputs")}}
"""

ENCODER = """
from keepworth.encoders.local import open_sentence_encoder
from pathlib import Path
import numpy as np
vectors = open_sentence_encoder(Path("bert"), "tiny").encode(["a cat"])
assert abs(np.linalg.norm(vectors) - 1) < 1e-5
"""

COMMANDS = """
from keepworth.cli.main import main
assert main(["--version"]) == 0
for line in ["memory add hello --encoder hashing", "memory search hello", "memory stats", "memory check", "doctor",
             "models list", "methods --kind objective", "methods show grpo", "train strings --print-config",
             "eval list"]:
    assert main(line.split()) == 0, line
"""

REFUSED = [
    ("demo --quick", "train"),
    ("train strings", "train"),
    ("eval stream", "train"),
    ("serve --memory agent.mem", "serve"),
    ("models fetch smollm2-135m-instruct", "llm"),
]


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    source = Path(__file__).parents[1] / "src"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "KEEPWORTH_CACHE": str(folder)}
    environment["PYTHONPATH"] = str(source)
    command = [sys.executable, "-c", HIDE + script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "script",
    [EVERY_POLICY, EVERY_ROOM, COMMANDS],
    ids=["every policy", "every room", "commands"],
)
def test_it_works_without_extras(script: str, tmp_path: Path) -> None:
    ran = run(script, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_encoder_works_without_extras(tmp_path: Path) -> None:
    from tests.models.published import write_bert

    write_bert(tmp_path / "bert")
    ran = run(ENCODER, tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_commands_name_the_extra_they_need(tmp_path: Path) -> None:
    (tmp_path / "runs" / "somewhere").mkdir(parents=True)
    script = "from keepworth.cli.main import main\n"
    script += "".join(f"print(main({line.split()!r}), file=sys.stderr)\n" for line, _ in REFUSED)
    ran = run(script, tmp_path)
    lines = [line.strip() for line in ran.stderr.splitlines()]
    assert lines[2::3] == ["2"] * len(REFUSED), ran.stderr
    more = {"serve": "; or serve a memory: keepworth serve --memory agent.mem"}
    assert lines[1::3] == [f'hint: pip install "keepworth[{extra}]"{more.get(line, "")}' for line, extra in REFUSED]
    assert all(" needs " in line and line.endswith("not installed.") for line in lines[::3]), ran.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["somewhere"], "refused before anything is written"
