"""What comes from outside, checked as if its sender wished us ill: nothing past this point looks at it again.

The checks of the client's own API are courtesy; these are the ones that count.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from braidlog import limits
from braidlog.broker.policy import Scope
from braidlog.errors import Corrupt, InvalidArgument
from braidlog.facts import UploadedBlock
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.names import check_name
from braidlog.objects.batch import SCHEMA, Batch, decode
from braidlog.objects.format import Columns
from braidlog.objects.messages import as_message, field
from braidlog.objects.store import checked_name
from braidlog.wire.frames import Body

_INT64_MAX: Final = 2**63 - 1
_UINT32_MAX: Final = 2**32 - 1
_UPLOAD_US_MAX: Final = round(limits.UPLOAD_TTL_MAX_S * 1e6)
_SPAN_US_MAX: Final = 10**17  # of a time to live: the same as the client's API allows, and no calendar ends there
_SPANS: Final = ("ttl_us", "lease_us", "retain_age_us")
_TIMESTAMP, _KEY, _VALUE, _HEADERS = range(len(SCHEMA))
_FEW_RECORDS: Final = 1024  # are looked at here: Arrow would take longer to begin
_RECORD_BATCH: Final = 3  # the kind of a message, in Arrow's Message.fbs
_CHANGES: Final = (
    c.Create,
    c.CFork,
    c.SFork,
    c.Upload,
    c.Publish,
    c.Discard,
    c.Promote,
    c.Squash,
    c.Drop,
    c.Renew,
    c.Trim,
    c.Commit,
    c.ForgetConsumer,
    c.CreateToken,
    c.RevokeToken,
)
TIMED: Final = (c.Create, c.CFork, c.SFork, c.Upload, c.Publish, c.Renew, c.Commit, c.CreateToken)


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
        for name in _SPANS:
            if getattr(command, name, 0) > _SPAN_US_MAX:
                raise InvalidArgument(f"{name}: at most {_SPAN_US_MAX} microseconds")
    if isinstance(command, c.Upload):
        if not 0 < command.ttl_us <= _UPLOAD_US_MAX:
            raise InvalidArgument(f"an upload lasts for more than 0 and at most {limits.UPLOAD_TTL_MAX_S:g} s")
    elif isinstance(command, c.Publish):
        check_publication(command)
    elif isinstance(command, c.CreateToken):
        if len(command.scopes) > limits.TOKEN_SCOPES_MAX:
            raise InvalidArgument(f"a token has 1 to {limits.TOKEN_SCOPES_MAX} scopes")
        for scope in command.scopes:
            Scope.parse(scope)
    return timed(command, now_us) if isinstance(command, TIMED) else command


def timed(command: c.Command, now_us: int) -> c.Command:
    """The same as of now, by our clock. What it says of a time to come is meant from its sender's now on."""
    if isinstance(command, c.CreateToken) and command.expires != NONE:
        expires = min(now_us + max(0, command.expires - command.now), _INT64_MAX)
        return msgspec.structs.replace(command, now=now_us, expires=expires)
    return msgspec.structs.replace(command, now=now_us)


def batch(command: c.Append, body: memoryview, client: bytes) -> c.Append:
    """An append whose body is a batch as msgpack: the same with the bytes in it, and what is true of them."""
    found = _appended(command, client)
    if len(body) > limits.WIRE_BATCH_BYTES_MAX:
        raise InvalidArgument(
            f"a batch of {len(body):,} bytes as msgpack: at most {limits.WIRE_BATCH_BYTES_MAX:,}, send it as a block"
        )
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
    if columns.num_rows == 0:
        raise InvalidArgument("an append needs at least one record")
    if columns.num_rows > limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(f"a batch of {columns.num_rows:,} records: at most {limits.BATCH_RECORDS_MAX:,}")
    size = _columns_size(columns)
    if size > limits.BATCH_BYTES_MAX and columns.num_rows > 1:
        raise InvalidArgument(f"a batch of {size:,} bytes: at most {limits.BATCH_BYTES_MAX:,}")
    _check_headers(columns)
    if size > limits.RECORD_BYTES_MAX:
        _check_record_size(pc.max(_record_sizes(columns)).as_py())
    least, greatest = _span(columns.column(_TIMESTAMP))
    _check_moments(least, greatest)
    command = msgspec.structs.replace(found, count=columns.num_rows, size=size, least=least, greatest=greatest)
    return command, columns


def storable(command: c.Append, body: Body, client: bytes) -> tuple[c.Append, Columns]:
    """The same as `block`, but it comes as it is to be stored: just as it came, if that may be."""
    checked, columns = block(command, body.data, client)
    return checked, as_stored(columns, body)


def as_stored(columns: pa.RecordBatch, body: Body) -> Columns:
    """The bytes that a block came as, unless they are not what we would have made of it: then its columns."""
    if len(body.data) != pa.ipc.get_record_batch_size(columns):
        return columns  # it may hold what no record refers to
    return as_message(*body) or columns


def read_columns(body: memoryview) -> pa.RecordBatch:
    """Columns that can be trusted: every offset in them lies where it may, and nothing is missing."""
    try:
        if compressed(body):
            raise ValueError("its buffers are compressed")  # there is no telling how large they would become
        columns = pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMA)
        columns.validate(full=True)
        timestamps, _, values, headers = columns.columns
        missing = timestamps.null_count + values.null_count + headers.null_count
        if _any_headers(headers):
            pairs = headers.flatten()
            missing += pairs.null_count + sum(each.null_count for each in pairs.flatten())
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError) as error:
        raise InvalidArgument(f"the block is no Arrow record batch of records: {error}") from error
    if missing:
        raise InvalidArgument("the block has records without a timestamp, a value or whole headers")
    return columns


def _any_headers(column: pa.Array) -> bool:
    """Most blocks have none at all, and asking that is cheap. Each look at what they would be gives the interpreter to
    another thread for a while: for a server on one core those changes were half of what it took to check a block."""
    return len(column.values) > 0


def _span(timestamps: pa.Array) -> tuple[int, int]:
    """The least and the greatest."""
    if len(timestamps) <= _FEW_RECORDS:
        data = bytes(memoryview(timestamps.buffers()[1]).cast("B")[: 8 * len(timestamps)])
        moments = memoryview(data).cast("q")
        if data[8:] == data[:-8]:  # one moment for all, as a client stamps them
            return moments[0], moments[0]
        return min(moments), max(moments)
    found = pc.min_max(timestamps)
    return found["min"].value, found["max"].value


def _columns_size(columns: pa.RecordBatch) -> int:
    size: int = columns.column(_VALUE).total_values_length  # none of them is null
    keys = columns.column(_KEY)
    if keys.null_count < len(keys):
        size += pc.sum(pc.binary_length(keys)).as_py() or 0
    if _any_headers(columns.column(_HEADERS)):
        names, values = columns.column(_HEADERS).flatten().flatten()
        size += (pc.sum(pc.binary_length(names)).as_py() or 0) + (pc.sum(pc.binary_length(values)).as_py() or 0)
    return size


def check_publication(command: c.Publish) -> None:
    """What it says of its objects is possible. Whether they are there is found out by looking."""
    _check_writer(command)
    blocks = sum(len(uploaded.blocks) for uploaded in command.objects)
    if (
        len(command.objects) > limits.PUBLISH_OBJECTS_MAX
        or blocks > limits.PUBLISH_BLOCKS_MAX
        or not 0 < len(command.epochs) <= limits.PUBLISH_UPLOADS_MAX
    ):
        raise InvalidArgument(
            f"a publication has at most {limits.PUBLISH_OBJECTS_MAX:,} objects with {limits.PUBLISH_BLOCKS_MAX:,} "
            f"blocks, of 1 to {limits.PUBLISH_UPLOADS_MAX:,} uploads: publish several times, or write larger blocks"
        )
    if any(not 0 < epoch <= _UINT32_MAX for epoch in command.epochs):
        raise InvalidArgument("the epoch of an upload is what beginning it answered")
    count = size = 0
    for uploaded in command.objects:
        checked_name(uploaded.object)
        if not (0 < uploaded.size <= _INT64_MAX and 0 <= uploaded.crc <= _UINT32_MAX):
            raise InvalidArgument(f"object {uploaded.object}: no object has such a size or checksum")
        for block in uploaded.blocks:
            _check_block(uploaded.object, block)
            count += block.count
            size += block.size
    if max(count, size) > _INT64_MAX:
        raise InvalidArgument("a publication has fewer than 2**63 records and bytes")


def _check_block(name: str, block: UploadedBlock) -> None:
    if not (
        0 <= block.offset <= _INT64_MAX
        and 0 < block.length <= limits.UPLOADED_BLOCK_BYTES_MAX
        and 0 <= block.crc <= _UINT32_MAX
        and 0 < block.count <= limits.BATCH_RECORDS_MAX
        and 0 <= block.size <= block.length
    ):
        raise InvalidArgument(f"object {name}: no block stands at {block.offset} as it is said to")
    _check_moments(block.least, block.greatest)
    if block.least > block.greatest:
        raise InvalidArgument(f"object {name}: the least timestamp of the block at {block.offset} is not the least")


def _check_writer(command: c.Append | c.Publish) -> None:
    if len(command.writer) > limits.WRITER_CHARS_MAX or (command.writer and command.sequence < 0):
        raise InvalidArgument(f"writer: at most {limits.WRITER_CHARS_MAX} characters, with a sequence from 0 up")


def _appended(command: c.Append, client: bytes) -> c.Append:
    _own_request(command.request, client)
    _whole_numbers(command)
    _check_writer(command)
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
    _check_moments(records.least_timestamp, records.greatest_timestamp)
    size = records.size
    if size > limits.RECORD_BYTES_MAX:  # then it should have come as a block, but is not wrong for that
        if size > limits.BATCH_BYTES_MAX and records.count > 1:
            raise InvalidArgument(f"a batch of {size:,} bytes: at most {limits.BATCH_BYTES_MAX:,}")
        keys, headers = records.keys or [None] * records.count, records.headers or [[]] * records.count
        for value, key, pairs in zip(records.values, keys, headers, strict=True):
            _check_record_size(len(value) + len(key or b"") + sum(len(n.encode()) + len(d) for n, d in pairs))
    if records.headers is not None:
        most = max(map(len, records.headers))
        longest = max((len(name) for pairs in records.headers for name, _ in pairs), default=0)
        _check_header_bounds(most, longest)
    return size


def _check_record_size(size: int) -> None:
    if size > limits.RECORD_BYTES_MAX:
        raise InvalidArgument(f"a record of {size:,} bytes: at most {limits.RECORD_BYTES_MAX:,}")


def _check_moments(*moments: int) -> None:
    for moment in moments:
        if not -_INT64_MAX <= moment <= _INT64_MAX:
            raise InvalidArgument(f"timestamp {moment} does not fit into 64 bits")


def _check_header_bounds(most: int, longest: int) -> None:
    if most > limits.RECORD_HEADERS_MAX:
        raise InvalidArgument(f"a record has at most {limits.RECORD_HEADERS_MAX} headers, not {most:,}")
    if longest > limits.HEADER_NAME_CHARS_MAX:
        raise InvalidArgument(f"a header's name has at most {limits.HEADER_NAME_CHARS_MAX} characters, not {longest:,}")


def _check_headers(columns: pa.RecordBatch) -> None:
    headers = columns.column(_HEADERS)
    if not _any_headers(headers):
        return
    elements = headers.flatten()
    if len(elements):
        longest = pc.max(pc.utf8_length(elements.flatten()[0])).as_py()
        _check_header_bounds(pc.max(pc.list_value_length(headers)).as_py(), longest)


def _record_sizes(columns: pa.RecordBatch) -> pa.Array:
    """The bytes of each record."""
    sizes = pc.binary_length(columns.column(_VALUE)).cast(pa.int64())
    sizes = pc.add(sizes, pc.fill_null(pc.binary_length(columns.column(_KEY)), 0))
    headers = columns.column(_HEADERS)
    elements = headers.flatten()
    if len(elements):
        names, values = elements.flatten()
        weights = pc.add(pc.binary_length(names).cast(pa.int64()), pc.binary_length(values))
        upto = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(weights)])
        ends = pc.subtract(headers.offsets, headers.offsets[0])
        sizes = pc.add(sizes, pc.subtract(upto.take(ends[1:]), upto.take(ends[:-1])))
    return sizes


def compressed(body: memoryview) -> bool:
    """Whether an Arrow record batch message says that its buffers are. ValueError if it is no such message.

    No reader of Arrow's says so before it has them decompressed; so this looks into the message's flatbuffer itself.
    """
    try:
        marker, length = struct.unpack_from("<ii", body, 0)
        start = 8
        if marker != -1:  # of the time before there was a marker
            start, length = 4, marker
        metadata = body[start : start + length] if length > 0 else body[:0]
        message = struct.unpack_from("<I", metadata, 0)[0]
        kind = field(metadata, message, 1)
        batch = field(metadata, message, 2)
        if not kind or metadata[kind] != _RECORD_BATCH or not batch:
            raise ValueError("it is no record batch")
        batch += struct.unpack_from("<I", metadata, batch)[0]
        return bool(field(metadata, batch, 3))
    except (struct.error, IndexError) as error:
        raise ValueError(f"it is no message: {error}") from error
