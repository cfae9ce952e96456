"""One update of TRL's `GRPOTrainer` over the streams of `script`, with a tiny model whose words are given to it;
prints the rewards that TRL took: python -m ...with_trl [broken]."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from keepworth.serving.trl_bank import TrlBank, trl_rows
from tests.serving.packages import script

MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def tokenizer() -> Any:
    """A token for each byte, and the chat template of Qwen3, which TRL knows how to read tool calls from."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=MARKS[1], pad_token=MARKS[2])
    made.add_special_tokens({"additional_special_tokens": MARKS[:1]})
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return made


class Scripted(trl.GRPOTrainer):  # type: ignore[misc]
    """The trainer as it is, but for what the model says."""

    rewards: list[float | None] = []  # noqa: RUF012

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **options: Any) -> tuple[list[list[int]], None]:
        words = self.processing_class
        said = []
        for ids in prompt_ids:
            text = words.decode(ids).split("<|im_start|>user\n")[-1]
            last = text.split("<|im_start|>")[-2].split("<|im_end|>")[0].replace("</tool_response>", "").strip()
            if "New fact:" in last:
                call = {"name": "write", "arguments": {"operation": script.operation(last)}}
                reply = f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"
            else:
                reply = "Goodbye.<|im_end|>"
            said.append(words.encode(reply, add_special_tokens=False))
        return said, None

    def _calculate_rewards(self, *args: Any) -> Any:
        found = super()._calculate_rewards(*args)
        self.rewards += [None if value != value else value for value in found.sum(dim=1).tolist()]
        return found


def main(broken: bool) -> None:
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    words = tokenizer()
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(words), num_key_value_heads=1, **shape))
    rows = datasets.Dataset.from_list(trl_rows(script.STREAMS, script.BUDGET))
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            folder,
            per_device_train_batch_size=8,
            num_generations=2,
            max_steps=1,
            max_completion_length=8000,
            report_to=[],
            use_cpu=True,
            bf16=False,
            shuffle_dataset=False,
            disable_tqdm=True,
        )
        reader = script.broken if broken else script.reader
        trainer = Scripted(
            model=model,
            args=config,
            train_dataset=rows,
            processing_class=words,
            environment_factory=lambda: TrlBank(script.BUDGET, reader),
        )
        order: list[str] = []
        environments = trainer._calculate_rewards

        def noted(inputs: Any, *args: Any) -> Any:
            order.extend(each["key"] for each in inputs)
            return environments(inputs, *args)

        trainer._calculate_rewards = noted
        trainer.train()
        print(json.dumps(list(zip(order, Scripted.rewards, strict=True))))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:] == ["broken"])
