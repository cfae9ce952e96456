"""A checkpoint folder into a network and its tokenizer, with every way in which its files can be wrong named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from keepworth.episodes.extras import needs_llm

import torch

from keepworth.models import attention
from keepworth.models.errors import CorruptModel, IncompleteModel
from keepworth.models.support import require_supported_config, require_supported_network

_AGAIN = "Copy or download the folder again; a model of the catalogue: `keepworth models fetch NAME --force`."


def load_checkpoint(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The causal language model and the tokenizer in `folder`.

    Raises IncompleteModel where a file or a weight is missing, CorruptModel where one cannot be read, UnsupportedModel
    where the folder holds something else than a decoder that this engine computes.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it takes a second, and would break into the run's own display
    _require_files(folder)
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:  # the library raises its validators' own types besides OSError and ValueError
        raise CorruptModel(
            f"{folder / 'config.json'} cannot be read as a model's configuration: {error}", _AGAIN
        ) from error
    require_supported_config(config, folder)
    try:
        network, found = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention.register(), output_loading_info=True
        )
    except SafetensorError as error:
        raise CorruptModel(f"The weights in {folder} are cut short or damaged: {error}.", _AGAIN) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise CorruptModel(f"The weights in {folder} cannot be loaded: {error}", _AGAIN) from error
    if absent := sorted(found["missing_keys"]):
        raise IncompleteModel(
            f"The weights in {folder} lack {len(absent)} tensors of a language model, for example {absent[0]}.", _AGAIN
        )
    require_supported_network(network, folder)
    try:
        return network, AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CorruptModel(f"The tokenizer in {folder} cannot be read: {error}", _AGAIN) from error


def _require_files(folder: Path) -> None:
    configuration = folder / "config.json"
    if not configuration.is_file():
        raise IncompleteModel(
            f"{folder} has no config.json: it is no language model's folder.",
            "Name the folder that holds config.json, the weights and the tokenizer.",
        )
    try:
        settings = json.loads(configuration.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptModel(f"{configuration} is not valid JSON: {error}.", _AGAIN) from error
    if not isinstance(settings, dict):
        raise CorruptModel(f"{configuration} does not hold a configuration's keys and values.", _AGAIN)
