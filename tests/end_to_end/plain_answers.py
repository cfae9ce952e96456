"""Loads an exported folder as others do, in a Python where keepworth is not installed, and compares its greedy answers with the
run's: `python plain_answers.py FOLDER [--dtype float32]`. `probe.json` in it has prompts and the run's
answers. Prints one JSON object."""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers

if find_spec("keepworth") is not None:
    raise SystemExit("keepworth is installed here: use a Python that has only torch, transformers and peft")

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--dtype", default="auto")
given = parser.parse_args()
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
adapter = (given.folder / "adapter_config.json").is_file()
base = given.folder / "base" if adapter else given.folder
transformers.AutoTokenizer.from_pretrained(given.folder)
network = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=given.dtype)
if adapter:
    from peft import PeftModel

    network = PeftModel.from_pretrained(network, given.folder)
network.eval()
cases = json.loads((given.folder / "probe.json").read_text(encoding="utf-8"))["cases"]
same = 0
for case in cases:
    prompt, length = case["prompt"], len(case["answer"])
    ids = network.generate(torch.tensor([prompt]), max_new_tokens=length, do_sample=False)[0, len(prompt) :].tolist()
    same += ids == case["answer"]
sys.stdout.write(json.dumps({"kind": "adapter" if adapter else "merged", "same": same, "of": len(cases)}))
