"""What all parts of the configuration have in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """A part of the configuration: camelCase in the file, snake_case in Python, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_alias=True, validate_by_name=True
    )
