"""The in-process model as an engine serves it: adapters by name, requests that end when it closes.

One request is computed at a time. It keeps the adapter that it started with.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import LoraConfig, get_peft_model

from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens
from keepworth.serving.calls import NotServed


class Aborted(Exception):
    """Ends a running request."""


@dataclass(slots=True, eq=False)
class ServedRequest:
    """One request. steps: passes after the prompt so far."""

    samples: bool
    steps: int = 0


class ServedModel(InProcessModel):
    """Takes `model` over: its network gains adapters, so nothing else should go on using it.

    max_adapters: how many may be loaded at once. paused: requests stand still. adapters: by the name that new requests may give,
    what PEFT calls it; PEFT's names hold no dots, and what was unloaded stays in the network for requests that still use it.
    """

    def __init__(self, model: InProcessModel, max_adapters: int = 8) -> None:
        super().__init__(model.network, model.tokenizer, model.name, model.token_budget)
        self.max_adapters, self.paused = max_adapters, False
        self.adapters: dict[str, str] = {}
        self._gate = threading.Condition()
        self._active: ServedRequest | None = None
        self._made, self._closed = 0, False

    def sample_as(self, name: str, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        """Like `sample`, under the weights or adapter called `name`; Aborted samples are empty."""
        self.check(prompts, params)
        try:
            with self._turn(name, ServedRequest(True)):
                return self.sample(prompts, params)
        except Aborted:
            return [[Sample((), (), FinishReason.ABORTED, ())] * params.n for _ in prompts]

    def score_as(self, name: str, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]) -> Any:
        """Like `score`; None where it was aborted."""
        try:
            with self._turn(name, ServedRequest(False)):
                return self.score(prompts, branches)
        except Aborted:
            return None

    @contextlib.contextmanager
    def _turn(self, name: str, request: ServedRequest) -> Iterator[None]:
        with self._gate:
            adapter = self._named(name)
            self._gate.wait_for(lambda: self._closed or (self._active is None and not self.paused))
            if self._closed:
                raise Aborted
            self._active = request
        try:
            with self._selected(adapter):
                yield
        finally:
            with self._gate:
                self._active = None
                self._gate.notify_all()

    @contextlib.contextmanager
    def _selected(self, adapter: str | None) -> Iterator[None]:
        if adapter is not None:
            self.network.set_adapter(adapter, inference_mode=True)
        plain = adapter is None and hasattr(self.network, "peft_config")
        with self.without_adapter() if plain else contextlib.nullcontext():
            yield

    def _named(self, name: str) -> str | None:
        if name in ("", self.name):
            return None
        if name not in self.adapters:
            known = ", ".join([self.name, *self.adapters])
            raise NotServed(f"The model {name!r} does not exist; there are {known}.", status=404)
        return self.adapters[name]

    def next_logits(self, *arguments: Any) -> Any:
        """What each step of sampling passes through."""
        if self._active is not None:
            self._active.steps += 1
            if self._closed:
                raise Aborted
        return super().next_logits(*arguments)

    def load_adapter(self, name: str, path: str) -> None:
        """Raises NotServed, with nothing loaded, for a folder that holds anything but a LoRA adapter for this network."""
        if not (Path(path) / "adapter_config.json").is_file():
            raise NotServed(f"There is no PEFT adapter folder {path}: it has no adapter_config.json.", status=404)
        settings = LoraConfig.from_pretrained(path)
        with self._gate, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each request says anew which adapter is active
            if name == self.name or name in self.adapters:
                raise NotServed(f"The adapter {name!r} has already been loaded.")
            if len(self.adapters) >= self.max_adapters:
                raise NotServed(f"{self.max_adapters} adapters are loaded, and no more may be: unload one.")
            self._gate.wait_for(lambda: self._active is None)
            self._made += 1
            key = f"adapter{self._made}"
            try:
                if hasattr(self.network, "peft_config"):
                    self.network.add_adapter(key, settings)
                else:
                    self.network = get_peft_model(self.network, settings, key, autocast_adapter_dtype=False)
                self.network.load_adapter(path, key, autocast_adapter_dtype=False)
            except Exception as error:  # whatever PEFT makes of a strange folder
                raise NotServed(f"The adapter in {path} does not fit {self.name}: {error}") from error
            self.network.eval().requires_grad_(False)
            self.adapters[name] = key

    def unload_adapter(self, name: str) -> None:
        """Requests that named it already still finish under it."""
        with self._gate:
            if self._named(name) is None:
                raise NotServed(f"{name!r} is no adapter.", status=404)
            del self.adapters[name]

    def close(self) -> None:
        """Ends what runs and takes nothing new."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
