"""Does memory help? A file of your own questions, asked without memory, with a search by words, and with this memory.

`--reader none` looks at what is found, and takes seconds (`pip install ".[eval]"`). Leave it out to have a model answer
(`pip install ".[train]"`).
"""

import json
import subprocess
from pathlib import Path

NAMES = ("Ana", "Bo", "Cem", "Dee", "Eva", "Fay", "Gus", "Hal")
CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Quito", "Paris", "Tokyo")
with Path("mine.jsonl").open("w") as file:
    for name, city in zip(NAMES, CITIES, strict=True):
        writes = [{"id": "home", "text": f"{name} moved to {city}."}, {"id": "cat", "text": f"{name} has a cat."}]
        asked = [{"text": f"Where does {name} live?", "answers": [city], "evidence": ["home"]}]
        file.write(json.dumps({"id": name, "writes": writes, "questions": asked}) + "\n")

command = ["keepworth", "eval", "run", "mine.jsonl", "none", "bm25", "keepworth", "--encoder", "hashing"]
done = subprocess.run([*command, "--reader", "none", "--split", "test"], check=False)
if done.returncode:  # it has said why
    raise SystemExit(done.returncode)
summary = json.loads(Path("runs/eval/mine/summary.json").read_text())
print("measured:", ", ".join(summary["arms"]))
