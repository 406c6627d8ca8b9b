"""stub"""
from __future__ import annotations
from dataclasses import dataclass
import pyarrow as pa
@dataclass(frozen=True, slots=True)
class RedactionSettings:
    extra_keys: tuple[str, ...] = ()
    extra_patterns: tuple[str, ...] = ()
    hash_only: bool = False
class Redactor:
    def __init__(self, settings: RedactionSettings = RedactionSettings()) -> None: ...
    def keys(self, e): return e
    def values(self, e, v): return v
    def texts(self, v): return v
    def messages(self, v): return v
    def bodies(self, v): return v
