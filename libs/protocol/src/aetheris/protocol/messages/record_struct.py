"""What lies in a record, in memory: structs that are made from Pydantic models (docs/adr/0010-structs-of-events.md)."""

import re
from copy import copy
from enum import StrEnum
from types import FunctionType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from annotated_types import Ge
from msgspec import Raw
from msgspec.json import Decoder, Encoder
from msgspec.structs import asdict, force_setattr, replace
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_json

from aetheris.protocol.base.canonical import InvalidArgs, parse
from aetheris.protocol.base.signing import ends_signed

_MOST_DIGITS = 4300
"""Of a number: Pydantic refuses more."""
_DIGITS = bytes(48 if 48 <= byte < 58 else 32 for byte in range(256))
_TOO_LONG = b"0" * (_MOST_DIGITS + 1)
_FIXED_TEXT = re.compile(r"\^(\[[0-9a-z-]+\]\{[0-9]+\})\$")
"""Of the patterns of texts, those that Rust's engine and Python's read alike, but for their end."""


_TWICE = PydanticCustomError("json_invalid_strictly", "a name stands twice, or a number is NaN or infinite")

_ANNOTATIONS = frozenset({"__annotations__", "__annotate__", "__annotate_func__"})
"""What of a class body says its fields' types, by Python's version."""


class _Base(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PlainlyRead:
    """In the metadata of a field with a validator before it: that one leaves what is of its type as it is."""


class _Unread:
    """Stands for what only Pydantic reads: a record that has it is refused here, and read by the model."""


def _is_code(name: str, value: object) -> bool:
    """What of a class statement is the struct's alone."""
    return name == "__classcell__" or isinstance(value, FunctionType) or hasattr(value, "__get__")


def _default(field: FieldInfo) -> tuple[Any, ...]:
    """None is left out where it is written; whatever else is a default is written, so msgspec must not know it."""
    if field.is_required():
        return ()
    default = field.get_default(call_default_factory=True, validated_data={})
    return (None,) if default is None else (msgspec.field(default_factory=lambda: default),)


def _decoded(field: FieldInfo) -> Any:
    """As which type msgspec decodes a field."""
    least = None
    left_alone = any(isinstance(bound, PlainlyRead) for bound in field.metadata)
    for bound in field.metadata:
        if isinstance(bound, Strict | PlainlyRead) or (left_alone and isinstance(bound, BeforeValidator)):
            continue  # as msgspec is
        if isinstance(bound, WithJsonSchema):
            continue  # describes, and refuses nothing
        if field.annotation is str and (fixed := _FIXED_TEXT.fullmatch(getattr(bound, "pattern", None) or "")):
            return Annotated[str, msgspec.Meta(pattern=rf"^{fixed[1]}\Z")]
        if not isinstance(bound, Ge) or not isinstance(bound.ge, int):
            return _Unread
        least = bound.ge
    return _plain(field.annotation, least)


def _plain(kind: Any, least: int | None = None) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind in (str, bool, Any, NoneType) or kind == dict[str, Any]:
        return kind
    if kind is int:
        return kind if least is None else Annotated[int, msgspec.Meta(ge=least)]
    if isinstance(kind, type) and (issubclass(kind, StrEnum) or isinstance(kind, FromModel)):
        return kind
    if origin is Literal and all(isinstance(arg, str) for arg in args):
        return kind
    if origin is Annotated and all(isinstance(bound, WithJsonSchema) for bound in args[1:]):
        return _plain(args[0], least)
    if origin is tuple and args[1:] == (...,):
        return tuple[_plain(args[0]), ...]
    if origin in (Union, UnionType):
        return Union[tuple(_plain(arg, least) for arg in args)]  # noqa: UP007 - of a tuple of types
    return _Unread


def _is_open(kind: Any) -> bool:
    """Whether others' JSON stands in it, or a number that two writers may write differently."""
    return kind in (Any, float) or any(_is_open(arg) for arg in get_args(kind))


def _refuse(_kind: type, _said: Any) -> Any:
    raise ValueError("for the model to judge")


def _is_plain(value: bytes) -> bool:
    """Whether it is UTF-8 and has no number beyond Pydantic's: msgspec looks for neither in what it passes over.

    Raises:
        UnicodeDecodeError: it is not.
    """
    if not value.isascii():
        value.decode()
    return len(value) <= _MOST_DIGITS or _TOO_LONG not in value.translate(_DIGITS)


def _by_pydantic(value: Any) -> bytes:
    return to_json(value, exclude_none=True, by_alias=True, inf_nan_mode="null")


_encode = Encoder(enc_hook=lambda value: Raw(_by_pydantic(value))).encode


_AGAIN: Any = bytearray()
_write_again = Encoder().encode_into
"""No code of ours runs meanwhile, so no other thread does, and whatever was written says nothing twice."""
_decode_any = Decoder().decode


def is_strict(value: bytes) -> bool:
    """Whether no object in JSON that somebody could read says a name twice, and no number is NaN or infinite."""
    try:
        _write_again(_decode_any(value), _AGAIN)
        if value == _AGAIN:  # as of whoever writes signed records; a fraction may be written otherwise
            return True
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        pass
    try:
        parse(value.decode())
    except (InvalidArgs, UnicodeDecodeError):
        return False
    return True


def _is_signed_again(value: bytes) -> bool:
    """Whether it is what was written last, and a signature behind it: that says nothing twice either."""
    size = len(_AGAIN) - 1
    return value.startswith(_AGAIN[:size]) and ends_signed(value, size)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class FromModel(msgspec.StructMeta):
    """Makes, of a class statement as Pydantic takes it, that model and the struct of the same fields.

    The model is the one source: of the schema, of the defaults, of what a record may say. The struct is what
    services hold, and its decoder reads what is plainly right; what it refuses, the model judges.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> "FromModel":
        """Of this class statement; `config` is msgspec's.

        Raises:
            TypeError: it says something of the model that no decoder would know of: of its fields, the types say all.
        """
        parents = tuple(base.__dict__["model"] for base in bases if isinstance(base, FromModel))
        declared = {key: value for key, value in namespace.items() if not _is_code(key, value)}
        model: type[BaseModel] = cast("Any", type(BaseModel))(name, parents or (_Base,), declared)
        if "model_config" in namespace or any(hasattr(value, "decorator_info") for value in namespace.values()):
            raise TypeError(f"{name}: a validator or a configuration of its own")
        known = {key for parent in parents for key in parent.model_fields}
        fields = {key: field for key, field in model.model_fields.items() if key not in known}
        if any(field.alias or field.validation_alias for field in fields.values()):
            raise TypeError(f"{name}: a field of another name than its record's")
        body = {key: value for key, value in namespace.items() if key not in fields and key not in _ANNOTATIONS}
        body |= {key: default for key, field in fields.items() for default in _default(field)}
        body["__annotations__"] = {key: _decoded(field) for key, field in fields.items()} | {"model": ClassVar[Any]}
        body["model"] = model
        body["_open"] = tuple(key for key, field in model.model_fields.items() if _is_open(field.annotation))
        settings: dict[str, Any] = {
            "kw_only": True,
            "frozen": True,
            "omit_defaults": True,
            "gc": "dict" in config,
        } | config
        made: Any = super().__new__(mcs, name, bases, body, **settings)
        made._decode = Decoder(made, dec_hook=_refuse).decode
        return made


class RecordStruct(msgspec.Struct, metaclass=FromModel):
    """A struct that reads and writes the JSON of its model, byte for byte. Its constructor checks nothing."""

    if TYPE_CHECKING:  # the metaclass makes them
        model: ClassVar[type[BaseModel]]
        """What describes it, and judges what it may say."""
        _open: ClassVar[tuple[str, ...]]
        """The fields that hold what others say: any JSON."""
        _decode: ClassVar[Any]

    @classmethod
    def read(cls, value: bytes) -> Self:
        """From JSON, as the model reads it, if it says no name twice, and nothing is NaN: nobody else reads such.

        Raises:
            ValidationError: Pydantic's; the model refuses it, or it says something twice.
        """
        try:
            if (len(value) <= _MOST_DIGITS and value.isascii()) or _is_plain(value):
                found = cls._decode(value)
                _write_again(found, _AGAIN)
                if value == _AGAIN or _is_signed_again(value) or is_strict(value):
                    return found  # a writer's bytes are those that it is written to again: then nothing is parsed
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
            pass
        found = cls.model_validate_json(value)
        if not is_strict(value):
            raise ValidationError.from_exception_data(cls.__name__, [{"type": _TWICE, "input": None}])
        return found

    def written(self) -> bytes:
        """Its JSON, without what is None."""
        said = self
        for name in self._open:
            value = getattr(self, name)
            if value and type(value) is not str:
                said = said if said is not self else copy(self)
                force_setattr(said, name, Raw(_by_pydantic(value)))
        return _encode(said)

    @classmethod
    def model_validate(cls, said: Any) -> Self:
        """From fields, checked by the model.

        Raises:
            ValidationError: Pydantic's.
        """
        return said if isinstance(said, cls) else cls._of(cls.model.model_validate(said))

    @classmethod
    def model_validate_json(cls, value: bytes | str) -> Self:
        """From JSON, by the model alone; a text or a truth value is no number, as for all who judge records.

        Raises:
            ValidationError: Pydantic's.
        """
        return cls._of(cls.model.__pydantic_validator__.validate_json(value, strict=True))

    def model_copy(self, *, update: dict[str, Any] | None = None) -> Self:
        """A copy with other values in some fields."""
        return replace(self, **update) if update else replace(self)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Its fields, as Pydantic dumps the model's."""
        return self.model.model_construct(None, **asdict(self)).model_dump(**options)

    def model_dump_json(self, **options: Any) -> str:
        """Its JSON, as Pydantic dumps the model's."""
        return self.model.model_construct(None, **asdict(self)).model_dump_json(**options)

    @classmethod
    def _of(cls, model: BaseModel) -> Self:
        return cls(**model.__dict__)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Where it stands in a model: the model's own schema; what it is read to is the struct."""
        read = core_schema.no_info_after_validator_function(cls._of, handler(cls.model))
        return core_schema.json_or_python_schema(
            json_schema=read,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), read]),
            serialization=core_schema.plain_serializer_function_ser_schema(_dumped, info_arg=True),
        )


_PLAIN = frozenset({str, int, bool, NoneType})


def _dumped(value: RecordStruct, info: core_schema.SerializationInfo) -> dict[str, Any]:
    said = asdict(value)
    if all(type(one) in _PLAIN for one in said.values()):  # as Pydantic dumps them, in a tenth of its time
        return {name: one for name, one in said.items() if one is not None} if info.exclude_none else said
    return value.model_dump(mode=info.mode, exclude_none=info.exclude_none, by_alias=info.by_alias)
