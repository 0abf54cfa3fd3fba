"""Records that kernels pass around."""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any


def _is_field(name: str, value: Any) -> bool:
    plain = not isinstance(value, FunctionType | classmethod | staticmethod | property | type)
    return plain and not name.startswith("__")


class NKIObject:
    """Base class of records: what a class annotates, or gives a value, is a field and an argument of `__init__`.

    Fields come in order, those of base classes first. The value in the class is the default; a field without one may
    be left out and set later, and reading it before raises AttributeError. `__post_init__` runs at the end, when there
    is one; a class that defines `__init__` keeps it. TypeError for unknown fields.
    """

    _fields: tuple[str, ...] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = [*cls.__dict__.get("__annotations__", ()), *(n for n, v in vars(cls).items() if _is_field(n, v))]
        cls._fields = tuple(dict.fromkeys([*cls._fields, *(name for name in own if name != "_fields")]))
        if "__init__" not in vars(cls):
            cls.__init__ = cls.__init__  # type: ignore[method-assign] # so that @dataclass does not put its own there

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        if len(args) > len(cls._fields):
            raise TypeError(f"{cls.__name__} takes {len(cls._fields)} fields, {len(args)} were given")
        values = dict(zip(cls._fields, args, strict=False))
        for name, value in kwargs.items():
            if name not in cls._fields or name in values:
                problem = "was given twice" if name in values else "has no field"
                raise TypeError(f"{cls.__name__} {problem}: {name}")
            values[name] = value
        for name in cls._fields:
            value = values[name] if name in values else _default(cls, name)
            if value is not _UNSET:
                object.__setattr__(self, name, value)
        finish = getattr(self, "__post_init__", None)
        if finish is not None:
            finish()

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._fields:
            raise AttributeError(f"field {name} of {type(self).__name__} has no value yet")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_UNSET: Any = object()


def _default(cls: type, name: str) -> Any:
    field = getattr(cls, "__dataclass_fields__", {}).get(name)
    if field is not None and field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return getattr(cls, name, _UNSET)
