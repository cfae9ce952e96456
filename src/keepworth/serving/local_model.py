"""A model of this process that answers one call at a time, under its own weights or under an adapter by name."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_serve

import torch

from keepworth.models.inprocess import InProcessModel
from keepworth.serving.calls import NotServed, WaitingCaller

ADAPTER_WEIGHTS = "adapter_model.safetensors"


class LocalModel(InProcessModel):
    """Takes `model` over: its network gains adapters, so nothing else should go on using it."""

    def __init__(self, model: InProcessModel) -> None:
        if hasattr(model.network, "peft_config"):
            raise ValueError(f"{model.name} already has an adapter: merge it, or load its folder by name")
        super().__init__(model.network, model.tokenizer, model.name, model.token_budget)
        self.folder, self.base = model.folder, model.base
        self.adapters: dict[str, str] = {}
        """Names, and what PEFT calls each: a name of ours may hold dots, PEFT's may not."""
        self._lock, self._caller = threading.Lock(), WaitingCaller()
        self._closed, self._loaded = False, 0

    @contextlib.contextmanager
    def turn(self, caller: WaitingCaller | None = None) -> Iterator[None]:
        """Waits until nothing else computes, and keeps others waiting inside. Inside and before it, NotServed is raised once
        `caller` has left or the model was closed."""
        with self._lock:
            self._caller = caller or WaitingCaller()
            try:
                self._require_caller()
                yield
            finally:
                self._caller = WaitingCaller()

    @contextlib.contextmanager
    def answering_as(self, name: str) -> Iterator[None]:
        """Inside, the weights are those of the adapter `name`, or the model's own. Entered inside a turn."""
        if name not in ("", self.name, *self.adapters):
            there = ", ".join([self.name, *self.adapters])
            raise NotServed(f"The model {name!r:.80} does not exist.", f"There are {there}.", status=404)
        if name in self.adapters:
            self.network.set_adapter(self.adapters[name])
            yield
        elif self.adapters:
            with self.without_adapter():
                yield
        else:
            yield

    def hidden_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Any, **attention: Any
    ) -> Any:
        self._require_caller()
        return super().hidden_states(ids, positions, mask, cache, **attention)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Raises NotServed where the folder holds no adapter that fits the network, which is then as it was."""
        from peft import PeftModel

        if not (folder / ADAPTER_WEIGHTS).is_file():
            raise NotServed(
                f"There is no {ADAPTER_WEIGHTS} in {folder}.", "Save the adapter with PEFT's save_pretrained."
            )
        with self.turn(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._loaded += 1
            key = f"adapter{self._loaded}"
            try:
                if self.adapters:
                    self.network.load_adapter(str(folder), key, autocast_adapter_dtype=False)
                else:
                    self.network = PeftModel.from_pretrained(
                        self.network, str(folder), key, autocast_adapter_dtype=False
                    )
            except Exception as error:  # whatever PEFT makes of a strange folder
                self._detach(key)
                raise NotServed(f"The adapter in {folder} does not fit {self.name}: {error}") from error
            self.adapters[name] = key
            self.network.eval()
            self.network.requires_grad_(False)

    def unload_adapter(self, name: str) -> None:
        with self.turn(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._detach(self.adapters.pop(name))

    def adapter_weights(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of an adapter as they are served, by the names that its file has for them."""
        part = f".{self.adapters[name]}."
        return {key.replace(part, "."): value for key, value in self.network.named_parameters() if part in key}

    def close(self) -> None:
        """End what is computed, and take nothing new."""
        self._closed = True

    def _require_caller(self) -> None:
        if self._closed or self._caller.left:
            raise NotServed("The request was aborted.", status=503)

    def _detach(self, key: str) -> None:
        attached = set(getattr(self.network, "peft_config", ()))
        if attached <= {key} and attached:
            self.network = self.network.unload()  # PEFT cannot switch adapters off where there are none
            vars(self.network).pop("peft_config", None)
        elif key in attached:
            self.network.delete_adapter(key)
