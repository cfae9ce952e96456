"""A tool server of verifiers, which runs the module that it stands in."""

from __future__ import annotations

import verifiers.v1 as vf


class Calculator(vf.Toolset[vf.SharedToolsetConfig]):  # type: ignore[misc]
    TOOL_PREFIX = "calculator"

    @vf.tool
    async def double(self, number: int) -> str:
        """Twice the number."""
        return str(2 * number)


if __name__ == "__main__":
    Calculator.run()
