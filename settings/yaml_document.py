"""Read YAML strictly: one document, a mapping, no key twice."""

from collections.abc import Hashable
from typing import Any

import yaml


class _StrictLoader(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not enforce: the keys of a mapping are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"{key.value} stands here a second time"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def mapping_in(text: str | bytes) -> dict[str, Any]:
    """The mapping in the document; YAMLError for anything else, also for an empty document."""
    document = yaml.load(text, _StrictLoader)  # noqa: S506 - it is a SafeLoader
    if document is None:
        # Likely a mistake: all defaults take two lines.
        raise yaml.MarkedYAMLError(problem="the document is empty; write at least apiVersion and kind")
    if not isinstance(document, dict):
        raise yaml.MarkedYAMLError(problem=f"the document is a {type(document).__name__}, not a mapping")
    return document
