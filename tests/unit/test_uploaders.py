"""Several uploaders of objects: who may register, what is swept, and appends that share a block."""

from __future__ import annotations

import pytest

from braidlog.embedded.clock import SystemClock
from braidlog.embedded.orphans import sweep, sweep_epoch
from braidlog.embedded.writer import Writer
from braidlog.errors import ConditionFailed, InvalidArgument
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw
from braidlog.metadata.home import DirectoryHome
from braidlog.objects.batch import Batch, encode, to_arrow
from braidlog.objects.format import ObjectWriter
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.store import object_name


def register(epoch: int) -> c.Register:
    return c.Register(object_name(epoch, 1), epoch, 1, 2, 0)


def admitted(writer: Writer) -> int:
    answer = writer.execute(c.Admit(0))
    assert isinstance(answer, c.Done)
    return answer.value


def test_an_admitted_uploader_registers_beside_the_writer_until_it_is_retired() -> None:
    forest = Forest()
    assert forest.apply(c.Opened(1, 0)) == c.Done(1)
    assert [forest.apply(c.Admit(7)), forest.apply(c.Admit(8))] == [c.Done(2), c.Done(3)]
    assert forest.space.admitted == {2: 7, 3: 8}
    assert forest.apply(c.Opened(4, 0)) == c.Done(4)
    forest = thaw(freeze(forest))
    refused = forest.apply(register(1))
    assert isinstance(refused, ConditionFailed)
    assert "admitted anew" in str(refused)
    assert [forest.apply(register(epoch)) for epoch in (2, 3, 4)] == [c.Done()] * 3
    assert forest.apply(c.Retire(2)) == c.Done()
    assert forest.apply(c.Retire(2)) == c.Done()
    assert isinstance(forest.apply(register(2)), ConditionFailed)
    assert forest.apply(c.Admit(9)) == c.Done(5)  # a number is never given twice


@pytest.mark.parametrize("epoch", [0, -1, 1, 2])
def test_only_uploaders_are_retired(epoch: int) -> None:
    forest = Forest()
    forest.apply(c.Opened(1, 0))
    assert isinstance(forest.apply(c.Retire(epoch)), InvalidArgument)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_writer_takes_an_epoch_of_its_own(epoch: int) -> None:
    forest = Forest()
    forest.apply(c.Opened(1, 0))
    forest.apply(c.Admit(0))
    assert isinstance(forest.apply(c.Opened(epoch, 0)), ConditionFailed)


def test_reopening_leaves_what_an_uploader_has_not_registered_yet() -> None:
    files = MemoryFiles()
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), SystemClock())
    epoch = admitted(writer)
    for name in (object_name(writer.forest.space.epoch, 77), object_name(epoch, 1), object_name(epoch, 2)):
        writer.store.put(name, [memoryview(b"bytes")])
    writer.execute(c.Register(object_name(epoch, 2), epoch, 5, 0, 0))
    writer.close()
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), SystemClock())
    assert writer.store.list() == [object_name(epoch, 1), object_name(epoch, 2)]
    with pytest.raises(InvalidArgument, match="retire it first"):
        sweep_epoch(writer.forest.space, writer.store, epoch)
    with pytest.raises(InvalidArgument, match="retire it first"):
        sweep_epoch(writer.forest.space, writer.store, writer.forest.space.epoch)
    writer.execute(c.Retire(epoch))
    assert sweep_epoch(writer.forest.space, writer.store, epoch) == [object_name(epoch, 1)]
    assert writer.store.list() == [object_name(epoch, 2)]
    writer.close()


def test_an_opener_that_was_overtaken_leaves_what_its_successors_stored() -> None:
    """It may stop between its opening and its sweep, and go on when another one has opened and stored."""
    files = MemoryFiles()
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), SystemClock())
    space = writer.forest.space
    names = [object_name(epoch, 1) for epoch in (space.epoch - 1, space.newest_epoch + 1, space.newest_epoch + 2)]
    for name in names:
        writer.store.put(name, [memoryview(b"bytes")])
    sweep(space, writer.store)
    assert writer.store.list() == names[1:]
    writer.close()


def test_appends_share_a_block_of_an_uploaders_object() -> None:
    writer = Writer(DirectoryHome(MemoryFiles(), "0" * 32, folder=None), SystemClock())
    made = writer.execute(c.Create("log", 0))
    assert isinstance(made, c.Opening)
    epoch = admitted(writer)
    values = [b"%d" % number for number in range(5)]
    built = ObjectWriter()
    built.add(to_arrow([Batch(values, None, None, 3)]))
    whole = built.finish()
    name = object_name(epoch, 1)
    writer.store.put(name, whole.parts)
    writer.execute(c.Register(name, epoch, whole.size, whole.crc, 0))
    block = whole.blocks[0]
    for row, count in ((3, 2), (0, 3)):
        writer.execute(
            c.Append(made.log, count, count, 3, 3, b"", name, block.offset, block.length, block.crc, row=row)
        )
    assert [record.value for record in writer.read(made.log, 0, None, None, None)] == values[3:] + values[:3]
    writer.close()


def test_the_bytes_of_an_append_that_was_sent_again_are_kept() -> None:
    files = MemoryFiles()
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), SystemClock())
    made = writer.execute(c.Create("log", 0))
    assert isinstance(made, c.Opening)
    payload = encode(Batch([b"once"], None, None, 3))
    again = c.Again(c.Append(made.log, 1, 4, 3, 3, payload, request=b"client-1" + bytes(8)), 2)
    first = writer.execute(again)
    assert isinstance(first, c.Appended)
    assert writer.inline_bytes == len(payload)
    repeated = writer.execute(again)
    assert isinstance(repeated, c.Appended)
    assert (repeated.first, repeated.block) == (first.first, c.NONE)
    assert writer.inline_bytes == len(payload)
    writer.close()
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), SystemClock())
    assert [record.value for record in writer.read(made.log, 0, None, None, None)] == [b"once"]
    writer.close()
