"""Replayed: a deterministic world whose scenes are kept, so that arms which act alike do not play the same game again."""

from __future__ import annotations

from keepworth.environments.scene import Scene, World, WorldMaker

History = tuple[str, ...]
"""The actions taken since the start."""


class Replayed:
    """What `make()` would show, played only where `known` does not hold it yet.

    make: a world that is the same game at each call, and does the same after the same actions. known: scenes by the
    actions that led to them, shared by everybody who plays this game. A scene that is not known is reached by playing
    the game up to it, so that a game in a slow engine costs as much as its distinct courses.
    """

    __slots__ = ("_history", "_known", "_live", "_make")

    def __init__(self, make: WorldMaker, known: dict[History, Scene]) -> None:
        self._make, self._known = make, known
        self._history: History = ()
        self._live: World | None = None

    def reset(self) -> Scene:
        self._history, self._live = (), None
        return self._scene()

    def act(self, action: str) -> Scene:
        before = self._history
        self._history = (*before, action)
        if self._live is not None:
            scene = self._live.act(action)
            return self._known.setdefault(self._history, scene)
        return self._scene()

    def _scene(self) -> Scene:
        scene = self._known.get(self._history)
        if scene is None:
            self._live = self._make()
            scene = self._live.reset()
            for place, action in enumerate(self._history):
                self._known.setdefault(self._history[:place], scene)
                scene = self._live.act(action)
            self._known[self._history] = scene
        return scene
