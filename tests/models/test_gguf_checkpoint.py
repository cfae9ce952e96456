"""The conversion against transformers' own reading of the same GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from keepworth.base.gguf_checkpoint import write_checkpoint
from keepworth.base.model_files import path_of
from tests.models.published import SPECIAL, write_gguf


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def checkpoint(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(gguf, folder)
    return folder


def test_logits_equal_those_of_the_model_that_transformers_reads_from_the_gguf(gguf: Path, checkpoint: Path) -> None:
    from transformers import AutoModelForCausalLM

    ours = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # Ours are stored in bfloat16: round theirs once, and everything must then be equal to the last bit.
    rounded = {name: tensor.to(torch.bfloat16).float() for name, tensor in theirs.state_dict().items()}
    assert rounded.keys() == ours.state_dict().keys()
    assert all(torch.equal(tensor, rounded[name]) for name, tensor in ours.state_dict().items())
    theirs.load_state_dict(rounded)
    ids = torch.randint(0, 250, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_the_model_is_plain_and_can_be_saved_again(checkpoint: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert model.dtype == torch.bfloat16
    assert not getattr(model, "is_quantized", False)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()


def test_the_tokenizer_splits_every_digit_and_loses_no_byte(checkpoint: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    # "1 9" is a merge, and must never be used: digits stand alone before merges are looked at.
    assert tokenizer.tokenize("in 1999") == ["i", "n", "Ġ", "1", "9", "9", "9"]
    assert tokenizer.tokenize(" the hi") == ["Ġthe", "Ġ", "hi"]
    text = "Ünïcode \x00\t\n 日本 🙂 <|im_end|>"
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == SPECIAL.index("<|im_end|>")
    assert tokenizer.decode(ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (SPECIAL[1], SPECIAL[2], SPECIAL[2])
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == "<|im_start|>user\nhi<|im_end|>\n"


@pytest.mark.model
def test_the_default_model_answers_sanely_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = path_of("smollm2-135m-instruct")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["rope_theta"]) == (30, 576, 100000.0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def greedy(text: str, tokens: int) -> str:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
        return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))

    assert greedy("The capital of Italy is", 2).startswith(" Rome")
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    chat = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert chat.endswith("<|im_start|>assistant\n")
    assert greedy(chat, 12) == "The capital of France is Paris."
