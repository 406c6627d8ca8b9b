"""The price table: what a model's tokens cost, out of a TOML file that anybody may replace."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SHIPPED: Final = Path(__file__).parent / "prices.toml"
_DATED: Final = re.compile(r"[-@:.](?:\d|latest|v\d)")

_Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PricesError(Exception):
    """A price table cannot be used; the message names the file and the key."""


class ModelPrice(BaseModel):
    """US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: _Usd
    output: _Usd


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    call_usd: _Usd | None = None
    models: dict[str, ModelPrice] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model. `call_usd` is that of a call whose tokens are not known, None: not priced."""

    models: Mapping[str, ModelPrice] = field(default_factory=dict)
    call_usd: float | None = None

    def of(self, model: str) -> ModelPrice | None:
        """The price of a model: by its name, else by the longest name that it is a dated version of.

        >>> prices = Prices({"gpt-4o": ModelPrice(input=2.5, output=10)})
        >>> prices.of("gpt-4o-2024-11-20").input, prices.of("gpt-4o-audio")
        (2.5, None)
        """
        exact = self.models.get(model)
        if exact is not None:
            return exact
        names = [name for name in self.models if model.startswith(name) and _DATED.match(model[len(name) :])]
        return self.models[max(names, key=len)] if names else None

    def usd(self, model: str, input_tokens: int, output_tokens: int, calls: int) -> float | None:
        """What these tokens cost, or, where none were told, these calls; None when there is no price."""
        if input_tokens or output_tokens:
            price = self.of(model)
            if price is not None:
                return (input_tokens * price.input + output_tokens * price.output) / 1e6
            return None
        return None if self.call_usd is None else calls * self.call_usd


def read_prices(path: Path | None = None) -> Prices:
    """A price table, the one that is shipped unless a file is named. Raises `PricesError`."""
    source = path or SHIPPED
    try:
        told = _File.model_validate(tomllib.loads(source.read_text(encoding="utf-8")))
    except OSError as error:
        raise PricesError(f"{source}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PricesError(f"{source}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise PricesError(f"{source}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return Prices(told.models, told.call_usd)
