"""What results of a tool normally look like: parameters that are fitted now and then, and cheap to ask.

A mixture of up to three Gaussians over the features, because a tool has several sorts of results (found,
nothing found). How far a result may be from the nearest one is learned from sessions that the fit has not
seen: a tool whose results differ from session to session gets a wide limit, or none at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collector.step import Json

FLOORS: Final = (25.0, 25.0, 3.0, 3.0, 3.0, 20.0, 10.0)
"""The least spread that a feature is taken to have, in its own unit (hundredths): one for each feature."""
CALM: Final = 45.0
"""Squared distances up to this are normal whatever was learned: 7 features, once in ten million results."""
_LOOSE: Final = 2.0
_MODES: Final = 3
_STRAY_SHARE: Final = 0.03
_IQR_OF_NORMAL: Final = 1.349
_WIDE: Final = 300.0  # hundredths: 8 times as long
_DIGITS: Final = 6


class Mode(NamedTuple):
    """One sort of results: the middle of each feature, and one over its variance."""

    middle: tuple[float, ...]
    weight: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Normal:
    """What is normal. `limit`: the squared distance beyond which a result is odd; None: too varied to say."""

    modes: tuple[Mode, ...]
    limit: float | None

    def distance(self, row: tuple[int, ...]) -> float:
        """Squared distance of features to the nearest mode, in robust deviations.

        >>> Normal((Mode((0.0, 4.0), (1.0, 0.25)),), 9.0).distance((3, 0))
        13.0
        """
        least = inf
        for middle, weight in self.modes:  # written out: it runs for every result
            far = 0.0
            for x, m, w in zip(row, middle, weight, strict=True):
                far += (x - m) * (x - m) * w
            least = min(least, far)
        return least

    def farthest(self, row: tuple[int, ...]) -> tuple[int, float]:
        """Which feature is farthest from the nearest mode, and where that has it."""
        middle, weight = min(
            self.modes,
            key=lambda mode: sum((x - m) ** 2 * w for x, m, w in zip(row, *mode, strict=True)),
        )
        far = [(x - m) ** 2 * w for x, m, w in zip(row, middle, weight, strict=True)]
        at = far.index(max(far))
        return at, middle[at]

    def json(self) -> Json:
        """For a checkpoint; `load` reads it."""
        modes: list[Json] = [[list(mode.middle), list(mode.weight)] for mode in self.modes]
        return [modes, self.limit]

    @staticmethod
    def load(state: Any) -> Normal:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        modes, limit = state
        return Normal(tuple(Mode(tuple(middle), tuple(weight)) for middle, weight in modes), limit)


class Samples(NamedTuple):
    """What a fit is made from: for each result its session's number and its features."""

    sessions: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


Answer: TypeAlias = Callable[[], Normal]
Fitter: TypeAlias = Callable[[Samples], Answer]
"""Begins a fit, and returns what waits for its answer. Equal samples give equal answers."""


def inline(samples: Samples) -> Answer:
    """A `Fitter` that does the work when its answer is asked for."""
    return lambda: fit(samples)


def fit(samples: Samples) -> Normal:
    """Learn what is normal; deterministic. scikit-learn is loaded at the first call, about a second."""
    import numpy as np

    rows = np.array(samples.rows, dtype=float)
    middle, scale = _scale(rows)
    scaled = (rows - middle) / scale
    limit = _limit(scaled, np.array(samples.sessions))
    length = float(np.subtract(*np.percentile(rows[:, 0], [75, 25])))
    modes = tuple(
        Mode(_rounded(mean * scale + middle), _rounded(1 / (variance * scale * scale)))
        for mean, variance in _mixture(scaled)
    )
    return Normal(modes, None if length > _WIDE else limit)


def _rounded(values: Any) -> tuple[float, ...]:  # noqa: ANN401 - an array
    """Rounded so far that machines whose arithmetic differs in the last digits agree."""
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


def _scale(rows: Any) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    """The median and the robust deviation of each feature, which is never less than its floor."""
    import numpy as np

    low, middle, high = np.percentile(rows, [25, 50, 75], axis=0)
    return middle, np.maximum((high - low) / _IQR_OF_NORMAL, FLOORS)


def _mixture(scaled: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - arrays
    """Means and variances of the mixture that explains the rows best for its size (BIC)."""
    import numpy as np
    from sklearn.mixture import GaussianMixture

    different = len(np.unique(scaled, axis=0))
    best: Any = None
    least = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not converged: BIC judges them as they are
        for count in range(1, min(_MODES, different) + 1):
            mixture = GaussianMixture(
                count, covariance_type="diag", reg_covar=1.0, init_params="k-means++", random_state=0
            ).fit(scaled)
            bic = mixture.bic(scaled)
            if bic < least:
                best, least = mixture, bic
    return list(zip(best.means_, best.covariances_, strict=True))


def _limit(scaled: Any, sessions: Any) -> float | None:  # noqa: ANN401 - arrays
    """How far a result may be: by the sessions of one half, judged by the other; None where too many are far.

    The halves are the sessions of even and of odd number, or every second result where one half has hardly
    any.
    """
    import numpy as np

    even = sessions % 2 == 0
    if not len(scaled) / 5 <= even.sum() <= len(scaled) * 4 / 5:
        even = np.arange(len(scaled)) % 2 == 0
    far = np.concatenate([_far(scaled[even], scaled[~even]), _far(scaled[~even], scaled[even])])
    if (far > CALM).mean() > _STRAY_SHARE:
        return None
    return float(f"{max(CALM, _LOOSE * far.max()):.{_DIGITS}g}")


def _far(known: Any, others: Any) -> Any:  # noqa: ANN401 - arrays
    """Squared distances of other rows to the nearest mode of the known ones."""
    import numpy as np

    return np.min(
        [((others - mean) ** 2 / variance).sum(axis=1) for mean, variance in _mixture(known)], axis=0
    )
