"""Whether an object has the fields that its kind has, all it must have, and each with a value of its type.

KubeRay's kinds are described by kuberay.yaml. All others are the models of Kubernetes' own client, which is made from
the API's OpenAPI description: names in JSON, types, and, by what their setters refuse, which must be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from kubernetes import client

DESCRIPTION = Path(__file__).with_name("kuberay.yaml")
SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "datetime": (str,),
}
LIST = re.compile(r"\[(.+)\]|list\[(.+)\]")
MAP = re.compile(r"\{str: (.+)\}|dict[\[(]str, (.+)[\])]")
AT_LEAST = re.compile(r"int >= (\d+)")
VALIDATING = SimpleNamespace(client_side_validation=True)


@dataclass(frozen=True, slots=True)
class Field:
    type: str
    needed: bool


@dataclass(frozen=True, slots=True)
class Spot:
    """A value somewhere in an object."""

    where: str
    type: str
    value: Any


class _Loader(yaml.SafeLoader):
    """A key that stands twice in one mapping is refused, as the API server refuses it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


def documents(path: Path) -> list[Any]:
    """The objects of a file; what an anchor shares in it is here a copy each."""
    read: list[Any] = json.loads(json.dumps(list(yaml.load_all(path.read_text(), _Loader))))
    return read


def type_of(document: Any) -> str | None:
    """The type of an object by its apiVersion and kind; None where the API has no such kind there."""
    version, kind = str(document.get("apiVersion")), str(document.get("kind"))
    if version == "ray.io/v1":
        return kind if "apiVersion" in (fields_of(kind) or {}) else None
    group, _, number = version.rpartition("/")
    words = group.removesuffix(".k8s.io").split(".") if group else ["core"]
    api = getattr(client, "".join(word.capitalize() for word in (*words, number)) + "Api", None)
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    made = any(hasattr(api, f"create_{scope}{snake}") for scope in ("", "namespaced_"))
    return number.capitalize() + kind if made else None


@cache
def described() -> dict[str, Any]:
    """KubeRay's types, and the release they are of."""
    read: dict[str, Any] = yaml.safe_load(DESCRIPTION.read_text())
    return read


@cache
def fields_of(name: str) -> dict[str, Field] | None:
    """The fields of a type by their names in JSON; None where there is no such type."""
    ours = described().get(name)
    if isinstance(ours, dict):
        return {key.removesuffix("!"): Field(text, key.endswith("!")) for key, text in ours.items()}
    model = getattr(client, name, None)
    if not hasattr(model, "openapi_types"):
        return None
    return {
        model.attribute_map[attribute]: Field(text, _needed(model, attribute))
        for attribute, text in model.openapi_types.items()
    }


def _needed(model: type, attribute: str) -> bool:
    blank: Any = object.__new__(model)
    blank.local_vars_configuration = VALIDATING
    try:
        setattr(blank, attribute, None)
    except ValueError:
        return True
    return False


def spots(value: Any, type_: str, where: str = "") -> Iterator[Spot]:
    """The value and, where its type has fields, items or entries, all those below it; unknown ones are left out."""
    yield Spot(where, type_, value)
    for name, below, type_below in _parts(value, type_):
        if type_below is not None:
            yield from spots(below, type_below, f"{where}.{name}".lstrip("."))


def _parts(value: Any, type_: str) -> Iterator[tuple[str, Any, str | None]]:
    """Name, value and type of each part; no type for a field that is not known."""
    if (match := LIST.fullmatch(type_)) and isinstance(value, list):
        for index, item in enumerate(value):
            yield str(index), item, match[1] or match[2]
    elif (match := MAP.fullmatch(type_)) and isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key}]", item, match[1] or match[2]
    elif isinstance(value, dict) and (fields := fields_of(type_)) is not None:
        for key, item in value.items():
            yield str(key), item, fields[key].type if key in fields else None


def problems(document: Any) -> list[str]:
    """What is wrong with an object, each as `path: what`."""
    type_ = type_of(document)
    if type_ is None:
        return [f"kind: no {document.get('kind')} in {document.get('apiVersion')}"]
    return [problem for spot in spots(document, type_) for problem in _wrong(spot)]


def _wrong(spot: Spot) -> Iterator[str]:
    value, type_, fields = spot.value, spot.type, fields_of(spot.type)
    if fields is not None and isinstance(value, dict):
        for name in value.keys() - fields.keys():
            yield f"{spot.where}.{name}: not a field of {type_}".lstrip(".")
        for name, field in fields.items():
            if field.needed and name not in value:
                yield f"{spot.where}.{name}: missing".lstrip(".")
    elif not _fits(value, type_, fields is not None):
        yield f"{spot.where}: {value!r} is not {type_}"


def _fits(value: Any, type_: str, composed: bool) -> bool:
    if type_ == "object":  # anything: a number or a name, as of ports
        return value is not None
    if type_ in SCALARS:
        return isinstance(value, SCALARS[type_]) and (type_ == "bool" or not isinstance(value, bool))
    if match := AT_LEAST.fullmatch(type_):
        return _fits(value, "int", False) and value >= int(match[1])
    if LIST.fullmatch(type_):
        return isinstance(value, list)
    if MAP.fullmatch(type_):
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return not composed and value in type_.split(" | ")
