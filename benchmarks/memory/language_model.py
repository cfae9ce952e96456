"""Make `languages.npz`, by which the language of a text is told, from the model of py3langid.

    python -m benchmarks.memory.language_model      # needs py3langid 0.4

It keeps the columns of the languages that have stems and Latin letters, and answers as py3langid does when it is told of these
languages alone, which is checked on sentences of their function words.
"""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import takes_nothing
from keepworth.memory.search import language

TARGET = Path(language.__file__).with_name("languages.npz")


def features(model: Any) -> dict[int, bytes]:
    """The run of bytes that each feature of the model counts: the shortest way of its automaton there."""
    way, outputs, queue = {0: b""}, dict[int, bytes](), [0]
    for state in queue:
        feature = model.tk_output[state]
        if feature >= 0:
            outputs.setdefault(feature, way[state])
        for byte in range(256):
            after = model.tk_nextmove[(model.tk_row[state] << 8) + byte]
            if after not in way:
                way[after] = way[state] + bytes([byte])
                queue.append(after)
    return outputs


def main() -> None:
    takes_nothing(__doc__)
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    languages = json.loads((files("keepworth.memory.search") / "languages.json").read_text())["latin"]
    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    model.set_languages([language["tag"] for language in languages])
    runs = features(model)
    order = sorted(runs, key=lambda feature: (len(runs[feature]), runs[feature]))
    keys = np.array([int.from_bytes(runs[feature], "big") for feature in order], np.int64)
    table = model.nb_ptc[order]
    kinds, counts = np.unique(table, axis=0, return_counts=True)
    usual = kinds[counts.argmax()]  # of features that none of these languages has
    informative = (table != usual).any(axis=1)
    values, codes = np.unique(table[informative], return_inverse=True)
    np.savez_compressed(
        TARGET,
        lengths=np.array([len(runs[feature]) for feature in order], np.uint8),
        steps=np.diff(keys, prepend=0),
        told=informative,
        usual=usual,
        values=values,
        codes=np.ascontiguousarray(codes.reshape(-1, len(usual)).T.astype(np.uint16)),
        first=model.nb_pc.astype(np.float32),
        tags=np.array(model.nb_classes),
    )
    draw = random.Random(0)
    for sample in languages * 200:
        text = " ".join(draw.choices(sample["function_words"].split(), k=draw.randint(1, 20)))
        ((tag, sure),) = language.classify([text])
        wanted = model.classify(text)
        if abs(sure - wanted[1]) > 1e-3 or (tag != wanted[0] and sure > 0.51):
            raise SystemExit(f"{text!r} is {tag} ({sure:.4f}), and to py3langid {wanted}")
    print(f"{TARGET}: {len(order):,} features, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
