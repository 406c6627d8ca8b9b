"""A linear text model for what no rule knows: logistic regression over `features_of`, shipped as numbers.

`evaluation/train_errors.py` trains it and writes `model.json.gz`; nothing but the standard library is needed
to judge with it. Below `minimum` its guess is worth less than saying `unknown`, which goes to a person; a
guess that would make an agent retry must be surer, because a retry is what nobody notices.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from detectors.errors.features import features_of
from detectors.errors.kinds import ADVICE, ErrorClass
from detectors.errors.subject import Subject

ARTEFACT: Final = "model.json.gz"
_LEAST_FEATURES: Final = 4  # known ones, the tool's among them
SCALE: Final = 1000  # weights are kept as whole thousandths: small, and the same bytes on every machine


@dataclass(frozen=True, slots=True)
class Model:
    """Classes, the weight of each feature for each class (thousandths), biases, and the least confidences."""

    classes: tuple[ErrorClass, ...]
    biases: tuple[int, ...]
    weights: Mapping[str, tuple[int, ...]]
    minimum: float
    minimum_to_retry: float

    def class_of(self, subject: Subject) -> tuple[ErrorClass, float]:
        """The likeliest class and its probability, 0..1; `UNKNOWN` where that is too little to go by."""
        guess, confidence = self.judge(subject)
        least = self.minimum_to_retry if ADVICE[guess].retry else self.minimum
        return (guess if confidence >= least else ErrorClass.UNKNOWN), confidence

    def judge(self, subject: Subject) -> tuple[ErrorClass, float]:
        """The likeliest class and its probability, 0..1; `UNKNOWN` and 0 for a text that says too little."""
        rows = [self.weights[name] for name in features_of(subject) if name in self.weights]
        if len(rows) < _LEAST_FEATURES:
            return ErrorClass.UNKNOWN, 0.0
        length = math.sqrt(len(rows))
        scores = [
            (bias + total / length) / SCALE
            for bias, total in zip(self.biases, map(sum, zip(*rows, strict=True)), strict=True)
        ]
        highest = max(scores)
        shares = [math.exp(score - highest) for score in scores]
        best = scores.index(highest)
        return self.classes[best], shares[best] / sum(shares)


def model_of(text: str) -> Model:
    """Read a model from its JSON."""
    read = json.loads(text)
    return Model(
        classes=tuple(ErrorClass(name) for name in read["classes"]),
        biases=tuple(read["biases"]),
        weights={name: tuple(row) for name, row in read["weights"].items()},
        minimum=read["minimum"],
        minimum_to_retry=read["minimum_to_retry"],
    )


@cache
def shipped() -> Model:
    """The model that comes with this package, read once."""
    packed = resources.files("detectors.errors").joinpath(ARTEFACT).read_bytes()
    return model_of(gzip.decompress(packed).decode())
