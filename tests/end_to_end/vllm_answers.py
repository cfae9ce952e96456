"""The same as plain_answers.py with vLLM: `python vllm_answers.py FOLDER [--dtype float32]`. One line is a JSON object."""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    import torch
    import vllm
    from vllm.lora.request import LoRARequest

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()
    adapter = (given.folder / "adapter_config.json").is_file()
    base = given.folder / "base" if adapter else given.folder
    engine = vllm.LLM(
        str(base), dtype=given.dtype, enforce_eager=True, max_model_len=2048, max_num_seqs=1, enable_lora=adapter
    )
    lora = LoRARequest("mine", 1, str(given.folder)) if adapter else None
    cases = json.loads((given.folder / "probe.json").read_text(encoding="utf-8"))["cases"]
    same = 0
    for case in cases:
        params = vllm.SamplingParams(temperature=0.0, max_tokens=len(case["answer"]))
        (found,) = engine.generate([{"prompt_token_ids": case["prompt"]}], params, lora_request=lora, use_tqdm=False)
        same += list(found.outputs[0].token_ids) == case["answer"]
    versions = {"vllm": vllm.__version__, "torch": torch.__version__}
    row = {"kind": "adapter" if adapter else "merged", "computed_in": given.dtype, "same": same, "of": len(cases)}
    sys.stdout.write("\n" + json.dumps({**row, "versions": versions}) + "\n")


if __name__ == "__main__":  # vLLM starts processes that import this file
    main()
