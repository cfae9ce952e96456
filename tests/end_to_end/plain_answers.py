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
tokenizer = transformers.AutoTokenizer.from_pretrained(given.folder)
network = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=given.dtype)
if adapter:
    from peft import PeftModel

    network = PeftModel.from_pretrained(network, given.folder)
network.eval()
cases = json.loads((given.folder / "probe.json").read_text(encoding="utf-8"))["cases"]
answers = []
for case in cases:
    prompt, length = case["prompt"], len(case["answer"])
    ids = network.generate(torch.tensor([prompt]), max_new_tokens=length, do_sample=False)[0, len(prompt) :].tolist()
    answers.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True)})
same = [answer["ids"] == case["answer"] for answer, case in zip(answers, cases, strict=True)]
computed_in, template = str(network.dtype).removeprefix("torch."), bool(tokenizer.chat_template)
versions = {"torch": torch.__version__, "transformers": transformers.__version__}
row = {"kind": "adapter" if adapter else "merged", "computed_in": computed_in, "same": sum(same), "of": len(cases)}
row |= {"answers": answers, "texts_of_the_run": [case["text"] for case in cases], "template": template}
sys.stdout.write(json.dumps({**row, "versions": versions}))
