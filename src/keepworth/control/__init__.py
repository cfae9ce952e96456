"""Small networks in worlds that hide their state: sequence memories, recurrent PPO, off-policy learners, worlds by Gymnasium.

    module = memory("ffm", input_size=12, width=128)      # an ordinary torch.nn.Module

`keepworth.control.memory_base` defines sequence memories; the memories themselves are files of `keepworth.methods.control`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepworth.control.memory_base import SequenceMemory


def memory(name: str, input_size: int, width: int = 128, **settings: Any) -> SequenceMemory:
    """Makes a sequence memory by its name.

    Args:
        name: One of `keepworth methods --kind memory_module`, such as "ffm".
        input_size: Features of an input.
        width: Features of an output.
        settings: Further settings of this memory; see the `make` in its file.

    Raises:
        UnknownName: There is no memory of this name, or it has no such setting.
        SettingError: The memory cannot be made with these settings.
        MissingExtra: PyTorch is not installed.
    """
    from inspect import signature

    from keepworth.base.errors import KeepworthError, require_known
    from keepworth.base.extras import require
    from keepworth.control.settings import SettingError
    from keepworth.registry import method

    make = method("memory_module", name).make
    accepted = [setting for setting in signature(make).parameters if setting not in ("input_size", "width")]
    for setting in settings:
        require_known(f"setting of {name}", setting, accepted)
    require("control", f"The memory {name!r}", "torch")
    import torch

    try:
        module: SequenceMemory = make(input_size, width, **settings)
        with torch.no_grad():  # a width or settings that do not fit one another fail at the first step
            module.step(torch.zeros(1, input_size), module.initial_state(1))
    except (ValueError, RuntimeError, ArithmeticError) as error:
        if isinstance(error, KeepworthError) or (not settings and width == 128):
            raise
        given = ", ".join(f"{setting} = {value!r}" for setting, value in {**settings, "width": width}.items())
        raise SettingError(
            f"the memory {name!r} cannot be made with {given}: {error}.", "Leave them out for the usual ones."
        ) from error
    return module
