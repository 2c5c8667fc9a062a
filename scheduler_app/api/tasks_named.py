"""Tasks of a run as a body names them: by id, by id and map index, or by group."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {}}]})
class TaskField(serializers.Field[Any, Any, Any, Any]):
    """A task id, for all of its map indexes, or ``[task id, map index]`` for one of them."""

    def to_internal_value(self, data: Any) -> tuple[str, int | None]:
        """The id and the index, or the id alone."""
        match data:
            case str():
                return data, None
            case [str() as task_id, int() as index] if not isinstance(index, bool):
                return task_id, index
        message = "Give a task id, or [task id, map index]."
        raise serializers.ValidationError(message)

    def to_representation(self, value: Any) -> Any:
        """As it was given."""
        return value


class TasksNamedSerializer(serializers.Serializer[Any]):
    """Some tasks of a run."""

    tasks = serializers.ListField(
        child=TaskField(), required=False, allow_null=True, default=None, allow_empty=False
    )
    group = serializers.CharField(required=False, allow_null=True, default=None)
