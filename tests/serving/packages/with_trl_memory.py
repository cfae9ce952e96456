"""Updates of TRL's `GRPOTrainer` with a memory in its prompts, on a tiny model whose words are given to it; prints the rewards,
and what the memory learned: python -m ...with_trl_memory."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from keepworth import Memory
from keepworth.training.trl import recall_for, reward_memory

QUESTIONS = {"Where does Ana live?": "Oslo", "What does Bo play?": "chess"}
PROMPTS: list[str] = []
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
    """The trainer as it is, but for what the model says: it answers with what it remembers."""

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **options: Any) -> tuple[list[list[int]], None]:
        words, said = self.processing_class, []
        for ids in prompt_ids:
            text = words.decode(ids)
            PROMPTS.append(text)
            reply = "Oslo" if "Ana lives in Oslo" in text else "no idea"
            said.append(words.encode(f"{reply}<|im_end|>", add_special_tokens=False))
        return said, None


def score(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    return [float(right in each[-1]["content"]) for each, right in zip(completions, answer, strict=True)]


def trained() -> dict[str, Any]:
    torch.manual_seed(0)
    words = tokenizer()
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(words), num_key_value_heads=1, **shape))
    memory = Memory(encoder=None, policy=None)
    memory.add("Ana lives in Oslo.")
    asked = [{"prompt": [{"role": "user", "content": text}], "answer": answer} for text, answer in QUESTIONS.items()]
    rows = datasets.Dataset.from_list(asked).with_transform(recall_for(memory))
    rewards: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            folder, per_device_train_batch_size=4, num_generations=2, max_steps=1, max_completion_length=2000,
            report_to=[], use_cpu=True, bf16=False, shuffle_dataset=False, disable_tqdm=True,
        )  # fmt: skip
        told = reward_memory(score, memory)
        trainer = Scripted(model=model, args=config, train_dataset=rows, processing_class=words, reward_funcs=told)
        calculated = trainer._calculate_rewards

        def noted(*args: Any) -> Any:
            found = calculated(*args)
            rewards.extend(found.sum(dim=1).tolist())
            return found

        trainer._calculate_rewards = noted
        trainer.train()
    (ana,) = memory.get_all()
    shown = sum("Ana lives in Oslo." in each for each in PROMPTS)
    return {"rewards": rewards, "shown": shown, "credited": [ana.values.credited, ana.values.total]}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    print(json.dumps(trained()))  # noqa: T201
