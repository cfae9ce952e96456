"""The same training through keepworth's front door and through TRL's: lines of code, and what each goes on with after a kill.

    python -m benchmarks.training.beside_trl --data FOLDER --trl-python PYTHON [--steps 5] [--runs FOLDER] [--json FILE]

Both scripts stand below, and do the same: rows of JSON lines with a split, a reward in Python, groups of 8 answers of at most 8
tokens for 2 questions a step, an adapter of rank 16, test questions measured before and after, a checkpoint every second step, a
log that a page shows, going on from the last checkpoint, and merged weights that transformers loads. Each is run several times
whole, and as often killed (SIGKILL) after its second checkpoint and begun again by the same command. Said is whether the killed
run ends with the weights of the whole one, beside how far two whole ones lie apart. What is finished in FOLDER is read, not
repeated. PYTHON: one with TRL, datasets, tensorboard and the same torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.setting import machine
from benchmarks.training.newcomer import rows
from keepworth.learning.run_folder import versions
from keepworth.models.files import path_of
from keepworth.models.threads import available_cores

SHARED = """\
import sys

def right(completions, intent, **others):
    return [float(said[0]["content"].strip().lower() == each) for said, each in zip(completions, intent)]

"""
OURS = """\
from keepworth import train

run = train(
    "messages.jsonl",
    reward=right,
    model=sys.argv[1],
    steps=int(sys.argv[2]),
    tasks_per_step=2,
    group_size=8,
    temperature=0.7,
    max_tokens=8,
    evaluate_every=int(sys.argv[2]),
    checkpoint_every=2,
    questions=16,
)
print(run)
run.export("merged")
"""
TRL = """\
import os
from datasets import load_dataset
from peft import LoraConfig
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

data = load_dataset("json", data_files="messages.jsonl", split="train")
sides = {side: data.filter(lambda row: row["split"] == side) for side in ("train", "test")}
trainer = GRPOTrainer(
    model=sys.argv[1],
    reward_funcs=right,
    train_dataset=sides["train"],
    eval_dataset=sides["test"].select(range(16)),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=GRPOConfig(
        output_dir="out",
        use_cpu=True,
        max_steps=int(sys.argv[2]),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        num_generations_eval=1,
        gradient_accumulation_steps=2,
        gradient_checkpointing=False,
        num_generations=8,
        max_completion_length=8,
        temperature=0.7,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        beta=0.0,
        logging_steps=1,
        save_steps=2,
        report_to="tensorboard",
        log_completions=False,
        seed=0,
    ),
)
last = get_last_checkpoint("out") if os.path.isdir("out") else None
if last is None:
    print(trainer.evaluate())
trainer.train(resume_from_checkpoint=last)
print(trainer.evaluate())
trainer.model.merge_and_unload().save_pretrained("merged")
trainer.processing_class.save_pretrained("merged")
"""
SIDES = {"ours": OURS, "TRL": TRL}
DONE = "seconds.json"
BEFORE_THE_KILL = {"ours": "runs/messages/checkpoints/step-*4/*", "TRL": "out/checkpoint-4/trainer_state.json"}
"""What lies in the folder once the second checkpoint is whole."""


def lines_of(script: str) -> int:
    return sum(bool(line.strip()) for line in script.splitlines())


def begun(python: str, folder: Path, model: str, steps: int) -> subprocess.Popen[str]:
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    environment = {**os.environ, **quiet}
    if python != sys.executable:
        environment.pop("PYTHONPATH")
    return subprocess.Popen(
        [python, "script.py", model, str(steps)],
        cwd=folder,
        env=environment,
        stdout=(folder / "said").open("a"),
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str], folder: Path) -> None:
    if process.wait():
        raise SystemExit(f"{folder} failed:\n{(folder / 'said').read_text()[-3000:]}")


def run(
    side: str, python: str, model: str, steps: int, place: Path, data: list[dict[str, Any]], killed: bool
) -> tuple[Path, float]:
    """The folder of a run and its seconds, both parts together; `killed` where it has its second checkpoint."""
    if (place / DONE).is_file():
        return place, float(json.loads((place / DONE).read_text()))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "messages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in data))
    (place / "script.py").write_text(SHARED + SIDES[side])
    start = time.perf_counter()
    process = begun(python, place, model, steps)
    if killed:
        while not list(place.glob(BEFORE_THE_KILL[side])):
            if process.poll() is not None:
                ended(process, place)
                raise SystemExit(f"{side} ended before it could be killed: give it more steps")
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = begun(python, place, model, steps)
    ended(process, place)
    seconds = time.perf_counter() - start
    (place / DONE).write_text(json.dumps(seconds))
    return place, seconds


def apart(one: Path, other: Path) -> dict[str, float]:
    """How far the merged weights of two runs lie apart: the largest difference, and the share of weights that differ."""
    from safetensors.torch import load_file

    first, second = (load_file(each / "merged" / "model.safetensors") for each in (one, other))
    gaps = [(first[name].double() - second[name].double()).abs() for name in first]
    return {
        "largest": max(float(gap.max()) for gap in gaps),
        "differ": sum(int((gap > 0).sum()) for gap in gaps) / sum(gap.numel() for gap in gaps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="where BANKING77 is; KEEPWORTH_DATA if not given")
    parser.add_argument("--trl-python", default=os.environ.get("KEEPWORTH_TRL_PYTHON", ""), required=False)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--runs", type=Path, default=Path("runs/beside_trl"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    if not given.trl_python:
        raise SystemExit("Give --trl-python, a Python with TRL, or set KEEPWORTH_TRL_PYTHON.")
    data = rows(given.data)
    pythons, model = {"ours": sys.executable, "TRL": given.trl_python}, str(path_of("smollm2-135m-instruct"))
    found: dict[str, Any] = {side: {"lines": lines_of(script), "rounds": []} for side, script in SIDES.items()}
    found["shared_lines"] = lines_of(SHARED)
    for number in range(given.rounds):
        for side, python in pythons.items():
            place = given.runs / f"{number}-{side}"
            whole, seconds = run(side, python, model, given.steps, place / "whole", data, killed=False)
            again, both = run(side, python, model, given.steps, place / "killed", data, killed=True)
            row = {
                "seconds": round(seconds, 1),
                "killed_seconds": round(both, 1),
                "killed_and_whole": apart(whole, again),
            }
            if number:
                row["whole_and_whole"] = apart(given.runs / f"{number - 1}-{side}" / "whole", whole)
            found[side]["rounds"].append(row)
            print(side, row, flush=True)
    asked = [given.trl_python, "-c", "import trl, torch; print(trl.__version__, torch.__version__)"]
    found["trl"] = subprocess.run(asked, text=True, capture_output=True, check=True).stdout.split()
    found |= {"steps": given.steps, "versions": versions(), "processor": machine(available_cores())["processor"]}
    given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
