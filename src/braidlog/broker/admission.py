"""What comes from outside, checked as if its sender wished us ill: nothing past this point looks at it again.

The checks of the client's own API are courtesy; these are the ones that count.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.names import check_name
from braidlog.objects.batch import SCHEMA, Batch, decode

_INT64_MAX: Final = 2**63 - 1
_CHANGES: Final = (
    c.Create,
    c.CFork,
    c.SFork,
    c.Promote,
    c.Squash,
    c.Drop,
    c.Renew,
    c.Trim,
    c.Commit,
    c.ForgetConsumer,
)
_TIMED: Final = (c.Create, c.CFork, c.SFork, c.Renew, c.Commit)


def change(command: c.Command, client: bytes, now_us: int) -> c.Command:
    """A change that a client may ask for, with our time in it."""
    if not isinstance(command, _CHANGES):
        raise InvalidArgument(f"{type(command).__name__} is nothing that a client may ask for")
    _own_request(command.request, client)
    _whole_numbers(command)
    if isinstance(command, c.Create | c.CFork | c.SFork):
        if command.name or isinstance(command, c.Create):
            check_name(command.name)
        labels = command.labels
        if len(labels) > limits.LABELS_MAX or any(
            not name or max(len(name), len(text)) > limits.LABEL_CHARS_MAX for name, text in labels.items()
        ):
            raise InvalidArgument(
                f"labels: at most {limits.LABELS_MAX}, of {limits.LABEL_CHARS_MAX} characters at most, and none unnamed"
            )
        if len(command.owner) > limits.OWNER_CHARS_MAX:
            raise InvalidArgument(f"owner: at most {limits.OWNER_CHARS_MAX} characters")
    return msgspec.structs.replace(command, now=now_us) if isinstance(command, _TIMED) else command


def batch(command: c.Append, body: memoryview, client: bytes) -> c.Append:
    """An append whose body is a batch as msgpack: the same with the bytes in it, and what is true of them."""
    found = _appended(command, client)
    try:
        records = decode(body)
    except (Corrupt, ValueError) as error:
        raise InvalidArgument(f"the batch cannot be decoded: {error}") from error
    size = _checked_size(records)
    return msgspec.structs.replace(
        found,
        count=records.count,
        size=size,
        least=records.least_timestamp,
        greatest=records.greatest_timestamp,
        payload=bytes(body),
    )


def block(command: c.Append, body: memoryview, client: bytes) -> tuple[c.Append, pa.RecordBatch]:
    """An append whose body is an Arrow record batch message: the same with what is true of it, and its columns."""
    found = _appended(command, client)
    columns = read_columns(body)
    size = _columns_size(columns)
    if columns.num_rows == 0:
        raise InvalidArgument("an append needs at least one record")
    if columns.num_rows > limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(f"a batch of {columns.num_rows:,} records: at most {limits.BATCH_RECORDS_MAX:,}")
    if size > limits.BATCH_BYTES_MAX and columns.num_rows > 1:
        raise InvalidArgument(f"a batch of {size:,} bytes: at most {limits.BATCH_BYTES_MAX:,}")
    if size > limits.RECORD_BYTES_MAX:
        longest = pc.max(pc.binary_length(columns.column("value"))).as_py()
        if longest > limits.RECORD_BYTES_MAX or columns.num_rows == 1:
            raise InvalidArgument(f"a record of {longest:,} bytes: at most {limits.RECORD_BYTES_MAX:,}")
    times = pc.min_max(columns.column("timestamp").cast(pa.int64()))
    command = msgspec.structs.replace(
        found, count=columns.num_rows, size=size, least=times["min"].as_py(), greatest=times["max"].as_py()
    )
    return command, columns


def read_columns(body: memoryview) -> pa.RecordBatch:
    """Columns that can be trusted: every offset in them lies where it may, and nothing is missing."""
    try:
        columns = pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMA)
        columns.validate(full=True)
        headers = columns.column("headers").flatten()
        missing = (
            columns.column("timestamp").null_count
            + columns.column("value").null_count
            + columns.column("headers").null_count
            + headers.null_count
            + sum(field.null_count for field in headers.flatten())
        )
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError) as error:
        raise InvalidArgument(f"the block is no Arrow record batch of records: {error}") from error
    if missing:
        raise InvalidArgument("the block has records without a timestamp, a value or whole headers")
    return columns


def _columns_size(columns: pa.RecordBatch) -> int:
    size: int = pc.sum(pc.binary_length(columns.column("value"))).as_py() or 0
    keys = columns.column("key")
    if keys.null_count < len(keys):
        size += pc.sum(pc.binary_length(keys)).as_py() or 0
    headers = columns.column("headers").flatten()
    if len(headers):
        names, values = headers.flatten()
        size += (pc.sum(pc.binary_length(names)).as_py() or 0) + (pc.sum(pc.binary_length(values)).as_py() or 0)
    return size


def _appended(command: c.Append, client: bytes) -> c.Append:
    _own_request(command.request, client)
    _whole_numbers(command)
    if len(command.writer) > limits.WRITER_CHARS_MAX or (command.writer and command.sequence < 0):
        raise InvalidArgument(f"writer: at most {limits.WRITER_CHARS_MAX} characters, with a sequence from 0 up")
    if command.payload or command.object or command.offset or command.length or command.row:
        raise InvalidArgument("where the bytes of an append are is not for the client to say")
    return command


def _own_request(request: bytes, client: bytes) -> None:
    if len(request) != limits.REQUEST_ID_BYTES or not request.startswith(client):
        raise InvalidArgument(
            f"a request's id is the client's {limits.CLIENT_ID_BYTES} bytes and a number of "
            f"{limits.REQUEST_ID_BYTES - limits.CLIENT_ID_BYTES}"
        )


def _whole_numbers(command: c.Command) -> None:
    """Nothing that would not fit into the index, or is negative without being NONE."""
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if isinstance(value, int) and not NONE <= value <= _INT64_MAX and name not in ("least", "greatest"):
            raise InvalidArgument(f"{name} must be between 0 and 2**63 - 1, not {value}")


def _checked_size(records: Batch) -> int:
    if not records.count:
        raise InvalidArgument("an append needs at least one record")
    if records.count > limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(f"a batch of {records.count:,} records: at most {limits.BATCH_RECORDS_MAX:,}")
    for moment in (records.least_timestamp, records.greatest_timestamp):
        if not -_INT64_MAX <= moment <= _INT64_MAX:
            raise InvalidArgument(f"timestamp {moment} does not fit into 64 bits")
    size = records.size
    if size > limits.RECORD_BYTES_MAX:  # then it should have come as a block, but is not wrong for that
        if size > limits.BATCH_BYTES_MAX and records.count > 1:
            raise InvalidArgument(f"a batch of {size:,} bytes: at most {limits.BATCH_BYTES_MAX:,}")
        longest = max(map(len, records.values))
        if longest > limits.RECORD_BYTES_MAX or records.count == 1:
            raise InvalidArgument(f"a record of {longest:,} bytes: at most {limits.RECORD_BYTES_MAX:,}")
    if records.headers is not None and max(map(len, records.headers)) > limits.RECORD_HEADERS_MAX:
        raise InvalidArgument(f"a record has at most {limits.RECORD_HEADERS_MAX} headers")
    return size
