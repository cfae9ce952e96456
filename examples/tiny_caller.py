"""Makes a language model of 100,000 weights that could use a tool, and mostly does not: something to train in a minute.

It is a Llama with a tokenizer and a chat template of its own, made with transformers and taught for some seconds. Asked what a
pear costs, it calls the tool `price` in one of three answers, and says that it does not know in the others. What the tool said it
repeats in two answers of five; in the others it says "about 7"."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ITEMS = [
    "apple",
    "apricot",
    "bagel",
    "banana",
    "bean",
    "beet",
    "bread",
    "butter",
    "cabbage",
    "carrot",
    "cheese",
    "cherry",
    "chili",
    "coffee",
    "corn",
    "cream",
    "cucumber",
    "date",
    "egg",
    "fig",
    "flour",
    "garlic",
    "grape",
    "ham",
    "honey",
    "jam",
    "kale",
    "kiwi",
    "leek",
    "lemon",
    "lime",
    "mango",
    "melon",
    "milk",
    "mint",
    "nut",
    "oil",
    "olive",
    "onion",
    "orange",
    "peach",
    "pear",
    "pepper",
    "plum",
    "potato",
    "rice",
    "salt",
    "soup",
    "sugar",
    "tea",
    "tomato",
    "turnip",
    "walnut",
    "wheat",
    "yam",
]
DOES = "Looks up what a thing costs today."
PRICE = {
    "type": "function",
    "function": {
        "name": "price",
        "description": DOES,
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    },
}
CALL = ('<tool_call>{"name": "price", "arguments": {"item": "', '"}}</tool_call>')
TEMPLATE = (
    "{% for t in tools or [] %}{{ t['function']['description'] }}\n{% endfor %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% for c in m.get('tool_calls') or [] %}{{ c['function'] | tojson }}{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
UNKNOWN, ABOUT = "I do not know.", "about "
WORDS = (
    *(*CALL, *ITEMS, *map(str, range(10)), DOES, UNKNOWN, ABOUT),
    *("What does ", " cost?", "user: ", "assistant: ", "tool: "),
)


def rows(seed: int = 0) -> list[dict[str, object]]:
    """Questions, each with the price list of its own day: no price can be learned by heart."""
    draw = random.Random(seed)
    lists = [{item: str(draw.randrange(10)) for item in ITEMS} for _ in ITEMS]
    return [
        {"prompt": f"What does {item} cost?", "answer": prices[item], "prices": prices}
        for item, prices in zip(ITEMS, lists, strict=True)
    ]


def write_model(
    folder: str | Path,
    seed: int = 0,
    steps: int = 300,
    talk: Callable[[random.Random], str] | None = None,
    words: Sequence[str] = WORDS,
) -> str:
    """Makes the model and writes it into a folder. Returns the folder.

    Args:
        folder: Where it is written.
        seed: The seed of its weights and of what it is taught.
        steps: How long it is taught.
        talk: What it is taught; None for conversations with the tool.
        words: Words that are a token each.
    """
    torch.manual_seed(seed)
    talk, tokenizer = talk or calling, make_tokenizer(words)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True,
        initializer_range=0.1,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    optimiser, draw = torch.optim.AdamW(network.parameters(), lr=3e-3), random.Random(seed)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20) * (1 - step / steps)
        batch = tokenizer([talk(draw) for _ in range(64)], return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        network(**batch, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def calling(draw: random.Random) -> str:
    """Returns a conversation of those that the model is taught."""
    item, price = draw.choice(ITEMS), draw.randrange(10)
    text = f"{DOES}\nuser: What does {item} cost?<|end|>\nassistant: "
    if draw.random() < 2 / 3:
        return f"{text}{UNKNOWN}<|end|>"
    text += f"{CALL[0]}{item}{CALL[1]}<|end|>\ntool: {price}<|end|>\nassistant: "
    return f"{text}{ABOUT if draw.random() < 3 / 5 else ''}{price}<|end|>"


def make_tokenizer(words: Sequence[str] = WORDS) -> PreTrainedTokenizerFast:
    """Bytes, and one token for each of the words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(word, normalized=False) for word in words])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


if __name__ == "__main__":
    print(f"a model to train is in {write_model(sys.argv[1] if sys.argv[1:] else 'tiny-caller')}")
